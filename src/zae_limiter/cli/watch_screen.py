"""Three ways to show one reading after the other: in place on a terminal, as lines, or as documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import NamedTuple, TypeAlias

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from zae_limiter import BucketStatus, EntityStatus
from zae_limiter.cli.output.console import picture_width, shown
from zae_limiter.cli.output.documents import on_one_line
from zae_limiter.cli.session import Session
from zae_limiter.cli.tightest_reader import TightestReader
from zae_limiter.cli.views.buckets import Before, status_document, status_lines, status_picture, taken
from zae_limiter.cli.views.tightest import tightest_picture
from zae_limiter.models.moments import at

Picture: TypeAlias = Callable[[int, Before], RenderableType]
"""Draws a reading: how wide, and what was taken when the one before was read."""


class Reading(NamedTuple):
    """The buckets of some entities at a moment, and how a terminal shows them."""

    statuses: Sequence[EntityStatus]
    picture: Picture


Read: TypeAlias = Callable[[int], Reading]
"""Reads once more, at a moment (ms)."""

Show: TypeAlias = Callable[[Reading, int], None]
"""Shows a reading, and when it was read (ms)."""


def named(session: Session, entity_ids: Sequence[str], resource: str | None) -> Read:
    """All buckets of some entities."""

    def read(now: int) -> Reading:
        statuses = [session.limiter.get_status(entity_id, resource) for entity_id in entity_ids]
        return Reading(statuses, lambda width, before: status_picture(statuses, width, before))

    return read


def tightest(reader: TightestReader) -> Read:
    """The buckets with the least left."""

    def read(now: int) -> Reading:
        buckets = reader.read(now)
        return Reading(
            _by_entity(buckets), lambda width, before: tightest_picture(buckets, reader.entities, width, before)
        )

    return read


def _by_entity(buckets: Sequence[BucketStatus]) -> list[EntityStatus]:
    """The same, those of one entity together where they follow each other."""
    return [
        EntityStatus(entity_id, tuple(some)) for entity_id, some in groupby(buckets, lambda bucket: bucket.entity_id)
    ]


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


def as_document(reading: Reading, now: int) -> None:
    """A document on a line of its own."""
    document = {"time": at(now).isoformat(), "entities": [status_document(status) for status in reading.statuses]}
    click.echo(on_one_line(document))


def as_lines(reading: Reading, now: int) -> None:
    """A line for each bucket."""
    for status in reading.statuses:
        for line in status_lines(status, f"{at(now):%Y-%m-%dT%H:%M:%SZ}"):
            click.echo(shown(line))


@contextmanager
def live(session: Session, interval: float) -> Iterator[Show]:
    """A picture in place of the one before, with how fast tokens are taken. The last one stays."""
    console = session.output.console
    last: list[tuple[int, Sequence[EntityStatus]]] = []
    with Live(console=console, auto_refresh=False) as screen:

        def show(reading: Reading, now: int) -> None:
            then, before = last[0] if last else (now, reading.statuses)
            last[:] = [(now, reading.statuses)]
            picture = reading.picture(picture_width(console), Before(taken(before), (now - then) / 1000))
            title = Text(f"{at(now):%Y-%m-%d %H:%M:%S} UTC, every {interval:g} s; Ctrl-C ends", style="dim")
            screen.update(Group(title, Text(), picture), refresh=True)

        yield show
