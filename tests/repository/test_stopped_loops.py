"""An event loop that is stopped, or closed, with tasks left in it: no other caller waits for them for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository, SyncRateLimiter
from zae_limiter.stores.memory.store import MemoryStore
from zae_limiter.testing import FakeClock, sync_memory_limiter

LIMITS = [Limit.custom("rpm", 60, 60, 60)]


class Left:
    """A limiter with an empty bucket, and a task that was left in the queue for five tokens, for ten seconds."""

    def __init__(self, *, closed: bool) -> None:
        self.clock = FakeClock(auto_advance=False)
        store = MemoryStore()
        self.limiter: SyncRateLimiter = sync_memory_limiter(LIMITS, store=store, clock=self.clock)
        with self.limiter.acquire("key", "gpt", {"rpm": 60}):
            pass
        waiting = RateLimiter(Repository(store, clock=self.clock))
        self.loop = asyncio.new_event_loop()
        self.task: Any = None

        async def wait() -> None:
            async with waiting.acquire("key", "gpt", {"rpm": 5}, timeout=10):
                pass

        async def leave_behind() -> None:
            self.task = asyncio.ensure_future(wait())
            while not self.clock.waiting:
                await asyncio.sleep(0)

        self.loop.run_until_complete(leave_behind())
        if closed:
            self.loop.close()

    def ask(self) -> None:
        with self.limiter.acquire("key", "gpt", {"rpm": 1}):
            pass

    def end(self) -> None:
        if self.loop.is_closed():
            self.task._log_destroy_pending = False
            return
        self.task.cancel()
        self.loop.run_until_complete(asyncio.gather(self.task, return_exceptions=True))
        self.loop.close()


def test_a_waiter_in_a_closed_loop_reserves_nothing() -> None:
    left = Left(closed=True)
    left.clock.advance(2)
    left.ask()
    assert not left.limiter._core.wait_queue
    left.end()


def test_a_waiter_in_a_stopped_loop_reserves_nothing_after_its_time() -> None:
    left = Left(closed=False)
    left.clock.advance(2)
    with pytest.raises(RateLimitExceeded):
        left.ask()  # its loop may run again: until its time is over it is first
    left.clock.advance(9.5)
    left.ask()
    assert not left.limiter._core.wait_queue
    left.end()


def test_a_stopped_loop_that_runs_again_finds_its_place_gone_and_is_denied_or_served() -> None:
    left = Left(closed=False)
    left.clock.advance(12)
    left.ask()
    (result,) = left.loop.run_until_complete(asyncio.gather(left.task, return_exceptions=True))
    assert result is None or isinstance(result, RateLimitExceeded)
    assert not left.limiter._core.wait_queue
    left.end()
