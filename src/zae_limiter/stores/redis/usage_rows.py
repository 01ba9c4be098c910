"""The rows of usage as ``usage.lua`` tells them. Pure.

A row has the counters that its hour began with, so an hour ends where the next begins, and the last one with the
bucket, or with what was kept of it. A name after ``~`` belongs to a limit that had ended by then: it was counted to
the end of the hour before. A row after ``*`` counts from nothing although there were others: what was between them is
lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from zae_limiter.bucket import MILLI
from zae_limiter.stores.embedded.tables import UsageRow
from zae_limiter.stores.windows import HOUR_MS, Counters


class CountedUsage(NamedTuple):
    """The usage of one bucket in one moment: its rows, and what it has counted if it is live, since which hour."""

    rows: list[UsageRow]
    live: Counters | None
    hour: int | None


class Row(NamedTuple):
    """One text: what an hour began with, and what the one before it ended with."""

    began: Counters
    ended: Counters
    lost: bool


def usage_in(entity_id: str, resource: str, reply: Sequence[Any]) -> CountedUsage:
    """What a reply of ``usage.lua`` tells."""
    _, _, live_text, hour, kept_text, *hours = reply
    live = None if live_text is None else row_of(live_text).ended
    kept = None if kept_text is None else row_of(kept_text).ended
    begun = sorted((int(field) * HOUR_MS, row_of(text)) for field, text in zip(hours[::2], hours[1::2], strict=True))
    rows = []
    for place, (start, row) in enumerate(begun):
        if place + 1 < len(begun):
            after = begun[place + 1][1]
            end: Counters | None = row.began if after.lost else after.ended
        else:
            end = None if live is not None else kept
        rows.append(UsageRow(entity_id, resource, start, row.began, end))
    return CountedUsage(rows, live, None if live is None else hour)


def row_of(text: bytes) -> Row:
    """A text like ``5 rpm=5 ~tpm=900``."""
    events, *pairs = text.decode().removeprefix("*").split()
    began: dict[str, int] = {}
    ended: dict[str, int] = {}
    for pair in pairs:
        name, _, count = pair.partition("=")
        if name == "@":
            continue
        milli = int(count) * MILLI
        ended[name.removeprefix("~")] = milli
        if not name.startswith("~"):
            began[name] = milli
    return Row(Counters(int(events), began), Counters(int(events), ended), text.startswith(b"*"))
