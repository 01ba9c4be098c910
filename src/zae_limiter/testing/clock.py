"""A clock that moves when a test says so, and takes waiting along."""

from __future__ import annotations

import heapq
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

NEW_YEAR_2026_MS = 1_767_225_600_000

_PASSES_BEFORE_JUMP = 20
"""Turns an event loop gets before the clock jumps, so that every task that wants to wait does."""

_SECONDS_BEFORE_JUMP = 0.005
"""The same for threads, which cannot be counted."""


class FakeClock:
    """Give it as ``clock=``; it drives refill, and every wait of ``timeout=`` too.

    By default a wait is over at once: the clock jumps to its end, so a test that waits an hour takes no
    time. Several who wait are woken one after the other, each at its time. With ``auto_advance=False``
    callers that wait stay waiting until the test calls :meth:`advance`.

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
        self._jumping = False
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
        loop = _running_loop()
        with self._lock:
            alone = len(self._waiting) == 1
            if self._jumping or (loop is None and alone):
                jumping = self._jumping
            else:
                self._jumping = jumping = True
                if loop is not None:
                    loop.call_soon(self._jump_in_loop, loop, _PASSES_BEFORE_JUMP)
                else:
                    threading.Thread(target=self._jump_in_thread, daemon=True).start()
        if not jumping:
            self._move(max(due, self._now))

    def _jump_in_loop(self, loop: Any, passes: int) -> None:
        """Jump from wait to wait, and let the tasks react in between."""
        if passes:
            loop.call_soon(self._jump_in_loop, loop, passes - 1)
        elif self._jump_to_earliest():
            loop.call_soon(self._jump_in_loop, loop, _PASSES_BEFORE_JUMP)

    def _jump_in_thread(self) -> None:
        """Jump from wait to wait, and let the threads react in between."""
        time.sleep(_SECONDS_BEFORE_JUMP)
        while self._jump_to_earliest():
            time.sleep(_SECONDS_BEFORE_JUMP)

    def _jump_to_earliest(self) -> bool:
        """Whether a caller was waiting."""
        with self._lock:
            if not self._waiting:
                self._jumping = False
                return False
            earliest = self._waiting[0][0]
        self._move(max(earliest, self._now))
        return True

    def _move(self, to: int) -> None:
        while True:
            with self._lock:
                if not self._waiting or self._waiting[0][0] > to:
                    self._now = to
                    return
                due, _, wake = heapq.heappop(self._waiting)
                self._now = max(self._now, due)
            wake()


def _running_loop() -> Any:
    asyncio = sys.modules.get("asyncio")
    try:
        return asyncio.get_running_loop() if asyncio else None
    except RuntimeError:
        return None
