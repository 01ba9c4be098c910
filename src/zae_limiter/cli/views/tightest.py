"""The buckets with the least left, as trees: under each resource the entities, children below their parents.

A line has the tightest limit of a bucket only; ``status`` has all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from zae_limiter import BucketStatus, Entity, LimitLevel
from zae_limiter.cli.output.bars import count, level_bar, level_number
from zae_limiter.cli.views.buckets import NO_BUCKETS, Before, bucket_document, burst_text, speed
from zae_limiter.cli.views.entity_tree import branch, forest
from zae_limiter.cli.views.formats import duration, plural

GAP = 2
BAR_COLUMNS = range(8, 41)
NARROWEST_BRANCH = 12
HEADINGS = ("limit", "left", "burst", "full in", "denied")


class Line(NamedTuple):
    """One bucket: where its entity stands in the tree, and its tightest limit."""

    branch: Text
    bucket: BucketStatus
    level: LimitLevel

    def texts(self, before: Before | None) -> tuple[str, ...]:
        """What stands in the columns beside the tree and the bar."""
        level = self.level
        return (
            level.limit_name,
            f"{level.available:,}",
            burst_text(level),
            duration(level.seconds_to_full) if level.seconds_to_full else "full",
            f"{level.denials:,}",
            f"{self.bucket.total_events:,}" if before is None else speed(self.bucket, level, before),
        )


def tightest_document(buckets: Sequence[BucketStatus]) -> dict[str, Any]:
    """The buckets for programs, the tightest first."""
    return {"buckets": [{"entity_id": bucket.entity_id, **bucket_document(bucket)} for bucket in buckets]}


def tightest_picture(
    buckets: Sequence[BucketStatus], known: Mapping[str, Entity], width: int, before: Before | None = None
) -> RenderableType:
    """The buckets for people: with the grants of their lives or, if it is known what was ``before``, how fast they
    are taken from. ``known`` are the entities that were created, by id."""
    limited = [bucket for bucket in buckets if bucket.limits]
    if not limited:
        return Text(NO_BUCKETS, style="dim")
    trees = {resource: _lines(resource, limited, known) for resource in dict.fromkeys(b.resource for b in limited)}
    return Group(_table(trees, width, before), Text(), _summary(limited))


def tightest_level(bucket: BucketStatus) -> LimitLevel:
    """The limit of a bucket of which the least part is left."""
    return min(bucket.limits, key=lambda level: level.available / level.capacity)


def _lines(resource: str, buckets: Sequence[BucketStatus], known: Mapping[str, Entity]) -> list[Line]:
    """The buckets of a resource, as the trees of their entities."""
    here = {bucket.entity_id: bucket for bucket in buckets if bucket.resource == resource}
    nodes = forest(known.get(entity_id, Entity(entity_id)) for entity_id in here)
    return [
        Line(branch(node, named=False), here[node.entity.id], tightest_level(here[node.entity.id])) for node in nodes
    ]


def _table(trees: Mapping[str, Sequence[Line]], width: int, before: Before | None) -> Table:
    last = "grants" if before is None else "per s"
    lines = [line for tree in trees.values() for line in tree]
    rows = [line.texts(before) for line in lines]
    texts = [max(map(len, column)) for column in zip((*HEADINGS, last), *rows, strict=True)]
    names = max(max(map(len, trees)), *(line.branch.cell_len for line in lines))
    room = width - sum(texts) - GAP * (len(texts) + 1)
    names = max(min(names, room - BAR_COLUMNS[0]), NARROWEST_BRANCH)
    bars = min(max(room - names, BAR_COLUMNS[0]), BAR_COLUMNS[-1])
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("bucket", width=names, no_wrap=True, overflow="ellipsis")
    table.add_column("limit", min_width=texts[0], no_wrap=True)
    table.add_column("level", width=bars, no_wrap=True)
    for heading, text_width in zip((*HEADINGS[1:], last), texts[1:], strict=True):
        table.add_column(heading, min_width=text_width, justify="right", no_wrap=True)
    for resource, tree in trees.items():
        table.add_row(Text(resource, style="bold cyan"))
        for line in tree:
            name, _, burst, wait, denied, used = line.texts(before)
            level = line.level
            grants: str | Text = count(line.bucket.total_events) if before is None else used
            bar = level_bar(level.available, level.capacity, bars)
            table.add_row(line.branch, name, bar, level_number(level.available), burst, wait, denied, grants)
    return table


def _summary(buckets: Sequence[BucketStatus]) -> Text:
    indebted = sum(tightest_level(bucket).available < 0 for bucket in buckets)
    empty = sum(tightest_level(bucket).available == 0 for bucket in buckets)
    words = [Text(plural(len(buckets), "bucket"), style="dim")]
    if indebted:
        words.append(Text(f"{indebted:,} in debt", style="bright_red"))
    if empty:
        words.append(Text(f"{empty:,} empty", style="yellow"))
    return Text("   ").join(words)
