"""Taking tokens: grants, denials, exact waits."""

from __future__ import annotations

import math

from zae_limiter.exceptions import RateLimitExceeded, RequestExceedsBurst
from zae_limiter.models.limit import Limit
from zae_limiter.testing.contract.harness import World, case

RPM = Limit.per_minute("rpm", 10)
TPM = Limit.per_minute("tpm", 1_000)


@case("All limits of all legs have enough: a grant, visible to others before the body runs")
async def a_grant_is_visible_to_others_before_the_body_runs(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    other = world.client()
    async with world.limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 400}) as lease:
        assert await other.available("key", "gpt") == {"rpm": 9, "tpm": 600}
        assert lease.consumed == {"rpm": 1, "tpm": 400}
        assert not lease.degraded
    assert await other.available("key", "gpt") == {"rpm": 9, "tpm": 600}


@case("A lease shows every limit and what the grant left in it")
async def a_lease_has_the_status_of_every_limit(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    for _ in range(3):
        async with world.limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 100}) as lease:
            pass
    seen = [(s.limit_name, s.available, s.requested, s.exceeded, s.source) for s in lease.statuses]
    assert seen == [("rpm", 7, 1, False, "system"), ("tpm", 700, 100, False, "system")]


@case("A status says when its limit is full again: after a grant, in a denial, in a check")
async def a_status_says_when_its_limit_is_full_again(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    async with world.limiter.acquire("key", "gpt", {"rpm": 9}) as lease:
        assert [status.seconds_to_full for status in lease.statuses] == [54.0, 0.0]
    with world.raises(RateLimitExceeded) as caught:
        async with world.limiter.acquire("key", "gpt", {"rpm": 2}):
            raise AssertionError("the body must not run")
    assert [status.seconds_to_full for status in caught.value.statuses] == [54.0, 0.0]
    world.clock.advance(53.999)
    found = await world.limiter.check("key", "gpt", {"rpm": 1})
    assert [status.seconds_to_full for status in found.statuses] == [0.001, 0.0]
    world.clock.advance(0.001)
    found = await world.limiter.check("key", "gpt", {"rpm": 10})
    assert found.fits
    assert [status.as_dict()["seconds_to_full"] for status in found.statuses] == [0.0, 0.0]


@case("Any limit lacks: nothing stays taken anywhere; RateLimitExceeded with every status")
async def one_lacking_limit_refuses_all_and_takes_nothing(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    async with world.limiter.acquire("key", "gpt", {"tpm": 900}):
        pass
    with world.raises(RateLimitExceeded) as caught:
        async with world.limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 101}):
            raise AssertionError("the body must not run")
    error = caught.value
    assert [status.limit_name for status in error.statuses] == ["rpm", "tpm"]
    assert [status.limit_name for status in error.violations] == ["tpm"]
    assert [status.limit_name for status in error.passed] == ["rpm"]
    assert error.primary_violation.available == 100
    assert error.primary_violation.requested == 101
    assert await world.limiter.available("key", "gpt") == {"rpm": 10, "tpm": 100}


@case("Denied with retry_after r: at exactly r the same request is granted, and 1 ms earlier it is not")
async def the_wait_is_exact_to_the_millisecond(world: World) -> None:
    await world.limiter.set_system_defaults([Limit.per_minute("rpm", 7), Limit.custom("tpm", 1_000, 37, 11)])
    async with world.limiter.acquire("key", "gpt", {"rpm": 7, "tpm": 950}):
        pass
    for wanted in ({"rpm": 1}, {"rpm": 2, "tpm": 60}, {"tpm": 999}, {"rpm": 7, "tpm": 3}):
        with world.raises(RateLimitExceeded) as caught:
            async with world.limiter.acquire("key", "gpt", wanted):
                pass
        wait = caught.value.retry_after_seconds
        assert wait is not None
        assert wait == await world.limiter.time_until_available("key", "gpt", wanted)
        world.clock.advance(milliseconds=round(wait * 1000) - 1)
        with world.raises(RateLimitExceeded):
            async with world.limiter.acquire("key", "gpt", wanted):
                pass
        world.clock.advance(milliseconds=1)
        assert await world.limiter.time_until_available("key", "gpt", wanted) == 0
        async with world.limiter.acquire("key", "gpt", wanted):
            pass


@case("Amount > burst: RequestExceedsBurst, without waiting")
async def more_than_the_burst_can_never_be_granted(world: World) -> None:
    await world.limiter.set_system_defaults([Limit.per_minute("tpm", 1_000, burst=100)])
    with world.raises(RequestExceedsBurst) as caught:
        async with world.limiter.acquire("key", "gpt", {"tpm": 101}, timeout=60):
            pass
    assert caught.value.retry_after_seconds is None
    assert await world.limiter.time_until_available("key", "gpt", {"tpm": 101}) == math.inf
    async with world.limiter.acquire("key", "gpt", {"tpm": 100}):
        pass


@case("A limit not named, or with 0, counts as 0: it refuses only while it is in debt")
async def an_unnamed_limit_refuses_only_in_debt(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    async with world.limiter.acquire("key", "gpt", {"rpm": 1}) as lease:
        await lease.adjust(tpm=1_600)
    assert (await world.limiter.available("key", "gpt"))["tpm"] == -600
    for wanted in ({"rpm": 1}, {"rpm": 1, "tpm": 0}, {}):
        with world.raises(RateLimitExceeded) as caught:
            async with world.limiter.acquire("key", "gpt", wanted):
                pass
        assert [status.limit_name for status in caught.value.violations] == ["tpm"]
        assert caught.value.retry_after_seconds == 36.0
    world.clock.advance(36)
    async with world.limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 0}) as lease:
        assert lease.consumed == {"rpm": 1, "tpm": 0}


@case("A full idle bucket admits its burst once, however long it was idle")
async def an_idle_bucket_admits_its_burst_only_once(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    async with world.limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    world.clock.advance(100_000)
    async with world.limiter.acquire("key", "gpt", {"rpm": 10}):
        pass
    with world.raises(RateLimitExceeded):
        async with world.limiter.acquire("key", "gpt", {"rpm": 1}):
            pass


@case("A slow limit beside a fast one is not starved by frequent use")
async def a_slow_limit_beside_a_fast_one_accrues_exactly(world: World) -> None:
    await world.limiter.set_system_defaults([Limit.per_day("slow", 50), Limit.per_second("fast", 1_000)])
    async with world.limiter.acquire("key", "gpt", {"slow": 50}):
        pass
    for _ in range(200):
        world.clock.advance(milliseconds=8_641)
        async with world.limiter.acquire("key", "gpt", {"fast": 1}):
            pass
    assert (await world.limiter.available("key", "gpt"))["slow"] == 1


@case("A clock that steps back mints nothing and loses nothing")
async def a_clock_that_steps_back_mints_nothing(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    async with world.limiter.acquire("key", "gpt", {"rpm": 10}):
        pass
    now = world.clock()
    world.clock.step_to(now - 60_000)
    with world.raises(RateLimitExceeded):
        async with world.limiter.acquire("key", "gpt", {"rpm": 1}):
            pass
    world.clock.step_to(now + 6_000)
    assert await world.limiter.available("key", "gpt") == {"rpm": 1}


@case("A clock that jumps ahead and back loses nothing")
async def a_clock_that_jumps_ahead_and_back_loses_nothing(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    async with world.limiter.acquire("key", "gpt", {"rpm": 4}):
        pass
    for days in (1, 365):
        now = world.clock()
        before = (await world.limiter.available("key", "gpt"))["rpm"]
        world.clock.step_to(now + days * 86_400_000)
        async with world.limiter.acquire("key", "gpt", {"rpm": 1}):
            pass
        world.clock.step_to(now)
        left = (await world.limiter.available("key", "gpt"))["rpm"]
        assert before - 1 <= left <= 9, "nothing is lost, and not more than a burst is there"
        other = world.client()
        async with other.acquire("key", "gpt", {"rpm": left}):
            pass
        with world.raises(RateLimitExceeded) as caught:
            async with other.acquire("key", "gpt", {"rpm": 1}):
                pass
        wait = caught.value.retry_after_seconds or 0
        assert 0 < wait <= 6, "what one token takes"
        world.clock.advance(milliseconds=round(wait * 1000))
        async with world.limiter.acquire("key", "gpt", {"rpm": 1}):
            pass
        world.clock.advance(120)


@case("limits= overrides the stored limits of the called entity, for this call")
async def limits_given_with_the_call_win(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    async with world.limiter.acquire("key", "gpt", {"tpm": 5}, limits=[Limit.per_minute("tpm", 5)]) as lease:
        assert lease.statuses[0].source == "call"
    with world.raises(RateLimitExceeded):
        async with world.limiter.acquire("key", "gpt", {"tpm": 1}, limits=[Limit.per_minute("tpm", 5)]):
            pass
    assert await world.limiter.available("key", "gpt", limits=[Limit.per_minute("tpm", 5)]) == {"tpm": 0}


@case("Switching limits back and forth mints nothing")
async def limits_that_come_and_go_mint_nothing(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    granted = 0
    for _ in range(30):
        try:
            async with world.limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 1}):
                granted += 1
        except RateLimitExceeded:
            pass
        async with world.limiter.acquire("key", "gpt", {"x": 1}, limits=[Limit.per_minute("x", 1_000)]):
            pass
    assert granted == 10


@case("reset fills the buckets of an entity again, and says so in the audit trail")
async def reset_fills_buckets_and_is_audited(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    for resource in ("gpt", "claude"):
        async with world.limiter.acquire("key", resource, {"rpm": 10}):
            pass
    assert await world.limiter.reset("key", "gpt", principal="ops") == 1
    assert await world.limiter.available("key", "gpt") == {"rpm": 10}
    assert await world.limiter.available("key", "claude") == {"rpm": 0}
    assert await world.limiter.reset("key") == 2
    events = (await world.limiter.get_audit_events("key")).items
    assert [(event.action, event.principal) for event in events] == [
        ("buckets_reset", None),
        ("buckets_reset", "ops"),
    ]
