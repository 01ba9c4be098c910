"""``zae-limiter version``: the same line as ``--version``."""

from __future__ import annotations

import click

from zae_limiter.version import __version__


@click.command(
    "version",
    epilog="""\b
Example:
  zae-limiter version
""",
)
def command() -> None:
    """Print the version."""
    click.echo(f"zae-limiter {__version__}")
