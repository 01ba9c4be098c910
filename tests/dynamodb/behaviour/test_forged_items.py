"""Forged items: a client that may only write buckets of its own namespace puts index keys of another into them.

IAM looks at the key of the table, not at the keys of indexes (see ``tests/infra/test_policies.py``). So what stands in
an index under a namespace need not be of it, nor be what it says it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from threading import Lock
from typing import Any

import pytest

from simulation.model import Model
from zae_limiter import Limit, SyncRateLimiter, SyncRepository, VersionError
from zae_limiter.models.choices import WindowType
from zae_limiter.stores.dynamodb.items import address
from zae_limiter.stores.dynamodb.operations.shard_life import sweep, sweep_table
from zae_limiter.stores.dynamodb.schema import (
    Key,
    bucket_key,
    encode_item,
    gsi1,
    gsi2_bucket,
    gsi2_usage,
    gsi3_bucket,
    gsi3_config,
    gsi4_pk,
)
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.dynamodb.transport.protocol import Target
from zae_limiter.stores.dynamodb.usage_items import (
    WINDOW,
    Edge,
    Life,
    Span,
    first_attributes,
    hour_text,
    last_attributes,
    sequence_key,
)
from zae_limiter.stores.windows import NOTHING_COUNTED, Counters, hour_of
from zae_limiter.testing.clock import FakeClock

TABLES = count()
LIMITS = [Limit.per_day("rpd", 100)]
HIGHER = [Limit.per_day("rpd", 200)]
ULID = "01JZZZZZZZZZZZZZZZZZZZZZZZ"


class InModel:
    """A transport to a model of DynamoDB."""

    def __init__(self) -> None:
        self._model = Model()
        self._lock = Lock()

    def call(self, operation: str, params: Any, seconds: float) -> Any:
        with self._lock:
            return self._model.call(operation, params)

    def close(self) -> None:
        pass


class World:
    """A table with two namespaces: ``ours``, with something of everything, and ``theirs``."""

    def __init__(self, target: Target | None) -> None:
        self.table = f"forged-{next(TABLES)}"
        self.clock = FakeClock()
        self._how: Any = {"transport": InModel()} if target is None else {"target": target}
        self.store = self._store()
        root = SyncRepository(self.store, clock=self.clock)
        root._driver.run(root._create())
        self.root = root
        self.ns = root.register_namespace("ours").id
        self.their_ns = root.register_namespace("theirs").id
        self.limiter = SyncRateLimiter(SyncRepository(self.store, namespace="ours", clock=self.clock))
        self._fill()

    def _store(self) -> DynamoStore:
        return DynamoStore(self.table, deadline=20.0, **self._how)

    @contextmanager
    def newcomer(self) -> Iterator[SyncRateLimiter]:
        """Another process, which knows nothing yet."""
        with SyncRepository(self._store(), namespace="ours", clock=self.clock) as repository:
            yield SyncRateLimiter(repository)

    def _fill(self) -> None:
        limiter = self.limiter
        limiter.set_system_defaults(LIMITS)
        limiter.set_resource_defaults("gpt", LIMITS)
        limiter.create_entity("org")
        limiter.create_entity("key", parent_id="org", cascade=True)
        limiter.set_limits("key", LIMITS, resource="gpt")
        self.take()
        hour = hour_of(self.clock())
        item = self.item(bucket_key(self.ns, "key", "gpt"))
        life = Life(self.ns, "key", "gpt", 0, item["inc"]["S"])
        first, last = (
            Edge(sequence_key(str(place)), counted)
            for place, counted in ((1, NOTHING_COUNTED), (2, Counters(1, {"rpd": 1_000})))
        )
        span = Span(life, hour, first, last)
        edges = {**first_attributes(first), **last_attributes(last)}
        self.put(span.key, {**span.fixed_attributes(), **edges})
        self.hour = hour_text(hour)

    def take(self, entity_id: str = "key", resource: str = "gpt") -> None:
        with self.limiter.acquire(entity_id, resource, {"rpd": 1}):
            pass

    def call(self, operation: str, **params: Any) -> Any:
        from zae_limiter.running.clocks import machine_timer
        from zae_limiter.stores.dynamodb.requests import Call

        return self.store.perform(Call(operation, {"TableName": self.table, **params}, machine_timer() + 20_000))

    def put(self, key: Key, attributes: dict[str, Any]) -> None:
        self.call("PutItem", Item={**encode_item(attributes), **address(key)})

    def item(self, key: Key) -> Any:
        return self.call("GetItem", Key=address(key), ConsistentRead=True).get("Item")

    def run(self, plan: Any) -> Any:
        return self.root._driver.run(plan)

    def reports(self) -> dict[str, Any]:
        """Everything that is read through an index."""
        limiter, repository = self.limiter, self.limiter.repository
        return {
            "entities": [entity.id for entity in limiter.list_entities().items],
            "children": [entity.id for entity in limiter.get_children("org").items],
            "resources": limiter.list_resources_with_defaults().items,
            "custom": limiter.list_entities_with_custom_limits("gpt").items,
            "capacity": repository.get_resource_capacity("gpt", limit_name="rpd"),
            "status": limiter.get_status("key"),
            "usage": limiter.get_usage_snapshots(resource="gpt", window_type=WindowType.HOURLY).items,
            "proof": limiter.verify_usage("key"),
            "audit": [event.event_id for event in limiter.get_audit_events().items],
            "swept": self.run(sweep(self.store.client, self.ns)),
            "swept everywhere": self.run(sweep_table(self.store.client)),
        }

    def close(self) -> None:
        self.root.delete_table()
        self.root.close()


@pytest.fixture(params=["model", "dynoxide"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    target = None
    if request.param == "dynoxide":
        engine = request.getfixturevalue("dynoxide")
        target = Target(engine.region, engine.endpoint_url)
    made = World(target)
    yield made
    made.close()


def index_keys(world: World) -> list[dict[str, str]]:
    """Everything that an index of the namespace may be asked for."""
    ns = world.ns
    kinds = ["BUCKET", "ENTITY#forged", "ENTITY#key", f"AUDIT#{ULID}", "RESOURCE#forged", "SYSTEM", "USAGE", "TOMB"]
    return [
        gsi1(ns, "org", "forged"),
        gsi1(ns, "org", "key"),
        gsi2_bucket(ns, "forged", "gpt", 0),
        gsi2_bucket(ns, "key", "gpt", 0),
        gsi2_bucket(ns, "key", "gpt", 1),
        gsi2_usage(ns, "gpt", WINDOW, world.hour, "forged", 0),
        gsi3_bucket(ns, "key", "forged", 0),
        gsi3_bucket(ns, "key", "gpt", 1),
        gsi3_config(ns, "gpt", "forged"),
        *({"GSI4PK": gsi4_pk(ns, place % 16), "GSI4SK": kind} for place, kind in enumerate(kinds)),
        {"GSI2PK": f"{ns}/RESOURCE#gpt", "GSI2SK": "BUCKET#"},
        {"GSI2PK": f"{ns}/RESOURCE#gpt", "GSI2SK": "USAGE#hourly#"},
        {"GSI3PK": f"{ns}/ENTITY#key", "GSI3SK": "BUCKET#"},
        {"GSI4PK": gsi4_pk(ns, 3), "GSI4SK": "BUCKET#nothing"},
        {"GSI4PK": gsi4_pk(ns, 3), "GSI4SK": "ENTITY#"},
    ]


FULL = {
    "entity_id": "forged",
    "resource": "gpt",
    "name": "forged",
    "parent_id": "org",
    "cascade": True,
    "metadata": {},
    "version": 1,
    "config_version": 1,
    "children": 0,
    "order": "rpd",
    **{f"l_rpd_{field}": 1_000 for field in ("cp", "bx", "ra", "rp")},
    "action": "forged",
    "details": "{}",
    "timestamp": 1_767_225_600_000,
}
"""What every kind of item has, so that nothing but its key tells that it is none."""

SORT_KEYS = ["#STATE", "#META", "#CONFIG", f"#AUDIT#{ULID}", "anything"]


def forge(world: World, ns: str) -> list[Key]:
    """What a client may write that may only write buckets of a namespace."""
    numbers = count()
    keys = []
    for keyed in index_keys(world):
        for sk in SORT_KEYS:
            for attributes in ({}, FULL):
                key = Key(f"{ns}/BUCKET#forged{next(numbers)}#gpt#0", sk)
                world.put(key, {**attributes, **keyed})
                keys.append(key)
    return keys


WHOSE: dict[str, Callable[[World], str]] = {
    "another namespace": lambda world: world.their_ns,
    "the same namespace": lambda world: world.ns,
}


@pytest.mark.parametrize("whose", WHOSE)
def test_forged_index_keys_change_no_report(world: World, whose: str, caplog: pytest.LogCaptureFixture) -> None:
    before = world.reports()
    assert before["proof"].holds
    forge(world, WHOSE[whose](world))
    with caplog.at_level(logging.WARNING, logger="zae_limiter"):
        assert world.reports() == before
    assert world.store.client.misfiled > 100
    assert any("misfiled" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("whose", WHOSE)
def test_forged_index_keys_hinder_no_operator_and_are_not_written_to(world: World, whose: str) -> None:
    forged = forge(world, WHOSE[whose](world))
    as_it_was = {key: item for key in forged if not is_filed_as_bucket(item := world.item(key), world.ns)}
    limiter = world.limiter
    assert limiter.reset("key") == 1
    limiter.set_system_defaults(HIGHER)
    limiter.set_resource_defaults("gpt", HIGHER)
    limiter.set_limits("key", HIGHER)
    limiter.set_limits("key", HIGHER, resource="gpt")
    limiter.update_entity("org", cascade=False, parent_id=None)
    limiter.update_entity("key", cascade=False)
    (bucket,) = limiter.get_status("key").buckets
    assert [level.limit.burst for level in bucket.limits] == [200]
    limiter.delete_entity("key")
    world.root.delete_namespace("ours")
    assert len(as_it_was) > 100
    assert {key: world.item(key) for key in as_it_was} == as_it_was


def is_filed_as_bucket(item: Any, ns: str) -> bool:
    """Whether it is where a bucket of the namespace may be, and says so: then it is one, if a broken one."""
    is_bucket = item["PK"]["S"].startswith(f"{ns}/") and item["SK"]["S"] == "#STATE"
    return is_bucket and item.get("GSI4SK", {}).get("S") == "BUCKET"


def test_a_purge_removes_what_is_of_the_namespace_and_nothing_else(world: World) -> None:
    theirs = forge(world, world.their_ns)
    ours = [key for key in forge(world, world.ns) if "GSI4PK" in world.item(key)]
    world.root.delete_namespace("ours")
    world.root.purge_namespace("ours")
    assert [key for key in theirs if world.item(key) is None] == []
    assert [key for key in ours if world.item(key) is not None] == []


# Buckets that are filed rightly, and broken

BROKEN: dict[str, dict[str, Any]] = {
    "nothing in it": {},
    "a hundred million shards": {"shard_count": 10**8},
    "three million shards": {"shard_count": 3 * 10**6},
    "65 shards": {"shard_count": 65},
    "no shards": {"shard_count": 0},
    "three shards": {"shard_count": 3},
    "a baseline before all time": {"rf": -1},
    "a baseline after all time": {"rf": 10**18},
    "a balance that no write can add to": {"b_rpd_tk": 10**37},
    "a counter that no write can add to": {"b_rpd_tc": -(10**37)},
    "too many grants": {"ev": 10**37},
    "a burst out of bounds": {"b_rpd_bx": 10**30},
    "a period out of bounds": {"b_rpd_rp": 10**20},
    "a rate that is no whole token": {"b_rpd_ra": 1_500},
    "a write load out of bounds": {"b_wcu_bx": 10**37},
    "the name of another entity": {"entity_id": "other"},
    "the name of another resource": {"resource": "another"},
    "a version of a hundred thousand digits": {"cv": "9" * 100_000},
    "a write id of a hundred thousand letters": {"w0": "f" * 100_000},
    "a life of a thousand letters": {"inc": "a" * 1_000},
    "tokens in words": {"b_rpd_tk": "many"},
    "a limit with a bad name": {f"b_!_{field}": 1_000 for field in ("tk", "tc", "cp", "bx", "ra", "rp")},
}


def spoil(world: World, what: str, resource: str = "gpt", entity_id: str = "key", shard: int = 0) -> Key:
    """Put a broken bucket where one may be, rightly filed."""
    sound = world.item(bucket_key(world.ns, "key", "gpt"))
    key = bucket_key(world.ns, entity_id, resource, shard)
    filed = {
        **gsi2_bucket(world.ns, entity_id, resource, shard),
        **gsi3_bucket(world.ns, entity_id, resource, shard),
        "GSI4PK": gsi4_pk(world.ns, 5),
        "GSI4SK": "BUCKET",
    }
    change = BROKEN[what]
    attributes = {} if not change else {**sound, **encode_item({"entity_id": entity_id, "resource": resource})}
    item = {**attributes, **encode_item(filed), **encode_item(change), **address(key)}
    world.call("PutItem", Item=item)
    return key


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_bucket_is_left_out_of_reports(world: World, what: str, caplog: pytest.LogCaptureFixture) -> None:
    before = world.reports()
    spoil(world, what, entity_id="victim")
    spoil(world, what, resource="other")
    spoil(world, what, resource="third", shard=1)
    with caplog.at_level(logging.WARNING, logger="zae_limiter"):
        after = world.reports()
    assert {name: found for name, found in after.items() if name != "proof"} == {
        name: found for name, found in before.items() if name != "proof"
    }
    assert after["proof"].holds
    assert any("BUCKET#" in record.getMessage() for record in caplog.records)
    assert world.limiter.reset("key") == 1
    world.limiter.set_system_defaults(HIGHER)
    world.limiter.set_resource_defaults("gpt", HIGHER)


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_bucket_refuses_with_a_reason_at_once_and_can_be_removed(world: World, what: str) -> None:
    key = spoil(world, what)
    with world.newcomer() as fresh:
        with pytest.raises(VersionError, match="key#gpt#0"), fresh.acquire("key", "gpt", {"rpd": 1}):
            pass
        with pytest.raises(VersionError, match="key#gpt#0"):
            fresh.available("key", "gpt")
        assert fresh.get_status("key").buckets == ()
        assert fresh.reset("key") == 0
        fresh.delete_entity("key")
        assert world.item(key) is None
        with fresh.acquire("key", "gpt", {"rpd": 1}):
            pass
