"""How many may do something at a time, within one event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress


class Seats:
    """So many at a time. Who finds all of them taken waits, and nobody overtakes.

    (asyncio's semaphore can only be acquired by waiting for it, even if there is nothing to wait for.)
    """

    __slots__ = ("_free", "_waiting")

    def __init__(self, count: int) -> None:
        self._free = count  # none, while anybody waits
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take_at_once(self) -> bool:
        """Whether one was free; then it is taken."""
        if not self._free:
            return False
        self._free -= 1
        return True

    async def take(self) -> None:
        """Take one, when it is this one's turn."""
        if self.take_at_once():
            return
        seat: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(seat)
        try:
            await seat
        except BaseException:
            if seat.done() and not seat.cancelled():
                self.give_back()  # it came in the same moment
            else:
                with suppress(ValueError):
                    self._waiting.remove(seat)
            raise

    def give_back(self) -> None:
        """Leave it to whoever has waited longest."""
        while self._waiting:
            seat = self._waiting.popleft()
            if not seat.done():
                seat.set_result(None)
                return
        self._free += 1
