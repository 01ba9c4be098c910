"""Time as the drivers see it.

Bucket time comes from the caller's ``clock``, or the machine's. Waiting normally uses the machine's timer,
whatever the clock says; a clock that can itself drive waiting (:class:`WaitingClock`, as the fake clock for
tests does) takes that over too.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns, perf_counter, time_ns
from typing import Protocol, TypeAlias, runtime_checkable

Clock: TypeAlias = Callable[[], int]
"""Returns milliseconds since the epoch, as an int."""


Stopwatch: TypeAlias = Callable[[], float]
"""Returns seconds from any moment on."""


def machine_clock() -> int:
    """The machine's wall clock."""
    return time_ns() // 1_000_000


def machine_timer() -> int:
    """The machine's timer: never steps back."""
    return monotonic_ns() // 1_000_000


@runtime_checkable
class WaitingClock(Protocol):
    """A clock that also decides when a wait is over."""

    def __call__(self) -> int: ...

    def call_later(self, milliseconds: int, wake: Callable[[], object]) -> Callable[[], object]:
        """Call ``wake`` once that much time has passed on this clock; returns how to call that off."""


def timer_of(clock: Clock) -> Clock:
    """What measures waits under ``clock``."""
    return clock if isinstance(clock, WaitingClock) else machine_timer


def stopwatch_of(clock: Clock) -> Stopwatch:
    """What measures how long something took, under ``clock``."""
    return (lambda: clock() / 1000) if isinstance(clock, WaitingClock) else perf_counter
