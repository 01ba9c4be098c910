"""Usage windows: hours as they were counted, days and months as sums of hours. All in UTC."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from zae_limiter.bucket import MILLI
from zae_limiter.models.choices import WindowType
from zae_limiter.models.moments import at
from zae_limiter.models.reports import UsageSnapshot
from zae_limiter.stores.embedded.tables import Counters

WINDOW_ORDER = tuple(WindowType)


class HourOfUse(NamedTuple):
    """What was taken in one hour."""

    hour: int
    used: Counters


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
    sums: dict[datetime, tuple[dict[str, int], int]] = {}
    for hour, used in hours:
        start, _ = window_around(at(hour), window_type)
        counters, events = sums.get(start, ({}, 0))
        for name, milli in used.milli.items():
            counters[name] = counters.get(name, 0) + milli
        sums[start] = counters, events + used.events
    return [
        UsageSnapshot(
            entity_id=entity_id,
            resource=resource,
            window_type=window_type,
            window_start=start,
            window_end=window_around(start, window_type)[1],
            counters={name: milli // MILLI for name, milli in sorted(counters.items())},
            total_events=events,
        )
        for start, (counters, events) in sorted(sums.items())
    ]
