"""The rows of usage as ``usage.lua`` tells them. Pure.

A row has the counters that its hour began with, so an hour ends where the next begins, and the last one with the
bucket, or with what was kept of it. A name after ``~`` belongs to a limit that had ended by then: it was counted to
the end of the hour before. What a limit that only watches would have refused stands behind its name and a ``!``. A row
after ``*`` counts from nothing although there were others: what was between them is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

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
    """A text like ``5/2 rpm=5/2 ~tpm=900//3``: taken, what of it an earlier leg counted too, denials."""
    head, *pairs = text.decode().removeprefix("*").split()
    events, cascaded_events, _ = _figures(head)
    began = Counters(events, {}, cascaded_events, {}, {})
    ended = Counters(events, {}, cascaded_events, {}, {})
    for pair in pairs:
        name, _, figures = pair.partition("=")
        if name == "@":
            continue
        _note(ended, name.removeprefix("~"), *_figures(figures))
        if not name.startswith("~"):
            _note(began, name, *_figures(figures))
    return Row(began, ended, text.startswith(b"*"))


def _figures(text: str) -> tuple[int, int, int]:
    taken, cascaded, denials, *_ = (*text.split("/"), "", "")
    return int(taken), int(cascaded or 0), int(denials or 0)


def _note(counters: Counters, name: str, taken: int, cascaded: int, denials: int) -> None:
    figures = (counters.milli, taken * MILLI), (counters.cascaded, cascaded * MILLI), (counters.denials, denials)
    for amounts, amount in figures:
        if amount or amounts is counters.milli:  # calls in flight and another limit may have one name
            cast(dict[str, int], amounts)[name] = amounts.get(name, 0) + amount
