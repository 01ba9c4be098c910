"""Limits at four levels, changed while buckets live."""

from __future__ import annotations

from functools import partial
from typing import Any

from zae_limiter.exceptions import LimitsChangedError, RateLimitExceeded, ValidationError
from zae_limiter.models.choices import OnUnavailable
from zae_limiter.models.limit import Limit
from zae_limiter.models.limit_versions import limits_version
from zae_limiter.testing.contract.harness import World, case

Step = tuple[partial[Any], list[Limit], str]


def rpm(rate: int, burst: int | None = None) -> list[Limit]:
    return [Limit.per_minute("rpm", rate, burst)]


@case("Four levels: entity+resource > entity > resource > system; the first that has limits gives all")
async def the_nearest_level_gives_all_limits(world: World) -> None:
    resolve = world.limiter.repository.resolve_limits
    assert await resolve("key", "gpt") == (None, None, None)
    limiter = world.limiter
    steps: tuple[Step, ...] = (
        (partial(limiter.set_system_defaults, rpm(1), on_unavailable="allow"), rpm(1), "system"),
        (partial(limiter.set_resource_defaults, "gpt", rpm(2)), rpm(2), "resource"),
        (partial(limiter.set_limits, "key", rpm(3)), rpm(3), "entity_default"),
        (partial(limiter.set_limits, "key", rpm(4), resource="gpt"), rpm(4), "entity"),
        (partial(limiter.delete_limits, "key", resource="gpt"), rpm(3), "entity_default"),
        (partial(limiter.delete_limits, "key"), rpm(2), "resource"),
        (partial(limiter.delete_resource_defaults, "gpt"), rpm(1), "system"),
    )
    for change, limits, source in steps:
        await change()
        assert await resolve("key", "gpt") == (limits, OnUnavailable.ALLOW, source)
        async with world.limiter.acquire("key", "gpt", {}) as lease:
            assert [(s.limit, s.source) for s in lease.statuses] == [(limits[0], source)]
    await world.limiter.delete_system_defaults()
    assert await resolve("key", "gpt") == (None, None, None)


@case("What was set can be read back")
async def limits_can_be_read_back(world: World) -> None:
    assert await world.limiter.get_limits("key") == []
    assert await world.limiter.get_resource_defaults("gpt") == []
    assert await world.limiter.get_system_defaults() == ([], None)
    full = [Limit.custom("tpm", 100, 7, 13, 55), Limit.per_day("rpd", 3)]
    await world.limiter.set_limits("key", full, resource="gpt")
    await world.limiter.set_resource_defaults("gpt", full)
    await world.limiter.set_system_defaults(full, on_unavailable="block")
    assert await world.limiter.get_limits("key", resource="gpt") == full
    assert await world.limiter.get_limits("key") == []
    assert await world.limiter.get_resource_defaults("gpt") == full
    assert await world.limiter.get_system_defaults() == (full, OnUnavailable.BLOCK)
    for nothing in (
        world.limiter.delete_limits("nobody"),
        world.limiter.delete_resource_defaults("nothing"),
    ):
        await nothing


@case("A change at any level is obeyed by the next acquire of every client")
async def a_change_is_obeyed_by_the_next_acquire_of_every_client(world: World) -> None:
    other = world.client()
    await world.limiter.set_system_defaults(rpm(10))
    async with other.acquire("key", "gpt", {"rpm": 1}):
        pass
    changes = (
        partial(world.limiter.set_system_defaults, rpm(3)),
        partial(world.limiter.set_resource_defaults, "gpt", rpm(2)),
        partial(world.limiter.set_limits, "key", rpm(1)),
    )
    for change, burst in zip(changes, (3, 2, 1), strict=True):
        await change()
        assert await other.available("key", "gpt") == {"rpm": burst}
        with world.raises(RateLimitExceeded):
            async with other.acquire("key", "gpt", {"rpm": burst + 1}):
                pass


@case("A lowered burst clamps, a raised one mints nothing")
async def a_lowered_burst_clamps_and_a_raised_one_mints_nothing(world: World) -> None:
    await world.limiter.set_limits("key", rpm(60))
    async with world.limiter.acquire("key", "gpt", {"rpm": 20}):
        pass
    await world.limiter.set_limits("key", rpm(60, burst=10))
    assert await world.limiter.available("key", "gpt") == {"rpm": 10}
    async with world.limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    await world.limiter.set_limits("key", rpm(60, burst=500))
    assert await world.limiter.available("key", "gpt") == {"rpm": 9}
    world.clock.advance(30)
    assert await world.limiter.available("key", "gpt") == {"rpm": 39}


@case("A change at a wide level holds for every live bucket from the moment it is made")
async def a_wide_change_holds_from_the_moment_it_is_made(world: World) -> None:
    await world.limiter.set_system_defaults(rpm(60))
    await world.limiter.set_resource_defaults("claude", rpm(60))
    for resource in ("gpt", "claude"):
        async with world.limiter.acquire("key", resource, {"rpm": 60}):
            pass
    world.clock.advance(10)
    await world.limiter.set_system_defaults(rpm(600))
    await world.limiter.set_resource_defaults("claude", rpm(600))
    world.clock.advance(1)
    assert await world.limiter.available("key", "gpt") == {"rpm": 20}
    assert await world.limiter.available("key", "claude") == {"rpm": 20}
    await world.limiter.delete_resource_defaults("claude")
    await world.limiter.set_system_defaults(rpm(60, burst=5))
    await world.limiter.set_system_defaults(rpm(60, burst=500))
    assert await world.limiter.available("key", "gpt") == {"rpm": 5}
    assert await world.limiter.available("key", "claude") == {"rpm": 5}


@case("A raised limit is not refused by what was known before")
async def a_raise_takes_effect_even_if_the_first_try_is_denied(world: World) -> None:
    await world.limiter.set_limits("key", rpm(1))
    async with world.limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    await world.limiter.set_limits("key", rpm(6_000))
    with world.raises(RateLimitExceeded) as caught:
        async with world.limiter.acquire("key", "gpt", {"rpm": 10}):
            pass
    assert caught.value.retry_after_seconds == 0.1
    world.clock.advance(0.1)
    async with world.limiter.acquire("key", "gpt", {"rpm": 10}):
        pass


@case("A new rate holds from the change on, not before")
async def a_new_rate_holds_from_the_change_on(world: World) -> None:
    await world.limiter.set_limits("key", rpm(60))
    async with world.limiter.acquire("key", "gpt", {"rpm": 60}):
        pass
    world.clock.advance(10)
    await world.limiter.set_limits("key", rpm(600))
    async with world.limiter.acquire("key", "gpt", {"rpm": 10}):
        pass
    world.clock.advance(1)
    assert await world.limiter.available("key", "gpt") == {"rpm": 10}


@case("A limit added while buckets live starts full; one removed no longer refuses")
async def limits_can_be_added_and_removed_while_buckets_live(world: World) -> None:
    tpm = Limit.per_minute("tpm", 100)
    await world.limiter.set_limits("key", rpm(10))
    async with world.limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    await world.limiter.set_limits("key", [*rpm(10), tpm])
    async with world.limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 100}):
        pass
    assert await world.limiter.available("key", "gpt") == {"rpm": 8, "tpm": 0}
    await world.limiter.set_limits("key", rpm(10))
    async with world.limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    with world.raises(ValidationError):
        async with world.limiter.acquire("key", "gpt", {"tpm": 1}):
            pass


@case("A lease can settle a limit that was changed or removed meanwhile")
async def a_lease_outlives_its_limits(world: World) -> None:
    await world.limiter.set_limits("key", [*rpm(10), Limit.per_minute("tpm", 100)])
    async with world.limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 50}) as lease:
        await world.limiter.set_limits("key", rpm(5))
        async with world.limiter.acquire("key", "gpt", {"rpm": 1}):
            pass
        await lease.adjust(rpm=1, tpm=25)
    assert await world.limiter.available("key", "gpt") == {"rpm": 3}
    usage = (await world.limiter.get_usage_snapshots("key", window_type="hourly")).items
    assert [dict(snapshot.counters) for snapshot in usage] == [{"rpm": 3, "tpm": 75}]


@case("Every change is in the audit trail, newest first, with who made it")
async def changes_are_audited(world: World) -> None:
    await world.limiter.create_entity("key", principal="ann")
    await world.limiter.set_limits("key", rpm(1), resource="gpt", principal="bob")
    world.clock.advance(1)
    await world.limiter.delete_limits("key", resource="gpt")
    await world.limiter.set_resource_defaults("gpt", rpm(2), principal="cid")
    await world.limiter.set_system_defaults(rpm(3), principal="dan")
    await world.limiter.update_entity("key", name="x")
    await world.limiter.delete_entity("key", principal="eve")

    async def trail(subject: str | None) -> list[tuple[str, str | None]]:
        page = await world.limiter.get_audit_events(subject)
        return [(event.action, event.principal) for event in page.items]

    assert await trail("key") == [
        ("entity_deleted", "eve"),
        ("entity_updated", None),
        ("limits_deleted", None),
        ("limits_set", "bob"),
        ("entity_created", "ann"),
    ]
    assert await trail("$RESOURCE:gpt") == [("limits_set", "cid")]
    assert await trail("$SYSTEM") == [("limits_set", "dan")]
    first = await world.limiter.get_audit_events("key", limit=2)
    rest = await world.limiter.get_audit_events("key", limit=3, cursor=first.next_cursor)
    assert [event.action for event in (*first.items, *rest.items)] == [a for a, _ in await trail("key")]
    assert rest.next_cursor is None
    late = await world.limiter.get_audit_events("key", start_time=world.clock.start + 1)
    assert [event.action for event in late.items] == ["entity_deleted", "entity_updated", "limits_deleted"]
    event = (await world.limiter.get_audit_events("$RESOURCE:gpt")).items[0]
    assert event.details["to"]["limits"][0]["capacity"] == 2
    everything = await world.limiter.get_audit_events(limit=1_000)
    ids = [event.event_id for event in everything.items]
    assert len(ids) == 7
    assert ids == sorted(ids, reverse=True)


@case("An audit event says how it was and how it is")
async def audit_events_have_from_and_to(world: World) -> None:
    limiter = world.limiter
    two, three = Limit.per_minute("rpm", 2), Limit.per_minute("rpm", 3)
    await limiter.set_system_defaults([two], on_unavailable="allow")
    await limiter.set_system_defaults([three])
    await limiter.delete_system_defaults()
    await limiter.create_entity("org")
    await limiter.create_entity("key", name="Key", metadata={"team": "a"})
    await limiter.update_entity("key", metadata={"team": "b"}, parent_id="org")
    await limiter.set_limits("key", [two], resource="gpt")
    async with limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    await limiter.delete_entity("key")

    async def told(subject: str) -> list[tuple[object, object]]:
        page = await limiter.get_audit_events(subject)
        return [(event.details["from"], event.details["to"]) for event in reversed(page.items)]

    first = {"limits": [two.as_dict()], "on_unavailable": "allow"}
    second = {"limits": [three.as_dict()], "on_unavailable": "allow"}
    assert await told("$SYSTEM") == [(None, first), (first, second), (second, None)]
    created = {"name": "Key", "parent_id": None, "cascade": False, "metadata": {"team": "a"}}
    old, new = {"metadata": {"team": "a"}, "parent_id": None}, {"metadata": {"team": "b"}, "parent_id": "org"}
    deleted = {**created, **new, "limits": {"gpt": [two.as_dict()]}, "buckets": 1}
    assert await told("key") == [
        (None, created),
        (old, new),
        (None, {"limits": [two.as_dict()]}),
        (deleted, None),
    ]


@case("A change of limits that names the version it is about changes nothing if they are others by then")
async def a_change_may_name_the_version_it_is_about(world: World) -> None:
    limiter = world.limiter
    old, new = [Limit.per_minute("rpm", 1)], [Limit.per_minute("rpm", 2), Limit.per_day("usd", 3)]
    levels: list[tuple[Any, Any, Any]] = [
        (
            partial(limiter.set_limits, "key"),
            partial(limiter.get_limits, "key"),
            partial(limiter.delete_limits, "key"),
        ),
        (
            partial(limiter.set_resource_defaults, "gpt"),
            partial(limiter.get_resource_defaults, "gpt"),
            partial(limiter.delete_resource_defaults, "gpt"),
        ),
    ]
    for set_limits, get_limits, delete_limits in levels:
        with world.raises(LimitsChangedError):
            await set_limits(old, expected_version="*")
        await set_limits(old, expected_version=limits_version([]))
        await set_limits(new, expected_version=limits_version(old))
        with world.raises(LimitsChangedError) as caught:
            await set_limits(old, expected_version=limits_version(old))
        assert caught.value.found == limits_version(reversed(new))
        with world.raises(LimitsChangedError):
            await delete_limits(expected_version=limits_version(old))
        assert sorted(await get_limits(), key=lambda limit: limit.name) == new
        await delete_limits(expected_version="*")
        assert await get_limits() == []
    await limiter.set_system_defaults(old, on_unavailable="allow", expected_version=limits_version([]))
    with world.raises(LimitsChangedError):
        await limiter.set_system_defaults(new, expected_version=limits_version(old))
    await limiter.set_system_defaults(new, expected_version=limits_version(old, "allow"))
    await limiter.delete_system_defaults(expected_version=limits_version(new, "allow"))
    assert await limiter.get_system_defaults() == ([], None)


@case("Of several clients that change the limits they have read, at once, exactly one does, and the others are told")
async def of_clients_that_change_the_same_limits_one_wins(world: World) -> None:
    clients = [world.client() for _ in range(4)]
    await world.limiter.set_limits("key", [Limit.per_minute("rpm", 1)])
    read = limits_version([Limit.per_minute("rpm", 1)])

    async def change(client: Any, amount: int) -> int | None:
        try:
            await client.set_limits("key", [Limit.per_minute("rpm", amount)], expected_version=read)
        except LimitsChangedError:
            return None
        return amount

    changed = await world.concurrently(*(change(client, 10 + place) for place, client in enumerate(clients)))
    (won,) = [amount for amount in changed if amount is not None]
    assert await world.limiter.get_limits("key") == [Limit.per_minute("rpm", won)]
