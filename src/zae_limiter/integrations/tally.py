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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from zae_limiter import Decided, Degraded, Event, LimitStatus, Observer, Settled, StoreCalled, ValidationError

Key = TypeVar("Key")

MOST_NAMES = 200
"""So many resources, and limits, are counted by name."""

LOOK_AFTER_SECONDS = 0.1
"""A grant so long after the last one that was looked at is looked at too."""

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


class OfResource:
    """What happens on one resource most often, counted without making a key for each count."""

    __slots__ = ("given_back", "granted", "name", "taken")

    def __init__(self, name: str) -> None:
        self.name = name
        self.granted = 0
        self.taken: dict[str, int] = {}
        self.given_back: dict[str, int] = {}


class Tally:
    """An observer that counts. Give it to any number of limiters.

    ``on_warning`` is called with the status of a limit when an acquire finds it used to ``warn_at`` of its burst or
    more, once, until an acquire finds it used less. ``look_every``: while grants come thick and fast, every so many-th
    is asked how full its limits are, which costs more than all else here; a grant a tenth of a second after the last
    look is always asked, and so is every refusal. Utilization and warnings go by those; every other number is exact.
    """

    def __init__(
        self,
        *,
        warn_at: float = 0.8,
        on_warning: Callable[[LimitStatus], object] | None = None,
        look_every: int = 32,
    ) -> None:
        if type(look_every) is not int or look_every < 1:
            raise ValidationError("look_every", look_every, "must be a whole number from 1 on")
        if isinstance(warn_at, bool) or not isinstance(warn_at, int | float) or not 0 < warn_at <= 1:
            raise ValidationError("warn_at", warn_at, "must be a part of the burst, above 0 and at most 1")
        self._warn_at = round(warn_at * 1000)
        self._on_warning = on_warning
        self._look_every = look_every
        self._until_look = 0
        self._looked_at = 0.0
        self._lock = threading.Lock()
        self._numbers = Numbers()
        self._by_resource: dict[str, OfResource] = {}
        self._by_verb: dict[str, Histogram] = {}
        self._resources: dict[str, str] = {}
        self._limits: dict[str, str] = {}
        self._warned: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    def __call__(self, event: Event) -> None:
        """Count an event."""
        if isinstance(event, StoreCalled):
            with self._lock:
                self._store_called(event)
            return
        if isinstance(event, Decided):
            self._decided(event)
            return
        with self._lock:
            if isinstance(event, Settled):
                self._settled(event)
            elif isinstance(event, Degraded):
                _add(self._numbers.decisions, Decision(_known(self._resources, event.resource), "degraded"), 1)

    def numbers(self) -> Numbers:
        """What was counted so far; a copy."""
        with self._lock:
            now = self._numbers
            told = Numbers(
                dict(now.decisions),
                {},
                {key: histogram.copy() for key, histogram in now.utilization.items()},
                dict(now.latest_permille),
                {key: histogram.copy() for key, histogram in now.waits.items()},
                {key: histogram.copy() for key, histogram in now.store_calls.items()},
                dict(now.warnings),
                dict(now.unsettled),
            )
            for of in self._by_resource.values():
                if of.granted:
                    told.decisions[Decision(of.name, "granted")] = of.granted
                for direction, amounts in (("taken", of.taken), ("given_back", of.given_back)):
                    told.tokens.update((TokenFlow(of.name, name, direction), amounts[name]) for name in amounts)
            return told

    def _decided(self, event: Decided) -> None:
        if event.granted and not self._is_to_be_looked_at(event.timestamp):
            with self._lock:
                self._count_grant(event)
            return
        statuses = event.statuses
        with self._lock:
            if event.granted:
                self._count_grant(event)
            else:
                self._count_refusal(event, statuses)
            due = self._count_levels(event.entity_id, _known(self._resources, event.resource), statuses)
        if self._on_warning is not None:
            for status in due:
                self._on_warning(status)

    def _count_grant(self, event: Decided) -> None:
        of = self._by_resource.get(event.resource) or self._of(event.resource)
        of.granted += 1
        self._count_tokens(of.taken, event.requested)
        if event.waited_seconds:
            _histogram(self._numbers.waits, of.name, MILLISECONDS).add(event.waited_seconds * 1000)

    def _count_refusal(self, event: Decided, statuses: tuple[LimitStatus, ...]) -> None:
        resource = _known(self._resources, event.resource)
        decision = Decision(resource, "refused")
        lacking = next((status for status in statuses if status.refuses), None)
        if lacking is not None:
            level = "own" if lacking.entity_id == event.entity_id else "ancestor"
            decision = Decision(resource, "refused", _known(self._limits, lacking.limit_name), level)
        _add(self._numbers.decisions, decision, 1)
        if event.waited_seconds:
            _histogram(self._numbers.waits, resource, MILLISECONDS).add(event.waited_seconds * 1000)

    def _count_tokens(self, counts: dict[str, int], amounts: Mapping[str, int]) -> None:
        for name, amount in amounts.items():
            if name in counts:
                counts[name] += amount
            else:
                _add(counts, _known(self._limits, name), amount)

    def _of(self, resource: str) -> OfResource:
        known = _known(self._resources, resource)
        of = self._by_resource.get(known)
        if of is None:
            of = self._by_resource[known] = OfResource(known)
        return of

    def _count_levels(self, entity_id: str, resource: str, statuses: tuple[LimitStatus, ...]) -> list[LimitStatus]:
        """Count how full limits are. Returns those to be warned of."""
        numbers, due = self._numbers, []
        for status in statuses:
            permille = 1000 - 1000 * status.available // status.capacity
            place = NamedLimit(resource, _known(self._limits, status.limit_name))
            if status.entity_id == entity_id:
                _histogram(numbers.utilization, place, UTILIZATION_PERMILLE).add(permille)
                numbers.latest_permille[place] = permille
            if self._is_to_be_warned_of(status, permille):
                _add(numbers.warnings, place, 1)
                due.append(status)
        return due

    def _is_to_be_looked_at(self, timestamp: float) -> bool:
        """Whether it is a grant's turn. Threads that come at once may both be, or neither: no count depends on it."""
        self._until_look -= 1
        if self._until_look > 0 and 0 <= timestamp - self._looked_at < LOOK_AFTER_SECONDS:
            return False
        self._until_look = self._look_every
        self._looked_at = timestamp
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
        of = self._by_resource.get(event.resource) or self._of(event.resource)
        if event.error is not None:
            _add(self._numbers.unsettled, of.name, 1)
            return
        deltas = event.deltas
        self._count_tokens(of.taken, {name: amount for name, amount in deltas.items() if amount > 0})
        self._count_tokens(of.given_back, {name: -amount for name, amount in deltas.items() if amount < 0})

    def _store_called(self, event: StoreCalled) -> None:
        if event.error is None:
            histogram = self._by_verb.get(event.verb)
            if histogram is None:
                verb = StoreVerb(event.verb, "")
                histogram = self._by_verb[event.verb] = _histogram(self._numbers.store_calls, verb, MILLISECONDS)
        else:
            verb = StoreVerb(event.verb, type(event.error).__name__)
            histogram = _histogram(self._numbers.store_calls, verb, MILLISECONDS)
        histogram.add(event.duration_seconds * 1000)


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
