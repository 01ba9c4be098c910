"""Entities, parents, cascades."""

from __future__ import annotations

from zae_limiter.exceptions import (
    EntityChangedError,
    EntityExistsError,
    EntityNotFoundError,
    RateLimitExceeded,
    ValidationError,
)
from zae_limiter.models.limit import Limit
from zae_limiter.testing.contract.harness import World, case


async def family(world: World) -> None:
    """org ← project ← key, all cascading, with room for 100, 20 and 10 requests."""
    await world.limiter.create_entity("org")
    await world.limiter.create_entity("project", parent_id="org", cascade=True)
    await world.limiter.create_entity("key", parent_id="project", cascade=True)
    await world.limiter.set_limits("org", [Limit.per_minute("rpm", 100)])
    await world.limiter.set_limits("project", [Limit.per_minute("rpm", 20), Limit.per_minute("tpm", 500)])
    await world.limiter.set_limits("key", [Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 1_000)])


async def rpm_of(world: World, *entities: str) -> list[int]:
    return [(await world.limiter.available(entity, "gpt"))["rpm"] for entity in entities]


@case("An acquire takes from the entity and from every ancestor it cascades to")
async def cascade_goes_up_through_all_levels(world: World) -> None:
    await family(world)
    async with world.limiter.acquire("key", "gpt", {"rpm": 2, "tpm": 100}) as lease:
        await lease.adjust(tpm=-40)
        assert [status.entity_id for status in lease.statuses] == ["key", "key", "project", "project", "org"]
    assert await rpm_of(world, "key", "project", "org") == [8, 18, 98]
    assert (await world.limiter.available("key", "gpt"))["tpm"] == 940
    assert (await world.limiter.available("project", "gpt"))["tpm"] == 440


@case("Cascade stops at the first entity that does not cascade")
async def cascade_stops_where_it_is_switched_off(world: World) -> None:
    await family(world)
    await world.limiter.update_entity("project", cascade=False)
    async with world.limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    assert await rpm_of(world, "key", "project", "org") == [9, 19, 100]


@case("An ancestor lacks: nothing stays taken on any leg, and every status is in the error")
async def a_drained_ancestor_refuses_and_nothing_is_taken(world: World) -> None:
    await family(world)
    async with world.limiter.acquire("project", "gpt", {"rpm": 20}):
        pass
    with world.raises(RateLimitExceeded) as caught:
        async with world.limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 1}):
            pass
    assert len(caught.value.statuses) == 5
    assert [status.entity_id for status in caught.value.violations] == ["project"]
    assert caught.value.retry_after_seconds == 3.0
    assert await rpm_of(world, "key", "project", "org") == [10, 0, 80]


@case("A failed body gives back on every leg")
async def a_failed_body_gives_back_on_every_leg(world: World) -> None:
    await family(world)
    with world.raises(ZeroDivisionError):
        async with world.limiter.acquire("key", "gpt", {"rpm": 5, "tpm": 100}) as lease:
            await lease.settle(tpm=30)
            raise ZeroDivisionError
    assert await rpm_of(world, "key", "project", "org") == [10, 20, 100]
    assert (await world.limiter.available("project", "gpt"))["tpm"] == 470


@case("An ancestor lacks a limit the child has: it checks what it has; without any limits it is skipped")
async def an_ancestor_checks_only_the_limits_it_has(world: World) -> None:
    await family(world)
    await world.limiter.delete_limits("org")
    async with world.limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 1}) as lease:
        assert {status.entity_id for status in lease.statuses} == {"key", "project"}
    await world.limiter.set_limits("project", [Limit.per_minute("other", 1)])
    for _ in range(3):
        async with world.limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 1}):
            pass
    assert (await world.limiter.available("project", "gpt")) == {"other": 1}


@case("A request larger than an ancestor's burst can never be granted")
async def more_than_an_ancestors_burst_is_refused_for_good(world: World) -> None:
    await family(world)
    with world.raises(RateLimitExceeded) as caught:
        async with world.limiter.acquire("key", "gpt", {"tpm": 501}):
            pass
    assert caught.value.retry_after_seconds is None


@case("An entity need not be created first; creating it later gives it a parent")
async def an_entity_can_be_created_after_its_first_acquire(world: World) -> None:
    await world.limiter.set_system_defaults([Limit.per_minute("rpm", 10)])
    async with world.limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    await world.limiter.create_entity("org")
    await world.limiter.create_entity("key", parent_id="org", cascade=True)
    async with world.limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    assert await rpm_of(world, "key", "org") == [8, 9]


@case("A new parent is obeyed by every client's next acquire; a lease settles where it paid")
async def re_parenting_is_obeyed_at_once(world: World) -> None:
    await family(world)
    other = world.client()
    await world.limiter.create_entity("project-2", parent_id="org", cascade=True)
    await world.limiter.set_limits("project-2", [Limit.per_minute("rpm", 20)])
    with world.raises(ZeroDivisionError):
        async with other.acquire("key", "gpt", {"rpm": 1}):
            await world.limiter.update_entity("key", parent_id="project-2")
            async with other.acquire("key", "gpt", {"rpm": 1}):
                pass
            raise ZeroDivisionError
    assert await rpm_of(world, "key", "project", "project-2", "org") == [9, 20, 19, 99]


@case("Unknown parents and cycles are refused")
async def unknown_parents_and_cycles_are_refused(world: World) -> None:
    await family(world)
    with world.raises(EntityNotFoundError):
        await world.limiter.create_entity("orphan", parent_id="nobody")
    with world.raises(EntityNotFoundError):
        await world.limiter.get_entity("orphan")
    with world.raises(EntityNotFoundError):
        await world.limiter.update_entity("key", parent_id="nobody")
    for entity, parent in (("org", "key"), ("org", "org"), ("project", "key")):
        with world.raises(ValidationError):
            await world.limiter.update_entity(entity, parent_id=parent)
    assert (await world.limiter.get_entity("org")).parent_id is None


@case("Entities: create, read, update with versions, delete")
async def the_life_of_an_entity(world: World) -> None:
    created = await world.limiter.create_entity("a", name="Anna", metadata={"plan": "gold"})
    assert created == await world.limiter.get_entity("a")
    assert (created.name, created.metadata, created.version) == ("Anna", {"plan": "gold"}, 1)
    with world.raises(EntityExistsError):
        await world.limiter.create_entity("a")
    updated = await world.limiter.update_entity("a", name=None, expected_version=1)
    assert (updated.name, updated.metadata, updated.version) == (None, {"plan": "gold"}, 2)
    with world.raises(EntityChangedError):
        await world.limiter.update_entity("a", name="B", expected_version=1)
    assert (await world.limiter.get_entity("a")).name is None
    await world.limiter.set_limits("a", [Limit.per_minute("rpm", 5)])
    async with world.limiter.acquire("a", "gpt", {"rpm": 5}):
        pass
    await world.limiter.delete_entity("a")
    for call in (
        world.limiter.get_entity("a"),
        world.limiter.delete_entity("a"),
        world.limiter.update_entity("a", name="x"),
    ):
        with world.raises(EntityNotFoundError):
            await call
    assert await world.limiter.get_limits("a") == []
    assert (await world.limiter.get_status("a")).buckets == ()


@case("An entity with children is not deleted")
async def a_parent_is_not_deleted(world: World) -> None:
    await family(world)
    with world.raises(ValidationError):
        await world.limiter.delete_entity("project")
    await world.limiter.update_entity("key", parent_id=None)
    await world.limiter.delete_entity("project")
    assert (await world.limiter.get_children("org")).items == []


@case("Children and entities are paged to the end, in order")
async def lists_are_paged_to_the_end(world: World) -> None:
    await world.limiter.create_entity("root")
    for number in range(25):
        await world.limiter.create_entity(f"child-{number:02}", parent_id="root")
    expected = [f"child-{number:02}" for number in range(25)]

    async def all_of(list_page: object, **arguments: object) -> list[str]:
        found: list[str] = []
        cursor = None
        while True:
            page = await list_page(limit=10, cursor=cursor, **arguments)  # type: ignore[operator]
            assert len(page.items) <= 10
            found.extend(item if isinstance(item, str) else item.id for item in page.items)
            cursor = page.next_cursor
            if cursor is None:
                return found

    assert await all_of(world.limiter.get_children, parent_id="root") == expected
    assert await all_of(world.limiter.list_entities) == [*expected, "root"]
    for name in expected:
        await world.limiter.set_limits(name, [Limit.per_minute("rpm", 1)], resource="gpt")
        await world.limiter.set_resource_defaults(f"r/{name}", [Limit.per_minute("rpm", 1)])
    assert await all_of(world.limiter.list_entities_with_custom_limits, resource="gpt") == expected
    assert await all_of(world.limiter.list_resources_with_defaults) == [f"r/{name}" for name in expected]
    assert (await world.limiter.list_entities_with_custom_limits()).items == []


@case("A client's own limits stand in for an entity that has none, also where an ancestor or its total has some")
async def own_limits_stand_in_beside_ancestors_and_totals(world: World) -> None:
    client = world.client(limits=[Limit.per_hour("rpm", 3)])
    await client.create_entity("org")
    await client.create_entity("key", parent_id="org", cascade=True)
    await client.set_limits("org", [Limit.per_hour("rpm", 100)])
    await client.set_limits("acme", [Limit.per_hour("rpm", 50)], resource="*")
    for entity, others in (("key", {("org", "gpt"): 98}), ("acme", {("acme", "*"): 48})):
        assert await client.available(entity, "gpt") == {"rpm": 3}
        for _ in range(2):  # the second may be served by what was remembered of the first
            async with client.acquire(entity, "gpt", {"rpm": 1}) as lease:
                own, above = lease.statuses
            assert own.limit.burst == 3
        assert {(above.entity_id, above.resource): above.available} == others
        with world.raises(RateLimitExceeded) as caught:
            async with client.acquire(entity, "gpt", {"rpm": 2}):
                pass
        assert [status.limit.burst for status in caught.value.violations] == [3]
        # A client that has none takes what the others have.
        async with world.limiter.acquire(entity, "gpt", {"rpm": 10}):
            pass
    await client.set_limits("key", [Limit.per_hour("rpm", 20)])
    async with client.acquire("key", "gpt", {"rpm": 1}) as lease:
        assert lease.statuses[0].limit.burst == 20
