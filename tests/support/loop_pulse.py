"""A task that wants to run all the time, and notices when it could not."""

from __future__ import annotations

import asyncio
import time


class Pulse:
    """Beats while its block runs. ``longest`` is what it ever had to wait for a beat, in seconds."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.beats = 0

    async def __aenter__(self) -> Pulse:
        self._task = asyncio.create_task(self._beat())
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *error: object) -> None:
        beats = self.beats
        while self.beats == beats:  # the one that was due while the block still ran counts too
            await asyncio.sleep(0.001)
        self._task.cancel()

    async def _beat(self) -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(0.001)
            now = time.monotonic()
            self.longest = max(self.longest, now - last)
            self.beats += 1
            last = now
