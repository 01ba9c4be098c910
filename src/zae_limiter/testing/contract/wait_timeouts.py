"""``timeout=``: waiting in the queue."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from zae_limiter.exceptions import RateLimitExceeded
from zae_limiter.models.limit import Limit
from zae_limiter.testing.contract.harness import World, case

RPM = Limit.per_minute("rpm", 60)


async def drain(world: World, entity: str = "key") -> None:
    async with world.limiter.acquire(entity, "gpt", {"rpm": 60}):
        pass


async def taking(world: World, log: list[Any], name: str, amount: int, timeout: float, entity: str = "key") -> None:
    try:
        async with world.limiter.acquire(entity, "gpt", {"rpm": amount}, timeout=timeout):
            log.append((name, (world.clock() - world.clock.start) / 1000))
    except RateLimitExceeded:
        log.append((name, "denied"))


async def taking_beside(
    world: World, log: list[Any], holder: Awaitable[None], name: str, amount: int, timeout: float, entity: str = "key"
) -> None:
    """One holds a lease and tells the log; from then on another waits for what it lacks."""

    async def waiting() -> None:
        await world.until(lambda: bool(log))
        await taking(world, log, name, amount, timeout, entity)

    assert await world.concurrently(holder, waiting()) == [None, None]


@case("A wait ends at the millisecond the tokens are due")
async def a_wait_ends_when_the_tokens_are_due(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    await drain(world)
    log: list[Any] = []

    async def time() -> None:
        await world.until_waiting(1)
        world.clock.advance(4.999)
        await world.until_waiting(1)
        assert log == []
        world.clock.advance(0.001)

    await world.concurrently(taking(world, log, "a", 5, 10), time())
    assert log == [("a", 5.0)]


@case("A wait longer than the timeout is refused at once")
async def a_hopeless_wait_is_refused_at_once(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    await world.limiter.create_entity("org")
    await world.limiter.create_entity("child", parent_id="org", cascade=True)
    for entity in ("key", "child"):
        await drain(world, entity)
        for amount, timeout in ((5, 4.999), (60, 30)):
            with world.raises(RateLimitExceeded) as caught:
                async with world.limiter.acquire(entity, "gpt", {"rpm": amount}, timeout=timeout):
                    pass
            assert caught.value.retry_after_seconds == amount
    assert world.clock() == world.clock.start
    # Leases of other buckets are none of its business.
    async with world.limiter.acquire("other", "gpt", {"rpm": 60}):
        with world.raises(RateLimitExceeded):
            async with world.limiter.acquire("key", "gpt", {"rpm": 5}, timeout=3):
                pass
    assert world.clock() == world.clock.start


@case("While a lease of the process is open, which may give back, a wait longer than the timeout goes on until that")
async def a_wait_for_an_open_lease_ends_at_its_timeout(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    log: list[Any] = []

    async def holding() -> None:
        async with world.limiter.acquire("key", "gpt", {"rpm": 60}):
            log.append("held")
            await world.until_waiting(1)
            world.clock.advance(3)
            await world.until(lambda: len(log) == 2)

    await taking_beside(world, log, holding(), "late", 30, 3)
    assert log == ["held", ("late", "denied")]
    assert await world.limiter.available("key", "gpt") == {"rpm": 3}


@case("When the last open lease has ended and gave nothing back, a wait longer than the timeout is over")
async def a_wait_for_an_open_lease_ends_with_it(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    log: list[Any] = []

    async def holding() -> None:
        async with world.limiter.acquire("key", "gpt", {"rpm": 60}):
            log.append("held")
            await world.until_waiting(1)
        log.append("ended")
        world.clock.advance(0.1)

    await taking_beside(world, log, holding(), "late", 30, 20)
    assert log == ["held", "ended", ("late", "denied")]


@case("What an open lease of an ancestor's other child gives back ends a wait that was longer than the timeout")
async def leases_below_the_same_ancestor_may_give_back(world: World) -> None:
    await world.limiter.set_system_defaults([Limit.per_minute("rpm", 600)])
    await world.limiter.create_entity("org")
    await world.limiter.set_limits("org", [RPM])
    for key in ("one", "two"):
        await world.limiter.create_entity(key, parent_id="org", cascade=True)
    log: list[Any] = []

    async def giving_back() -> None:
        async with world.limiter.acquire("one", "gpt", {"rpm": 60}) as lease:
            log.append("holding")
            await world.until_waiting(1)
            await lease.release(rpm=50)

    await taking_beside(world, log, giving_back(), "two", 50, 3, "two")
    assert log == ["holding", ("two", 0.0)]


@case("First come, first served")
async def those_who_wait_are_served_in_order(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    await drain(world)
    log: list[Any] = []

    async def after(count: int, name: str, amount: int) -> None:
        await world.until_waiting(count)
        await taking(world, log, name, amount, 60)

    async def time() -> None:
        await world.until_waiting(3)
        for served in range(3):
            world.clock.advance((10, 1, 2)[served])
            await world.until(lambda served=served: len(log) == served + 1)  # type: ignore[misc]
            await world.until_waiting(2 - served)

    await world.concurrently(taking(world, log, "big", 10, 60), after(1, "small", 1), after(2, "middle", 2), time())
    assert log == [("big", 10.0), ("small", 11.0), ("middle", 13.0)]


@case("timeout=0 does not overtake those who wait, but may take what they leave")
async def who_does_not_wait_does_not_overtake(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, Limit.per_minute("tpm", 100)])
    await drain(world)
    log: list[Any] = []

    async def others() -> None:
        await world.until_waiting(1)
        world.clock.advance(3)
        with world.raises(RateLimitExceeded) as caught:
            async with world.limiter.acquire("key", "gpt", {"rpm": 1}):
                pass
        assert caught.value.retry_after_seconds == 3.0
        async with world.limiter.acquire("key", "gpt", {"tpm": 100}):
            pass
        await world.until_waiting(1)
        world.clock.advance(2)

    results = await world.concurrently(taking(world, log, "patient", 5, 60), others())
    assert results == [None, None]
    assert log == [("patient", 5.0)]


@case("A give-back wakes the head of the queue")
async def a_give_back_wakes_who_waits(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    log: list[Any] = []

    async def giving_back() -> None:
        with world.raises(ZeroDivisionError):
            async with world.limiter.acquire("key", "gpt", {"rpm": 60}):
                log.append("holding")
                await world.until_waiting(1)
                raise ZeroDivisionError

    await taking_beside(world, log, giving_back(), "next", 60, 60)
    assert log == ["holding", ("next", 0.0)]


@case("A change of limits wakes the head of the queue")
async def a_change_of_limits_wakes_who_waits(world: World) -> None:
    await world.limiter.set_limits("key", [RPM])
    await drain(world)
    log: list[Any] = []

    async def raising() -> None:
        await world.until_waiting(1)
        await world.limiter.set_limits("key", [Limit.per_second("rpm", 60)])
        await world.until_waiting(1)
        world.clock.advance(1)

    await world.concurrently(taking(world, log, "a", 60, 60), raising())
    assert log == [("a", 1.0)]


@case("Two who wait at different buckets of one hierarchy do not wait for each other for ever")
async def waiting_at_different_levels_is_no_deadlock(world: World) -> None:
    await world.limiter.set_system_defaults([Limit.per_minute("rpm", 60, burst=10)])
    await world.limiter.create_entity("org")
    await world.limiter.create_entity("key", parent_id="org")
    async with world.limiter.acquire("key", "gpt", {"rpm": 4}):
        pass
    await world.limiter.update_entity("key", cascade=True)
    async with world.limiter.acquire("org", "gpt", {"rpm": 10}):
        pass
    log: list[Any] = []

    async def second() -> None:
        await world.until_waiting(1)
        await taking(world, log, "at the key", 7, 60, "key")

    async def time() -> None:
        await world.until_waiting(2)
        for served, seconds in ((1, 6), (2, 7)):
            world.clock.advance(seconds)
            await world.until(lambda served=served: len(log) == served)  # type: ignore[misc]
            await world.until_waiting(2 - served)  # the clock must not move between a denial and the wait that follows

    assert await world.concurrently(taking(world, log, "at the org", 6, 60, "key"), second(), time()) == [None] * 3
    assert log == [("at the org", 6.0), ("at the key", 13.0)]


@case("Who waits for an ancestor waits at the ancestor")
async def waiting_happens_at_the_bucket_that_lacks(world: World) -> None:
    await world.limiter.create_entity("org")
    for key in ("one", "two"):
        await world.limiter.create_entity(key, parent_id="org", cascade=True)
    await world.limiter.set_system_defaults([Limit.per_minute("rpm", 600)])
    await world.limiter.set_limits("org", [RPM])
    await drain(world, "one")
    log: list[Any] = []

    async def time() -> None:
        await world.until_waiting(1)
        world.clock.advance(1)
        with world.raises(RateLimitExceeded):
            async with world.limiter.acquire("two", "gpt", {"rpm": 1}):
                pass
        await world.until_waiting(1)  # again, if it looked meanwhile
        world.clock.advance(1)

    assert await world.concurrently(taking(world, log, "one", 2, 60, "one"), time()) == [None, None]
    assert log == [("one", 2.0)]
    assert (await world.limiter.available("org", "gpt")) == {"rpm": 0}
