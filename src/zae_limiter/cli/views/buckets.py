"""Live buckets: levels as bars, debt in red, the time to full."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from zae_limiter import BucketStatus, EntityStatus, LimitLevel, LimitStatus
from zae_limiter.cli.output.bars import level_bar, level_number
from zae_limiter.cli.views.access import access_document, access_words
from zae_limiter.cli.views.formats import NOTHING, duration

NO_BUCKETS = "no live buckets: one lives from its first acquire until it is full again"

BAR_COLUMNS = range(8, 41)
GAP = 2
HEADINGS = ("resource", "limit", "left", "burst", "full in")


class LevelOf(NamedTuple):
    """Which level: entity, resource and limit."""

    entity_id: str
    resource: str
    limit_name: str


class Before(NamedTuple):
    """What had been taken from each level some seconds ago."""

    taken: Mapping[LevelOf, int]
    seconds: float


def status_document(status: EntityStatus) -> dict[str, Any]:
    """The buckets of an entity for programs."""
    return {
        "entity_id": status.entity_id,
        "buckets": [bucket_document(bucket) for bucket in status.buckets],
        "access": [access_document(access) for access in status.access],
    }


def bucket_document(bucket: BucketStatus) -> dict[str, Any]:
    """One bucket for programs."""
    return {
        "resource": bucket.resource,
        "total_events": bucket.total_events,
        "limits": [_level_document(level) for level in bucket.limits],
    }


def _level_document(level: LimitLevel) -> dict[str, Any]:
    return {
        "limit_name": level.limit_name,
        "limit": level.limit.as_dict(),
        "available": level.available,
        "total_consumed": level.total_consumed,
        "seconds_to_full": level.seconds_to_full,
        "denials": level.denials,
        "extra": level.extra,
    }


def taken(statuses: Sequence[EntityStatus]) -> dict[LevelOf, int]:
    """What was taken from each level so far."""
    return {
        LevelOf(status.entity_id, bucket.resource, level.limit_name): level.total_consumed
        for status in statuses
        for bucket in status.buckets
        for level in bucket.limits
    }


def status_picture(statuses: Sequence[EntityStatus], width: int, before: Before | None = None) -> RenderableType:
    """Every bucket of some entities: what was taken in all or, if it is known what was ``before``, how fast."""
    buckets = [bucket for status in statuses for bucket in status.buckets]
    columns = _columns(buckets, width, before)
    pictures: list[RenderableType] = []
    for status in statuses:
        pictures += [Text(), Text(status.entity_id, style="bold")]
        pictures += [Text(access_words(access), style="red") for access in status.access]
        if status.buckets:
            pictures.append(_levels(status.buckets, columns, before))
        else:
            pictures.append(Text(NO_BUCKETS, style="dim"))
    return Group(*pictures[1:])


class Columns(NamedTuple):
    """How wide the columns are in the tables of all entities: those of texts, and that of bars."""

    texts: Sequence[int]
    bars: int


def _columns(buckets: Sequence[BucketStatus], width: int, before: Before | None) -> Columns:
    """As wide as the longest texts of each column; what is left is for bars."""
    rows = [_texts(bucket, level, before) for bucket in buckets for level in bucket.limits]
    last = "taken" if before is None else "per s"
    texts = [max(map(len, column)) for column in zip((*HEADINGS, last), *rows, strict=True)]
    room = width - sum(texts) - GAP * len(texts)
    return Columns(texts, min(max(room, BAR_COLUMNS[0]), BAR_COLUMNS[-1]))


def _levels(buckets: Sequence[BucketStatus], columns: Columns, before: Before | None) -> Table:
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="dim")
    resource_width, name_width, *number_widths = columns.texts
    table.add_column("resource", min_width=resource_width, no_wrap=True)
    table.add_column("limit", min_width=name_width, no_wrap=True)
    table.add_column("level", width=columns.bars, no_wrap=True)
    headings = (*HEADINGS[2:], "taken" if before is None else "per s")
    for heading, number_width in zip(headings, number_widths, strict=True):
        table.add_column(heading, min_width=number_width, justify="right", no_wrap=True)
    for bucket in buckets:
        for place, level in enumerate(bucket.limits):
            resource, name, _, burst, wait, rate = _texts(bucket, level, before)
            table.add_row(
                "" if place else resource,
                name,
                level_bar(level.available, level.capacity, columns.bars),
                level_number(level.available),
                burst,
                wait,
                rate,
            )
    return table


def _texts(bucket: BucketStatus, level: LimitLevel, before: Before | None) -> tuple[str, ...]:
    return (
        bucket.resource,
        level.limit_name,
        f"{level.available:,}",
        burst_text(level),
        duration(level.seconds_to_full) if level.seconds_to_full else "full",
        f"{level.total_consumed:,}" if before is None else speed(bucket, level, before),
    )


def burst_text(level: LimitLevel | LimitStatus) -> str:
    """``100``, or ``100+50`` while so much is extra."""
    return f"{level.limit.burst:,}" + (f"+{level.extra:,}" if level.extra else "")


def speed(bucket: BucketStatus, level: LimitLevel, before: Before) -> str:
    """How fast a limit is taken from, in tokens a second."""
    earlier = before.taken.get(LevelOf(bucket.entity_id, bucket.resource, level.limit_name))
    if not before.seconds or earlier is None:
        return NOTHING
    tokens = (level.total_consumed - earlier) / before.seconds
    return f"{tokens:,.1f}" if tokens else "0"


def _denied(bucket: BucketStatus) -> list[str]:
    """How often each limit of a bucket denied, in one word; none, if none did."""
    counts = [f"{level.limit_name}:{level.denials}" for level in bucket.limits if level.denials]
    return [f"denied={','.join(counts)}"] if counts else []


def status_lines(status: EntityStatus, when: str) -> list[str]:
    """A line for each bucket, for logs; with what it has denied, if it has."""
    return [
        " ".join(
            (
                when,
                bucket.entity_id,
                bucket.resource,
                *(f"{level.limit_name}={level.available}/{level.capacity}" for level in bucket.limits),
                *_denied(bucket),
            )
        )
        for bucket in status.buckets
    ] or [f"{when} {status.entity_id} no live buckets"]
