"""The ``zae-limiter`` command and the names of its subcommands.

A subcommand is a module in ``cli/commands`` that has a ``command``. It is imported when it is run, or when
help lists it; what is heavy it imports itself, inside the function that needs it. To add one, write the module
and name it here.
"""

from __future__ import annotations

from importlib import import_module

import click

from zae_limiter.version import __version__

COMMANDS = ("demo", "version")
"""In the order help lists them."""


class LazyGroup(click.Group):
    """A group whose commands are modules, imported by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command there is."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name."""
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"zae_limiter.cli.commands.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Example:
  zae-limiter demo        # nothing to install or start
""",
)
@click.version_option(__version__, message="zae-limiter %(version)s")
def cli() -> None:
    """An exact rate limiter for LLM and API platforms."""
