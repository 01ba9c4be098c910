"""A clock that moves when a test says so, and takes waiting along."""

from __future__ import annotations

import heapq
import sys
import threading
from collections.abc import Callable

NEW_YEAR_2026_MS = 1_767_225_600_000

_PASSES_BEFORE_JUMP = 10
"""Turns an event loop gets before the clock jumps, so that every task that wants to wait does."""


class FakeClock:
    """Give it as ``clock=``; it drives refill, and every wait of ``timeout=`` too.

    By default a wait is over at once: the clock jumps to its end, so a test that waits an hour takes no
    time. With ``auto_advance=False`` whoever waits stays waiting until the test calls :meth:`advance`.

    >>> clock = FakeClock()
    >>> clock.advance(1.5)
    >>> clock() - clock.start
    1500
    """

    def __init__(self, start: int = NEW_YEAR_2026_MS, *, auto_advance: bool = True) -> None:
        self.start = start
        self._now = start
        self._auto_advance = auto_advance
        self._lock = threading.RLock()
        self._serial = 0
        self._waiting: list[tuple[int, int, Callable[[], object]]] = []

    def __call__(self) -> int:
        """Milliseconds since the epoch."""
        return self._now

    @property
    def waiting(self) -> int:
        """How many waits have not ended yet."""
        with self._lock:
            return len(self._waiting)

    def advance(self, seconds: float = 0, *, milliseconds: int = 0) -> None:
        """Move on, ending the waits whose time has come, in their order."""
        self._move(self._now + round(seconds * 1000) + milliseconds)

    def step_to(self, milliseconds: int) -> None:
        """Set the time, forwards or backwards, as a clock that is being corrected."""
        self._move(milliseconds)

    def call_later(self, milliseconds: int, wake: Callable[[], object]) -> Callable[[], object]:
        """Call ``wake`` once that much time has passed on this clock; returns how to call that off."""
        with self._lock:
            self._serial += 1
            wait = (self._now + milliseconds, self._serial, wake)
            heapq.heappush(self._waiting, wait)
        if self._auto_advance:
            self._jump_soon(wait[0])

        def call_off() -> None:
            with self._lock:
                if wait in self._waiting:
                    self._waiting.remove(wait)
                    heapq.heapify(self._waiting)

        return call_off

    def _jump_soon(self, due: int) -> None:
        loop = None
        if asyncio := sys.modules.get("asyncio"):
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                loop = None
        if loop is None:
            self._move(max(due, self._now))
            return

        def jump(passes: int) -> None:
            if passes:
                loop.call_soon(jump, passes - 1)
                return
            with self._lock:
                earliest = self._waiting[0][0] if self._waiting else None
            if earliest is not None:
                self._move(max(earliest, self._now))

        loop.call_soon(jump, _PASSES_BEFORE_JUMP)

    def _move(self, to: int) -> None:
        while True:
            with self._lock:
                if not self._waiting or self._waiting[0][0] > to:
                    self._now = to
                    return
                due, _, wake = heapq.heappop(self._waiting)
                self._now = max(self._now, due)
            wake()
