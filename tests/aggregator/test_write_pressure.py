"""How hard shards are written to, and when a bucket is split because of that."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from scripted_streams import record
from usage_model import asking, empty_model, limiter_on, records_of, run, store_on

from zae_limiter.models.limit import Limit
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.requests import NoAnswer
from zae_limiter.stores.dynamodb.schema import encode_item
from zae_limiter.stores.dynamodb.usage_items import Life
from zae_limiter.testing.clock import NEW_YEAR_2026_MS, FakeClock
from zae_limiter_aggregator.proactive_split import Load, highest, load_of, should_split
from zae_limiter_aggregator.processor import Processor, read
from zae_limiter_aggregator.stream_records import parse_record

LIFE = Life("n", "key", "gpt", 0, "i")
FULL = 1_000_000


def image(tk: int, *, rf: int = 0, shards: int = 1) -> Any:
    gauge = {"b_wcu_tk": tk, "b_wcu_bx": FULL}
    return encode_item({"shard_count": shards, "rf": rf, **gauge})


@pytest.mark.parametrize(
    ("tk", "elapsed_ms", "left"),
    [
        (FULL, 0, FULL),
        (0, 0, 0),
        (0, 250, 250_000),
        (-500_000, 100, -400_000),
        (FULL, 60_000, FULL),
        (-59_900_000, 60_000, 100_000),
    ],
)
def test_a_gauge_refills_as_it_does_for_clients_and_never_above_its_ceiling(
    tk: int, elapsed_ms: int, left: int
) -> None:
    assert load_of(LIFE, image(tk, rf=5_000), 5_000 + elapsed_ms).left == left


def test_a_clock_that_is_behind_the_baseline_gives_nothing_back() -> None:
    assert load_of(LIFE, image(1_000, rf=5_000), 4_000).left == 1_000


@pytest.mark.parametrize(
    ("left", "percent", "is_hot"),
    [
        (FULL, 0, False),
        (200_001, 79, False),
        (190_001, 80, True),
        (210_000, 79, False),
        (200_000, 80, True),
        (-1, 100, True),
    ],
)
def test_it_is_hot_from_80_percent_on(left: int, percent: int, is_hot: bool) -> None:
    load = Load(LIFE, 1, 0, 0, left, FULL)
    assert (load.percent, load.is_hot, should_split(load)) == (percent, is_hot, is_hot)


@pytest.mark.parametrize(
    ("shard", "shards", "since_ms", "splits"),
    [
        (0, 1, 0, True),
        (0, 2, 999, False),
        (0, 2, 1_000, True),
        (1, 2, 10, True),
        (0, 32, 5_000, True),
        (0, 64, 5_000, False),
        (9, 64, 5_000, False),
    ],
)
def test_no_more_than_64_shards_and_not_right_after_the_last_split(
    shard: int, shards: int, since_ms: int, splits: bool
) -> None:
    assert should_split(Load(LIFE._replace(shard=shard), shards, 7_000, 7_000 + since_ms, 0, FULL)) is splits


def test_of_each_shard_the_highest_load_counts() -> None:
    loads = [Load(LIFE._replace(shard=shard), 2, 0, 0, left, FULL) for shard, left in ((0, 9), (1, 5), (0, 7), (1, 8))]
    assert [(load.life.shard, load.left) for load in highest(loads)] == [(1, 5), (0, 7)]


# From records


def busy_records(writes: int) -> list[dict[str, Any]]:
    """What a bucket's stream says that is written to so often at one moment."""
    model, clock = empty_model(), FakeClock()
    limiter = limiter_on(store_on(model), clock, create=True)
    limiter.set_system_defaults([Limit.per_day("rpd", 1_000_000)])
    for _ in range(writes):
        with limiter.acquire("key", "gpt", {"rpd": 1}):
            pass
    return [
        found for found in records_of(model.changes("limits")) if "/BUCKET#" in found["dynamodb"]["Keys"]["PK"]["S"]
    ]


def test_a_record_tells_the_load_of_its_shard_as_the_store_writes_it() -> None:
    *_, last = busy_records(9)
    parsed = parse_record(last)
    assert parsed is not None
    assert parsed.load is not None
    load = parsed.load
    assert (load.life, load.shards, load.baseline_ms) == (parsed.life, 1, NEW_YEAR_2026_MS)
    assert (load.ceiling, load.left) == (FULL, FULL - 9_000)


@pytest.mark.parametrize("field", ["b_wcu_tk", "b_wcu_bx", "shard_count", "rf"])
def test_a_bucket_without_a_gauge_still_counts(field: str) -> None:
    broken = copy.deepcopy(busy_records(1)[0])
    del broken["dynamodb"]["NewImage"][field]
    parsed = parse_record(broken)
    assert parsed is not None
    assert (parsed.load, parsed.grants) == (None, 1)
    assert len(read([broken, record(1)]).bucket_hours) == 2


class Splitting:
    """Splits on paper."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked: list[Load] = []
        self._error = error

    def __call__(self, load: Load) -> Plan[bool]:
        self.asked.append(load)
        if self._error is not None:
            raise self._error
        yield from ()
        return True


def pressed(records: list[dict[str, Any]], tk: int) -> list[dict[str, Any]]:
    for told in records:
        told["dynamodb"]["NewImage"] = {**told["dynamodb"]["NewImage"], "b_wcu_tk": {"N": str(tk)}}
    return records


def test_a_hot_bucket_is_split_once_in_a_batch() -> None:
    splitting = Splitting()
    processed = run(
        Processor(asking(), split_bucket=splitting).process(pressed(busy_records(3), 100_000)), empty_model().call
    )
    assert (processed.records, processed.splits) == (3, 1)
    assert [load.percent for load in splitting.asked] == [90]
    assert [load.percent for load in processed.loads] == [90]


def test_a_cool_bucket_is_left_alone() -> None:
    splitting = Splitting()
    processed = run(Processor(asking(), split_bucket=splitting).process(busy_records(3)), empty_model().call)
    assert (processed.splits, splitting.asked) == (0, [])


def test_a_split_that_fails_does_not_keep_records_from_counting() -> None:
    splitting = Splitting(NoAnswer("lost"))
    processed = run(
        Processor(asking(), split_bucket=splitting).process(pressed(busy_records(3), 0)), empty_model().call
    )
    assert (processed.records, processed.failures, processed.splits) == (3, (), 0)
    assert len(splitting.asked) == 1
