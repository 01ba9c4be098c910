"""Limits of calls in flight: slots come back whatever happens, once, and at the latest when they are due."""

from __future__ import annotations

from typing import Any

from zae_limiter.exceptions import RateLimitExceeded, RequestExceedsBurst, ValidationError
from zae_limiter.models.events import HoldLost, HoldsRenewed, Settled
from zae_limiter.models.limit import Limit
from zae_limiter.testing.contract.harness import World, kind_case

RPM = Limit.per_minute("rpm", 100)
CALLS = Limit.concurrent("calls", 2, ttl=60)
ONE = {"rpm": 1, "calls": 1}


async def free(world: World) -> int:
    """What the limiter says is free."""
    return int((await world.limiter.available("key", "gpt"))["calls"])


@kind_case("A slot comes back at the end of the lease: after success, failure, keep, commit and settle alike")
async def a_slot_comes_back_whatever_happens(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, CALLS])
    async with world.limiter.acquire("key", "gpt", ONE) as lease:
        assert await free(world) == 1
        assert [(hold.limit_name, hold.amount) for hold in lease.holds] == [("calls", 1)]
    assert await free(world) == 2
    assert lease.holds == ()
    for on_error in ("refund", "keep"):
        try:
            async with world.limiter.acquire("key", "gpt", ONE, on_error=on_error) as lease:
                await lease.adjust(rpm=2)
                raise LookupError
        except LookupError:
            pass
        assert await free(world) == 2
    try:
        async with world.limiter.acquire("key", "gpt", ONE) as lease:
            await lease.settle(rpm=1, calls=1)
            await lease.commit()
            assert await free(world) == 1
            raise LookupError
    except LookupError:
        pass
    assert await free(world) == 2


@kind_case("No more calls are in flight than the limit says; a call that wants no slot is not refused")
async def no_more_than_the_limit_are_in_flight(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, CALLS])
    async with world.limiter.acquire("key", "gpt", ONE), world.limiter.acquire("key", "gpt", ONE):
        with world.raises(RateLimitExceeded) as caught:
            async with world.limiter.acquire("key", "gpt", ONE):
                pass
        assert await world.limiter.available("key", "gpt") == {"rpm": 98, "calls": 0}
        async with world.limiter.acquire("key", "gpt", {"rpm": 1}):
            pass
    status = caught.value.primary_violation
    assert (status.limit_name, status.at_latest) == ("calls", True)
    async with world.limiter.acquire("key", "gpt", {"calls": 2}):
        pass
    with world.raises(RequestExceedsBurst):
        async with world.limiter.acquire("key", "gpt", {"calls": 3}):
            pass


@kind_case("The wait for a slot is a bound, and exact as such; the error asks to come again within a second")
async def the_wait_for_a_slot_is_a_bound(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, Limit.concurrent("calls", 1, ttl=60)])
    abandoned = world.limiter.acquire("key", "gpt", ONE)
    await abandoned.__aenter__()
    world.clock.advance(7, milliseconds=77)
    with world.raises(RateLimitExceeded) as caught:
        async with world.limiter.acquire("key", "gpt", ONE):
            pass
    status = caught.value.primary_violation
    bound = status.retry_after_seconds
    assert bound is not None
    assert 53 - 0.077 <= bound < 75 - 7
    assert caught.value.retry_after_seconds == 1.0
    assert caught.value.retry_after_header == "1"
    world.clock.advance(bound, milliseconds=-1)
    with world.raises(RateLimitExceeded):
        async with world.limiter.acquire("key", "gpt", ONE):
            pass
    world.clock.advance(milliseconds=1)
    async with world.limiter.acquire("key", "gpt", ONE):
        pass


@kind_case("A limit that knows its wait is named before one that only has a bound")
async def a_limit_that_knows_its_wait_goes_first(world: World) -> None:
    await world.limiter.set_system_defaults([Limit.per_minute("rpm", 1), CALLS])
    async with world.limiter.acquire("key", "gpt", {"rpm": 1, "calls": 2}):
        with world.raises(RateLimitExceeded) as caught:
            async with world.limiter.acquire("key", "gpt", ONE):
                pass
    assert len(caught.value.violations) == 2
    assert caught.value.primary_violation.limit_name == "rpm"
    assert caught.value.retry_after_seconds == 60.0


@kind_case("What a client that died held is free after its time, and after 1.25 of it at the latest")
async def slots_of_the_dead_come_back(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, CALLS])
    world.clock.advance(milliseconds=12_345)
    dead = [world.client().acquire("key", "gpt", ONE) for _ in range(2)]
    for lease in dead:
        await lease.__aenter__()
    world.clock.advance(60, milliseconds=-1)
    assert await free(world) == 0
    world.clock.advance(15, milliseconds=1)
    assert await free(world) == 2
    async with world.limiter.acquire("key", "gpt", {"calls": 2}):
        assert await free(world) == 0
        for lease in dead:  # they were not dead after all, and too late
            await lease.__aexit__(None, None, None)
        assert await free(world) == 0
    assert await free(world) == 2


@kind_case("A give-back that is late, and that no caller was waiting for, is a give-back")
async def a_late_give_back_counts(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, CALLS])
    async with world.limiter.acquire("key", "gpt", ONE):
        world.clock.advance(600)
        assert await free(world) == 2
    assert await free(world) == 2
    async with world.limiter.acquire("key", "gpt", {"calls": 2}):
        assert await free(world) == 0


@kind_case("renew() holds slots for as long again; what was lost meanwhile is taken again, without asking")
async def holds_are_renewed_or_taken_again(world: World) -> None:
    limiter = world.observed()
    await limiter.set_system_defaults([RPM, CALLS])
    async with limiter.acquire("key", "gpt", {"calls": 2}) as lease:
        for _ in range(5):
            world.clock.advance(50)
            await lease.renew()
            assert await free(world) == 0
        assert any(isinstance(event, HoldsRenewed) for event in world.events)
        world.clock.advance(100)
        async with world.limiter.acquire("key", "gpt", ONE):
            await lease.renew()
            assert await free(world) == -1
            assert [event for event in world.events if isinstance(event, HoldLost)] == [
                HoldLost("key", "gpt", "calls", 2, taken_again=True)
            ]
            with world.raises(RateLimitExceeded):
                async with world.limiter.acquire("key", "gpt", ONE):
                    pass
            async with world.limiter.acquire("key", "gpt", {"rpm": 1}):  # wants no slot
                pass
        assert await free(world) == 0
    assert await free(world) == 2


@kind_case("A raised or lowered limit of calls in flight counts at once; what is held stays held")
async def a_changed_number_counts_at_once(world: World) -> None:
    await world.limiter.set_limits("key", [CALLS], resource="gpt")
    async with world.limiter.acquire("key", "gpt", {"calls": 2}):
        await world.limiter.set_limits("key", [Limit.concurrent("calls", 5, ttl=60)], resource="gpt")
        assert await free(world) == 3
        await world.limiter.set_limits("key", [Limit.concurrent("calls", 1, ttl=20)], resource="gpt")
        assert await free(world) == -1
        with world.raises(RateLimitExceeded):
            async with world.limiter.acquire("key", "gpt", {"calls": 1}):
                pass
    assert await free(world) == 1
    async with world.limiter.acquire("key", "gpt", {"calls": 1}) as lease:
        assert lease.holds[0].ttl == 20


@kind_case("A renewal lasts as long as the limit says by then; until it is renewed a slot is due when it was")
async def a_renewal_takes_the_time_in_force(world: World) -> None:
    await world.limiter.set_limits("key", [CALLS], resource="gpt")
    async with world.limiter.acquire("key", "gpt", {"calls": 1}) as lease:
        (hold,) = lease.holds
        before = hold.due
        await world.limiter.set_limits("key", [Limit.concurrent("calls", 2, ttl=600)], resource="gpt")
        assert (hold.due, hold.ttl) == (before, 60)
        world.clock.advance(30)
        await lease.renew()
        assert 600 <= hold.due - world.clock() / 1000 <= 750
        assert hold.ttl == 600
        await world.limiter.set_limits("key", [Limit.concurrent("calls", 2, ttl=20)], resource="gpt")
        world.clock.advance(590)
        await lease.renew()
        assert 20 <= hold.due - world.clock() / 1000 <= 160
        assert hold.ttl == 20


@kind_case("reset frees every slot; what ends later gives back nothing")
async def reset_frees_every_slot(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, CALLS])
    async with world.limiter.acquire("key", "gpt", {"calls": 2}):
        await world.limiter.reset("key")
        assert await free(world) == 2
        async with world.limiter.acquire("key", "gpt", ONE):
            pass
    assert await free(world) == 2


@kind_case("A lease gives nothing back to a bucket that was removed and made again")
async def another_life_of_a_bucket_gets_nothing(world: World) -> None:
    await world.limiter.create_entity("key")
    await world.limiter.set_system_defaults([RPM, CALLS])
    async with world.limiter.acquire("key", "gpt", {"calls": 2}):
        await world.limiter.delete_entity("key")
        await world.limiter.create_entity("key")
        async with world.limiter.acquire("key", "gpt", ONE):
            assert await free(world) == 1
    assert await free(world) == 2
    async with world.limiter.acquire("key", "gpt", {"calls": 2}):
        assert await free(world) == 0


@kind_case("Slots can be taken and given back within a lease: consume asks, release and adjust do not")
async def slots_change_within_a_lease(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, Limit.concurrent("calls", 3, ttl=60)])
    async with world.limiter.acquire("key", "gpt", ONE) as lease:
        await lease.consume(calls=2)
        assert await free(world) == 0
        with world.raises(RateLimitExceeded):
            await lease.consume(calls=1)
        await lease.release(calls=1)
        await lease.flush()
        assert await free(world) == 1
        await lease.adjust(calls=2)
        await lease.flush()
        assert await free(world) == -1
        assert sum(hold.amount for hold in lease.holds) == 4
        with world.raises(ValidationError):
            await lease.release(calls=5)
    assert await free(world) == 3


@kind_case("Slots of every leg come back: those of the parent too")
async def slots_of_every_leg_come_back(world: World) -> None:
    await world.limiter.create_entity("team")
    await world.limiter.create_entity("key", parent_id="team", cascade=True)
    await world.limiter.set_limits("team", [Limit.concurrent("calls", 3, ttl=60)])
    await world.limiter.set_limits("key", [RPM, CALLS])
    async with world.limiter.acquire("key", "gpt", ONE) as lease:
        assert sorted(hold.entity_id for hold in lease.holds) == ["key", "team"]
        assert await world.limiter.available("team", "gpt") == {"calls": 2}
    assert await world.limiter.available("team", "gpt") == {"calls": 3}
    assert await free(world) == 2


@kind_case("A limit of the same name that is not of calls in flight is another balance, and the old one rests")
async def a_name_of_two_kinds_is_two_balances(world: World) -> None:
    await world.limiter.set_limits("key", [CALLS], resource="gpt")
    async with world.limiter.acquire("key", "gpt", {"calls": 2}):
        await world.limiter.set_limits("key", [Limit.per_minute("calls", 10)], resource="gpt")
        async with world.limiter.acquire("key", "gpt", {"calls": 4}):
            assert await free(world) == 6
        await world.limiter.set_limits("key", [CALLS], resource="gpt")
        assert await free(world) == 0
    assert await free(world) == 2


@kind_case("Usage of calls in flight counts those that began; settled events say what came back")
async def usage_counts_starts(world: World) -> None:
    limiter = world.observed()
    await limiter.set_system_defaults([RPM, CALLS])
    for _ in range(3):
        async with limiter.acquire("key", "gpt", ONE):
            pass
    settled = [event.deltas for event in world.events if isinstance(event, Settled)]
    assert settled == [{"calls": -1}] * 3
    status = await world.limiter.get_status("key")
    levels = {level.limit_name: level for level in status.buckets[0].limits}
    assert (levels["calls"].total_consumed, levels["calls"].available) == (3, 2)
    assert (await world.limiter.verify_usage("key")).holds
    rows = (await world.limiter.get_usage_snapshots("key", window_type="hourly")).items
    assert [row.counters for row in rows] == [{"rpm": 3, "calls": 3}]


@kind_case("A caller that waits for a slot gets it when another call of the process ends")
async def a_caller_waits_for_a_slot(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, Limit.concurrent("calls", 1, ttl=60)])
    log: list[str] = []

    async def first() -> None:
        async with world.limiter.acquire("key", "gpt", ONE):
            log.append("first")
            await world.until(lambda: world.clock.waiting > 0)
            log.append("first ends")

    async def second() -> None:
        await world.until(lambda: log == ["first"])
        async with world.limiter.acquire("key", "gpt", ONE, timeout=30):
            log.append("second")

    assert await world.concurrently(first(), second()) == [None, None]
    assert log == ["first", "first ends", "second"]
    assert await free(world) == 1


@kind_case("A call that is interrupted gives its slot back")
async def an_interrupted_call_gives_its_slot_back(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, CALLS])
    try:
        async with world.limiter.acquire("key", "gpt", ONE):
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert await free(world) == 2


@kind_case("check and time_until_available know slots; what a shadow or a status says adds up")
async def reads_know_slots(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, CALLS])
    async with world.limiter.acquire("key", "gpt", {"calls": 2}):
        check: Any = await world.limiter.check("key", "gpt", {"calls": 1})
        assert (check.fits, check.binding.limit_name) == (False, "calls")
        assert await world.limiter.time_until_available("key", "gpt", {"calls": 1}) == check.wait_seconds > 0
        assert (await world.limiter.check("key", "gpt", {"rpm": 1})).fits
    assert (await world.limiter.check("key", "gpt", {"calls": 1})).fits


@kind_case("What is free of calls in flight is neither granted nor lowered: it follows from those that run")
async def free_slots_are_not_set(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, CALLS])
    async with world.limiter.acquire("key", "gpt", ONE):
        with world.raises(ValidationError):
            await world.limiter.grant("key", "gpt", {"calls": 1}, key="one")
        with world.raises(ValidationError):
            await world.limiter.lower("key", "gpt", {"calls": 0})
        await world.limiter.grant("key", "gpt", {"rpm": 1}, key="two")
        assert await free(world) == 1
    assert await free(world) == 2
