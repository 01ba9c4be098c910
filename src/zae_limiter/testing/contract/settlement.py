"""Leases: adjustments, settlement, failure, give-back."""

from __future__ import annotations

from zae_limiter.exceptions import LeaseExpiredError, RateLimitExceeded, ValidationError
from zae_limiter.models.limit import Limit
from zae_limiter.testing.contract.harness import World, case

RPM = Limit.per_minute("rpm", 10)
TPM = Limit.per_minute("tpm", 1_000)


class BodyError(Exception):
    """What a body raises."""


@case("adjust of any limit of the bucket, in consume or not, up or down, is counted")
async def adjust_counts_for_any_limit_up_or_down(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    async with world.limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 500}) as lease:
        await lease.adjust(tpm=-200)
        await lease.adjust(rpm=1, tpm=50)
        assert lease.consumed == {"rpm": 2, "tpm": 350}
        assert await world.limiter.available("key", "gpt") == {"rpm": 9, "tpm": 500}
    assert await world.limiter.available("key", "gpt") == {"rpm": 8, "tpm": 650}
    async with world.limiter.acquire("key", "gpt", {"rpm": 1}) as lease:
        await lease.adjust(tpm=100)
    assert await world.limiter.available("key", "gpt") == {"rpm": 7, "tpm": 550}


@case("adjust never raises for lack of tokens; it may go into debt, repaid by refill")
async def adjust_may_go_into_debt(world: World) -> None:
    await world.limiter.set_system_defaults([TPM])
    async with world.limiter.acquire("key", "gpt", {"tpm": 1_000}) as lease:
        await lease.adjust(tpm=500)
    assert await world.limiter.available("key", "gpt") == {"tpm": -500}
    world.clock.advance(30)
    assert await world.limiter.available("key", "gpt") == {"tpm": 0}


@case("A debit after a quiet time is not lost to the ceiling")
async def a_debit_at_the_ceiling_is_not_lost(world: World) -> None:
    await world.limiter.set_system_defaults([TPM])
    async with world.limiter.acquire("key", "gpt", {"tpm": 100}) as lease:
        world.clock.advance(600)
        await lease.adjust(tpm=300)
    assert await world.limiter.available("key", "gpt") == {"tpm": 700}


@case("Giving back more than the lease took is a ValidationError, and changes nothing")
async def giving_back_more_than_was_taken_is_refused(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    async with world.limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 100}) as lease:
        for attempt in ({"tpm": -101}, {"rpm": -1, "tpm": -101}):
            with world.raises(ValidationError):
                await lease.adjust(**attempt)
        with world.raises(ValidationError):
            await lease.release(tpm=101)
        assert lease.consumed == {"rpm": 1, "tpm": 100}
    assert await world.limiter.available("key", "gpt") == {"rpm": 9, "tpm": 900}


@case("settle says what was used in all, absolutely")
async def settle_is_absolute(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    async with world.limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 500}) as lease:
        await lease.settle(tpm=100)
        await lease.settle(tpm=720)
        assert lease.consumed == {"rpm": 1, "tpm": 720}
    assert await world.limiter.available("key", "gpt") == {"rpm": 9, "tpm": 280}


@case("release gives back part; flush writes at once")
async def release_and_flush(world: World) -> None:
    await world.limiter.set_system_defaults([TPM])
    async with world.limiter.acquire("key", "gpt", {"tpm": 500}) as lease:
        await lease.release(tpm=200)
        assert await world.limiter.available("key", "gpt") == {"tpm": 500}
        await lease.flush()
        assert await world.limiter.available("key", "gpt") == {"tpm": 700}
        assert lease.consumed == {"tpm": 300}
    assert await world.limiter.available("key", "gpt") == {"tpm": 700}


@case("A buffer older than 5 s is flushed by the next call")
async def an_old_buffer_is_flushed_by_the_next_call(world: World) -> None:
    await world.limiter.set_system_defaults([Limit.per_day("tpd", 86_400)])
    async with world.limiter.acquire("key", "gpt", {"tpd": 1_000}) as lease:
        await lease.adjust(tpd=10)
        world.clock.advance(4.9)
        await lease.adjust(tpd=10)
        assert (await world.limiter.available("key", "gpt"))["tpd"] == 86_400 - 1_000 + 4
        world.clock.advance(0.1)
        await lease.adjust(tpd=10)
        assert (await world.limiter.available("key", "gpt"))["tpd"] == 86_400 - 1_030 + 5


@case("lease.consume takes more at once, checked: all of it, or RateLimitExceeded and nothing")
async def a_lease_can_take_more(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    async with world.limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 500}) as lease:
        await lease.consume(tpm=300)
        assert lease.consumed == {"rpm": 1, "tpm": 800}
        with world.raises(RateLimitExceeded):
            await lease.consume(rpm=1, tpm=201)
        assert lease.consumed == {"rpm": 1, "tpm": 800}
        assert await world.limiter.available("key", "gpt") == {"rpm": 9, "tpm": 200}


@case("The body raises: what was taken and not settled is given back")
async def a_failed_body_gives_everything_back(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    with world.raises(BodyError):
        async with world.limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 500}) as lease:
            await lease.adjust(tpm=100)
            await lease.consume(tpm=50)
            await lease.flush()
            await lease.adjust(rpm=3)
            raise BodyError
    assert await world.limiter.available("key", "gpt") == {"rpm": 10, "tpm": 1_000}
    assert lease.consumed == {"rpm": 0, "tpm": 0}


@case("What is settled survives errors")
async def what_is_settled_survives_a_failed_body(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    with world.raises(BodyError):
        async with world.limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 500}) as lease:
            await lease.settle(tpm=120)
            raise BodyError
    assert await world.limiter.available("key", "gpt") == {"rpm": 10, "tpm": 880}


@case('on_error="keep" keeps everything when the body raises')
async def on_error_keep_keeps_everything(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    with world.raises(BodyError):
        async with world.limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 500}, on_error="keep") as lease:
            await lease.adjust(tpm=100)
            raise BodyError
    assert await world.limiter.available("key", "gpt") == {"rpm": 9, "tpm": 400}


@case("commit keeps everything, whatever happens")
async def commit_keeps_everything(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    with world.raises(BodyError):
        async with world.limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 500}) as lease:
            await lease.adjust(tpm=100)
            await lease.commit()
            assert await world.limiter.available("key", "gpt") == {"rpm": 9, "tpm": 400}
            raise BodyError
    assert await world.limiter.available("key", "gpt") == {"rpm": 9, "tpm": 400}


@case("A give-back never rises above the burst")
async def a_give_back_stops_at_the_ceiling(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    with world.raises(BodyError):
        async with world.limiter.acquire("key", "gpt", {"rpm": 10}):
            world.clock.advance(30)
            raise BodyError
    assert await world.limiter.available("key", "gpt") == {"rpm": 10}
    async with world.limiter.acquire("key", "gpt", {"rpm": 10}):
        pass
    with world.raises(RateLimitExceeded):
        async with world.limiter.acquire("key", "gpt", {"rpm": 1}):
            pass


@case("The bucket is gone at settle time: rebuilt full minus the debit, nothing lost, no broken item")
async def settling_on_a_vanished_bucket_rebuilds_it(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    await world.limiter.create_entity("key")
    async with world.limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 100}) as lease:
        await lease.adjust(tpm=50)
        await world.limiter.delete_entity("key")
    assert await world.limiter.available("key", "gpt") == {"rpm": 10, "tpm": 950}
    async with world.limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 950}):
        pass


@case("After its block, and before, a lease refuses every use")
async def a_lease_is_good_inside_its_block_only(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    lease = world.limiter.acquire("key", "gpt", {"rpm": 1})
    with world.raises(LeaseExpiredError):
        await lease.adjust(rpm=1)
    async with lease:
        pass
    for use in (lease.adjust, lease.settle, lease.consume, lease.release):
        with world.raises(LeaseExpiredError):
            await use(rpm=1)
    for use in (lease.flush, lease.commit, lease.__aenter__):
        with world.raises(LeaseExpiredError):
            await use()
    assert await world.limiter.available("key", "gpt") == {"rpm": 9}


@case("Changing the dict given as consume afterwards changes nothing")
async def the_request_is_the_callers_own(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    for _ in range(2):
        wanted = {"rpm": 2}
        with world.raises(BodyError):
            async with world.limiter.acquire("key", "gpt", wanted):
                wanted["rpm"] = 9
                raise BodyError
        assert await world.limiter.available("key", "gpt") == {"rpm": 10}
        async with world.limiter.acquire("other", "gpt", {"rpm": 1}):
            pass


@case("lease.remaining is what the grant left, less what was settled since")
async def what_remains_knows_settlements(world: World) -> None:
    await world.limiter.set_system_defaults([Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 1_000)])
    await world.limiter.create_entity("org")
    await world.limiter.create_entity("key", parent_id="org", cascade=True)
    async with world.limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 500}) as lease:
        assert lease.remaining == {"rpm": 9, "tpm": 500}
        await lease.settle(tpm=120)
        assert lease.remaining == {"rpm": 9, "tpm": 880}
        await lease.flush()
        await lease.adjust(tpm=1_000)
        assert lease.remaining == {"rpm": 9, "tpm": -120}
        await lease.adjust(tpm=-1_000)
        await lease.consume(rpm=2)
        assert lease.remaining == {"rpm": 7, "tpm": 880}
    assert lease.remaining == await world.limiter.available("key", "gpt")
