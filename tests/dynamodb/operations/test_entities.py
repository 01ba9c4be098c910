"""Entities: created, changed, moved."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from support.dynamodb.entity_acts import change, create, delete, last_event, meta
from support.dynamodb.plan_driver import World, lose_next_reply, meanwhile
from zae_limiter.exceptions import (
    EntityChangedError,
    EntityExistsError,
    EntityNotFoundError,
    RateLimiterUnavailable,
    ValidationError,
)
from zae_limiter.models.entity import Entity
from zae_limiter.models.limit import Limit
from zae_limiter.stores.dynamodb.operations import entities
from zae_limiter.stores.dynamodb.requests import Call, Refused

RPM = (Limit.per_minute("rpm", 10),)


# Creating


def test_an_entity_is_read_back_as_it_was_created(world: World) -> None:
    create(world, "org")
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    entity = create(world, "a", "org", name="Anna", cascade=True, metadata={"": "x", "plan": ""}, created_at=moment)
    assert world.run(world.space.get_entity("a")) == entity
    assert world.run(world.space.get_entity("org")) == Entity("org")
    assert meta(world, "org")["children"] == 1
    assert last_event(world, "a") == (
        "entity_created",
        {
            "from": None,
            "to": {"name": "Anna", "parent_id": "org", "cascade": True, "metadata": {"": "x", "plan": ""}},
        },
    )
    assert world.space.done[-1] == ("rewrite", world.ns(), "a", 1)


def test_an_entity_that_exists_is_not_created_again(world: World) -> None:
    create(world, "a", name="first")
    with pytest.raises(EntityExistsError):
        create(world, "a", name="second")
    assert world.run(world.space.get_entity("a")).name == "first"


def test_of_two_clients_that_create_the_same_entity_one_is_told(world: World) -> None:
    create(world, "org")
    other = World(world.ask, world.table)
    meanwhile(world.driver, "TransactWriteItems", lambda: create(other, "a", "org", name="other"))
    with pytest.raises(EntityExistsError):
        create(world, "a", "org")
    assert world.run(world.space.get_entity("a")).name == "other"
    assert meta(world, "org")["children"] == 1


def test_a_parent_must_exist_and_be_another(world: World) -> None:
    for parent_id, refusal in (("nobody", EntityNotFoundError), ("a", ValidationError)):
        with pytest.raises(refusal):
            create(world, "a", parent_id)
    assert world.items_of(world.ns()) == []


def test_a_parent_that_is_deleted_meanwhile_gets_no_child(world: World) -> None:
    create(world, "org")
    other = World(world.ask, world.table)
    meanwhile(world.driver, "TransactWriteItems", lambda: delete(other, "org"))
    with pytest.raises(EntityNotFoundError) as caught:
        create(world, "a", "org")
    assert caught.value.entity_id == "org"
    with pytest.raises(EntityNotFoundError):
        world.run(world.space.get_entity("a"))


def test_a_lost_reply_of_a_creation_is_recognised(world: World) -> None:
    create(world, "org")
    lose_next_reply(world.driver, "TransactWriteItems")
    assert create(world, "a", "org").id == "a"
    assert meta(world, "org")["children"] == 1


def test_conflicts_are_waited_out_and_then_told(world: World) -> None:
    conflict = Refused("TransactionConflictException", "another transaction is at it")
    conflicts = [conflict] * 3

    def refuse(call: Call) -> None:
        if call.operation == "TransactWriteItems" and conflicts:
            raise conflicts.pop()

    world.driver.before = refuse
    create(world, "a")
    conflicts += [conflict] * 1_000
    world.driver.most_backoffs = 10
    with pytest.raises(RateLimiterUnavailable, match="TransactionConflict"):
        create(world, "b")


def test_metadata_that_no_item_could_hold_is_refused(world: World) -> None:
    huge = {f"{number:02}{'☃' * 1_000}": "☃" * 1_024 for number in range(50)}
    with pytest.raises(ValidationError, match="metadata"):
        create(world, "a", metadata=huge)
    create(world, "a", metadata={f"{number:02}{'x' * 1_000}": "y" * 1_024 for number in range(50)})
    with pytest.raises(ValidationError, match="metadata"):
        change(world, "a", metadata=huge)


# Changing


def test_only_named_fields_change(world: World) -> None:
    create(world, "org")
    create(world, "a", "org", name="Anna", metadata={"plan": "gold"})
    updated = change(world, "a", 1, name=None)
    assert (updated.name, updated.metadata, updated.parent_id, updated.version) == (None, {"plan": "gold"}, "org", 2)
    assert world.run(world.space.get_entity("a")) == updated
    assert "name" not in meta(world, "a")
    assert last_event(world, "a") == ("entity_updated", {"from": {"name": "Anna"}, "to": {"name": None}})


def test_another_version_than_expected_is_refused(world: World) -> None:
    create(world, "a")
    change(world, "a", name="x")
    with pytest.raises(EntityChangedError) as caught:
        change(world, "a", 1, name="y")
    assert (caught.value.expected, caught.value.found) == (1, 2)
    other = World(world.ask, world.table)
    meanwhile(world.driver, "TransactWriteItems", lambda: change(other, "a", name="z"))
    with pytest.raises(EntityChangedError):
        change(world, "a", 2, name="y")
    assert world.run(world.space.get_entity("a")).name == "z"


def test_no_change_is_lost_to_another(world: World) -> None:
    create(world, "a")
    other = World(world.ask, world.table)
    meanwhile(world.driver, "TransactWriteItems", lambda: change(other, "a", metadata={"plan": "gold"}))
    assert change(world, "a", name="x") == Entity("a", "x", metadata={"plan": "gold"}, version=3)


def test_a_new_child_meanwhile_is_not_lost_to_a_change_of_its_parent(world: World) -> None:
    create(world, "org")
    other = World(world.ask, world.table)
    meanwhile(world.driver, "TransactWriteItems", lambda: create(other, "a", "org"))
    change(world, "org", name="x")
    assert meta(world, "org")["children"] == 1


def test_buckets_are_told_only_of_what_concerns_them(world: World) -> None:
    create(world, "org")
    create(world, "a")
    world.space.done.clear()
    change(world, "a", name="x", metadata={"a": "b"})
    assert (world.space.done, meta(world, "a")["config_version"]) == ([], 1)
    change(world, "a", cascade=True)
    change(world, "a", parent_id="org")
    assert world.space.done == [("rewrite", world.ns(), "a", 2)] * 2
    assert meta(world, "a")["config_version"] == 3


def test_an_unknown_entity_is_not_changed(world: World) -> None:
    with pytest.raises(EntityNotFoundError):
        change(world, "a", name="x")


# Moving


def test_moving_moves_the_count_of_children(world: World) -> None:
    create(world, "org")
    create(world, "project", "org")
    create(world, "key", "org")
    for parent_id, counts in (("project", (1, 1)), ("org", (2, 0)), (None, (1, 0)), ("project", (1, 1))):
        change(world, "key", parent_id=parent_id)
        assert (meta(world, "org")["children"], meta(world, "project")["children"]) == counts
        page = world.run(world.space.children("project", 10, None))
        assert [entity.id for entity in page.items] == (["key"] if parent_id == "project" else [])


def test_unknown_parents_and_circles_are_refused(world: World) -> None:
    create(world, "org")
    create(world, "project", "org")
    create(world, "key", "project")
    with pytest.raises(EntityNotFoundError) as missing:
        change(world, "key", parent_id="nobody")
    assert missing.value.entity_id == "nobody"
    for entity_id, parent_id in (("org", "key"), ("org", "org"), ("project", "key")):
        with pytest.raises(ValidationError, match="ancestor of itself"):
            change(world, entity_id, parent_id=parent_id)
    assert [meta(world, name)["children"] for name in ("org", "project", "key")] == [1, 1, 0]


def test_a_circle_that_two_would_close_together_is_refused(world: World) -> None:
    for name in ("a", "b"):
        create(world, name)
        create(world, f"{name}-child", name)
    other = World(world.ask, world.table)
    meanwhile(world.driver, "TransactWriteItems", lambda: change(other, "b", parent_id="a-child"))
    with pytest.raises(ValidationError, match="ancestor of itself"):
        change(world, "a", parent_id="b-child")
    assert world.run(world.space.get_entity("a")).parent_id is None


def test_a_new_parent_that_is_deleted_meanwhile_is_refused(world: World) -> None:
    create(world, "org")
    create(world, "a")
    other = World(world.ask, world.table)
    meanwhile(world.driver, "TransactWriteItems", lambda: delete(other, "org"))
    with pytest.raises(EntityNotFoundError):
        change(world, "a", parent_id="org")


def test_a_chain_may_be_long_and_what_is_too_long_to_watch_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert entities.MOST_ANCESTORS == 97
    create(world, "e0")
    for number in range(1, 100):
        create(world, f"e{number}", f"e{number - 1}")
    create(world, "old")
    create(world, "key", "old")
    assert change(world, "key", parent_id="e96").parent_id == "e96"
    with pytest.raises(ValidationError, match="97 ancestors or more"):
        change(world, "key", parent_id="e97")
    change(world, "e99", parent_id="e50")
    assert change(world, "e99", parent_id="e10").version == 3
