"""``zae-limiter list``: the deployments of a region."""

from __future__ import annotations

import click

from zae_limiter.cli.cloud_session import CloudSession, on_cloud


@click.command(
    "list",
    epilog="""\b
Examples:
  zae-limiter list --region eu-central-1
  zae-limiter list --json | jq -r '.deployments[].name'
""",
)
@on_cloud
def command(session: CloudSession) -> None:
    """List the deployments of a region, found by their tag."""
    from zae_limiter.cli.views.deployments import deployment_document, deployments_picture

    found = session.stacks.list()
    session.answer(
        {"deployments": [deployment_document(each) for each in found]},
        lambda: deployments_picture(session.output, found),
    )
