"""The ``zae-limiter`` command and the names of its subcommands.

A subcommand is a module in ``cli/commands`` that has a ``command``. It is imported when it is run, or when
help lists it; what is heavy it imports itself, inside the function that needs it. To add one, write the module
and name it here.
"""

from __future__ import annotations

from importlib import import_module

import click

from zae_limiter.version import __version__

COMMANDS = (
    "acquire",
    "available",
    "status",
    "watch",
    "explain",
    "reset",
    "entity",
    "resource",
    "system",
    "limits",
    "namespace",
    "usage",
    "aggregate",
    "audit",
    "demo",
    "completion",
    "version",
)
"""In the order help lists them."""


class InOrder(click.Group):
    """A group whose help lists its commands in the order they were written in."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command there is."""
        return list(self.commands)


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
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  zae-limiter demo        # nothing to install or start
  zae-limiter system set-defaults -l rpm:100 -l tpm:10_000
  zae-limiter acquire key-1 gpt-4 rpm=1 tpm=500
  zae-limiter status key-1
""",
)
@click.version_option(__version__, message="zae-limiter %(version)s")
def cli() -> None:
    """An exact rate limiter for LLM and API platforms.

    The store is named by --url or ZAEL_URL; without either it is a SQLite file in your data folder, the same that
    the library uses. Options stand after the command.
    """
