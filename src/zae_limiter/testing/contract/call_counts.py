"""Reports count every call once, however many legs it had; and every denial."""

from __future__ import annotations

from typing import Any

from zae_limiter.exceptions import RateLimitExceeded, RequestExceedsBurst
from zae_limiter.models.limit import Limit
from zae_limiter.models.reports import UsageSnapshot
from zae_limiter.testing.contract.harness import World, case

RPM = Limit.per_minute("rpm", 10)
TPM = Limit.per_minute("tpm", 1_000)
HOUR = 3_600


async def tree(limiter: Any) -> None:
    """A key below a project below an organisation; the project has no ``tpm``, and only the organisation ``rpd``."""
    await limiter.set_system_defaults([RPM, TPM])
    await limiter.create_entity("org")
    await limiter.create_entity("project", parent_id="org", cascade=True)
    await limiter.create_entity("key", parent_id="project", cascade=True)
    await limiter.set_limits("project", [Limit.per_minute("rpm", 100)])
    await limiter.set_limits("org", [Limit.per_minute("rpm", 50), Limit.per_minute("tpm", 5_000)])


async def denied(limiter: Any, entity_id: str, consume: dict[str, int], times: int = 1, resource: str = "gpt") -> None:
    for _ in range(times):
        try:
            async with limiter.acquire(entity_id, resource, consume):
                raise AssertionError("granted")
        except RateLimitExceeded:
            pass


async def hours(limiter: Any, entity_id: str, resource: str = "gpt") -> list[UsageSnapshot]:
    return list((await limiter.get_usage_snapshots(entity_id, resource, "hourly")).items)


@case("A call that cascades counts once in the sums over a resource and over everything, with all it settled")
async def cascades_count_once(world: World) -> None:
    limiter = world.limiter
    await tree(limiter)
    for _ in range(2):
        async with limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 100}) as lease:
            await lease.adjust(tpm=50)
    async with limiter.acquire("org", "gpt", {"rpm": 2, "tpm": 30}) as lease:
        await lease.settle(tpm=20)
    async with limiter.acquire("key", "claude", {"rpm": 1}) as lease:
        await lease.consume(rpm=1)
    try:
        async with limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 7}):
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    gpt = await limiter.get_usage_summary(resource="gpt")
    assert (gpt.total, gpt.total_events) == ({"rpm": 4, "tpm": 320}, 4)
    everything = await limiter.get_usage_summary()
    assert (everything.total, everything.total_events) == ({"rpm": 6, "tpm": 320}, 6)
    org = await limiter.get_usage_summary("org", "gpt")
    assert (org.total, org.total_events) == ({"rpm": 4, "tpm": 320}, 4)  # its own and its key's
    (hour,) = await hours(limiter, "org")
    assert (dict(hour.own), hour.own_events) == ({"rpm": 2, "tpm": 20}, 1)
    assert (dict(hour.cascaded), hour.cascaded_events) == ({"rpm": 2, "tpm": 300}, 3)
    (hour,) = await hours(limiter, "key")
    assert (dict(hour.own), dict(hour.cascaded)) == ({"rpm": 2, "tpm": 300}, {})
    for entity_id in ("key", "project", "org"):
        proof = await limiter.verify_usage(entity_id)
        assert proof.holds
        assert all(not chain.behind for chain in proof.chains)
        counted = {
            (chain.resource, chain.limit_name): chain.counted for chain in proof.chains if chain.counts == "taken"
        }
        assert counted["gpt", "rpm"] == (2 if entity_id != "org" else 4)


@case("Who took most is ranked by entity and by resource, each call for the entity that made it")
async def top_usage_adds_up(world: World) -> None:
    limiter = world.limiter
    await tree(limiter)
    assert await limiter.get_top_usage() == []
    for entity_id, resource, tokens in (("key", "gpt", 500), ("key", "claude", 100), ("org", "gpt", 200)):
        async with limiter.acquire(entity_id, resource, {"rpm": 1, "tpm": tokens}):
            pass
    top = await limiter.get_top_usage(limit_name="tpm")
    assert [(used.name, dict(used.total), used.total_events) for used in top] == [
        ("key", {"rpm": 2, "tpm": 600}, 2),
        ("org", {"rpm": 1, "tpm": 200}, 1),
    ]
    top = await limiter.get_top_usage("resource", limit_name="tpm")
    assert [(used.name, used.total["tpm"]) for used in top] == [("gpt", 700), ("claude", 100)]
    assert [used.name for used in await limiter.get_top_usage(resource="claude", limit=1)] == ["key"]


@case("A limit that only an ancestor of the caller has counts there, and nowhere twice")
async def names_of_ancestors_count_there(world: World) -> None:
    limiter = world.limiter
    await tree(limiter)
    await limiter.set_limits("key", [RPM])
    async with limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    summary = await limiter.get_usage_summary(resource="gpt")
    assert (summary.total.get("rpm"), summary.total_events) == (1, 1)


@case("The capacity of a resource has what a call takes from several levels once")
async def capacity_counts_once(world: World) -> None:
    limiter = world.limiter
    await tree(limiter)
    await limiter.create_entity("loner")
    for entity_id, amount in (("key", 3), ("loner", 1)):
        async with limiter.acquire(entity_id, "gpt", {"rpm": amount}):
            pass
    capacity = await limiter.get_resource_capacity("gpt", "rpm")
    assert (capacity.total_capacity, capacity.total_available) == (50 + 10, 47 + 9)
    assert [(row.entity_id, row.available, row.in_total) for row in capacity.entities.items] == [
        ("key", 7, False),
        ("loner", 9, True),
        ("org", 47, True),
        ("project", 97, False),
    ]


@case("Denials are counted once each, by the limit that lacked for longest and the entity whose it is, per hour")
async def denials_are_counted(world: World) -> None:
    client = world.client()
    await tree(client)
    async with client.acquire("key", "gpt", {"rpm": 10, "tpm": 100}):
        pass
    await denied(client, "key", {"rpm": 1}, 3)
    await denied(client, "key", {"rpm": 1, "tpm": 2_000})  # never: that lacks for longest
    async with client.acquire("org", "gpt", {"tpm": 4_900}) as lease:
        await lease.adjust(tpm=50_000)
    world.clock.advance(60)
    await denied(client, "key", {"rpm": 1}, 2)  # by the organisation, which is in debt
    async with client.acquire("key", "claude", {"rpm": 1}):
        pass
    world.clock.advance(HOUR)
    for entity_id in ("key", "org"):
        async with client.acquire(entity_id, "gpt", {"rpm": 1}):
            pass
    await client.repository.close()
    reader = world.client()
    key, org = await hours(reader, "key"), await hours(reader, "org")
    assert sum(hour.total_denials for hour in key) == 4
    assert summed(key) == {"rpm": 3, "tpm": 1}
    assert summed(org) == {"tpm": 2}
    summary = await reader.get_usage_summary(resource="gpt")
    assert (dict(summary.denials), summary.total_denials) == ({"rpm": 3, "tpm": 3}, 6)
    assert {used.name: used.total_denials for used in await reader.get_top_usage()} == {"key": 4, "org": 2}
    (bucket,) = (await reader.get_status("key", "gpt")).buckets
    assert {level.limit_name: level.denials for level in bucket.limits} == {"rpm": 3, "tpm": 1}
    for entity_id in ("key", "org"):
        proof = await reader.verify_usage(entity_id)
        assert proof.holds
        told = {chain.limit_name: chain.counted for chain in proof.chains if chain.counts == "denials"}
        assert told == ({"rpm": 3, "tpm": 1} if entity_id == "key" else {"tpm": 2})


@case("A caller that waits is counted as denied once, when it is told so")
async def waiting_counts_once(world: World) -> None:
    client = world.client()
    await client.set_system_defaults([RPM])
    told: list[int] = []
    async with client.acquire("key", "gpt", {"rpm": 10}):
        pass

    async def waits() -> None:
        with world.raises(RateLimitExceeded):
            async with client.acquire("key", "gpt", {"rpm": 5}, timeout=40):
                pass
        told.append(world.clock())

    async def takes() -> None:
        await world.until_waiting(1)
        world.clock.advance(29.9)
        async with client.acquire("key", "gpt", {"rpm": 0}) as lease:
            await lease.adjust(rpm=4)
        for seconds in (0.1, 10):
            await world.until(lambda: bool(world.clock.waiting or told))  # not while it tries
            world.clock.advance(seconds)

    results = await world.concurrently(waits(), takes())
    assert results == [None, None]
    await client.repository.close()
    assert summed(await hours(world.client(), "key")) == {"rpm": 1}


@case("A client that is closed has counted its denials, also by a bucket from which nothing was ever taken")
async def closing_counts_denials(world: World) -> None:
    client = world.client()
    await client.set_system_defaults([RPM])
    try:
        async with client.acquire("key", "gpt", {"rpm": 11}):
            raise AssertionError("granted")
    except RequestExceedsBurst:
        pass
    await client.repository.close()
    reader = world.client()
    assert summed(await hours(reader, "key")) == {"rpm": 1}
    assert await reader.available("key", "gpt") == {"rpm": 10}


def summed(windows: list[UsageSnapshot]) -> dict[str, int]:
    found: dict[str, int] = {}
    for window in windows:
        for name, number in window.denials.items():
            found[name] = found.get(name, 0) + number
    return found
