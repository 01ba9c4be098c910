"""``zae-limiter version``: the same line as ``--version``, and the version of a deployment."""

from __future__ import annotations

import click

from zae_limiter.cli.cloud_session import CloudSession, check_name, on_cloud
from zae_limiter.version import __version__


@click.command(
    "version",
    epilog="""\b
Examples:
  zae-limiter version
  zae-limiter version --name my-app
""",
)
@click.option("--name", callback=check_name, metavar="STACK", help="Also the version of this deployment.")
@on_cloud
def command(session: CloudSession, name: str | None) -> None:
    """Print the version, and that of a deployment."""
    if name is None:
        click.echo(f'{{"version": "{__version__}"}}' if session.as_json else f"zae-limiter {__version__}")
        return
    from zae_limiter.cli.views.deployments import standing_document

    standing = session.stacks.standing(name)
    there = standing.deployment.version or "an unknown version"
    words = f"zae-limiter {__version__}\n{name} {there}, layout {standing.layout}, code {standing.code.value}"
    session.say({"version": __version__, "deployment": standing_document(standing)}, words)
