"""The semaphore of an event loop: in turn, and no permit is lost when a task is cancelled."""

from __future__ import annotations

import asyncio
import random

import pytest

from zae_limiter.stores.dynamodb.transport.asyncio_connection import LoopSemaphore


def test_tasks_that_wait_are_served_in_turn() -> None:
    async def main() -> list[str]:
        permits, served = LoopSemaphore(1), []
        assert permits.acquire_now()

        async def wait(name: str) -> None:
            await permits.acquire()
            served.append(name)

        tasks = [asyncio.create_task(wait(name)) for name in "abc"]
        await asyncio.sleep(0)
        permits.release()
        assert not permits.acquire_now(), "it is a's"
        await asyncio.sleep(0)
        for _ in "bc":
            permits.release()
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        return served

    assert asyncio.run(main()) == ["a", "b", "c"]


@pytest.mark.parametrize("seed", range(5))
def test_no_permit_is_lost_or_made_by_cancelling_tasks_at_any_moment(seed: int) -> None:
    rng = random.Random(seed)
    most = 0

    async def main() -> int:
        permits, taken = LoopSemaphore(3), 0

        async def one() -> None:
            nonlocal taken, most
            await permits.acquire()
            taken += 1
            most = max(most, taken)
            try:
                for _ in range(rng.randrange(3)):
                    await asyncio.sleep(0)
            finally:
                taken -= 1
                permits.release()

        tasks = [asyncio.create_task(one()) for _ in range(200)]
        while not all(task.done() for task in tasks):
            rng.choice(tasks).cancel()
            await asyncio.sleep(0)
        return sum(permits.acquire_now() for _ in range(5))

    assert asyncio.run(main()) == 3
    assert most == 3
