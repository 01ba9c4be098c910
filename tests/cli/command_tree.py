"""All commands of the command line by their names, and which of them work on what."""

from __future__ import annotations

from collections.abc import Iterator

import click

from zae_limiter.cli.group import cli

Names = tuple[str, ...]

WITHOUT_A_STORE = {("cfn-template",), ("completion",), ("cost",), ("demo",), ("lambda-export",), ("limits", "schema")}
WITHOUT_A_STORE |= {("local", name) for name in ("up", "status", "logs", "down")}
WITHOUT_A_STORE |= {("token", name) for name in ("create", "list", "revoke")}
"""Commands that ask no store, or bring their own."""

ON_A_CLOUD = {("check",), ("delete",), ("deploy",), ("list",), ("upgrade",), ("version",)}
"""Commands on deployments."""


def walk(command: click.Command, names: Names = ()) -> Iterator[tuple[Names, click.Command]]:
    """A command and those below it, each with the words that name it."""
    yield names, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from walk(below, (*names, name))


TREE = dict(walk(cli))
COMMANDS = {names: command for names, command in TREE.items() if not isinstance(command, click.Group)}
