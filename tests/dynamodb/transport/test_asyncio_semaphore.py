"""Seats: never more than there are, in turn, and none is lost when somebody stops waiting."""

from __future__ import annotations

import asyncio
import random

import pytest

from zae_limiter.stores.dynamodb.transport.asyncio_connection import Seats


def test_who_waits_is_served_in_turn_and_nobody_overtakes() -> None:
    async def main() -> list[str]:
        seats, served = Seats(1), []
        assert seats.take_at_once()

        async def wait(name: str) -> None:
            await seats.take()
            served.append(name)

        tasks = [asyncio.create_task(wait(name)) for name in "abc"]
        await asyncio.sleep(0)
        seats.give_back()
        assert not seats.take_at_once(), "it is a's"
        await asyncio.sleep(0)
        for _ in "bc":
            seats.give_back()
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        return served

    assert asyncio.run(main()) == ["a", "b", "c"]


@pytest.mark.parametrize("seed", range(5))
def test_no_seat_is_lost_or_made_whoever_is_cancelled_when(seed: int) -> None:
    rng = random.Random(seed)
    most = 0

    async def main() -> int:
        seats, taken = Seats(3), 0

        async def one() -> None:
            nonlocal taken, most
            await seats.take()
            taken += 1
            most = max(most, taken)
            try:
                for _ in range(rng.randrange(3)):
                    await asyncio.sleep(0)
            finally:
                taken -= 1
                seats.give_back()

        tasks = [asyncio.create_task(one()) for _ in range(200)]
        while not all(task.done() for task in tasks):
            rng.choice(tasks).cancel()
            await asyncio.sleep(0)
        return sum(seats.take_at_once() for _ in range(5))

    assert asyncio.run(main()) == 3
    assert most == 3
