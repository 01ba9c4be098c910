"""Three ways to show one reading after the other: in place on a terminal, as lines, or as documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import click
from rich.console import Group
from rich.live import Live
from rich.text import Text

from zae_limiter import EntityStatus
from zae_limiter.cli.output.console import picture_width, shown
from zae_limiter.cli.output.documents import on_one_line
from zae_limiter.cli.session import Session
from zae_limiter.cli.views.buckets import Before, status_document, status_lines, status_picture, taken
from zae_limiter.models.moments import at

Show: TypeAlias = Callable[[Sequence[EntityStatus], int], None]
"""Shows a reading: the buckets of some entities, and when they were read (ms)."""


@contextmanager
def watch_screen(session: Session, interval: float) -> Iterator[Show]:
    """How this session shows readings."""
    if session.as_json:
        yield as_document
    elif session.output.console.is_terminal:
        with live(session, interval) as show:
            yield show
    else:
        yield as_lines


def as_document(statuses: Sequence[EntityStatus], now: int) -> None:
    """A document on a line of its own."""
    document = {"time": at(now).isoformat(), "entities": [status_document(status) for status in statuses]}
    click.echo(on_one_line(document))


def as_lines(statuses: Sequence[EntityStatus], now: int) -> None:
    """A line for each bucket."""
    for status in statuses:
        for line in status_lines(status, f"{at(now):%Y-%m-%dT%H:%M:%SZ}"):
            click.echo(shown(line))


@contextmanager
def live(session: Session, interval: float) -> Iterator[Show]:
    """A picture in place of the one before, with how fast tokens are taken. The last one stays."""
    console = session.output.console
    last: list[tuple[int, Sequence[EntityStatus]]] = []
    with Live(console=console, auto_refresh=False) as screen:

        def show(statuses: Sequence[EntityStatus], now: int) -> None:
            then, before = last[0] if last else (now, statuses)
            last[:] = [(now, statuses)]
            picture = status_picture(statuses, picture_width(console), Before(taken(before), (now - then) / 1000))
            title = Text(f"{at(now):%Y-%m-%d %H:%M:%S} UTC, every {interval:g} s; Ctrl-C ends", style="dim")
            screen.update(Group(title, Text(), picture), refresh=True)

        yield show
