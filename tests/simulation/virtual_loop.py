"""An event loop in which no time passes but what the tasks in it wait for: seeded, and the same every time.

Real asyncio code runs in it unchanged. When nothing is ready the loop does not sleep, it moves its clock to the next
timer; when there is no timer either, every task waits for ever, and that is an error.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

Result = TypeVar("Result")

START_MS = 1_767_225_600_000


class Deadlock(AssertionError):
    """Every task waits, and nothing will ever wake one of them."""


class _NoTimeToSleep(selectors.BaseSelector):
    """Where a loop would wait for sockets and timers: the time is moved instead."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, fileobj if isinstance(fileobj, int) else fileobj.fileno(), events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("every task waits, and nothing will ever wake one of them")
        if timeout > 0:
            self._loop.move(timeout)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop. ``on_idle`` is called whenever nothing is left to do in a millisecond, before the next one."""

    def __init__(self) -> None:
        self._now = 0.0
        self.on_idle: Callable[[], None] | None = None
        super().__init__(_NoTimeToSleep(self))

    def time(self) -> float:
        """Seconds since it began."""
        return self._now

    def move(self, seconds: float) -> None:
        """To the next timer."""
        if self.on_idle is not None and milliseconds(self._now + seconds) > milliseconds(self._now):
            self.on_idle()
        self._now += seconds

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.Handle:
        """There is only one thread."""
        return self.call_soon(callback, *args, context=context)


def milliseconds(seconds: float) -> int:
    """Whole ones, as clocks tell them; what a sum of floats lacks is nothing."""
    return int(seconds * 1000 + 1e-6)


class LoopClock:
    """The wall clock of a process in the loop, and what it waits by."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def __call__(self) -> int:
        """Milliseconds since the epoch."""
        return START_MS + self.timer()

    def timer(self) -> int:
        """Milliseconds since the loop began."""
        return milliseconds(self._loop.time())

    def call_later(self, milliseconds: int, wake: Callable[[], object]) -> Callable[[], object]:
        """As :class:`~zae_limiter.running.clocks.WaitingClock` says."""
        return self._loop.call_later(milliseconds / 1000, wake).cancel


def run(loop: VirtualLoop, main: Coroutine[Any, Any, Result]) -> Result:
    """The result of a task and of all it starts. Whatever else is left running then is an error."""
    try:
        asyncio.set_event_loop(loop)
        result = loop.run_until_complete(main)
        left = asyncio.all_tasks(loop)
        assert not left, f"still running: {left}"
        return result
    finally:
        loop.on_idle = None
        end(loop)
        asyncio.set_event_loop(None)
        loop.close()


def end(loop: VirtualLoop) -> None:
    """Cancel what a failed run left behind, until it gives in."""
    while left := asyncio.all_tasks(loop):
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.wait(left))
