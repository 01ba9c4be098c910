"""The ``zae-limiter`` command and the names of its subcommands.

A subcommand is a module in ``cli/commands`` that has a ``command``. It is imported when it is run, or when
help lists it; what is heavy it imports itself, inside the function that needs it. To add one, write the module
and name it here.
"""

from __future__ import annotations

from importlib import import_module

import click

from zae_limiter.version import __version__

SECTIONS = {
    "Getting started": ("demo", "completion", "version"),
    "Acquiring and inspecting": ("acquire", "lease", "available", "status", "top", "watch", "explain"),
    "Changing balances": ("grant", "lower", "reset"),
    "Limits and entities": ("entity", "resource", "system", "limits", "block", "unblock", "namespace"),
    "Reports": ("usage", "aggregate", "audit"),
    "The service": ("serve", "dashboard", "token"),
    "Deployments on DynamoDB": (
        "deploy",
        "list",
        "check",
        "upgrade",
        "migrate",
        "delete",
        "cost",
        "local",
        "cfn-template",
        "lambda-export",
    ),
}
"""The commands, in the order help lists them."""

COMMANDS = tuple(name for names in SECTIONS.values() for name in names)

COMMAND_OPTIONS = ("--url", "--namespace", "--json", "--principal", "--yes")
"""Options of single commands that people type before the command."""


class OrderedGroup(click.Group):
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
        command = import_module(f"zae_limiter.cli.commands.{cmd_name.replace('-', '_')}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first word names; for a misspelled one an error with the nearest name."""
        typed = args[0]
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            from difflib import get_close_matches

            near = get_close_matches(typed, COMMANDS, n=1)
            if not near:
                raise
            raise click.UsageError(f"No such command {typed!r}. Did you mean {near[0]!r}?", ctx) from None

    def invoke(self, ctx: click.Context) -> object:
        """Run the command. A reader that has had enough of its output ends it, and is no failure, as click has it."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            return 0

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name
            if name not in COMMAND_OPTIONS:
                raise
            raise click.UsageError(f"{name} comes after the command: zae-limiter COMMAND … {name}", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, by what they are for."""
        room = formatter.width - 6 - max(map(len, COMMANDS))
        for title, names in SECTIONS.items():
            with formatter.section(title):
                commands = ((name, self.get_command(ctx, name)) for name in names)
                formatter.write_dl([(name, command.get_short_help_str(room)) for name, command in commands if command])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  zae-limiter demo        # nothing to install or start
  zae-limiter system set-defaults -l rpm:100 -l tpm:10_000
  zae-limiter acquire key-1 gpt-4 rpm=1 tpm=500
  zae-limiter status key-1

\b
Exit codes:
  0    fine
  1    an error, on one line of stderr
  2    wrong usage
  65   more than a limit can ever hold: trying again cannot help
  69   the store is unavailable: trying again may help
  75   denied by a limit: try again later
  77   blocked by an access switch: trying again cannot help
  78   the store cannot be used as it is set up: the line on stderr says what to change
  130  interrupted by Ctrl-C
""",
)
@click.version_option(__version__, message="zae-limiter %(version)s")
def cli() -> None:
    """An exact rate limiter for LLM and API platforms.

    The store is named by --url or ZAEL_URL; without either it is a SQLite file in your data folder, the same that the
    library uses. Options come after the command.
    """
