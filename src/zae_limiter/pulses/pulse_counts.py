"""What one process counts for its pulse, as an observer: whole numbers, in bounded memory.

A grant costs two additions. How full its limits are is looked at every few seconds or calls per place only (an entity
on a resource), because making statuses costs more than all else here. Refusals are few, and looked at each time.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from zae_limiter.models.events import Decided, Degraded, Event, StoreCalled
from zae_limiter.models.pulse import MINUTES_OF_ROWS, MINUTES_OF_TOTALS, NEAR_PERMILLE
from zae_limiter.models.status import LimitStatus
from zae_limiter.pulses.heavy_hitters import HeavyHitters, merged

Place: TypeAlias = tuple[str, str]
"""Entity and resource."""

Label: TypeAlias = tuple[str, str]
"""Name of a limit, and whether it is the caller's own or an ancestor's."""

MOST_PLACES: Final = 128
"""So many places are counted by name in a minute at least."""

MOST_LEVELS: Final = 256
"""So many places are known to be near a limit."""

MOST_LOOKED_AT: Final = 4096
"""So many places are remembered to have been looked at."""

MOST_LABELS: Final = 8
OTHER: Final[Label] = ("other", "")
BLOCKED: Final[Label] = ("blocked", "")
LOADED: Final[Label] = ("store load", "")

LOOK_EVERY_S: Final = 5.0
LOOK_EVERY_CALLS: Final = 32
"""A place is looked at after so many seconds, or calls in a minute, whichever comes first."""
MOST_REQUESTED: Final = 8
"""So many amounts of a call are remembered."""

STORE_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Bounds of how long calls of the store take."""
MINUTES_OF_STORE: Final = 5


class SeenLevel(NamedTuple):
    """How the limit that binds was found."""

    limit_name: str
    entity_id: str
    used_permille: int
    available: int
    seen_s: int
    requested: Mapping[str, int]


@dataclass(slots=True)
class Minute:
    """What was counted in one minute."""

    number: int
    granted: int = 0
    degraded: int = 0
    refused: dict[Label, int] = field(default_factory=dict)
    calls: HeavyHitters[Place] = field(default_factory=lambda: HeavyHitters(MOST_PLACES))
    refusals: HeavyHitters[Place] = field(default_factory=lambda: HeavyHitters(MOST_PLACES))
    store_calls: list[int] = field(default_factory=lambda: [0] * (len(STORE_MS) + 1))
    store_errors: int = 0


@dataclass(frozen=True, slots=True)
class Counted:
    """What a pulse is made of, at one moment; a copy."""

    now_minute: int
    granted: list[int]
    degraded: list[int]
    refused: dict[Label, list[int]]
    refusals: dict[Place, list[int]]
    calls: dict[Place, int]
    levels: dict[Place, SeenLevel]
    store_calls: list[int]
    store_errors: int


class PulseCounts:
    """An observer that counts for the pulse of one namespace."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin anew, in a process that has just begun: a lock may be held by a thread that is not there."""
        self._lock = threading.Lock()
        self._minutes: deque[Minute] = deque(maxlen=MINUTES_OF_TOTALS)
        self._current = Minute(-1)
        self._levels: dict[Place, SeenLevel] = {}
        self._looked_at: dict[Place, float] = {}
        self._labels: set[Label] = set()
        self.last_event_s = 0.0

    def __call__(self, event: Event) -> None:
        """Count an event."""
        if isinstance(event, Decided):
            if event.granted:
                self._granted(event)
            else:
                self._refused(event)
        elif isinstance(event, StoreCalled):
            if event.verb == "draw":
                self._drawn(event)
        elif isinstance(event, Degraded):
            with self._lock:
                self._minute(event.timestamp).degraded += 1

    def _granted(self, event: Decided) -> None:
        place = event.entity_id, event.resource
        now = event.timestamp
        with self._lock:
            minute = self._minute(now)
            minute.granted += 1
            minute.calls.add(place)
            fresh = now - self._looked_at.get(place, 0.0) < LOOK_EVERY_S
            if fresh and minute.calls.counts.get(place, 0) % LOOK_EVERY_CALLS:
                return
            if len(self._looked_at) >= MOST_LOOKED_AT:
                self._looked_at.clear()
            self._looked_at[place] = now
        level = fullest(event.statuses)
        with self._lock:
            self._see(place, level, event)

    def _refused(self, event: Decided) -> None:
        place = event.entity_id, event.resource
        statuses = event.statuses
        binding = lacking(statuses)
        label = BLOCKED if event.blocked else LOADED
        if binding is not None:
            label = binding.limit_name, "own" if binding.entity_id == event.entity_id else "ancestor"
        with self._lock:
            label = self._known(label)
            minute = self._minute(event.timestamp)
            minute.refused[label] = minute.refused.get(label, 0) + 1
            minute.calls.add(place)
            minute.refusals.add(place)
            self._see(place, binding or fullest(statuses), event)

    def _drawn(self, event: StoreCalled) -> None:
        """Without the lock: threads that come at once may be counted as one, and only shares are shown of these."""
        minute = self._current
        if minute.number != event.timestamp // 60:
            with self._lock:
                minute = self._minute(event.timestamp)
        milliseconds = event.duration_seconds * 1000
        minute.store_calls[0 if milliseconds <= 1 else bisect_left(STORE_MS, milliseconds)] += 1
        if event.error is not None:
            minute.store_errors += 1

    def _minute(self, now: float) -> Minute:
        """The minute to count in: a clock that was set back goes on in the last one."""
        current = self._current
        if now > self.last_event_s:
            self.last_event_s = now
        if now // 60 > current.number:
            current = self._current = Minute(int(now // 60))
            self._minutes.append(current)
        return current

    def _known(self, label: Label) -> Label:
        if label not in self._labels:
            if len(self._labels) >= MOST_LABELS:
                return OTHER
            self._labels.add(label)
        return label

    def _see(self, place: Place, status: LimitStatus | None, event: Decided) -> None:
        """Remember how full a place is, if it is worth it."""
        levels = self._levels
        levels.pop(place, None)  # it comes last again, as the one seen latest
        if status is None:
            return
        permille = used_permille(status)
        if permille < NEAR_PERMILLE and event.granted:
            return
        requested = dict(list(event.requested.items())[:MOST_REQUESTED])
        whose = status.limit_name, status.entity_id
        levels[place] = SeenLevel(*whose, permille, status.available, int(event.timestamp), requested)
        if len(levels) > MOST_LEVELS:
            del levels[next(iter(levels))]

    def counted(self, now: float) -> Counted:
        """All of it, as of now."""
        with self._lock:
            last = max([int(now // 60), *(minute.number for minute in self._minutes)])
            whole = [minute for minute in self._minutes if minute.number > last - MINUTES_OF_TOTALS]
            recent = [minute for minute in whole if minute.number > last - MINUTES_OF_ROWS]
            return Counted(
                last,
                _series({minute.number: minute.granted for minute in whole}, last),
                _series({minute.number: minute.degraded for minute in whole}, last),
                {
                    label: _series({minute.number: minute.refused.get(label, 0) for minute in whole}, last)
                    for label in dict.fromkeys(label for minute in whole for label in minute.refused)
                },
                {
                    place: _series(
                        {minute.number: minute.refusals.counts.get(place, 0) for minute in recent},
                        last,
                        MINUTES_OF_ROWS,
                    )
                    for place in merged((minute.refusals for minute in recent), MOST_PLACES).counts
                },
                dict(merged((minute.calls for minute in recent), MOST_PLACES).counts),
                dict(self._levels),
                [
                    sum(counts)
                    for counts in zip(
                        [0] * (len(STORE_MS) + 1),
                        *(minute.store_calls for minute in whole if minute.number > last - MINUTES_OF_STORE),
                        strict=True,
                    )
                ],
                sum(minute.store_errors for minute in whole if minute.number > last - MINUTES_OF_STORE),
            )


def used_permille(status: LimitStatus) -> int:
    """How much of a limit is used, in thousandths of its burst; above 1000 in debt."""
    return 1000 - 1000 * status.available // status.capacity


def lacking(statuses: tuple[LimitStatus, ...]) -> LimitStatus | None:
    """The limit that a refused call waits for longest."""
    refusing = [status for status in statuses if status.refuses]
    return max(refusing, key=lambda one: (one.retry_after_seconds is None, one.retry_after_seconds or 0), default=None)


def fullest(statuses: tuple[LimitStatus, ...]) -> LimitStatus | None:
    """The limit of which the largest part is used; limits that only watch bind none."""
    return max((status for status in statuses if status.enforced), key=used_permille, default=None)


def _series(by_minute: Mapping[int, int], last: int, length: int = MINUTES_OF_TOTALS) -> list[int]:
    return [by_minute.get(number, 0) for number in range(last - length + 1, last + 1)]
