"""Namespaces: registered, deleted, recovered, purged."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from support.dynamodb.plan_driver import Store, World, interleaved, lose_next_reply, meanwhile
from zae_limiter.exceptions import NamespaceNotFoundError, RateLimiterUnavailable, ValidationError
from zae_limiter.models.entity import Entity
from zae_limiter.models.limit import Limit
from zae_limiter.stores.cursors import encode_cursor
from zae_limiter.stores.dynamodb.config_versions import fence_of, is_fence
from zae_limiter.stores.dynamodb.operations import namespaces, paging
from zae_limiter.stores.dynamodb.requests import Call, NoAnswer, Refused
from zae_limiter.stores.dynamodb.table_client import persist
from zae_limiter.stores.protocol import Scope

RPM = (Limit.per_minute("rpm", 10),)


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "READ_AHEAD", 2)
    monkeypatch.setattr(namespaces, "FENCED_AT_ONCE", 3)
    monkeypatch.setattr(namespaces, "PURGED_AT_ONCE", 7)


def records(world: World, name: str) -> tuple[object, object]:
    by_name = world.item("_/SYSTEM#", f"#NAMESPACE#{name}")
    assert by_name is not None
    by_id = world.item("_/SYSTEM#", f"#NSID#{by_name['ns']}")
    assert by_id is not None
    return {**by_name, "SK": ""}, {**by_id, "SK": ""}


def trail(world: World, name: str) -> list[tuple[str, str | None]]:
    page = world.run(world.client(name).audit_events("$NAMESPACE", None, None, 100, None))
    return [(event.action, event.principal) for event in page.items]


def test_a_namespace_is_registered_by_name_and_by_id_with_a_trace(world: World) -> None:
    info = world.run(world.store.register_namespace("tenant", "ann", 1_000))
    assert (info.name, info.created_at, info.deleted_at) == ("tenant", datetime.fromtimestamp(1, UTC), None)
    by_name, by_id = records(world, "tenant")
    assert by_name == by_id
    assert world.run(world.store.get_namespace("tenant")) == info
    assert world.run(world.store.register_namespace("tenant", "bob", 2_000)) == info
    assert trail(world, "tenant") == [("registered", "ann")]


@pytest.mark.parametrize("seed", range(10))
def test_two_clients_that_register_at_once_get_the_same(world: World, seed: int) -> None:
    stores = [Store(world.table_client()) for _ in range(2)]
    one, other = interleaved([s.register_namespace("tenant", None, 1) for s in stores], world.driver, seed)
    assert one == other
    assert len(world.items()) == 3 + 3


def test_an_id_that_is_taken_is_not_given_again(world: World) -> None:
    first = world.run(world.store.register_namespace("tenant", None, 1))
    asking = world.store.client
    ids = iter([first.id, "fresh"])
    asking.write_ids = type(
        "Scripted", (), {"incarnation": lambda s: next(ids), "number": lambda s: 1, "token": str}
    )()
    assert world.run(world.store.register_namespace("other", None, 1)).id == "fresh"


def test_a_lost_reply_of_a_registration_is_recognised(world: World) -> None:
    lose_next_reply(world.driver, "TransactWriteItems")
    info = world.run(world.store.register_namespace("tenant", "ann", 1))
    assert world.ns("tenant") == info.id
    assert trail(world, "tenant") == [("registered", "ann")]


def test_namespaces_are_listed_by_name_to_the_end(world: World, small_pages: None) -> None:
    names = sorted(["default", "a", "a-b", "a.b", "ab", "Z", "9", "a:b@c"])
    for name in names:
        world.run(world.store.register_namespace(name, None, 1))
    world.run(world.store.delete_namespace("ab", None, 2))
    for limit in (1, 3, 8, 100):
        found: list[str] = []
        cursor = None
        while True:
            page = world.run(world.store.list_namespaces(limit, cursor))
            assert len(page.items) <= limit
            found += [info.name for info in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert found == names


@pytest.mark.parametrize("forged", ["", "a#b", "a" * 257, "x\x00"])
def test_a_cursor_that_no_page_gave_is_refused(world: World, forged: str) -> None:
    with pytest.raises(ValidationError):
        world.run(world.store.list_namespaces(10, encode_cursor((forged,))))


def test_unknown_names_are_refused(world: World) -> None:
    for plan in (
        world.store.get_namespace("nowhere"),
        world.store.delete_namespace("nowhere", None, 1),
        world.store.recover_namespace("nowhere", None, 1),
        world.store.purge_namespace("nowhere"),
        world.client("nowhere").get_entity("key"),
    ):
        with pytest.raises(NamespaceNotFoundError) as caught:
            world.run(plan)
        assert not caught.value.deleted


def test_deleting_is_noticed_at_once_and_recovering_undoes_it(world: World) -> None:
    before = world.run(world.store.register_namespace("tenant", None, 1))
    space = world.client("tenant")
    world.run(space.create_entity(Entity("key"), None, 2))
    world.run(world.store.delete_namespace("tenant", "ops", 3))
    by_name, by_id = records(world, "tenant")
    assert by_name == by_id
    for plan in (
        space.get_entity("key"),
        world.store.delete_namespace("tenant", None, 4),
        world.store.register_namespace("tenant", None, 4),
    ):
        with pytest.raises(NamespaceNotFoundError) as caught:
            world.run(plan)
        assert caught.value.deleted
    deleted = world.run(world.store.get_namespace("tenant"))
    assert deleted.deleted_at == datetime.fromtimestamp(0.003, UTC)
    assert world.run(world.store.recover_namespace("tenant", "ops", 5)) == before
    assert world.run(world.store.recover_namespace("tenant", None, 6)) == before
    assert world.run(world.store.get_namespace("tenant")) == before
    assert world.run(space.get_entity("key")).id == "key"
    assert trail(world, "tenant") == [("recovered", "ops"), ("deleted", "ops"), ("registered", None)]


def test_deleting_fences_every_live_bucket_of_the_namespace_only(world: World, small_pages: None) -> None:
    ns = world.run(world.store.register_namespace("tenant", None, 1)).id
    for number in range(40):
        world.put_bucket(ns, f"key-{number}", "gpt")
    world.put_bucket(ns, "key-0", "gpt", shard=1)
    world.put_bucket(world.ns(), "key-0", "gpt")
    world.driver.calls.clear()
    world.run(world.store.delete_namespace("tenant", None, 2))
    versions = {item["PK"]: item["cv"] for item in world.items() if "cv" in item}
    assert len(versions) == 42
    assert {pk for pk, cv in versions.items() if not is_fence(cv)} == {f"{world.ns()}/BUCKET#key-0#gpt#0"}
    assert len({call.give_up_at for call in world.driver.calls if call.operation == "UpdateItem"}) >= 41 / 3


def test_fencing_does_not_bring_back_a_bucket_that_went_away(world: World) -> None:
    ns = world.run(world.store.register_namespace("tenant", None, 1)).id
    world.put_bucket(ns, "key", "gpt")
    meanwhile(world.driver, "UpdateItem", lambda: world.remove_bucket(ns, "key", "gpt"))
    world.run(world.store.delete_namespace("tenant", None, 2))
    assert not [item for item in world.items() if "BUCKET" in item["PK"]]


def test_deleting_again_finishes_the_fences_of_a_try_that_was_cut_short(world: World) -> None:
    ns = world.run(world.store.register_namespace("tenant", None, 1)).id
    world.put_bucket(ns, "key", "gpt")

    def cut() -> None:
        raise NoAnswer("the network is down")

    world.driver.most_backoffs = 0
    world.driver.before = lambda call: cut() if call.operation == "UpdateItem" else None
    with pytest.raises(RateLimiterUnavailable):
        world.run(world.store.delete_namespace("tenant", None, 2))
    world.driver.before = lambda call: None
    with pytest.raises(NamespaceNotFoundError):
        world.run(world.store.delete_namespace("tenant", None, 3))
    bucket = world.item(f"{ns}/BUCKET#key#gpt#0", "#STATE")
    assert bucket is not None
    assert bucket["cv"] == fence_of(1)


def test_every_deletion_of_a_namespace_has_a_fence_of_its_own(world: World) -> None:
    ns = world.run(world.store.register_namespace("tenant", None, 1)).id
    world.put_bucket(ns, "key", "gpt")
    place = f"{ns}/BUCKET#key#gpt#0", "#STATE"
    first: list[Call] = []
    world.driver.before = lambda call: first.append(call) if call.operation == "UpdateItem" else None
    world.run(world.store.delete_namespace("tenant", None, 2))
    world.driver.before = lambda call: None
    world.run(world.store.recover_namespace("tenant", None, 3))
    assert (world.item(*place) or {})["cv"] == fence_of(1)
    world.run(world.store.delete_namespace("tenant", None, 4))
    assert (world.item(*place) or {})["cv"] == fence_of(3)
    assert len(first) == 1
    late = world.driver.answer(first[0])
    assert isinstance(late, Refused)
    assert late.by_condition
    assert (world.item(*place) or {})["cv"] == fence_of(3), (
        "a fence that arrives late replaced that of a later deletion"
    )


def fill(world: World, name: str) -> str:
    """A namespace with one of everything and more than a page of it."""
    ns = world.run(world.store.register_namespace(name, None, 1)).id
    space = world.client(name)
    world.run(space.set_config(Scope(), RPM, None, None, False, 2))
    world.run(space.set_config(Scope(None, "gpt"), RPM, None, None, False, 2))
    world.run(space.delete_config(Scope(None, "gpt"), None, False, 2))
    for number in range(12):
        world.run(space.create_entity(Entity(f"key-{number}"), None, 3))
        world.run(space.set_config(Scope(f"key-{number}", "gpt"), RPM, None, None, False, 4))
        world.put_bucket(ns, f"key-{number}", "gpt")
    world.run(space.delete_entity("key-3", None, 5))
    return ns


def test_purging_removes_everything_of_the_namespace_only(world: World, small_pages: None) -> None:
    ns = fill(world, "tenant")
    default = world.items_of(world.ns())
    with pytest.raises(ValidationError, match="must be deleted"):
        world.run(world.store.purge_namespace("tenant"))
    world.run(world.store.delete_namespace("tenant", None, 6))
    expected = len(world.items_of(ns))
    assert world.run(world.store.purge_namespace("tenant")) == expected > 60
    assert world.items_of(ns) == []
    assert world.items_of(world.ns()) == default
    assert world.item("_/SYSTEM#", f"#NSID#{ns}") is None
    with pytest.raises(NamespaceNotFoundError):
        world.run(world.store.recover_namespace("tenant", None, 7))
    again = world.run(world.store.register_namespace("tenant", None, 8))
    assert again.id != ns
    assert world.run(world.client("tenant").entities(10, None)).items == []


def test_an_index_that_lags_behind_is_not_counted_twice(world: World) -> None:
    ns = fill(world, "tenant")
    world.run(world.store.delete_namespace("tenant", None, 6))
    expected = len(world.items_of(ns))
    meanwhile(world.driver, "BatchWriteItem", world.driver.freeze_indexes)
    assert world.run(world.store.purge_namespace("tenant")) == expected


def test_what_is_written_during_a_purge_is_removed_too(world: World) -> None:
    ns = fill(world, "tenant")
    world.run(world.store.delete_namespace("tenant", None, 6))
    expected = len(world.items_of(ns))
    meanwhile(world.driver, "BatchWriteItem", lambda: world.put_bucket(ns, "late", "gpt"))
    assert world.run(world.store.purge_namespace("tenant")) == expected + 1
    assert world.items_of(ns) == []


def test_a_purge_that_never_ends_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "MOST_PASSES", 5)
    ns = world.run(world.store.register_namespace("tenant", None, 1)).id
    world.run(world.store.delete_namespace("tenant", None, 2))
    world.driver.after = lambda call: (
        world.put_bucket(ns, "busy", "gpt") if call.operation == "BatchWriteItem" else None
    )
    with pytest.raises(RateLimiterUnavailable, match="still being written to"):
        world.run(world.store.purge_namespace("tenant"))


def test_a_purge_that_was_cut_short_can_be_repeated_but_not_recovered_from(world: World) -> None:
    ns = fill(world, "tenant")
    world.run(world.store.delete_namespace("tenant", None, 6))

    def cut() -> None:
        raise KeyboardInterrupt

    meanwhile(world.driver, "BatchWriteItem", cut)
    with pytest.raises(KeyboardInterrupt):
        world.run(world.store.purge_namespace("tenant"))
    with pytest.raises(ValidationError, match="being purged"):
        world.run(world.store.recover_namespace("tenant", None, 7))
    assert world.run(world.store.get_namespace("tenant")).deleted_at is not None
    assert world.run(world.store.purge_namespace("tenant")) > 0
    assert world.items_of(ns) == []


def test_recovering_beats_a_purge_that_has_not_begun(world: World) -> None:
    world.run(world.store.register_namespace("tenant", None, 1))
    world.run(world.store.delete_namespace("tenant", None, 2))
    other = World(world.ask, world.table)
    recover = other.store.recover_namespace("tenant", None, 3)
    meanwhile(world.driver, "TransactWriteItems", lambda: other.run(recover))
    with pytest.raises(ValidationError, match="must be deleted"):
        world.run(world.store.purge_namespace("tenant"))
    assert world.run(world.store.get_namespace("tenant")).deleted_at is None


def test_nothing_is_recovered_once_a_purge_has_begun(world: World) -> None:
    world.run(world.store.register_namespace("tenant", None, 1))
    world.run(world.store.delete_namespace("tenant", None, 2))
    other = World(world.ask, world.table)

    def begin() -> None:
        other.run(persist(other.store.client, lambda until: other.store.namespaces._begin_purge("tenant", until)))

    meanwhile(world.driver, "TransactWriteItems", begin)
    with pytest.raises(ValidationError, match="being purged"):
        world.run(world.store.recover_namespace("tenant", None, 3))


def test_silence_is_told_as_unavailability(world: World) -> None:
    world.driver.most_backoffs = 3

    def silent(call: object) -> None:
        raise NoAnswer("timed out")

    world.driver.after = silent
    with pytest.raises(RateLimiterUnavailable) as caught:
        world.run(world.store.register_namespace("tenant", None, 1))
    assert caught.value.ambiguous
    world.driver.after = lambda call: None
