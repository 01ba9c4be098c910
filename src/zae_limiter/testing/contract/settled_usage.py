"""Settlements that count other amounts than they move. They go with a record, so that none is booked twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zae_limiter.bucket import MILLI
from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.models.limit import Limit
from zae_limiter.stores.lease_records import LeaseRecord, RecordChange, RecordedSettlement, RecordState
from zae_limiter.stores.protocol import Leg, Posting
from zae_limiter.testing.contract.harness import World, case

RPM = Limit.per_minute("rpm", 10)
TPM = Limit.per_minute("tpm", 100)


def leg(entity_id: str = "key", *, cascaded: frozenset[str] | None = None) -> Leg:
    return Leg(entity_id, "gpt", (RPM, TPM), "system", cascaded=cascaded)


async def book(world: World, limiter: Any, record_id: str, postings: Sequence[Posting]) -> None:
    """Settle under a record that says nothing but that it is done."""
    now = world.clock()
    record = LeaseRecord(record_id, "key", "gpt", "", (), {}, {}, now, now + 3_600_000, state=RecordState.DONE)
    settlement = RecordedSettlement(postings, RecordChange(0, record))
    running = limiter._driver.run(limiter._core.space.settle(postings, now, settlement))
    if world.mode == "async":
        await running
    assert settlement.postings == ()


async def counted(world: World, entity_id: str = "key") -> dict[str, int]:
    (bucket,) = (await world.limiter.get_status(entity_id)).buckets
    return {level.limit_name: level.total_consumed for level in bucket.limits}


@case("A settlement may count another amount than it takes")
async def usage_may_differ_from_what_moves(world: World) -> None:
    limiter = world.limiter
    await limiter.set_system_defaults([RPM, TPM])
    async with limiter.acquire("key", "gpt", {"rpm": 5, "tpm": 50}):
        pass
    deltas, usage = {"rpm": 2 * MILLI}, {"rpm": 7 * MILLI, "tpm": 30 * MILLI}
    await book(world, limiter, "_one", [Posting(leg(), deltas, usage_milli=usage)])
    assert await limiter.available("key", "gpt") == {"rpm": 3, "tpm": 50}
    assert await counted(world) == {"rpm": 12, "tpm": 80}
    await book(world, limiter, "_two", [Posting(leg(), {"rpm": 9 * MILLI}, usage_milli={})])
    assert await limiter.available("key", "gpt") == {"rpm": -6, "tpm": 50}
    await book(world, limiter, "_three", [Posting(leg(), {}, usage_milli={"tpm": -80 * MILLI})])
    assert await limiter.available("key", "gpt") == {"rpm": -6, "tpm": 50}
    assert await counted(world) == {"rpm": 12, "tpm": 0}
    async with limiter.acquire("other", "gpt", {"rpm": 1}):
        pass
    assert not any(chain.gaps for chain in (await limiter.verify_usage("key")).chains)


@case("A settlement that counts another amount is booked once, whatever becomes of its reply")
async def separate_usage_is_booked_once(world: World) -> None:
    limiter = world.failing_limiter
    await limiter.set_system_defaults([RPM, TPM])
    async with limiter.acquire("key", "gpt", {"rpm": 5}):
        pass
    postings = [Posting(leg(), {"rpm": 1 * MILLI}, usage_milli={"rpm": 3 * MILLI})]
    world.store.fail("settle", times=2, applied=True)
    for _ in range(2):
        with world.raises(RateLimiterUnavailable):
            await book(world, limiter, "_one", postings)
    await book(world, limiter, "_one", postings)
    assert await limiter.available("key", "gpt") == {"rpm": 4, "tpm": 100}
    assert await counted(world) == {"rpm": 8, "tpm": 0}


@case("A settlement that counts another amount makes a bucket that is gone")
async def separate_usage_rebuilds_a_bucket(world: World) -> None:
    limiter = world.limiter
    await limiter.set_system_defaults([RPM, TPM])
    await book(world, limiter, "_one", [Posting(leg(), {"rpm": 4 * MILLI}, usage_milli={"rpm": 6 * MILLI})])
    assert await limiter.available("key", "gpt") == {"rpm": 6, "tpm": 100}
    assert await counted(world) == {"rpm": 6, "tpm": 0}


@case("A settlement that counts another amount than it takes does so on every leg")
async def separate_usage_on_every_leg(world: World) -> None:
    limiter = world.limiter
    await limiter.set_system_defaults([RPM, TPM])
    await limiter.create_entity("org")
    await limiter.create_entity("key", parent_id="org", cascade=True)
    async with limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    both = (leg(), leg("org", cascaded=frozenset({"rpm", "tpm"})))
    await book(
        *(world, limiter, "_one"),
        [Posting(one, {"rpm": 2 * MILLI}, usage_milli={"rpm": 5 * MILLI, "tpm": 7 * MILLI}) for one in both],
    )
    for entity_id in ("key", "org"):
        assert await limiter.available(entity_id, "gpt") == {"rpm": 7, "tpm": 100}
        assert await counted(world, entity_id) == {"rpm": 6, "tpm": 7}
        assert not any(chain.gaps for chain in (await limiter.verify_usage(entity_id)).chains)


@case("What comes back of a limit in another hour is counted, also when the limit is taken away in that hour")
async def usage_that_comes_back_before_its_limit_goes(world: World) -> None:
    limiter = world.limiter
    await limiter.set_system_defaults([RPM, TPM])
    async with limiter.acquire("key", "gpt", {"rpm": 5, "tpm": 1}) as lease:
        world.clock.advance(7_200)
        await lease.adjust(rpm=-5)
    await limiter.set_system_defaults([TPM])
    async with limiter.acquire("key", "gpt", {"tpm": 1}):
        pass
    world.clock.advance(7_200)
    async with limiter.acquire("key", "gpt", {"tpm": 1}):
        pass
    total = (await limiter.get_usage_summary("key")).total
    assert {name: amount for name, amount in total.items() if amount} == {"tpm": 3}
    assert (await limiter.verify_usage("key")).holds


@case("A limit that has ended, and that a lease settles in a later hour, goes on counting where it ended")
async def a_limit_that_ended_goes_on_counting(world: World) -> None:
    limiter = world.limiter
    await limiter.set_system_defaults([RPM, TPM])
    async with limiter.acquire("key", "gpt", {"rpm": 5, "tpm": 1}) as lease:
        world.clock.advance(7_200)
        await limiter.set_system_defaults([TPM])
        await lease.adjust(rpm=2)
    await limiter.set_system_defaults([RPM, TPM])
    assert await counted(world) == {"rpm": 7, "tpm": 1}
    assert (await limiter.verify_usage("key")).holds
