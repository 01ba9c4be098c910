"""Limits by the calendar: what comes when, what is carried, and what a change does."""

from __future__ import annotations

from datetime import UTC, datetime

from zae_limiter.exceptions import RateLimitExceeded, RequestExceedsBurst
from zae_limiter.models.limit import Limit
from zae_limiter.testing.contract.harness import World, kind_case

RPM = Limit.per_minute("rpm", 100)
USD = Limit.per_month("usd", 500, tz="Europe/Berlin")
FEBRUARY = datetime(2026, 1, 31, 23, tzinfo=UTC)
"""When it begins in Berlin."""
SECONDS_TO_FEBRUARY = 31 * 86_400 - 3_600
DAY = 86_400


@kind_case("A calendar limit gives its whole amount at the start of each period, and says when that is")
async def a_budget_comes_back_at_the_start_of_the_month(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, USD])
    async with world.limiter.acquire("key", "gpt", {"rpm": 1, "usd": 500}) as lease:
        assert [status.resets_at for status in lease.statuses] == [None, FEBRUARY]
    world.clock.advance(10 * DAY)
    with world.raises(RateLimitExceeded) as caught:
        async with world.limiter.acquire("key", "gpt", {"rpm": 1, "usd": 1}):
            pass
    wait = caught.value.retry_after_seconds
    assert wait == SECONDS_TO_FEBRUARY - 10 * DAY
    assert caught.value.primary_violation.resets_at == FEBRUARY
    world.clock.advance(wait, milliseconds=-1)
    with world.raises(RateLimitExceeded):
        async with world.limiter.acquire("key", "gpt", {"usd": 1}):
            pass
    assert (await world.limiter.available("key", "gpt"))["usd"] == 0
    world.clock.advance(milliseconds=1)
    async with world.limiter.acquire("key", "gpt", {"usd": 500}):
        pass


@kind_case("What is left rolls over up to the burst, and never above it")
async def what_is_left_rolls_over(world: World) -> None:
    await world.limiter.set_system_defaults([Limit.per_day("calls", 10, 25, tz="UTC")])
    async with world.limiter.acquire("key", "gpt", {"calls": 21}):
        pass
    world.clock.advance(DAY)
    assert await world.limiter.available("key", "gpt") == {"calls": 14}
    world.clock.advance(30 * DAY)
    assert await world.limiter.available("key", "gpt") == {"calls": 25}
    with world.raises(RequestExceedsBurst):
        async with world.limiter.acquire("key", "gpt", {"calls": 26}):
            pass


@kind_case("Debt is carried into the next period, and with carry_debt=False it is not; the wait knows")
async def debt_is_carried_or_not(world: World) -> None:
    carried = Limit.per_day("a", 10, tz="UTC")
    fresh = Limit.per_day("b", 10, tz="UTC", carry_debt=False)
    await world.limiter.set_system_defaults([carried, fresh])
    async with world.limiter.acquire("key", "gpt", {"a": 10, "b": 10}) as lease:
        await lease.adjust(a=15, b=15)
    assert await world.limiter.available("key", "gpt") == {"a": -15, "b": -15}
    assert await world.limiter.time_until_available("key", "gpt", {"b": 10}) == 2 * DAY  # a is in debt for so long
    world.clock.advance(DAY)
    assert await world.limiter.available("key", "gpt") == {"a": -5, "b": 10}
    with world.raises(RateLimitExceeded) as caught:
        async with world.limiter.acquire("key", "gpt", {"b": 1}):
            pass
    assert caught.value.retry_after_seconds == DAY
    world.clock.advance(DAY)
    async with world.limiter.acquire("key", "gpt", {"a": 5, "b": 10}):
        pass
    assert await world.limiter.available("key", "gpt") == {"a": 0, "b": 0}


@kind_case(
    "A changed amount counts at once, by the difference: what was spent stays spent, and flipping mints nothing"
)
async def a_changed_amount_counts_at_once(world: World) -> None:
    await world.limiter.set_limits("key", [USD], resource="gpt")
    async with world.limiter.acquire("key", "gpt", {"usd": 400}):
        pass
    await world.limiter.set_limits("key", [Limit.per_month("usd", 700, tz="Europe/Berlin")], resource="gpt")
    assert await world.limiter.available("key", "gpt") == {"usd": 300}
    async with world.limiter.acquire("key", "gpt", {"usd": 300}):
        pass
    for _ in range(3):
        await world.limiter.set_limits("key", [Limit.per_month("usd", 100, tz="Europe/Berlin")], resource="gpt")
        assert await world.limiter.available("key", "gpt") == {"usd": -600}
        await world.limiter.set_limits("key", [Limit.per_month("usd", 700, tz="Europe/Berlin")], resource="gpt")
        assert await world.limiter.available("key", "gpt") == {"usd": 0}
    await world.limiter.set_limits("key", [Limit.per_month("usd", 100, tz="Europe/Berlin")], resource="gpt")
    await world.limiter.reset("key", "gpt")
    assert await world.limiter.available("key", "gpt") == {"usd": 100}


@kind_case("Another calendar, or another kind, goes on with what is left, clamped by the new burst, and mints nothing")
async def another_calendar_carries_what_is_left(world: World) -> None:
    daily = Limit.per_day("usd", 600, tz="America/New_York")
    await world.limiter.set_limits("key", [USD], resource="gpt")
    async with world.limiter.acquire("key", "gpt", {"usd": 450}):
        pass
    await world.limiter.set_limits("key", [daily], resource="gpt")
    assert await world.limiter.available("key", "gpt") == {"usd": 50}
    world.clock.advance(5 * 3_600)
    assert await world.limiter.available("key", "gpt") == {"usd": 600}
    await world.limiter.set_limits("key", [USD], resource="gpt")
    assert await world.limiter.available("key", "gpt") == {"usd": 500}
    async with world.limiter.acquire("key", "gpt", {"usd": 470}):
        pass
    await world.limiter.set_limits("key", [Limit.per_minute("usd", 60)], resource="gpt")
    assert await world.limiter.available("key", "gpt") == {"usd": 30}
    await world.limiter.set_limits("key", [USD], resource="gpt")
    assert await world.limiter.available("key", "gpt") == {"usd": 30}


@kind_case("What a lease of the last period gives back goes into this one, up to the ceiling")
async def a_give_back_across_a_boundary_stops_at_the_ceiling(world: World) -> None:
    await world.limiter.set_system_defaults([Limit.per_day("calls", 10, tz="UTC")])
    async with world.limiter.acquire("key", "gpt", {"calls": 8}) as lease:
        world.clock.advance(DAY)
        await lease.release(calls=8)
    assert await world.limiter.available("key", "gpt") == {"calls": 10}
    async with world.limiter.acquire("key", "gpt", {"calls": 6}) as lease:
        world.clock.advance(DAY)
        async with world.limiter.acquire("key", "gpt", {"calls": 7}):
            pass
        await lease.release(calls=6)
    assert await world.limiter.available("key", "gpt") == {"calls": 9}


@kind_case("A debit after a boundary is not lost to the ceiling")
async def a_debit_after_a_boundary_is_not_lost(world: World) -> None:
    await world.limiter.set_system_defaults([Limit.per_day("calls", 10, tz="UTC")])
    async with world.limiter.acquire("key", "gpt", {"calls": 2}) as lease:
        world.clock.advance(5 * DAY)
        await lease.adjust(calls=3)
    assert await world.limiter.available("key", "gpt") == {"calls": 7}


@kind_case("Budgets, rates and calls in flight are taken in one step, from every leg: all or nothing")
async def every_kind_in_one_lease(world: World) -> None:
    await world.limiter.create_entity("team")
    await world.limiter.create_entity("key", parent_id="team", cascade=True)
    await world.limiter.set_limits("team", [Limit.per_month("usd", 10)])
    await world.limiter.set_limits("key", [RPM, USD, Limit.concurrent("calls", 2)])
    async with world.limiter.acquire("key", "gpt", {"rpm": 1, "usd": 7, "calls": 1}):
        with world.raises(RateLimitExceeded) as caught:
            async with world.limiter.acquire("key", "gpt", {"rpm": 1, "usd": 4, "calls": 1}):
                pass
        assert [(status.entity_id, status.limit_name) for status in caught.value.violations] == [("team", "usd")]
        assert await world.limiter.available("key", "gpt") == {"rpm": 99, "usd": 493, "calls": 1}
    assert await world.limiter.available("key", "gpt") == {"rpm": 99, "usd": 493, "calls": 2}
    assert await world.limiter.available("team", "gpt") == {"usd": 3}


@kind_case("A failed body gives a budget back, and what was settled stays")
async def a_failed_body_gives_a_budget_back(world: World) -> None:
    await world.limiter.set_system_defaults([USD, Limit.per_day("rpd", 10, tz="UTC")])
    try:
        async with world.limiter.acquire("key", "gpt", {"usd": 9, "rpd": 1}) as lease:
            await lease.settle(usd=4)
            raise LookupError
    except LookupError:
        pass
    assert await world.limiter.available("key", "gpt") == {"usd": 496, "rpd": 10}


@kind_case("limits= may be of any kind, for one call")
async def a_call_may_bring_a_budget(world: World) -> None:
    ours = [Limit.per_day("rpd", 3, tz="Asia/Tokyo"), Limit.concurrent("calls", 1)]
    async with world.limiter.acquire("key", "gpt", {"rpd": 3, "calls": 1}, limits=ours):
        with world.raises(RateLimitExceeded):
            async with world.limiter.acquire("key", "gpt", {"calls": 1}, limits=ours):
                pass
    assert await world.limiter.available("key", "gpt", limits=ours) == {"rpd": 0, "calls": 1}
    world.clock.advance(15 * 3_600)
    assert await world.limiter.available("key", "gpt", limits=ours) == {"rpd": 3, "calls": 1}


@kind_case("A budget with a timeout waits for its period")
async def a_caller_may_wait_for_the_next_period(world: World) -> None:
    await world.limiter.set_system_defaults([Limit.per_hour("calls", 1, tz="UTC")])
    async with world.limiter.acquire("key", "gpt", {"calls": 1}):
        pass

    async def wait() -> None:
        async with world.limiter.acquire("key", "gpt", {"calls": 1}, timeout=4_000):
            assert world.clock() % 3_600_000 == 0

    async def move() -> None:
        await world.until_waiting(1)
        world.clock.advance(3_600)

    assert await world.concurrently(wait(), move()) == [None, None]


@kind_case("Every period grants its amount, however often its limits are read, changed back and forth, or settled")
async def a_year_of_months_grants_no_more_than_it_may(world: World) -> None:
    await world.limiter.set_limits("key", [Limit.per_month("usd", 10, 15, tz="Europe/Berlin")], resource="gpt")
    granted = 0
    for step in range(80):
        world.clock.advance(5 * DAY, milliseconds=(step * 37) % 211)
        try:
            async with world.limiter.acquire("key", "gpt", {"usd": 1 + step % 4}) as lease:
                await lease.settle(usd=1 + step % 3)
                granted += 1 + step % 3
        except RateLimitExceeded:
            pass
        other = Limit.per_month("usd", 7 + step % 5, 15, tz="Europe/Berlin")
        if step % 3 == 0:
            await world.limiter.set_limits("key", [other], resource="gpt")
            await world.limiter.set_limits("key", [Limit.per_month("usd", 10, 15, tz="Europe/Berlin")], resource="gpt")
    periods = USD.periods
    assert periods is not None
    months = periods.ordinal(world.clock()) - periods.ordinal(world.clock.start)
    assert granted <= 15 + 10 * months
    assert granted >= 10 * months - 15
