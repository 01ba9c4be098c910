"""A task that wants to run all the time, and notices when it could not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping


class Pulse:
    """Beats while its block runs. ``longest`` is what it ever had to wait for a beat, in seconds. ``at`` is what
    happens at a beat: where a test waits for that, no stall of the machine looks like a loop that stands still."""

    def __init__(self, at: Mapping[int, Callable[[], object]] | None = None) -> None:
        self._at = at or {}
        self.longest = 0.0
        self.beats = 0
        self.stood_still = False

    def wait_for(self, beats: int, seconds: float) -> None:
        """Wait, in another thread, until the loop has beaten so often; note it if it does not."""
        wanted, give_up_at = self.beats + beats, time.monotonic() + seconds
        while self.beats < wanted and not self.stood_still and not self._task.done():
            self.stood_still = time.monotonic() > give_up_at
            time.sleep(0.001)

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
            self._at.get(self.beats, int)()
            last = now
