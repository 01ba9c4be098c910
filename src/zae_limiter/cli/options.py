"""The options that commands share. Every command on a store has ``--url``, ``--namespace`` and ``--json``.

They stand after the command, never before it, so that there is one place to look for them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from zae_limiter import ValidationError
from zae_limiter.cli.session import Session
from zae_limiter.naming import DEFAULT_NAMESPACE, check_principal

if TYPE_CHECKING:
    from datetime import datetime

    from zae_limiter import Limit

Command = TypeVar("Command", bound=Callable[..., Any])


def json_option(command: Command) -> Command:
    """``--json``: for programs."""
    words = "Answer with one JSON document, for programs."
    return click.option("--json", "as_json", is_flag=True, help=words)(command)


def without_store(command: Callable[..., None]) -> Callable[..., None]:
    """``--json``, and a :class:`Session` to answer with; nothing else, because there is no store to name."""

    @json_option
    @click.pass_context
    @wraps(command)
    def with_session(context: click.Context, /, *args: Any, as_json: bool, **kwargs: Any) -> None:
        session = Session(None, DEFAULT_NAMESPACE, as_json=as_json, dependencies=context.find_root().obj)
        command(session, *args, **kwargs)

    return with_session


def on_store(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of every command, and a :class:`Session` as its first argument.

    For commands that begin something: a SQLite file that is not there yet is made.
    """
    return _with_session(command)


def on_existing_store(command: Callable[..., None]) -> Callable[..., None]:
    """The same for a command that reads, or changes what exists: a file that is not there is a misspelt one.

    ``--create`` makes it all the same.
    """
    words = "Make the SQLite file if it is not there; without, that is an error."
    return click.option("--create", is_flag=True, help=words)(_with_session(command))


def _with_session(command: Callable[..., None]) -> Callable[..., None]:
    @json_option
    @click.option(
        "--namespace",
        envvar="ZAEL_NAMESPACE",
        show_envvar=True,
        default=DEFAULT_NAMESPACE,
        show_default=True,
        metavar="NAME",
        help="The namespace to work in.",
    )
    @click.option(
        "--url",
        envvar="ZAEL_URL",
        show_envvar=True,
        show_default="a SQLite file in your data folder",
        metavar="URL",
        help="The store: sqlite:///FILE, dynamodb://TABLE, …",
    )
    @click.pass_context
    @wraps(command)
    def with_session(
        context: click.Context,
        /,
        *args: Any,
        url: str | None,
        namespace: str,
        as_json: bool,
        create: bool = True,
        **kwargs: Any,
    ) -> None:
        dependencies = context.find_root().obj
        session = Session(url, namespace, as_json=as_json, create=create, dependencies=dependencies)
        context.call_on_close(session.close)
        command(session, *args, **kwargs)

    return with_session


@contextmanager
def as_usage_error() -> Iterator[None]:
    """A ``ValidationError`` about an argument is wrong usage (exit code 2), not an error of the store."""
    try:
        yield
    except ValidationError as error:
        raise click.UsageError(str(error)) from None


def parse_limits(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> tuple[Limit, ...]:
    """Limits from their short forms."""
    from zae_limiter.manifests.limit_syntax import parse_limit

    try:
        return tuple(map(parse_limit, texts))
    except ValidationError as error:
        raise click.BadParameter(f"{error.value!r}: {error.reason}", context, option) from None


def limits_option(command: Command) -> Command:
    """``-l``: the limits to set."""
    return click.option(
        "-l",
        "--limit",
        "limits",
        callback=parse_limits,
        multiple=True,
        required=True,
        metavar="NAME:RATE[/PERIOD][:BURST]",
        help="A limit like rpm:100, tpm:10k/min:15k or tpd:1M/day; repeatable.",
    )(command)


def merge_option(command: Command) -> Command:
    """``--merge``: keep what the wider level has besides."""
    return click.option(
        "--merge", is_flag=True, help="Keep the limits of the wider level that these do not name, as they are now."
    )(command)


def propagate_option(command: Command) -> Command:
    """``--no-propagate``: leave live buckets alone."""
    return click.option(
        "--propagate/--no-propagate",
        default=True,
        show_default=True,
        help="Update live buckets at once, or when their clients next read the limits.",
    )(command)


def principal_option(command: Command) -> Command:
    """``--principal``: who makes the change."""
    return click.option(
        "--principal",
        envvar="ZAEL_PRINCIPAL",
        show_envvar=True,
        default=login_name,
        show_default="your login name",
        metavar="NAME",
        help="Who makes this change, for the audit trail.",
    )(command)


def yes_option(command: Command) -> Command:
    """``--yes``: no confirmation."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")(command)


def list_limit_option(command: Command) -> Command:
    """``--limit``: the largest number of items to list."""
    return click.option(
        "--limit",
        "most",
        type=click.IntRange(min=1),
        show_default="all of them",
        metavar="N",
        help="List at most N.",
    )(command)


def period_options(command: Command) -> Command:
    """``--since`` and ``--until``: a period."""
    form = "2026-01-31, 2026-01-31T12:00 (UTC), or how long ago: 90m, 24h, 7d."
    command = click.option("--until", metavar="TIME", help=f"Before: {form}")(command)
    return click.option("--since", metavar="TIME", help=f"From: {form}")(command)


def parse_period(session: Session, since: str | None, until: str | None) -> tuple[datetime | None, datetime | None]:
    """The period that ``--since`` and ``--until`` ask for."""
    from zae_limiter.cli.argument_parsers import parse_moment

    now = session.now_ms()
    with as_usage_error():
        return (
            None if since is None else parse_moment(since, now, "since"),
            None if until is None else parse_moment(until, now, "until"),
        )


def login_name() -> str | None:
    """The login name of the operator, if it is a valid principal."""
    from getpass import getuser

    try:
        return check_principal(getuser())
    except (OSError, KeyError, ImportError, ValidationError):
        return None


def confirm(question: str, yes: bool) -> None:
    """Continue if ``--yes`` was given or the answer is yes. Without a terminal to ask on it is wrong usage."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("this command asks for confirmation, and there is no terminal to ask on; add --yes")
    click.confirm(question, abort=True, err=True)


def confirm_by_name(question: str, name: str, typed: str | None) -> None:
    """Continue if the operator types the name of what is about to go. ``--yes`` is no answer to this."""
    if typed is None:
        if not sys.stdin.isatty():
            words = f"this command asks for a name, and there is no terminal to ask on; add --confirm {name}"
            raise click.UsageError(words)
        typed = click.prompt(f"{question} Type {name} to confirm", err=True)
    if typed != name:
        raise click.UsageError(f"that is not {name}; nothing was done")
