"""Usage over time: hours of an entity by resource, or of a resource by entity, with refusals beside them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from zae_limiter import RateLimiter, UsageSnapshot

MOST_HOURS = 24 * 7
MOST_PAGES = 5
PAGE = 1_000
MOST_SERIES = 8
OTHERS = "others"


async def usage_chart(
    limiter: RateLimiter, entity_id: str | None, resource: str | None, hours: int, now: datetime | None = None
) -> dict[str, Any]:
    """The last hours, the current one included. ``cut``: there is more than was read."""
    last = (now or datetime.now(UTC)).replace(minute=0, second=0, microsecond=0)
    first = last - timedelta(hours=hours - 1)
    snapshots, cut = await _read(limiter, entity_id, resource, first)
    starts = [first + timedelta(hours=number) for number in range(hours)]
    index = {start: number for number, start in enumerate(starts)}
    names = sorted({name for snapshot in snapshots for name in snapshot.counters})
    series = _series(snapshots, index, by_resource=entity_id is not None)
    refused = [0] * hours
    for snapshot in snapshots:
        if snapshot.window_start in index:
            refused[index[snapshot.window_start]] += snapshot.total_denials
    return {
        "hours": [int(start.timestamp()) for start in starts],
        "limits": names,
        "series": series,
        "refused": refused,
        "cut": cut,
    }


async def _read(
    limiter: RateLimiter, entity_id: str | None, resource: str | None, first: datetime
) -> tuple[list[UsageSnapshot], bool]:
    found: list[UsageSnapshot] = []
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        page = await limiter.get_usage_snapshots(
            entity_id, resource, "hourly", start_time=first, limit=PAGE, cursor=cursor
        )
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
    return found, cursor is not None


def _series(snapshots: list[UsageSnapshot], index: dict[datetime, int], *, by_resource: bool) -> list[dict[str, Any]]:
    """What each resource, or entity, took per hour and limit; the largest first, small ones together."""
    taken: dict[str, dict[str, list[int]]] = {}
    for snapshot in snapshots:
        name = snapshot.resource if by_resource else snapshot.entity_id
        counters = snapshot.counters if by_resource else snapshot.own
        for limit, amount in counters.items():
            hours = taken.setdefault(name, {}).setdefault(limit, [0] * len(index))
            if snapshot.window_start in index:
                hours[index[snapshot.window_start]] += amount
    ranked = sorted(taken, key=lambda name: -sum(sum(hours) for hours in taken[name].values()))
    shown = [{"name": name, "values": taken[name]} for name in ranked[:MOST_SERIES]]
    rest: dict[str, list[int]] = {}
    for name in ranked[MOST_SERIES:]:
        for limit, hours in taken[name].items():
            before = rest.setdefault(limit, [0] * len(index))
            rest[limit] = [one + other for one, other in zip(before, hours, strict=True)]
    return [*shown, {"name": OTHERS, "values": rest}] if rest else shown
