"""Many clients move, create and delete the same few entities at once: the tree stays a tree."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from engines.servers import Engine
from support.dynamodb.plan_driver import Space, World, asking_of, interleaved, world_by
from zae_limiter.exceptions import EntityExistsError, EntityNotFoundError, ValidationError
from zae_limiter.models.entity import Entity
from zae_limiter.running.plan import Plan
from zae_limiter.stores.protocol import EntityChange

NAMES = ("a", "b", "c")
EXPECTED = (EntityExistsError, EntityNotFoundError, ValidationError)


@pytest.fixture(scope="module")
def world(dynoxide: Engine) -> Iterator[World]:
    with asking_of(dynoxide) as ask, world_by(ask) as world:
        yield world


def any_change(space: Space, chance: random.Random) -> Plan[Any]:
    name, parent_id = chance.choice(NAMES), chance.choice((*NAMES, None))
    kind = chance.choices(("move", "create", "delete"), (6, 2, 2))[0]
    if kind == "create":
        return space.create_entity(Entity(name, parent_id=parent_id), None, 1)
    if kind == "delete":
        return space.delete_entity(name, None, 1)
    return space.update_entity(name, EntityChange({"parent_id": parent_id}), None, 1)


@pytest.mark.parametrize("seed", range(25))
def test_the_tree_stays_a_tree(world: World, seed: int) -> None:
    chance = random.Random(seed)
    namespace = f"seed-{seed}"
    ns = world.run(world.store.register_namespace(namespace, None, 0)).id
    for name in NAMES:
        world.run(world.client(namespace).create_entity(Entity(name), None, 0))
    versions: Counter[str] = Counter()
    for round_number in range(5):
        changes = [any_change(world.client(namespace), chance) for _ in range(5)]
        for result in interleaved(changes, world.driver, seed * 10 + round_number):
            assert not isinstance(result, Exception) or isinstance(result, EXPECTED), result
        check_tree(world.items_of(ns), versions)


def check_tree(items: list[dict[str, Any]], versions: Counter[str]) -> None:
    described = {item["entity_id"]: item for item in items if item["SK"] == "#META"}
    live = {name: item for name, item in described.items() if "deleted" not in item}
    parents = {name: item.get("parent_id") for name, item in live.items()}
    assert {parent for parent in parents.values() if parent} <= set(live), "a parent that is not there"
    assert {name: item["children"] for name, item in live.items() if item["children"]} == dict(
        Counter(parent for parent in parents.values() if parent)
    ), "a wrong count of children"
    for name in live:
        seen = set()
        above: str | None = name
        while above is not None:
            assert above not in seen, "a circle"
            seen.add(above)
            above = parents[above]
    for name, item in described.items():
        assert item["config_version"] >= versions[name], "a counter that fell"
        versions[name] = item["config_version"]
