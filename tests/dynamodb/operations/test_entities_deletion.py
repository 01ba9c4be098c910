"""Entities: deleted, brought back, listed."""

from __future__ import annotations

from typing import Any

import pytest

from support.dynamodb.entity_acts import change, create, delete, last_event, meta
from support.dynamodb.plan_driver import World, lose_next_reply, meanwhile
from zae_limiter.exceptions import (
    EntityExistsError,
    EntityNotFoundError,
    ValidationError,
)
from zae_limiter.models.limit import Limit
from zae_limiter.stores.dynamodb.operations import entities, paging
from zae_limiter.stores.dynamodb.requests import Call
from zae_limiter.stores.protocol import Config, EntityChange, Scope

RPM = (Limit.per_minute("rpm", 10),)


def set_limits(world: World, entity_id: str, resource: str) -> None:
    world.run(world.space.set_config(Scope(entity_id, resource), RPM, None, None, False, 1))


def limits_of(world: World, entity_id: str, resource: str) -> Config:
    return world.run(world.space.get_config(Scope(entity_id, resource)))


def test_what_is_deleted_leaves_only_its_counters(world: World) -> None:
    create(world, "org")
    create(world, "a", "org", name="Anna")
    set_limits(world, "a", "gpt")
    set_limits(world, "a", "_default_")
    world.put_bucket(world.ns(), "a", "gpt")
    world.put_bucket(world.ns(), "a", "claude")
    world.put_bucket(world.ns(), "a", "claude", shard=1)
    world.space.done.clear()
    delete(world, "a")
    assert world.space.done == [("drop", world.ns(), "a")]
    was = {"name": "Anna", "parent_id": "org", "cascade": False, "metadata": {}}
    limits = {resource: [limit.as_dict() for limit in RPM] for resource in ("_default_", "gpt")}
    assert last_event(world, "a") == (
        "entity_deleted",
        {"from": {**was, "limits": limits, "buckets": 2}, "to": None},
    )
    grave = meta(world, "a")
    assert {name for name in grave if not name.startswith("GSI")} == {
        "PK",
        "SK",
        "entity_id",
        "deleted",
        "config_version",
    }
    assert (grave["config_version"], grave["GSI4SK"], "GSI1PK" in grave) == (2, "TOMB", False)
    assert meta(world, "org")["children"] == 0
    for resource in ("gpt", "_default_"):
        assert limits_of(world, "a", resource) == Config((), None, 2)
    for plan in (
        world.space.get_entity("a"),
        world.space.update_entity("a", EntityChange({}), None, 4),
    ):
        with pytest.raises(EntityNotFoundError):
            world.run(plan)
    assert [entity.id for entity in world.run(world.space.entities(10, None)).items] == ["org"]
    assert world.run(world.space.children("org", 10, None)).items == []
    assert world.run(world.space.entities_with_custom_limits("gpt", 10, None)).items == []


def test_what_lives_again_goes_on_counting(world: World) -> None:
    seen = []
    for _ in range(3):
        assert create(world, "a").version == 1
        seen.append(meta(world, "a")["config_version"])
        delete(world, "a")
        seen.append(meta(world, "a")["config_version"])
    assert seen == [1, 2, 3, 4, 5, 6]


def test_of_two_clients_that_bring_the_same_entity_back_one_is_told(world: World) -> None:
    create(world, "a")
    delete(world, "a")
    other = World(world.ask, world.table)
    meanwhile(world.driver, "TransactWriteItems", lambda: create(other, "a", name="other"))
    with pytest.raises(EntityExistsError):
        create(world, "a")
    assert (meta(world, "a")["name"], meta(world, "a")["config_version"]) == ("other", 3)


def test_an_entity_with_children_is_not_deleted(world: World) -> None:
    create(world, "org")
    create(world, "a", "org")
    set_limits(world, "org", "gpt")
    with pytest.raises(ValidationError, match="has children"):
        delete(world, "org")
    assert limits_of(world, "org", "gpt").limits == RPM
    change(world, "a", parent_id=None)
    delete(world, "org")


def test_an_entity_that_gets_a_child_meanwhile_is_not_deleted(world: World) -> None:
    create(world, "org")
    other = World(world.ask, world.table)
    meanwhile(world.driver, "TransactWriteItems", lambda: create(other, "a", "org"))
    with pytest.raises(ValidationError, match="has children"):
        delete(world, "org")


def test_what_was_never_created_can_be_deleted_if_it_has_limits_or_buckets(world: World) -> None:
    with pytest.raises(EntityNotFoundError):
        delete(world, "a")
    set_limits(world, "a", "gpt")
    delete(world, "a")
    assert limits_of(world, "a", "gpt") == Config((), None, 2)
    with pytest.raises(EntityNotFoundError):
        delete(world, "a")
    world.put_bucket(world.ns(), "a", "gpt")
    delete(world, "a")
    assert world.space.done[-1] == ("drop", world.ns(), "a")
    world.driver.freeze_indexes()
    world.remove_bucket(world.ns(), "a", "gpt")  # the index does not know yet
    with pytest.raises(EntityNotFoundError):
        delete(world, "a")


def test_any_number_of_limits_is_buried(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entities, "GRAVES_AT_ONCE", 3)
    monkeypatch.setattr(entities, "LOOKED_AT_ONCE", 4)
    monkeypatch.setattr(paging, "READ_AHEAD", 2)
    create(world, "a")
    for number in range(11):
        set_limits(world, "a", f"r{number}")
        world.put_bucket(world.ns(), "a", f"r{number}")
    delete(world, "a")
    assert {limits_of(world, "a", f"r{number}") for number in range(11)} == {Config((), None, 2)}
    action, details = last_event(world, "a")
    assert (action, details["from"]["buckets"], len(details["from"]["limits"])) == ("entity_deleted", 11, 11)


def test_limits_that_change_during_a_deletion_are_buried_with_the_next_version(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entities, "GRAVES_AT_ONCE", 1)
    create(world, "a")
    set_limits(world, "a", "r1")
    set_limits(world, "a", "r2")
    other = World(world.ask, world.table)
    seen: list[int] = []

    def intervene(call: Call) -> None:
        if call.operation == "TransactWriteItems":
            seen.append(1)
            if len(seen) in (1, 3):
                set_limits(other, "a", "r1" if len(seen) == 1 else "r2")

    world.driver.before = intervene
    delete(world, "a")
    world.driver.before = lambda call: None
    assert [limits_of(world, "a", resource) for resource in ("r1", "r2")] == [Config((), None, 3)] * 2


def test_a_lost_reply_of_a_deletion_is_recognised(world: World) -> None:
    create(world, "a")
    lose_next_reply(world.driver, "TransactWriteItems")
    delete(world, "a")
    assert meta(world, "a")["config_version"] == 2


# Lists


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "READ_AHEAD", 2)
    monkeypatch.setattr(paging, "BATCH_GET", 3)


NAMES = sorted(
    [*(f"child-{number:02}" for number in range(25)), "a", "a-b", "a.b", "ab", "A", "0", "a:b@c", "z" * 256]
)


def all_pages(world: World, list_page: Any, limit: int) -> list[str]:
    found: list[str] = []
    cursor = None
    while True:
        page = world.run(list_page(limit, cursor))
        assert len(page.items) == limit or page.next_cursor is None
        found += [entity.id for entity in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return found


@pytest.mark.parametrize("limit", [1, 7, len(NAMES), 1_000])
def test_lists_go_on_to_the_end_in_the_order_of_ids(world: World, small_pages: None, limit: int) -> None:
    create(world, "root")
    for name in reversed(NAMES):
        create(world, name, "root")
    space = world.space
    assert all_pages(world, space.entities, limit) == sorted([*NAMES, "root"])
    assert all_pages(world, lambda count, cursor: space.children("root", count, cursor), limit) == NAMES
    assert world.run(space.children("nobody", limit, None)).items == []


def test_lists_leave_out_what_the_index_still_has(world: World, small_pages: None) -> None:
    for parent in ("root", "other"):
        create(world, parent)
    for name in NAMES:
        create(world, name, "root")
    space = world.space

    def listed() -> tuple[list[str], list[str]]:
        page = world.run(space.entities(1_000, None))
        children = world.run(space.children("root", 1_000, None))
        return [entity.id for entity in page.items], [entity.id for entity in children.items]

    assert listed() == (sorted([*NAMES, "other", "root"]), NAMES)
    for name in NAMES[:5]:
        change(world, name, parent_id="other")
    for name in NAMES[5:10]:
        delete(world, name)
    world.driver.freeze_indexes()
    kept = [*NAMES[:5], *NAMES[10:]]
    assert listed() == (sorted([*kept, "other", "root"]), NAMES[10:])
