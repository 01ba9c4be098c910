"""Totals: one bucket over all resources of an entity, and a further leg of each of its acquires."""

from __future__ import annotations

from zae_limiter.exceptions import RateLimitExceeded, RequestExceedsBurst, ValidationError
from zae_limiter.models.limit import Limit
from zae_limiter.testing.contract.harness import World, case

RPM, TPM = Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 1_000)
TOTAL = Limit.per_minute("rpm", 15)


async def shared(world: World) -> None:
    """Ten requests a minute on each resource, and fifteen on all of them together."""
    await world.limiter.set_system_defaults([RPM, TPM])
    await world.limiter.set_limits("acme", [TOTAL], resource="*")


@case("A total is taken by acquires on every resource, and refuses when all of them together have used it up")
async def all_resources_take_from_the_total(world: World) -> None:
    await shared(world)
    for _ in range(2):
        for resource in ("a", "b"):
            async with world.limiter.acquire("acme", resource, {"rpm": 3, "tpm": 100}) as lease:
                places = [(status.resource, status.limit_name, status.source) for status in lease.statuses]
                assert places == [(resource, "rpm", "system"), (resource, "tpm", "system"), ("*", "rpm", "total")]
    assert await world.limiter.available("acme", "*") == {"rpm": 3}
    assert await world.limiter.available("acme", "a") == {"rpm": 3, "tpm": 800}, "the lesser of the two"
    for _ in range(2):
        with world.raises(RateLimitExceeded) as caught:
            async with world.limiter.acquire("acme", "c", {"rpm": 4}):
                pass
        assert [(status.resource, status.available) for status in caught.value.violations] == [("*", 3)]
        assert caught.value.retry_after_seconds == 4.0
    assert (await world.limiter.available("acme", "c"))["tpm"] == 1_000
    async with world.limiter.acquire("other", "a", {"rpm": 10}):
        pass
    with world.raises(RequestExceedsBurst):
        async with world.limiter.acquire("acme", "c", {"rpm": 16}, limits=[Limit.per_minute("rpm", 100)]):
            pass
    assert (await world.limiter.check("acme", "c", {"rpm": 4})).wait_seconds == 4.0
    assert await world.limiter.time_until_available("acme", "c", {"rpm": 3}) == 0


@case("What is settled, adjusted, given back or failed is so on the total as well")
async def settlements_reach_the_total(world: World) -> None:
    await shared(world)
    for _ in range(2):
        async with world.limiter.acquire("acme", "a", {"rpm": 1}) as lease:
            await lease.settle(rpm=3)
        assert await lease_left(world) == 12
        with world.raises(ZeroDivisionError):
            async with world.limiter.acquire("acme", "b", {"rpm": 5}):
                raise ZeroDivisionError
        assert await lease_left(world) == 12
        async with world.limiter.acquire("acme", "b", {"rpm": 1}) as lease:
            await lease.consume(rpm=2)
            await lease.flush()
            await lease.release(rpm=3)
        assert await lease_left(world) == 12
        await world.limiter.reset("acme")
        assert await lease_left(world) == 15
    async with world.limiter.acquire("acme", "a", {"rpm": 1}) as lease:
        await lease.adjust(rpm=29)
    with world.raises(RateLimitExceeded) as caught:
        async with world.limiter.acquire("acme", "b", {"tpm": 1}):
            pass
    assert caught.value.retry_after_seconds == 60.0, "a debt of the total refuses on every resource"


async def lease_left(world: World) -> int:
    left: int = (await world.limiter.available("acme", "*"))["rpm"]
    return left


@case("A total that is set, changed or deleted is obeyed by every client's next acquire")
async def totals_come_and_go(world: World) -> None:
    await world.limiter.set_system_defaults([RPM])
    other = world.client()
    for client in (world.limiter, other):
        async with client.acquire("acme", "a", {"rpm": 1}):
            pass
    await world.limiter.set_limits("acme", [Limit.per_minute("rpm", 2)], resource="*")
    for client in (other, world.limiter):
        async with client.acquire("acme", "a", {"rpm": 1}) as lease:
            assert [status.resource for status in lease.statuses] == ["a", "*"]
    for client in (other, world.limiter):
        with world.raises(RateLimitExceeded):
            async with client.acquire("acme", "b", {"rpm": 1}):
                pass
    assert await world.limiter.get_limits("acme", resource="*") == [Limit.per_minute("rpm", 2)]
    assert (await world.limiter.list_entities_with_custom_limits("*")).items == ["acme"]
    await world.limiter.delete_limits("acme", resource="*")
    world.clock.advance(5)  # so long a denial may be remembered
    for client in (other, world.limiter):
        async with client.acquire("acme", "a", {"rpm": 1}) as lease:
            assert [status.resource for status in lease.statuses] == ["a"]
    with world.raises(ValidationError):
        await world.limiter.available("acme", "*")


@case("limits= given with a call stand in for the entity's own limits there; its total holds besides, at once")
async def totals_beside_limits_given_with_the_call(world: World) -> None:
    other = world.client()
    given = [Limit.per_minute("rpm", 100)]
    for client in (world.limiter, other):
        async with client.acquire("acme", "a", {"rpm": 1}, limits=given):
            pass
    await world.limiter.set_limits("acme", [Limit.per_minute("rpm", 2)], resource="*")
    async with other.acquire("acme", "a", {"rpm": 2}, limits=given) as lease:
        assert [status.source for status in lease.statuses] == ["call", "total"]
    for client in (world.limiter, other):
        with world.raises(RateLimitExceeded):
            async with client.acquire("acme", "a", {"rpm": 1}, limits=given):
                pass


@case("An ancestor's total is a leg of its descendants' acquires, on every resource")
async def totals_of_ancestors(world: World) -> None:
    await world.limiter.create_entity("org")
    await world.limiter.create_entity("team", parent_id="org", cascade=True)
    await world.limiter.create_entity("key", parent_id="team", cascade=True)
    await world.limiter.set_limits("key", [RPM])
    await world.limiter.set_limits("team", [RPM])
    other = world.client()
    for client in (world.limiter, other):
        async with client.acquire("key", "a", {"rpm": 1}):
            pass
    await world.limiter.set_limits("org", [Limit.per_hour("usd", 20)], resource="*")
    await world.limiter.set_limits("team", [Limit.per_minute("rpm", 9)], resource="*")
    for client in (other, world.limiter):
        async with client.acquire("key", "a", {"rpm": 1, "usd": 2}) as lease:
            legs = [(status.entity_id, status.resource) for status in lease.statuses]
            assert legs == [("key", "a"), ("team", "a"), ("team", "*"), ("org", "*")]
            await lease.settle(usd=3)
    async with other.acquire("key", "b", {"rpm": 1, "usd": 10}):
        pass
    assert await world.limiter.available("org", "*") == {"usd": 4}
    assert await world.limiter.available("team", "*") == {"rpm": 6}
    with world.raises(RateLimitExceeded) as caught:
        async with world.limiter.acquire("key", "c", {"rpm": 1, "usd": 5}):
            pass
    assert [(status.entity_id, status.resource) for status in caught.value.violations] == [("org", "*")]
    await world.limiter.set_limits("org", [Limit.per_hour("usd", 20, burst=1)], resource="*")
    with world.raises(RateLimitExceeded):
        async with other.acquire("key", "c", {"usd": 2}):
            pass
    await world.limiter.delete_limits("org", resource="*")
    world.clock.advance(5)
    async with other.acquire("key", "c", {"rpm": 1}) as lease:
        assert {status.entity_id for status in lease.statuses} == {"key", "team"}


@case("An entity that has a total and nothing else is limited by that; limits it gets later hold at once")
async def only_a_total(world: World) -> None:
    await world.limiter.set_limits("acme", [TOTAL], resource="*")
    other = world.client()
    for client in (world.limiter, other):
        async with client.acquire("acme", "a", {"rpm": 2}):
            pass
    assert await world.limiter.available("acme", "a") == {"rpm": 11}
    await world.limiter.set_limits("acme", [Limit.per_minute("tpm", 5)], resource="a")
    with world.raises(RateLimitExceeded):
        async with other.acquire("acme", "a", {"rpm": 1, "tpm": 6}):
            pass
    assert await world.limiter.available("acme", "*") == {"rpm": 11}


@case("A total is in status and usage as the resource *, and counts no acquire of a resource twice")
async def totals_in_reports(world: World) -> None:
    await shared(world)
    for resource in ("a", "b"):
        async with world.limiter.acquire("acme", resource, {"rpm": 2, "tpm": 50}):
            pass
    buckets = {bucket.resource: bucket for bucket in (await world.limiter.get_status("acme")).buckets}
    assert set(buckets) == {"a", "b", "*"}
    assert [(level.limit_name, level.available) for level in buckets["*"].limits] == [("rpm", 11)]
    assert buckets["*"].total_events == 2
    (total,) = (await world.limiter.get_status("acme", "*")).buckets
    assert total == buckets["*"]
    (snapshot,) = (await world.limiter.get_usage_snapshots("acme", "*", "hourly")).items
    assert (dict(snapshot.counters), snapshot.total_events) == ({"rpm": 4}, 2)
    summary = await world.limiter.get_usage_summary("acme")
    assert (summary.total, summary.total_events) == ({"rpm": 4, "tpm": 100}, 2)
    assert (await world.limiter.get_usage_summary("acme", "*")).total == {"rpm": 4}
    assert (await world.limiter.verify_usage("acme")).holds
    assert await world.limiter.reset("acme", "*") == 1
    assert (await world.limiter.available("acme", "*"))["rpm"] == 15
    await world.limiter.delete_entity("acme")
    assert (await world.limiter.get_status("acme")).buckets == ()
    assert await world.limiter.get_limits("acme", resource="*") == []


@case("* is no resource that can be acquired, or have defaults")
async def the_total_is_no_resource(world: World) -> None:
    await shared(world)
    for call in (
        world.limiter.time_until_available("acme", "*", {"rpm": 1}),
        world.limiter.check("acme", "*", {"rpm": 1}),
        world.limiter.set_resource_defaults("*", [RPM]),
    ):
        with world.raises(ValidationError):
            await call
    with world.raises(ValidationError):
        async with world.limiter.acquire("acme", "*", {"rpm": 1}):
            pass


@case("A caller waits at the total as at any bucket: in the order of arrival, over all resources")
async def callers_wait_at_the_total(world: World) -> None:
    await shared(world)
    async with world.limiter.acquire("acme", "a", {"rpm": 10}):
        pass
    async with world.limiter.acquire("acme", "b", {"rpm": 5}):
        pass
    served: list[str] = []

    async def wait(resource: str) -> None:
        async with world.limiter.acquire("acme", resource, {"rpm": 2}, timeout=60):
            served.append(resource)

    async def drive() -> None:
        await world.until_waiting(1)
        with world.raises(RateLimitExceeded):
            async with world.limiter.acquire("acme", "d", {"rpm": 1}):
                pass
        world.clock.advance(8)

    await world.concurrently(wait("c"), drive())
    assert served == ["c"]
    assert await world.limiter.available("acme", "*") == {"rpm": 0}
