"""Limits that only watch: they refuse nothing, and count exactly what they would have refused."""

from __future__ import annotations

from zae_limiter.exceptions import RateLimitExceeded
from zae_limiter.models.events import Decided
from zae_limiter.models.limit import Limit
from zae_limiter.testing.contract.harness import World, kind_case

RPM = Limit.per_minute("rpm", 100)
TPM = Limit.per_minute("tpm", 10, enforce=False)


@kind_case("A limit with enforce=False refuses nothing; it takes what it has, and says what it would have refused")
async def a_watching_limit_refuses_nothing(world: World) -> None:
    limiter = world.observed()
    await limiter.set_system_defaults([RPM, TPM])
    async with limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 7}) as lease:
        assert lease.refused_by == ()
    async with limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 7}) as lease:
        [status] = lease.refused_by
        assert (status.limit_name, status.enforced, status.exceeded, status.available) == ("tpm", False, True, 3)
        assert status.retry_after_seconds == 24.0
    assert await limiter.available("key", "gpt") == {"rpm": 98, "tpm": 3}
    decided = [event.would_refuse for event in world.events if isinstance(event, Decided)]
    assert decided == [(), ("tpm",)]


@kind_case("A lease that a watching limit would have refused settles nothing there: neither debit nor credit")
async def a_refused_lease_does_not_settle_there(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    async with world.limiter.acquire("key", "gpt", {"tpm": 8}):
        pass
    async with world.limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 5}) as lease:
        await lease.adjust(tpm=50)
    assert await world.limiter.available("key", "gpt") == {"rpm": 99, "tpm": 2}
    try:
        async with world.limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 5}):
            raise LookupError
    except LookupError:
        pass
    assert await world.limiter.available("key", "gpt") == {"rpm": 99, "tpm": 2}


@kind_case("Amounts above the burst of a watching limit are counted, and never RequestExceedsBurst")
async def more_than_a_watching_burst_is_counted(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    async with world.limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 11}) as lease:
        [status] = lease.refused_by
        assert status.retry_after_seconds is None
    assert (await world.limiter.check("key", "gpt", {"tpm": 11})).fits
    assert await world.limiter.time_until_available("key", "gpt", {"tpm": 11}) == 0


@kind_case("A denial by another limit takes nothing of a watching one, and counts nothing there")
async def a_denial_counts_nothing_of_a_watching_limit(world: World) -> None:
    await world.limiter.set_system_defaults([Limit.per_minute("rpm", 1), TPM])
    async with world.limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 10}):
        pass
    with world.raises(RateLimitExceeded) as caught:
        async with world.limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 10}):
            pass
    assert [status.limit_name for status in caught.value.violations] == ["rpm"]
    rows = (await world.limiter.get_usage_snapshots("key", window_type="hourly")).items
    assert [dict(row.would_refuse) for row in rows] == [{}]


@kind_case("Switching a limit between watching and refusing goes on with its tokens")
async def switching_goes_on_with_the_tokens(world: World) -> None:
    await world.limiter.set_limits("key", [TPM], resource="gpt")
    async with world.limiter.acquire("key", "gpt", {"tpm": 9}):
        pass
    await world.limiter.set_limits("key", [Limit.per_minute("tpm", 10)], resource="gpt")
    assert await world.limiter.available("key", "gpt") == {"tpm": 1}
    with world.raises(RateLimitExceeded):
        async with world.limiter.acquire("key", "gpt", {"tpm": 2}):
            pass
    await world.limiter.set_limits("key", [TPM], resource="gpt")
    async with world.limiter.acquire("key", "gpt", {"tpm": 2}) as lease:
        assert [status.limit_name for status in lease.refused_by] == ["tpm"]


@kind_case("On one trace a watching limit refuses exactly what a refusing one would have; usage counts it")
async def a_watching_limit_counts_what_its_twin_refuses(world: World) -> None:
    kinds = {
        "even": (Limit.per_minute("x", 10, 15), Limit.per_minute("x", 10, 15, enforce=False)),
        "daily": (Limit.per_day("x", 20, tz="UTC"), Limit.per_day("x", 20, tz="UTC", enforce=False)),
    }
    for resource, (refusing, watching) in kinds.items():
        await world.limiter.set_limits("twin", [refusing], resource=resource)
        await world.limiter.set_limits("key", [watching, RPM], resource=resource)
        refused = 0
        for step in range(60):
            world.clock.advance((step * 7) % 23)
            wanted, used = {"x": step % 6}, (step * 5) % 9
            try:
                async with world.limiter.acquire("twin", resource, wanted) as lease:
                    await lease.settle(x=used)
                denied = False
            except RateLimitExceeded:
                denied = True
            async with world.limiter.acquire("key", resource, wanted) as lease:
                assert bool(lease.refused_by) == denied, (resource, step)
                await lease.settle(x=used)
            refused += denied
            left = (await world.limiter.available("key", resource))["x"]
            assert left == (await world.limiter.available("twin", resource))["x"]
        assert refused > 5
        rows = (await world.limiter.get_usage_snapshots("key", resource=resource, window_type="hourly")).items
        assert sum(row.would_refuse.get("x", 0) for row in rows) == refused
        assert (await world.limiter.verify_usage("key")).holds


@kind_case("Calls in flight may be watched: a call beyond the limit holds nothing")
async def calls_in_flight_may_be_watched(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, Limit.concurrent("calls", 1, ttl=60, enforce=False)])
    async with world.limiter.acquire("key", "gpt", {"calls": 1}) as first:
        async with world.limiter.acquire("key", "gpt", {"calls": 1}) as second:
            assert [status.limit_name for status in second.refused_by] == ["calls"]
            assert (len(first.holds), second.holds) == (1, ())
        assert await world.limiter.available("key", "gpt") == {"rpm": 100, "calls": 0}
    assert await world.limiter.available("key", "gpt") == {"rpm": 100, "calls": 1}


@kind_case("A watching limit of a parent refuses nothing either, and the others of that leg still do")
async def a_watching_limit_of_a_parent(world: World) -> None:
    await world.limiter.create_entity("team")
    await world.limiter.create_entity("key", parent_id="team", cascade=True)
    await world.limiter.set_limits("team", [Limit.per_minute("rpm", 3), TPM])
    await world.limiter.set_limits("key", [RPM, Limit.per_minute("tpm", 1_000)])
    async with world.limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 20}) as lease:
        assert [(status.entity_id, status.limit_name) for status in lease.refused_by] == [("team", "tpm")]
        await lease.settle(tpm=25)
    assert await world.limiter.available("team", "gpt") == {"rpm": 2, "tpm": 10}
    assert await world.limiter.available("key", "gpt") == {"rpm": 99, "tpm": 975}
    with world.raises(RateLimitExceeded):
        async with world.limiter.acquire("key", "gpt", {"rpm": 3}):
            pass


@kind_case("A watching limit may go after a refusal of it was undone, because a parent denied")
async def a_watching_limit_goes_after_a_denial(world: World) -> None:
    await world.limiter.create_entity("team")
    await world.limiter.create_entity("key", parent_id="team", cascade=True)
    await world.limiter.set_limits("team", [Limit.per_minute("rpm", 2)])
    await world.limiter.set_limits("key", [RPM, TPM])
    async with world.limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    with world.raises(RateLimitExceeded):
        async with world.limiter.acquire("key", "gpt", {"rpm": 2, "tpm": 20}):
            pass
    await world.limiter.set_limits("key", [RPM])
    async with world.limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    rows = (await world.limiter.get_usage_snapshots("key", window_type="hourly")).items
    assert [dict(row.would_refuse) for row in rows] == [{}]


@kind_case("A lease that a watching limit would have refused, and that took from it later, settles there")
async def a_lease_that_took_later_settles(world: World) -> None:
    given = [RPM, TPM]
    await world.limiter.set_system_defaults(given)
    for entity, limits in (("key-1", None), ("key-2", given)):
        async with world.limiter.acquire(entity, "gpt", {"tpm": 50}, limits=limits) as lease:
            await lease.consume(tpm=3)
            await lease.adjust(tpm=2)
        assert await world.limiter.available(entity, "gpt") == {"rpm": 100, "tpm": 5}
