"""``zae-limiter check``: whether a deployment and this version fit together."""

from __future__ import annotations

import click

from zae_limiter.cli.cloud_session import CloudSession, name_option, on_cloud
from zae_limiter.cli.error_messages import EXIT_ERROR
from zae_limiter.cli.session import exit_with


@click.command(
    "check",
    epilog="""\b
Examples:
  zae-limiter check --name my-app
  zae-limiter check --name my-app && ./start-workers
""",
)
@name_option
@on_cloud
def command(session: CloudSession, name: str) -> None:
    """Compare a deployment with this version, and say what to do.

    Exits with 1 if something is to be done.
    """
    from zae_limiter.cli.views.deployments import compatibility_document, compatibility_picture

    compatibility = session.stacks.compatibility(name)
    session.answer(compatibility_document(compatibility), lambda: compatibility_picture(session.output, compatibility))
    if compatibility.advice:
        exit_with(EXIT_ERROR)
