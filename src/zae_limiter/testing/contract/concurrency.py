"""Many at once: what is admitted is exact, and the counters add up."""

from __future__ import annotations

from zae_limiter.bucket import MILLI
from zae_limiter.exceptions import RateLimitExceeded
from zae_limiter.models.limit import Limit, even_rate
from zae_limiter.testing.contract.harness import World, case

CALLERS = 8
CALLS = 40


@case("Any number of threads and tasks on one bucket: exactly the burst is admitted")
async def many_callers_on_one_bucket_get_exactly_the_burst(world: World) -> None:
    await world.limiter.set_system_defaults([Limit.per_day("rpd", 100), Limit.per_day("tpd", 1_000)])
    clients = [world.client() for _ in range(CALLERS)]

    async def calling(place: int) -> int:
        granted = 0
        for _ in range(CALLS):
            try:
                async with clients[place].acquire("key", "gpt", {"rpd": 1, "tpd": 10}):
                    granted += 1
                    await world.breathe()
            except RateLimitExceeded:
                pass
        return granted

    granted = await world.concurrently(*(calling(place) for place in range(CALLERS)))
    assert sum(granted) == 100
    status = (await world.limiter.get_status("key", "gpt")).buckets[0]
    assert {level.limit_name: level.total_consumed for level in status.limits} == {"rpd": 100, "tpd": 1_000}
    assert status.total_events == 100


@case("Any number of callers on one hierarchy: parent and children add up, failures leave nothing")
async def many_callers_on_one_hierarchy_add_up(world: World) -> None:
    await world.limiter.create_entity("org")
    await world.limiter.set_system_defaults([Limit.per_day("rpd", 1_000)])
    await world.limiter.set_limits("org", [Limit.per_day("rpd", 120)])
    for place in range(CALLERS):
        await world.limiter.create_entity(f"key-{place}", parent_id="org", cascade=True)
    clients = [world.client() for _ in range(CALLERS)]

    async def calling(place: int) -> int:
        kept = 0
        for number in range(CALLS):
            try:
                async with clients[place].acquire(f"key-{place}", "gpt", {"rpd": 1}) as lease:
                    await world.breathe()
                    if number % 4 == 0:
                        raise ZeroDivisionError
                    if number % 4 == 1:
                        await lease.adjust(rpd=1)
                    kept += lease.consumed["rpd"]
            except (RateLimitExceeded, ZeroDivisionError):
                pass
        return kept

    kept = await world.concurrently(*(calling(place) for place in range(CALLERS)))
    consumed = []
    for place in range(CALLERS):
        buckets = (await world.limiter.get_status(f"key-{place}")).buckets
        consumed.append(sum(bucket.limits[0].total_consumed for bucket in buckets))
    org = (await world.limiter.get_status("org")).buckets[0].limits[0]
    assert consumed == kept
    assert org.total_consumed == sum(kept)
    assert 120 <= sum(kept) <= 120 + CALLERS
    assert org.available == 120 - sum(kept)


@case("Over time: admitted <= burst + rate x time, and nothing accrued is lost")
async def over_time_exactly_burst_and_accrual_are_admitted(world: World) -> None:
    limit = Limit.custom("rpm", 10, 7, 3)
    await world.limiter.set_system_defaults([limit])
    granted = 0
    started = world.clock()
    for step in range(400):
        world.clock.advance(milliseconds=(step * 37) % 211)
        try:
            async with world.limiter.acquire("key", "gpt", {"rpm": 1}):
                granted += 1
        except RateLimitExceeded:
            pass
    amount, seconds = even_rate(limit)
    accrued_milli = (world.clock() - started) * amount // seconds
    allowed_milli = limit.burst * MILLI + accrued_milli
    assert granted * MILLI <= allowed_milli
    left = (await world.limiter.available("key", "gpt"))["rpm"]
    assert granted + left == allowed_milli // MILLI
