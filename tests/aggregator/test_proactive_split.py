"""A bucket whose shard is hot is split by the aggregator, once for each pressure, and stays exact."""

from __future__ import annotations

from typing import Any

import pytest
from usage_model import TABLE, asking, empty_model, limiter_on, records_of, run, store_on

from simulation.model import Model
from zae_limiter.models.limit import Limit
from zae_limiter.stores.dynamodb.bucket_items import snapshot_of
from zae_limiter.stores.dynamodb.requests import Refused
from zae_limiter.testing.clock import FakeClock
from zae_limiter_aggregator.proactive_split import Load, ProactiveSplit
from zae_limiter_aggregator.processor import Processor
from zae_limiter_aggregator.stream_records import parse_record

RPD = 1_000_000


class World:
    """A table with one busy bucket, and an aggregator that is told how hot it is."""

    def __init__(self) -> None:
        self.model: Model = empty_model()
        self.clock = FakeClock()
        self.limiter = limiter_on(store_on(self.model), self.clock, create=True)
        self.limiter.set_system_defaults([Limit.per_day("rpd", RPD)])
        self.client = asking()
        self.taken = 0

    def take(self, times: int = 1) -> None:
        for _ in range(times):
            with self.limiter.acquire("key", "gpt", {"rpd": 1}):
                self.taken += 1
            self.clock.advance(milliseconds=1)

    def records(self) -> list[Any]:
        found = records_of(self.model.changes(TABLE))
        return [record for record in found if "/BUCKET#" in record["dynamodb"]["Keys"]["PK"]["S"]]

    def last_load(self, left: int = 0) -> Load:
        """The load of the last record, as if so little was left."""
        parsed = parse_record(self.records()[-1])
        assert parsed is not None
        assert parsed.load is not None
        return parsed.load._replace(left=left)

    def split_bucket(self, load: Load) -> bool:
        return run(ProactiveSplit(self.client)(load), self.model.call)

    def shards(self) -> dict[int, int]:
        """How many shards each shard knows of."""
        items = self.model.snapshot(TABLE).items()
        images = [snapshot_of(item) for key, item in items if key[1] == "#STATE"]
        return {image.shard: image.shards for image in sorted(images, key=lambda image: image.shard)}


@pytest.fixture
def world() -> World:
    found = World()
    found.take(3)
    return found


def test_a_hot_bucket_is_split_and_the_siblings_are_made(world: World) -> None:
    assert world.split_bucket(world.last_load())
    assert world.shards() == {0: 2, 1: 2}
    world.clock.advance(2)
    world.take()
    assert world.split_bucket(world.last_load())
    assert world.shards() == {0: 4, 1: 4, 2: 4, 3: 4}


def test_not_twice_for_the_same_pressure_however_often_and_late_it_is_told(world: World) -> None:
    loads = []
    for _ in range(5):
        world.take()
        loads.append(world.last_load())
        world.clock.advance(2)
    assert [world.split_bucket(load) for load in loads * 2] == [True] + [False] * 9
    assert world.shards() == {0: 2, 1: 2}


def test_not_before_the_last_division_was_seen(world: World) -> None:
    assert world.split_bucket(world.last_load())
    world.take()
    assert not world.split_bucket(world.last_load())


def test_a_bucket_that_is_gone_is_left_alone(world: World) -> None:
    load = world.last_load()
    world.limiter.create_entity("key")
    world.limiter.delete_entity("key")
    assert not world.split_bucket(load)
    assert world.shards() == {}
    world.take()
    assert not world.split_bucket(load)
    assert world.shards() == {0: 1}


def test_usage_is_what_was_taken_over_all_shards(world: World) -> None:
    """Hot by its records, in the order and as often as they come, while it is taken from."""
    processor = Processor(world.client, split_bucket=ProactiveSplit(world.client))
    splits = 0
    for _ in range(4):
        world.take(20)
        batch = world.records()
        for record in batch:
            record["dynamodb"]["NewImage"] = {**record["dynamodb"]["NewImage"], "b_wcu_tk": {"N": "-9000000000"}}
        processed = run(processor.process(batch), world.model.call)
        assert processed.failures == ()
        assert processed.failed_splits == ()
        splits += processed.splits
        world.clock.advance(2)
    assert splits == 4
    assert set(world.shards().values()) == {16}
    run(processor.process(world.records()), world.model.call)
    proof = world.limiter.verify_usage("key")
    assert proof.holds
    assert sum(chain.counted for chain in proof.chains if chain.limit_name == "rpd") == world.taken
    assert world.limiter.get_usage_summary("key").total == {"rpd": world.taken}
    assert len({chain.shard for chain in proof.chains if chain.counted}) > 1
    (level,) = world.limiter.get_status("key").buckets[0].limits
    assert level.total_consumed == world.taken


def test_what_may_not_be_split_is_told(world: World) -> None:
    def ask(operation: str, params: Any) -> Any:
        if operation in ("GetItem", "TransactWriteItems"):
            raise Refused("AccessDeniedException", "not you")
        return world.model.call(operation, params)

    (record, *_) = world.records()
    record["dynamodb"]["NewImage"] = {**record["dynamodb"]["NewImage"], "b_wcu_tk": {"N": "0"}}
    processed = run(Processor(world.client, split_bucket=ProactiveSplit(world.client)).process([record]), ask)
    assert (processed.records, processed.failures, processed.splits) == (1, (), 0)
    ((load, error),) = processed.failed_splits
    assert (load.life.entity_id, str(error)) == ("key", "AccessDeniedException: not you")


def test_it_asks_for_nothing_but_what_its_role_is_to_allow(world: World) -> None:
    """Counting updates snapshots; splitting reads and writes buckets, in transactions."""
    asked: dict[str, set[str]] = {}

    def ask(operation: str, params: Any) -> Any:
        wanted = params.get("TransactItems") or [{operation: params}]
        for part in wanted:
            ((kind, what),) = part.items()
            keys = [what.get("Key") or what.get("Item")] if "RequestItems" not in what else []
            keys += [key for table in what.get("RequestItems", {}).values() for key in table["Keys"]]
            asked.setdefault(kind, set()).update(key["PK"]["S"].partition("/")[2].partition("#")[0] for key in keys)
        return world.model.call(operation, params)

    for _ in range(2):
        world.take(3)
        batch = world.records()
        for record in batch:
            record["dynamodb"]["NewImage"] = {**record["dynamodb"]["NewImage"], "b_wcu_tk": {"N": "-9000000000"}}
        assert run(Processor(world.client, split_bucket=ProactiveSplit(world.client)).process(batch), ask).splits == 1
        world.clock.advance(2)
    assert asked == {
        "UpdateItem": {"ENTITY"},
        "GetItem": {"BUCKET"},
        "BatchGetItem": {"BUCKET"},
        "Update": {"BUCKET"},
        "Put": {"BUCKET"},
    }
