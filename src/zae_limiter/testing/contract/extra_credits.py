"""Calendar limits that an operator lifts above their burst: for how long, and what becomes of it."""

from __future__ import annotations

from zae_limiter.exceptions import RateLimitExceeded, RequestExceedsBurst, ValidationError
from zae_limiter.models.limit import Limit
from zae_limiter.models.status import LimitStatus
from zae_limiter.testing.contract.harness import World, kind_case

DAY = 86_400
RPM = Limit.per_minute("rpm", 100)
USD = Limit.per_day("usd", 100, tz="UTC")
ROLLING = Limit.per_day("usd", 100, 250, tz="UTC")


async def take(world: World, usd: int) -> None:
    async with world.limiter.acquire("key", "gpt", {"usd": usd}):
        pass


async def usd(world: World) -> int:
    left: int = (await world.limiter.available("key", "gpt"))["usd"]
    return left


async def lift(world: World, amount: int, key: str) -> bool:
    done: bool = await world.limiter.grant("key", "gpt", {"usd": amount}, key=key, above=True)
    return done


async def status_of(world: World) -> LimitStatus:
    check = await world.limiter.check("key", "gpt", {})
    found: LimitStatus = next(status for status in check.statuses if status.limit_name == "usd")
    return found


@kind_case("A grant above lifts a calendar limit for its period, also one that was never used, and ends with it")
async def a_lift_ends_with_its_period(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, USD])
    assert await lift(world, 50, "inv-1")
    status = await status_of(world)
    assert (status.available, status.extra, status.capacity) == (150, 50, 150)
    await take(world, 130)
    assert await usd(world) == 20
    assert await lift(world, 30, "inv-2")
    assert (await usd(world), (await status_of(world)).extra) == (50, 80)
    [bucket] = (await world.limiter.get_status("key")).buckets
    level = next(level for level in bucket.limits if level.limit_name == "usd")
    assert (level.available, level.extra, level.capacity, level.total_consumed) == (50, 80, 180, 130)
    world.clock.advance(DAY)
    status = await status_of(world)
    assert (status.available, status.extra, status.capacity) == (100, 0, 100)
    await take(world, 100)
    with world.raises(RateLimitExceeded):
        await take(world, 1)
    world.clock.advance(DAY)
    assert await usd(world) == 100


@kind_case("What was lifted does not roll over: the next period holds what it would hold without it")
async def a_lift_does_not_roll_over(world: World) -> None:
    await world.limiter.set_system_defaults([ROLLING])
    await take(world, 200)
    assert await lift(world, 100, "inv-1")
    assert await usd(world) == 150
    await take(world, 20)
    world.clock.advance(DAY)
    assert await usd(world) == 130, "30 are left of its own, and 100 come"
    await take(world, 130)
    assert await lift(world, 60, "inv-2")
    await take(world, 40)
    world.clock.advance(2 * DAY)
    assert await usd(world) == 200, "it spent what was extra: that is no debt, and what is left of it ends"


@kind_case("In its period nothing is lost: what is given back comes back up to the lifted ceiling, and no higher")
async def give_backs_reach_the_lifted_ceiling(world: World) -> None:
    await world.limiter.set_system_defaults([USD])
    async with world.limiter.acquire("key", "gpt", {"usd": 90}) as lease:
        assert await lift(world, 50, "inv-1")
        assert await usd(world) == 60
        await lease.settle(usd=10)
    assert await usd(world) == 140
    await world.limiter.grant("key", "gpt", {"usd": 500}, key="inv-2")
    assert await usd(world) == 150, "a grant that is not above fills it up to what it may hold"
    async with world.limiter.acquire("key", "gpt", {"usd": 120}) as lease:
        world.clock.advance(DAY)
        await lease.settle(usd=5)
    assert await usd(world) == 100


@kind_case("What was lifted pays debts; what is owed beyond it is carried into the next period")
async def a_lift_pays_debts(world: World) -> None:
    await world.limiter.set_system_defaults([USD])
    async with world.limiter.acquire("key", "gpt", {"usd": 100}) as lease:
        await lease.settle(usd=180)
    assert await usd(world) == -80
    assert await lift(world, 50, "inv-1")
    assert await usd(world) == -30
    world.clock.advance(DAY)
    assert await usd(world) == 70
    async with world.limiter.acquire("key", "gpt", {"usd": 70}) as lease:
        await lease.settle(usd=90)
    assert await lift(world, 50, "inv-2")
    assert await usd(world) == 30
    world.clock.advance(DAY)
    assert await usd(world) == 100


@kind_case("Changed amounts keep what was lifted and mint nothing; with another calendar it ends")
async def changed_terms_mint_nothing(world: World) -> None:
    await world.limiter.set_system_defaults([USD])
    await take(world, 30)
    assert await lift(world, 50, "inv-1")
    for amount, left in ((200, 220), (10, 30), (100, 120)):
        await world.limiter.set_system_defaults([Limit.per_day("usd", amount, tz="UTC")])
        assert await usd(world) == left
    await world.limiter.set_system_defaults([RPM])
    await world.limiter.set_system_defaults([USD])
    assert (await usd(world), (await status_of(world)).extra) == (120, 50)
    await world.limiter.set_system_defaults([Limit.per_week("usd", 500, tz="UTC")])
    assert (await usd(world), (await status_of(world)).extra) == (70, 0)
    await world.limiter.set_system_defaults([USD])
    assert await usd(world) == 70


@kind_case("A limit that was lifted can be lowered and reset: full is what it may hold in its period")
async def a_lifted_limit_is_lowered_and_reset(world: World) -> None:
    await world.limiter.set_system_defaults([ROLLING])
    assert await lift(world, 50, "inv-1")
    await world.limiter.lower("key", "gpt", {"usd": 120})
    assert await usd(world) == 120
    assert await world.limiter.reset("key") == 1
    assert await usd(world) == 300
    await world.limiter.lower("key", "gpt", {"usd": 30})
    world.clock.advance(DAY)
    assert await usd(world) == 100
    assert await lift(world, 40, "inv-2")
    world.clock.advance(DAY)
    await world.limiter.lower("key", "gpt", {"usd": 60})
    assert await usd(world) == 60
    world.clock.advance(DAY)
    assert await usd(world) == 160


@kind_case("More than the burst is granted while a limit is lifted so far; else it never can be")
async def more_than_the_burst_is_granted(world: World) -> None:
    await world.limiter.set_system_defaults([USD])
    assert await lift(world, 50, "inv-1")
    await take(world, 140)
    with world.raises(RequestExceedsBurst):
        await take(world, 120)
    with world.raises(RateLimitExceeded) as caught:
        await take(world, 90)
    assert caught.value.retry_after_seconds == DAY
    assert caught.value.primary_violation.extra == 50


@kind_case("A limit that carries no debt begins its period full, and without what was lifted in the one before")
async def a_fresh_period_begins_full(world: World) -> None:
    await world.limiter.set_system_defaults([Limit.per_day("usd", 100, tz="UTC", carry_debt=False)])
    async with world.limiter.acquire("key", "gpt", {"usd": 100}) as lease:
        await lease.settle(usd=300)
    assert await lift(world, 50, "inv-1")
    assert await usd(world) == -150
    world.clock.advance(DAY)
    assert await lift(world, 20, "inv-2")
    assert await usd(world) == 120
    await take(world, 110)
    world.clock.advance(DAY)
    await world.limiter.lower("key", "gpt", {"usd": 30})
    assert await usd(world) == 30


@kind_case("A lift is done once per key, is audited, and is refused for limits without periods")
async def a_lift_is_done_once(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, USD, Limit.concurrent("calls", 2)])
    for limiter in (world.limiter, world.client()):
        await limiter.grant("key", "gpt", {"usd": 50}, key="inv-1", principal="ops", above=True)
    assert await usd(world) == 150
    assert not await lift(world, 50, "inv-1")
    with world.raises(ValidationError) as caught:
        await world.limiter.grant("key", "gpt", {"usd": 50}, key="inv-1")
    assert caught.value.field == "key"
    for wrong in ({"rpm": 5}, {"usd": 1, "rpm": 5}, {"calls": 1}, {"usx": 1}):
        with world.raises(ValidationError):
            await world.limiter.grant("key", "gpt", wrong, key="inv-2", above=True)
    with world.raises(ValidationError) as caught:
        await lift(world, 10**15, "inv-3")
    assert caught.value.field == "amounts"
    assert await usd(world) == 150
    granted = [event for event in (await world.limiter.get_audit_events("key")).items if event.action == "granted"]
    assert [event.details for event in granted] == [{"amounts": {"usd": 50}, "key": "inv-1", "above": True}]


@kind_case("How much a limit may be lifted is counted by period: what was extra in an earlier one is gone")
async def a_lift_counts_in_its_period_only(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, USD])
    most = 10**15
    assert await lift(world, 1, "inv-1")
    with world.raises(ValidationError):
        await lift(world, most, "inv-2")
    world.clock.advance(DAY)
    assert await lift(world, most, "inv-2")
    assert await usd(world) == 100 + most
