"""Which names a call may use: those that any level consulted, or any ancestor, knows."""

from __future__ import annotations

from typing import Any

from zae_limiter.exceptions import RateLimitExceeded, RequestExceedsBurst, ValidationError
from zae_limiter.models.limit import Limit
from zae_limiter.testing.contract.harness import World, case

RPM, TPM, USD = Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 1_000), Limit.per_hour("usd", 50)


async def took(lease: Any, **amounts: int) -> None:
    assert lease.consumed == amounts


async def organisation(world: World) -> None:
    """org ← key: the key has requests, and the organisation has dollars."""
    await world.limiter.create_entity("org")
    await world.limiter.create_entity("key", parent_id="org", cascade=True)
    await world.limiter.set_limits("key", [RPM])
    await world.limiter.set_limits("org", [USD])


async def dollars(world: World) -> int:
    left: int = (await world.limiter.available("org", "gpt"))["usd"]
    return left


@case("An entity whose own limits lack a name that a wider level knows may name it: it is not limited by it")
async def a_name_of_a_wider_level_is_a_name(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    await world.limiter.set_resource_defaults("gpt", [RPM, USD])
    for _ in range(2):
        async with world.limiter.acquire("key", "gpt", {"rpm": 1, "usd": 1}):
            pass
    await world.limiter.set_limits("key", [Limit.per_minute("rpm", 500)])
    for client in (world.limiter, world.client()):
        for _ in range(3):
            async with client.acquire("key", "gpt", {"rpm": 1, "tpm": 5_000, "usd": 70}) as lease:
                await took(lease, rpm=1, tpm=5_000, usd=70)
                assert [status.limit_name for status in lease.statuses] == ["rpm"]
                await lease.settle(tpm=6_000)
                await lease.adjust(usd=1)
                await lease.consume(tpm=1)
                await lease.release(usd=71)
                await lease.flush()
                await took(lease, rpm=1, tpm=6_001, usd=0)
                with world.raises(ValidationError):
                    await lease.release(usd=1)
    assert await world.limiter.available("key", "gpt") == {"rpm": 2}  # a raised limit mints nothing
    assert await world.limiter.time_until_available("key", "gpt", {"tpm": 10**9}) == 0
    assert (await world.limiter.check("key", "gpt", {"usd": 10**9})).fits


@case("A name that no level and no ancestor knows is a ValidationError, also where another level has limits")
async def a_name_known_nowhere_is_refused(world: World) -> None:
    await organisation(world)
    await world.limiter.set_resource_defaults("other", [TPM])
    for _ in range(2):
        for wanted in ({"tpm": 1}, {"rpm": 1, "ups": 1}, {"rpm": 1, "usd": 1, "usdd": 0}):
            with world.raises(ValidationError) as caught:
                async with world.limiter.acquire("key", "gpt", wanted):
                    pass
            assert "rpm" in str(caught.value)
            assert "usd" in str(caught.value)
        async with world.limiter.acquire("key", "gpt", {"rpm": 1}) as lease:
            for use in (lease.adjust, lease.settle, lease.consume, lease.release):
                with world.raises(ValidationError):
                    await use(tpm=1)
    with world.raises(ValidationError):
        async with world.limiter.acquire("org", "gpt", {"usd": 1, "rpm": 1}):
            pass  # what a descendant has is not known above
    assert await world.limiter.available("key", "gpt") == {"rpm": 8}
    assert await dollars(world) == 50


@case("A name that becomes known is a name on every client's next acquire, and one that is deleted is none")
async def names_come_and_go(world: World) -> None:
    other = world.client()
    await world.limiter.set_limits("key", [RPM])
    for client in (world.limiter, other):
        with world.raises(ValidationError):
            async with client.acquire("key", "gpt", {"rpm": 1, "tpm": 1}):
                pass
    await world.limiter.set_system_defaults([TPM])
    for client in (world.limiter, other):
        async with client.acquire("key", "gpt", {"rpm": 1, "tpm": 9_999}):
            pass
    await world.limiter.delete_system_defaults()
    for client in (world.limiter, other):
        async with client.acquire("key", "gpt", {"rpm": 1}):
            pass
        with world.raises(ValidationError):
            async with client.acquire("key", "gpt", {"rpm": 1, "tpm": 1}):
                pass


@case("A limit that only an ancestor has is charged there: taken, settled, given back, and refused if it lacks")
async def an_ancestors_limit_is_charged_by_its_keys(world: World) -> None:
    await organisation(world)
    for spent in (3, 6):
        async with world.limiter.acquire("key", "gpt", {"rpm": 1, "usd": 2}) as lease:
            await lease.settle(usd=3)
        assert await dollars(world) == 50 - spent
    async with world.limiter.acquire("key", "gpt", {"rpm": 1}) as lease:
        await lease.adjust(usd=4)
        await lease.consume(usd=5)
        await lease.release(usd=1)
        await took(lease, rpm=1, usd=8)
    assert await dollars(world) == 36
    with world.raises(ZeroDivisionError):
        async with world.limiter.acquire("key", "gpt", {"rpm": 1, "usd": 20}):
            raise ZeroDivisionError
    assert await dollars(world) == 36
    for _ in range(2):
        with world.raises(RateLimitExceeded) as caught:
            async with world.limiter.acquire("key", "gpt", {"rpm": 1, "usd": 37}):
                pass
        assert [(status.entity_id, status.limit_name) for status in caught.value.violations] == [("org", "usd")]
        assert caught.value.retry_after_seconds == 72.0
    with world.raises(RequestExceedsBurst):
        async with world.limiter.acquire("key", "gpt", {"usd": 51}):
            pass
    assert await world.limiter.available("key", "gpt") == {"rpm": 7}
    assert await world.limiter.time_until_available("key", "gpt", {"usd": 37}) == 72.0


@case("limits= given with the call stand in for the entity's own; other levels' and ancestors' names stay known")
async def names_beside_limits_given_with_the_call(world: World) -> None:
    await organisation(world)
    await world.limiter.set_system_defaults([TPM])
    given = [Limit.per_minute("calls", 3)]
    for _ in range(2):
        async with world.limiter.acquire("key", "gpt", {"calls": 1, "usd": 1, "tpm": 9_999, "rpm": 99}, limits=given):
            pass
        with world.raises(ValidationError):
            async with world.limiter.acquire("key", "gpt", {"calls": 1, "typo": 1}, limits=given):
                pass
        with world.raises(ValidationError):  # only that call knew it
            async with world.limiter.acquire("key", "gpt", {"calls": 1}):
                pass
    assert await dollars(world) == 48


@case("An entity without limits of its own is limited by its ancestors; limits it gets later hold at once")
async def only_an_ancestor_has_limits(world: World) -> None:
    await organisation(world)
    await world.limiter.delete_limits("key")
    other = world.client()
    for client in (world.limiter, other):
        for _ in range(2):
            async with client.acquire("key", "gpt", {"usd": 10}) as lease:
                assert {status.entity_id for status in lease.statuses} == {"org"}
                await lease.adjust(usd=-5)
                await lease.consume(usd=1)
    assert await dollars(world) == 26
    assert await world.limiter.available("key", "gpt") == {}
    assert [bucket.total_events for bucket in (await world.limiter.get_status("key")).buckets] == [8]
    assert (await world.limiter.get_usage_summary("key")).total_events == 8
    assert (await world.limiter.verify_usage("key")).holds
    with world.raises(RateLimitExceeded):
        async with other.acquire("key", "gpt", {"usd": 27}):
            pass
    await world.limiter.set_limits("key", [Limit.per_minute("rpm", 1)], resource="gpt")
    async with other.acquire("key", "gpt", {"usd": 1}) as lease:
        await lease.adjust(rpm=5)
    with world.raises(RateLimitExceeded) as caught:
        async with other.acquire("key", "gpt", {"usd": 1}):
            pass
    assert caught.value.primary_violation is not None
    assert caught.value.primary_violation.limit_name == "rpm"
    await world.limiter.delete_limits("key", resource="gpt")
    world.clock.advance(5)  # so long a denial may be remembered
    for client in (world.limiter, other):
        async with client.acquire("key", "gpt", {"usd": 1}):
            pass
    with world.raises(ValidationError) as refused:
        async with other.acquire("key", "gpt", {"rpm": 1}):
            pass
    assert "usd" in str(refused.value)
    assert await dollars(world) == 23
    await world.limiter.set_limits("key", [Limit.per_minute("rpm", 1)], resource="gpt")
    assert (await world.limiter.available("key", "gpt"))["rpm"] == -4, "a debt is not forgiven by the deletion"


@case("What a lease consumed of a limit that nothing had then is not given back to one that is set meanwhile")
async def a_limit_is_set_while_its_name_was_unlimited(world: World) -> None:
    await world.limiter.set_system_defaults([RPM, TPM])
    await world.limiter.set_limits("key", [RPM])
    async with world.limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 300}) as lease:
        await world.limiter.set_limits("key", [RPM, TPM])
        async with world.limiter.acquire("key", "gpt", {"tpm": 400}):
            pass
        await lease.consume(tpm=100)
        await took(lease, rpm=1, tpm=400)
        assert (await world.limiter.available("key", "gpt"))["tpm"] == 500
        await lease.release(tpm=400)
    assert (await world.limiter.available("key", "gpt"))["tpm"] == 600
