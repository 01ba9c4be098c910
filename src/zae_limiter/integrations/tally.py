"""Numbers about a limiter, kept as whole numbers while events pass, and read when an exporter asks.

::

    tally = Tally(warn_at=0.8, on_warning=page)
    limiter = SyncRateLimiter.open(url, observer=tally)

Nothing of an exporter is on the way of an acquire: ``zae_limiter.integrations.prometheus`` and ``.opentelemetry``
pull. Entities are never a label, for there may be millions; names of resources and limits beyond the first two hundred
are counted as ``other``.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from zae_limiter import Decided, Degraded, Event, LimitStatus, Observer, Settled, StoreCalled, ValidationError

Key = TypeVar("Key")

MOST_NAMES = 200
"""So many resources, and limits, are counted by name."""

MOST_WARNED = 10_000
"""So many buckets are remembered to have been warned of."""

UTILIZATION_PERMILLE = (100, 250, 500, 750, 800, 900, 950, 1000)
"""Bounds of the histogram of how full limits were met, in thousandths of their burst."""

MILLISECONDS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
"""Bounds of the histograms of times."""


class Decision(NamedTuple):
    """How acquires were decided. ``limit`` and ``level`` (own or ancestor) are of the limit that lacked."""

    resource: str
    outcome: str
    limit: str = ""
    level: str = ""


class TokenFlow(NamedTuple):
    """Which tokens were taken, or given back."""

    resource: str
    limit: str
    direction: str


class NamedLimit(NamedTuple):
    """One limit on one resource, over all entities."""

    resource: str
    limit: str


class StoreVerb(NamedTuple):
    """What a store was asked, and the kind of error that it raised."""

    verb: str
    error: str


@dataclass(slots=True)
class Histogram:
    """How many values were at most each of its bounds, and their sum."""

    bounds: tuple[int, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def copy(self) -> Histogram:
        """The same, for a reader."""
        return Histogram(self.bounds, list(self.counts), self.total)


@dataclass(slots=True)
class Numbers:
    """What a tally has counted since it began."""

    decisions: dict[Decision, int] = field(default_factory=dict)
    tokens: dict[TokenFlow, int] = field(default_factory=dict)
    utilization: dict[NamedLimit, Histogram] = field(default_factory=dict)
    latest_permille: dict[NamedLimit, int] = field(default_factory=dict)
    waits: dict[str, Histogram] = field(default_factory=dict)
    store_calls: dict[StoreVerb, Histogram] = field(default_factory=dict)
    warnings: dict[NamedLimit, int] = field(default_factory=dict)
    unsettled: dict[str, int] = field(default_factory=dict)


class Tally:
    """An observer that counts. Give it to any number of limiters.

    ``on_warning`` is called with the status of a limit when an acquire finds it used to ``warn_at`` of its burst or
    more, once, until an acquire finds it used less. ``look_every``: of grants, only every so many-th is asked how full
    its limits are, which costs more than all else here; utilization and warnings then go by those, and by refusals.
    """

    def __init__(
        self,
        *,
        warn_at: float = 0.8,
        on_warning: Callable[[LimitStatus], object] | None = None,
        look_every: int = 1,
    ) -> None:
        if type(look_every) is not int or look_every < 1:
            raise ValidationError("look_every", look_every, "must be a whole number from 1 on")
        if isinstance(warn_at, bool) or not isinstance(warn_at, int | float) or not 0 < warn_at <= 1:
            raise ValidationError("warn_at", warn_at, "must be a part of the burst, above 0 and at most 1")
        self._warn_at = round(warn_at * 1000)
        self._on_warning = on_warning
        self._look_every = look_every
        self._until_look = 0
        self._lock = threading.Lock()
        self._numbers = Numbers()
        self._resources: dict[str, str] = {}
        self._limits: dict[str, str] = {}
        self._warned: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    def __call__(self, event: Event) -> None:
        """Count an event."""
        if isinstance(event, Decided):
            self._decided(event)
            return
        with self._lock:
            if isinstance(event, StoreCalled):
                self._store_called(event)
            elif isinstance(event, Settled):
                self._settled(event)
            elif isinstance(event, Degraded):
                _add(self._numbers.decisions, Decision(_known(self._resources, event.resource), "degraded"), 1)

    def numbers(self) -> Numbers:
        """What was counted so far; a copy."""
        with self._lock:
            now = self._numbers
            return Numbers(
                dict(now.decisions),
                dict(now.tokens),
                {key: histogram.copy() for key, histogram in now.utilization.items()},
                dict(now.latest_permille),
                {key: histogram.copy() for key, histogram in now.waits.items()},
                {key: histogram.copy() for key, histogram in now.store_calls.items()},
                dict(now.warnings),
                dict(now.unsettled),
            )

    def _decided(self, event: Decided) -> None:
        statuses: tuple[LimitStatus, ...] = ()
        if not event.granted or self._is_to_be_looked_at():
            statuses = event.statuses
        with self._lock:
            resource = _known(self._resources, event.resource)
            self._count_decision(event, resource, statuses)
            due = self._count_levels(event.entity_id, resource, statuses) if statuses else []
        if self._on_warning is not None:
            for status in due:
                self._on_warning(status)

    def _count_decision(self, event: Decided, resource: str, statuses: tuple[LimitStatus, ...]) -> None:
        numbers = self._numbers
        if event.granted:
            decision = Decision(resource, "granted")
            for name, amount in event.requested.items():
                _add(numbers.tokens, TokenFlow(resource, _known(self._limits, name), "taken"), amount)
        else:
            decision = Decision(resource, "refused")
            lacking = next((status for status in statuses if status.refuses), None)
            if lacking is not None:
                level = "own" if lacking.entity_id == event.entity_id else "ancestor"
                decision = Decision(resource, "refused", _known(self._limits, lacking.limit_name), level)
        _add(numbers.decisions, decision, 1)
        if event.waited_seconds:
            _histogram(numbers.waits, resource, MILLISECONDS).add(event.waited_seconds * 1000)

    def _count_levels(self, entity_id: str, resource: str, statuses: tuple[LimitStatus, ...]) -> list[LimitStatus]:
        """Count how full limits are. Returns those to be warned of."""
        numbers, due = self._numbers, []
        for status in statuses:
            permille = 1000 - 1000 * status.available // status.limit.burst
            place = NamedLimit(resource, _known(self._limits, status.limit_name))
            if status.entity_id == entity_id:
                _histogram(numbers.utilization, place, UTILIZATION_PERMILLE).add(permille)
                numbers.latest_permille[place] = permille
            if self._is_to_be_warned_of(status, permille):
                _add(numbers.warnings, place, 1)
                due.append(status)
        return due

    def _is_to_be_looked_at(self) -> bool:
        """Whether it is a grant's turn. Threads that come at once may both be, or neither: no count depends on it."""
        self._until_look -= 1
        if self._until_look > 0:
            return False
        self._until_look = self._look_every
        return True

    def _is_to_be_warned_of(self, status: LimitStatus, permille: int) -> bool:
        key = status.entity_id, status.resource, status.limit_name
        if permille < self._warn_at:
            self._warned.pop(key, None)
            return False
        if key in self._warned:
            return False
        self._warned[key] = None
        if len(self._warned) > MOST_WARNED:
            self._warned.popitem(last=False)
        return True

    def _settled(self, event: Settled) -> None:
        resource = _known(self._resources, event.resource)
        if event.error is not None:
            _add(self._numbers.unsettled, resource, 1)
            return
        for name, amount in event.deltas.items():
            if amount:
                direction = "taken" if amount > 0 else "given_back"
                _add(self._numbers.tokens, TokenFlow(resource, _known(self._limits, name), direction), abs(amount))

    def _store_called(self, event: StoreCalled) -> None:
        error = "" if event.error is None else type(event.error).__name__
        milliseconds = event.duration_seconds * 1000
        _histogram(self._numbers.store_calls, StoreVerb(event.verb, error), MILLISECONDS).add(milliseconds)


def observers(*all_of_them: Observer) -> Observer:
    """One observer that tells several."""

    def tell(event: Event) -> None:
        for observer in all_of_them:
            observer(event)

    return tell


def _known(names: dict[str, str], name: str) -> str:
    """The name by which something is counted."""
    known = names.get(name)
    if known is None:
        if len(names) >= MOST_NAMES:
            return "other"
        known = names[name] = name
    return known


def _add(counts: dict[Key, int], key: Key, amount: int) -> None:
    counts[key] = counts.get(key, 0) + amount


def _histogram(histograms: dict[Key, Histogram], key: Key, bounds: tuple[int, ...]) -> Histogram:
    found = histograms.get(key)
    if found is None:
        found = histograms[key] = Histogram(bounds)
    return found
