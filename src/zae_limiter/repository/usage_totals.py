"""Usage windows added up, each call once. Pure.

A call counts in the bucket of its caller and in those of the ancestors it cascades to. Over several entities only
what was counted nowhere below is added up (``own``). Of one entity everything is, but it may have a bucket for all
resources together (``*``) beside one for each: of these two, per window and limit, the one that counted more is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal, TypeAlias

from zae_limiter.models.reports import UsageSnapshot, UsageSummary, UsageTotal
from zae_limiter.naming import TOTAL_RESOURCE

UsageBy: TypeAlias = Literal["entity", "resource"]


def summarize(snapshots: Sequence[UsageSnapshot], *, of_entity: bool) -> UsageSummary:
    """Totals, averages per window, first and last start. ``of_entity``: all windows are of one entity."""
    total, events = (_of_one_entity if of_entity else _of_all)(snapshots)
    denials: dict[str, int] = {}
    for snapshot in snapshots:
        _add(denials, snapshot.denials)
    starts = {snapshot.window_start for snapshot in snapshots}
    return UsageSummary(
        snapshot_count=len(snapshots),
        total=total,
        average={name: amount / len(starts) for name, amount in total.items()},
        total_events=events,
        min_window_start=min(starts, default=None),
        max_window_start=max(starts, default=None),
        denials=denials,
    )


def ranked(snapshots: Iterable[UsageSnapshot], by: UsageBy, limit_name: str | None, limit: int) -> list[UsageTotal]:
    """The entities or resources that took most of a limit, or had most grants: what they took themselves."""
    names: dict[str, list[UsageSnapshot]] = {}
    for snapshot in snapshots:
        name = snapshot.entity_id if by == "entity" else snapshot.resource
        names.setdefault(name, []).append(snapshot)
    totals = []
    for name, windows in names.items():
        total, events = _of_all(windows)
        denials: dict[str, int] = {}
        for window in windows:
            _add(denials, window.denials)
        if events or denials or any(total.values()):
            totals.append(UsageTotal(name, total, events, denials))

    def rank(used: UsageTotal) -> tuple[int, int, str]:
        most = used.total_events if limit_name is None else used.total.get(limit_name, 0)
        return -most, -used.total_denials, used.name

    return sorted(totals, key=rank)[:limit]


def _of_all(snapshots: Iterable[UsageSnapshot]) -> tuple[dict[str, int], int]:
    total: dict[str, int] = {}
    events = 0
    for snapshot in snapshots:
        _add(total, snapshot.own)
        events += snapshot.own_events
    return total, events


def _of_one_entity(snapshots: Iterable[UsageSnapshot]) -> tuple[dict[str, int], int]:
    by_resource: dict[datetime, dict[str, int]] = {}
    over_all: dict[datetime, dict[str, int]] = {}
    for snapshot in snapshots:
        windows = over_all if snapshot.resource == TOTAL_RESOURCE else by_resource
        # No limit has such a name, so the grants can be among the limits.
        _add(windows.setdefault(snapshot.window_start, {}), {**snapshot.counters, "": snapshot.total_events})
    total: dict[str, int] = {}
    for start in by_resource.keys() | over_all.keys():
        one, other = by_resource.get(start, {}), over_all.get(start, {})
        larger = {
            name: max(amounts)
            for name in {**one, **other}
            if (amounts := [part[name] for part in (one, other) if name in part])
        }
        _add(total, larger)
    return dict(sorted((name, amount) for name, amount in total.items() if name)), total.get("", 0)


def _add(sums: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        sums[name] = sums.get(name, 0) + amount
