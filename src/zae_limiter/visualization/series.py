"""From usage windows to series: what was used of each limit, window after window, without gaps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from zae_limiter.models.choices import WindowType
from zae_limiter.models.reports import UsageSnapshot
from zae_limiter.stores.windows import window_around

MOST_WINDOWS = 10_000
"""More than usage is kept for, so that one stray window far away does not become a million empty ones."""


class Point(NamedTuple):
    """What was used in the window that begins then. Negative where more came back than was taken."""

    start: datetime
    value: int


class Series(NamedTuple):
    """One limit over time."""

    name: str
    window: WindowType
    points: tuple[Point, ...]

    @property
    def total(self) -> int:
        """Everything added up."""
        return sum(point.value for point in self.points)

    @property
    def peak(self) -> Point:
        """The window in which most was used, the first of them."""
        return max(self.points, key=lambda point: point.value)


def series_of(
    snapshots: Iterable[UsageSnapshot],
    window: WindowType,
    names: Collection[str] | None = None,
    *,
    of_entity: bool = False,
) -> list[Series]:
    """A series per limit, by name, over all entities and resources of the windows that have this length.

    All series begin and end together, at the first and the last window; where nothing was used there is a zero.
    ``names`` keeps only these limits. Each call counts once: for the entity that made it or, if all windows are
    ``of_entity``, for that one.
    """
    used: defaultdict[str, Counter[datetime]] = defaultdict(Counter)
    for snapshot in snapshots:
        if snapshot.window_type == window:
            for name, amount in (snapshot.counters if of_entity else snapshot.own).items():
                if names is None or name in names:
                    used[name][snapshot.window_start] += amount
    starts = [start for amounts in used.values() for start in amounts]
    if not starts:
        return []
    windows = list(_windows(min(starts), max(starts), window))[-MOST_WINDOWS:]
    return [
        Series(name, window, tuple(Point(start, amounts[start]) for start in windows))
        for name, amounts in sorted(used.items())
    ]


def _windows(first: datetime, last: datetime, window: WindowType) -> Iterator[datetime]:
    start = first
    if window is not WindowType.MONTHLY:
        start = max(first, last - MOST_WINDOWS * (window_around(first, window)[1] - first))
    while start <= last:
        yield start
        _, start = window_around(start, window)
