"""Usage windows: hours as they were counted, days and months as sums of hours. All in UTC."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from zae_limiter.bucket import MILLI, WOULD_REFUSE, Bucket
from zae_limiter.models.choices import WindowType
from zae_limiter.models.moments import at, milliseconds_at
from zae_limiter.models.reports import UsageSnapshot
from zae_limiter.stores.cursors import Key
from zae_limiter.stores.protocol import UsageQuery

WINDOW_ORDER = tuple(WindowType)
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
END_OF_TIME = 2**53

DAYS_KEPT = 90
"""How long usage and audit events stay."""


NONE: Final[Mapping[str, int]] = {}


class Counters(NamedTuple):
    """What a bucket has ever counted: grants, and millitokens per limit.

    ``cascaded_events`` and ``cascaded`` are the parts of both that a leg before this one counted too. ``denials`` are
    those by each limit.
    """

    events: int
    milli: Mapping[str, int]
    cascaded_events: int = 0
    cascaded: Mapping[str, int] = NONE
    denials: Mapping[str, int] = NONE

    def since(self, before: Counters) -> Counters:
        """What was counted since then. Of a limit that is gone all came back: with a count it would be kept."""
        gone = {name: -amount for name, amount in before.milli.items() if name not in self.milli}
        return Counters(
            self.events - before.events,
            _since(self.milli, before.milli) | gone,
            self.cascaded_events - before.cascaded_events,
            _since(self.cascaded, before.cascaded),
            _since(self.denials, before.denials),
        )

    def plus(self, other: Counters) -> Counters:
        """Both together."""
        return Counters(
            self.events + other.events,
            _sum(self.milli, other.milli),
            self.cascaded_events + other.cascaded_events,
            _sum(self.cascaded, other.cascaded),
            _sum(self.denials, other.denials),
        )

    def without(self, names: Collection[str]) -> Counters:
        """The same of all limits but these."""
        events, milli, cascaded_events, cascaded, denials = self
        return Counters(
            events, _without(milli, names), cascaded_events, _without(cascaded, names), _without(denials, names)
        )

    @property
    def is_nothing(self) -> bool:
        """Whether there is nothing to tell of."""
        return not (self.events or any(self.milli.values()) or any(self.denials.values()))


def _since(after: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    return {name: amount - before.get(name, 0) for name, amount in after.items()}


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {**one, **{name: one.get(name, 0) + amount for name, amount in other.items()}}


def _without(amounts: Mapping[str, int], names: Collection[str]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if name not in names}


NOTHING_COUNTED: Final = Counters(0, {})


def counted(bucket: Bucket) -> Counters:
    """What a bucket has counted up to now."""
    return Counters(
        bucket.events, bucket.counters(), bucket.cascaded_events, dict(bucket.cascaded), dict(bucket.denials)
    )


class HourOfUse(NamedTuple):
    """What was counted in the hour that began at ``hour``."""

    hour: int
    used: Counters


def hour_of(milliseconds: int) -> int:
    """The start of the hour of a moment."""
    return milliseconds - milliseconds % HOUR_MS


def window_around(moment: datetime, window_type: WindowType) -> tuple[datetime, datetime]:
    """The window that contains ``moment``: its start, and the start of the next."""
    hour = moment.replace(minute=0, second=0, microsecond=0)
    if window_type is WindowType.HOURLY:
        return hour, hour + timedelta(hours=1)
    day = hour.replace(hour=0)
    if window_type is WindowType.DAILY:
        return day, day + timedelta(days=1)
    month = day.replace(day=1)
    return month, (month + timedelta(days=32)).replace(day=1)


def snapshots(
    entity_id: str, resource: str, hours: Iterable[HourOfUse], window_type: WindowType
) -> list[UsageSnapshot]:
    """The windows of one type that the hours fall into, in order."""
    sums: dict[datetime, Counters] = {}
    for hour, used in hours:
        start, _ = window_around(at(hour), window_type)
        sums[start] = sums.get(start, NOTHING_COUNTED).plus(used)
    return [
        UsageSnapshot(
            entity_id=entity_id,
            resource=resource,
            window_type=window_type,
            window_start=start,
            window_end=window_around(start, window_type)[1],
            counters=_tokens({name: milli for name, milli in used.milli.items() if name[-1] != WOULD_REFUSE}),
            total_events=used.events,
            cascaded=_told(_tokens(used.cascaded)),
            cascaded_events=used.cascaded_events,
            denials=_told(used.denials),
            would_refuse=_told(
                _tokens({name[:-1]: milli for name, milli in used.milli.items() if name[-1] == WOULD_REFUSE})
            ),
        )
        for start, used in sorted(sums.items())
    ]


def _tokens(milli: Mapping[str, int]) -> dict[str, int]:
    return {name: amount // MILLI for name, amount in sorted(milli.items())}


def _told(amounts: Mapping[str, int]) -> dict[str, int]:
    """Only what there is, by name."""
    return {name: amount for name, amount in sorted(amounts.items()) if amount}


# What a query asks for


def types_of(query: UsageQuery) -> tuple[WindowType, ...]:
    """The types of windows a query lists, in their order."""
    return WINDOW_ORDER if query.window_type is None else (query.window_type,)


def hours_within(query: UsageQuery) -> tuple[int, int]:
    """From when until when hours are needed: a day or month that begins within the times counts whole."""
    start = 0 if query.start_ms is None else query.start_ms
    if query.end_ms is None:
        return start, END_OF_TIME
    _, end = window_around(at(query.end_ms - 1), types_of(query)[-1])
    return start, milliseconds_at(end)


def windows_of(
    query: UsageQuery, entity_id: str, resource: str, hours: Iterable[HourOfUse]
) -> Iterator[UsageSnapshot]:
    """The windows of one entity on one resource that begin within the query's times, by type and start."""
    start = 0 if query.start_ms is None else query.start_ms
    end = END_OF_TIME if query.end_ms is None else query.end_ms
    hours = list(hours)
    for window_type in types_of(query):
        for snapshot in snapshots(entity_id, resource, hours, window_type):
            if start <= milliseconds_at(snapshot.window_start) < end:
                yield snapshot


def position(snapshot: UsageSnapshot) -> Key:
    """Where a snapshot stands in the list: by entity, resource, window type and start."""
    return (
        snapshot.entity_id,
        snapshot.resource,
        WINDOW_ORDER.index(snapshot.window_type),
        milliseconds_at(snapshot.window_start),
    )
