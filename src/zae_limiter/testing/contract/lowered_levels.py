"""Levels that are lowered to what a provider says is left."""

from __future__ import annotations

from zae_limiter.exceptions import RateLimitExceeded, ValidationError
from zae_limiter.models.limit import Limit
from zae_limiter.testing.contract.harness import World, case

RPM = Limit.per_minute("rpm", 10)
TPM = Limit.per_minute("tpm", 1_000)


@case("lower: a level becomes the lesser of itself and the number, and refills from there")
async def a_level_is_lowered_and_refills(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    async with world.limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 100}):
        pass
    await world.limiter.lower("key", "gpt", {"tpm": 500})
    assert await world.client().available("key", "gpt") == {"rpm": 9, "tpm": 500}
    world.clock.advance(6)
    assert await world.limiter.available("key", "gpt") == {"rpm": 10, "tpm": 600}
    with world.raises(RateLimitExceeded):
        async with world.limiter.acquire("key", "gpt", {"tpm": 601}):
            pass
    async with world.limiter.acquire("key", "gpt", {"tpm": 600}):
        pass


@case("lower never raises a level, however high the number")
async def a_lower_level_stays(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    async with world.limiter.acquire("key", "gpt", {"rpm": 7, "tpm": 900}):
        pass
    for tpm in (101, 1_000, 10**15):
        await world.limiter.lower("key", "gpt", {"tpm": tpm, "rpm": 3})
        assert await world.limiter.available("key", "gpt") == {"rpm": 3, "tpm": 100}
    world.clock.advance(3_600)
    await world.limiter.lower("key", "gpt", {"tpm": 10**15})
    assert await world.limiter.available("key", "gpt") == {"rpm": 10, "tpm": 1_000}


@case("lower: a bucket that was never used is full, and is lowered too")
async def a_bucket_without_a_grant_is_lowered(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    await world.limiter.lower("key", "gpt", {"tpm": 5})
    other = world.client()
    assert await other.available("key", "gpt") == {"rpm": 10, "tpm": 5}
    with world.raises(RateLimitExceeded):
        async with other.acquire("key", "gpt", {"tpm": 6}):
            pass


@case("lower adds nothing up: the same number by many callers at once is that number")
async def lowered_by_many_is_lowered_once(world: World) -> None:
    await world.limiter.set_system_defaults([TPM])
    others = [world.client() for _ in range(3)]
    outcomes = await world.concurrently(
        *(limiter.lower("key", "gpt", {"tpm": 400}) for limiter in others for _ in range(10))
    )
    assert outcomes == [None] * 30
    assert await world.limiter.available("key", "gpt") == {"tpm": 400}


@case("lower by a negative number is a debt: nothing is granted until it has come back")
async def lowered_into_debt(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, Limit.custom("gate", 1, 1_000, 1)])
    for debt in (300, 500, 200):
        await world.limiter.lower("key", "gpt", {"gate": -debt})
    with world.raises(RateLimitExceeded) as caught:
        async with world.limiter.acquire("key", "gpt", {"rpm": 1}):
            pass
    assert caught.value.retry_after_seconds == 0.5
    world.clock.advance(milliseconds=499)
    with world.raises(RateLimitExceeded):
        async with world.client().acquire("key", "gpt", {"rpm": 1}):
            pass
    world.clock.advance(milliseconds=1)
    async with world.limiter.acquire("key", "gpt", {"rpm": 1}):
        pass


@case("lower concerns the entity's own bucket only, and no usage is counted")
async def ancestors_and_usage_stay(world: World) -> None:
    await world.limiter.set_system_defaults([TPM])
    await world.limiter.create_entity("team")
    await world.limiter.create_entity("key", parent_id="team", cascade=True)
    async with world.limiter.acquire("key", "gpt", {"tpm": 10}):
        pass
    await world.limiter.lower("key", "gpt", {"tpm": 0})
    assert await world.limiter.available("team", "gpt") == {"tpm": 990}
    assert await world.limiter.available("key", "gpt") == {"tpm": 0}
    (bucket,) = (await world.limiter.get_status("key", "gpt")).buckets
    assert [level.total_consumed for level in bucket.limits] == [10]


@case("What an open lease gives back comes back after its bucket was lowered")
async def a_lease_settles_after_its_bucket_was_lowered(world: World) -> None:
    await world.limiter.set_system_defaults([TPM])
    async with world.limiter.acquire("key", "gpt", {"tpm": 600}) as lease:
        await world.limiter.lower("key", "gpt", {"tpm": 100})
        await lease.settle(tpm=200)
    assert await world.limiter.available("key", "gpt") == {"tpm": 500}


@case("lower obeys limits that were changed since the bucket was used")
async def limits_that_were_just_set_are_lowered(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    async with world.limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    await world.limiter.set_limits("key", [RPM, TPM], resource="gpt", propagate=False)
    other = world.client()
    await other.lower("key", "gpt", {"tpm": 20, "rpm": 5})
    assert await other.available("key", "gpt") == {"rpm": 5, "tpm": 20}


@case("lower is in the audit trail if a principal is named")
async def lowering_is_audited_if_a_principal_is_named(world: World) -> None:
    await world.limiter.set_system_defaults([TPM])
    await world.limiter.lower("key", "gpt", {"tpm": 900})
    await world.limiter.lower("key", "gpt", {"tpm": 800}, principal="ann")
    events = (await world.limiter.get_audit_events("key")).items
    assert [(event.action, event.resource, event.principal, event.details) for event in events] == [
        ("bucket_lowered", "gpt", "ann", {"levels": {"tpm": 800}})
    ]


@case("lower refuses what is no level, and limits that do not hold; nothing changes")
async def a_level_that_is_none_is_refused(world: World) -> None:
    with world.raises(ValidationError):
        await world.limiter.lower("key", "gpt", {"tpm": 1})
    await world.limiter.set_system_defaults([TPM])
    wrong: tuple[object, ...] = ({}, None, {"rpm": 1}, {"tpm": 1.5}, {"tpm": True}, {"tpm": 10**16}, {"": 1})
    for levels in wrong:
        with world.raises(ValidationError):
            await world.limiter.lower("key", "gpt", levels)
    assert await world.limiter.available("key", "gpt") == {"tpm": 1_000}
