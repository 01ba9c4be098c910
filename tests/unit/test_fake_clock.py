"""The clock for tests: it moves when told, and takes waiting along."""

from __future__ import annotations

import asyncio
import threading

from zae_limiter import Limit
from zae_limiter.testing import FakeClock, memory_limiter, sync_memory_limiter

LIMITS = [Limit.per_second("rps", 1)]


def test_a_wait_takes_no_time_and_moves_the_clock() -> None:
    clock = FakeClock()
    limiter = sync_memory_limiter(LIMITS, clock=clock)
    for _ in range(4):
        with limiter.acquire("key", "gpt", {"rps": 1}, timeout=3_600):
            pass
    assert clock() - clock.start == 3_000


def test_several_tasks_that_wait_are_served_each_at_its_time() -> None:
    clock = FakeClock()
    served: list[int] = []

    async def call() -> None:
        async with limiter.acquire("key", "gpt", {"rps": 1}, timeout=100):
            served.append(clock() - clock.start)

    async def all_at_once() -> None:
        await asyncio.gather(*(call() for _ in range(5)))

    limiter = memory_limiter(LIMITS, clock=clock)
    asyncio.run(all_at_once())
    assert served == [0, 1_000, 2_000, 3_000, 4_000]


def test_several_threads_that_wait_are_served_each_at_its_time() -> None:
    clock = FakeClock()
    limiter = sync_memory_limiter([Limit.per_minute("rpm", 60, burst=1)], clock=clock)
    with limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    served: list[int] = []
    together = threading.Barrier(4)

    def call() -> None:
        together.wait()
        with limiter.acquire("key", "gpt", {"rpm": 1}, timeout=100):
            served.append(clock() - clock.start)

    threads = [threading.Thread(target=call, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(served) == 4
    assert served == sorted(set(served))
    assert served[-1] <= 10_000


def test_a_clock_that_does_not_advance_by_itself_waits_for_the_test() -> None:
    clock = FakeClock(auto_advance=False)
    is_set: list[int] = []
    clock.call_later(500, lambda: is_set.append(clock()))
    call_off = clock.call_later(700, lambda: is_set.append(clock()))
    clock.advance(0.499)
    assert (is_set, clock.waiting) == ([], 2)
    clock.advance(milliseconds=1)
    assert (is_set, clock.waiting) == ([clock.start + 500], 1)
    call_off()
    clock.advance(10)
    assert len(is_set) == 1
