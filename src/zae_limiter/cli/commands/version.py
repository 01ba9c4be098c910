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
    from zae_limiter.cli.views.deployments import compatibility_document

    compatibility = session.stacks.compatibility(name)
    there = compatibility.deployment.version or "an unknown version"
    words = (
        f"zae-limiter {__version__}\n{name} {there}, layout {compatibility.layout}, code {compatibility.code.value}"
    )
    session.say({"version": __version__, "deployment": compatibility_document(compatibility)}, words)
