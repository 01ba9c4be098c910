"""``zae-limiter check``: whether a deployment and this version fit together."""

from __future__ import annotations

import click

from zae_limiter.cli.cloud_session import CloudSession, name_option, on_cloud
from zae_limiter.cli.error_messages import EXIT_ERROR
from zae_limiter.cli.session import leave


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
    from zae_limiter.cli.views.deployments import standing_document, standing_picture

    standing = session.stacks.standing(name)
    session.answer(standing_document(standing), lambda: standing_picture(session.paper, standing))
    if standing.advice:
        leave(EXIT_ERROR)
