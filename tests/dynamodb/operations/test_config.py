"""Limits at four levels: set, read back, deleted, listed."""

from __future__ import annotations

from typing import Any

import pytest

from support.dynamodb.plan_driver import Space, World, interleaved, lose_next_reply, meanwhile
from zae_limiter.models.choices import OnUnavailable
from zae_limiter.models.limit import Limit
from zae_limiter.stores.dynamodb.operations import paging
from zae_limiter.stores.protocol import Config, Scope

RPM = (Limit.per_minute("rpm", 10),)
FULL = (Limit.custom("tpm", 100, 7, 13, 55), Limit.per_day("r.p-d", 3), Limit.per_second("a_cp", 1))
SCOPES = (Scope(), Scope(None, "gpt/4"), Scope("key", "_default_"), Scope("key", "gpt/4"))


def set_limits(
    world: World,
    scope: Scope,
    limits: tuple[Limit, ...] = RPM,
    policy: OnUnavailable | None = None,
    space: Space | None = None,
) -> None:
    world.run((space or world.space).set_config(scope, limits, policy, "ann", False, 1))


def delete_limits(world: World, scope: Scope, propagate: bool = False) -> None:
    world.run(world.space.delete_config(scope, "bob", propagate, 1))


def get(world: World, scope: Scope) -> Config:
    return world.run(world.space.get_config(scope))


def trail(world: World, scope: Scope) -> list[tuple[str, str | None, str | None, Any]]:
    page = world.run(world.space.audit_events(scope.audited_as, None, None, 100, None))
    return [(event.action, event.resource, event.principal, event.details) for event in page.items]


@pytest.mark.parametrize("scope", SCOPES, ids=lambda scope: scope.level)
def test_what_was_set_is_read_back_and_traced(world: World, scope: Scope) -> None:
    assert get(world, scope) == Config()
    set_limits(world, scope, FULL)
    assert get(world, scope) == Config(FULL, None, 1)
    assert [get(world, other) for other in SCOPES if other != scope] == [Config()] * 3
    set_limits(world, scope, RPM)
    assert get(world, scope) == Config(RPM, None, 2)
    delete_limits(world, scope)
    assert get(world, scope) == Config((), None, 3)
    set_limits(world, scope, RPM)
    assert get(world, scope) == Config(RPM, None, 4)
    few, full = {"limits": [RPM[0].as_dict()]}, {"limits": [limit.as_dict() for limit in FULL]}
    assert trail(world, scope) == [
        ("limits_set", scope.resource, "ann", {"from": None, "to": few}),
        ("limits_deleted", scope.resource, "bob", {"from": few, "to": None}),
        ("limits_set", scope.resource, "ann", {"from": full, "to": few}),
        ("limits_set", scope.resource, "ann", {"from": None, "to": full}),
    ]


@pytest.mark.parametrize("scope", SCOPES, ids=lambda scope: scope.level)
def test_a_tombstone_keeps_nothing_but_the_counter(world: World, scope: Scope) -> None:
    set_limits(world, scope, FULL, OnUnavailable.ALLOW)
    delete_limits(world, scope)
    (item,) = [item for item in world.items_of(world.ns()) if item["SK"].startswith("#CONFIG")]
    assert set(item) - {"PK", "SK", "GSI4PK", "entity_id", "resource"} == {"GSI4SK", "config_version", "order"}
    assert (item["GSI4SK"], item["order"], item["config_version"]) == ("TOMB", "", 2)


def test_a_policy_stays_until_another_is_given_or_the_level_is_deleted(world: World) -> None:
    set_limits(world, Scope(), RPM, OnUnavailable.ALLOW)
    set_limits(world, Scope(), FULL)
    assert get(world, Scope()) == Config(FULL, OnUnavailable.ALLOW, 2)
    set_limits(world, Scope(), FULL, OnUnavailable.BLOCK)
    assert get(world, Scope()).on_unavailable is OnUnavailable.BLOCK
    details = trail(world, Scope())[0][3]
    full = {"limits": [limit.as_dict() for limit in FULL]}
    assert details == {"from": {**full, "on_unavailable": "allow"}, "to": {**full, "on_unavailable": "block"}}
    delete_limits(world, Scope())
    set_limits(world, Scope(), RPM)
    assert get(world, Scope()).on_unavailable is None


def test_deleting_what_says_nothing_does_nothing(world: World) -> None:
    delete_limits(world, Scope("nobody", "gpt"), propagate=True)
    set_limits(world, Scope("key", "gpt"))
    for _ in range(2):
        delete_limits(world, Scope("key", "gpt"), propagate=True)
    assert get(world, Scope("key", "gpt")).version == 2
    assert world.space.done == [("propagate", world.ns(), Scope("key", "gpt"), 1)]
    assert len(trail(world, Scope("key", "gpt"))) == 2


def test_buckets_follow_after_the_change_and_only_if_asked(world: World) -> None:
    set_limits(world, Scope())
    assert world.space.done == []
    world.run(world.space.set_config(Scope(), FULL, None, None, True, 7))
    assert world.space.done == [("propagate", world.ns(), Scope(), 7)]


def test_no_version_is_given_twice(world: World) -> None:
    scope = Scope("key", "gpt")
    other = world.client()
    meanwhile(world.driver, "TransactWriteItems", lambda: set_limits(world, scope, FULL, space=other))
    set_limits(world, scope, RPM, OnUnavailable.ALLOW)
    assert get(world, scope) == Config(RPM, OnUnavailable.ALLOW, 2)
    meanwhile(world.driver, "TransactWriteItems", lambda: set_limits(world, scope, FULL, space=other))
    delete_limits(world, scope)
    assert get(world, scope) == Config((), None, 4)
    assert len(trail(world, scope)) == 4


@pytest.mark.parametrize("seed", range(5))
def test_any_number_of_setters_at_once_all_count(world: World, seed: int) -> None:
    setters = [world.client().set_config(Scope(), (limit,), None, None, False, 1) for limit in FULL]
    assert interleaved(setters, world.driver, seed) == [None] * 3
    found = get(world, Scope())
    assert found.version == 3
    assert len(trail(world, Scope())) == 3


def test_a_lost_reply_counts_once(world: World) -> None:
    lose_next_reply(world.driver, "TransactWriteItems")
    set_limits(world, Scope())
    assert get(world, Scope()).version == 1
    assert len(trail(world, Scope())) == 1


NAMES = sorted([f"name-{number:02}" for number in range(25)] + ["a", "a-b", "a.b", "ab", "Z", "7"])


def all_pages(world: World, list_page: Any, limit: int) -> list[str]:
    found: list[str] = []
    cursor = None
    while True:
        page = world.run(list_page(limit, cursor))
        assert len(page.items) == limit or page.next_cursor is None
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found


@pytest.mark.parametrize("limit", [1, 7, len(NAMES), 1_000])
def test_lists_go_on_to_the_end_in_order(world: World, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(paging, "READ_AHEAD", 2)
    monkeypatch.setattr(paging, "BATCH_GET", 3)
    for name in NAMES:
        set_limits(world, Scope(None, f"r/{name}"))
        set_limits(world, Scope(name, "gpt"))
    set_limits(world, Scope())
    set_limits(world, Scope("other", "gpt-4"))
    set_limits(world, Scope("other", "_default_"))
    for gone in (Scope(None, "gone"), Scope("gone", "gpt")):
        set_limits(world, gone)
        delete_limits(world, gone)
    space = world.space

    def limited(resource: str) -> list[str]:
        return all_pages(world, lambda n, cursor: space.entities_with_custom_limits(resource, n, cursor), limit)

    assert all_pages(world, space.resources_with_defaults, limit) == sorted(f"r/{name}" for name in NAMES)
    assert limited("gpt") == NAMES
    assert limited("_default_") == limited("gpt-4") == ["other"]
    assert limited("nothing") == []


def test_lists_leave_out_what_the_index_still_has(world: World) -> None:
    for name in NAMES:
        set_limits(world, Scope(None, name))
        set_limits(world, Scope(name, "gpt"))

    def listed() -> list[Any]:
        plans = world.space.resources_with_defaults(99, None), world.space.entities_with_custom_limits("gpt", 99, None)
        return [world.run(plan).items for plan in plans]

    assert listed() == [NAMES, NAMES]
    for name in NAMES[::2]:
        delete_limits(world, Scope(None, name))
        delete_limits(world, Scope(name, "gpt"))
    world.driver.freeze_indexes()
    assert listed() == [NAMES[1::2], NAMES[1::2]]
