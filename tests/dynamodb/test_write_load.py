"""The write load: charged by every write, refusing nothing, and set where it tells too much of the past."""

from __future__ import annotations

import pytest

from zae_limiter.bucket import MILLI
from zae_limiter.models.limit import Limit
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot, snapshot_of
from zae_limiter.stores.dynamodb.intents import Terms
from zae_limiter.stores.dynamodb.schema import MOST_SHARDS, bucket_key
from zae_limiter.stores.dynamodb.write_forms import new_item
from zae_limiter.stores.dynamodb.write_load import (
    PAUSE_BETWEEN_SPLITS_MS,
    TOO_FULL,
    TOO_LOW,
    WRITE,
    YOUNG_MS,
    is_overloaded,
    load_attributes,
    load_level_at,
    load_of,
    may_split,
    may_split_at,
    reset_level,
)
from zae_limiter.stores.protocol import Leg

START = 1_700_000_000_000
WCU = 10
BURST = WCU * MILLI


def bucket() -> BucketSnapshot:
    """A bucket on a partition that takes ten writes a second, as the write that makes it leaves it."""
    leg = Leg("key", "gpt", (Limit.per_minute("rpm", 100),), "system")
    item = new_item(
        bucket_key("ns", "key", "gpt"),
        Terms(leg, "1.0.0.0.0", None, False),
        {},
        now=START,
        write_id="w",
        inc="i",
        grants=0,
        epoch_s=START // 1000,
        ttl_margin_s=0,
        wcu=WCU,
    )
    return snapshot_of(item)


def loaded(level: int) -> BucketSnapshot:
    seen = bucket()
    return seen.with_numbers(seen.balances, ev=0, recent_writers=seen.recent_writers, load_level=level)


def test_a_new_bucket_has_paid_for_the_write_that_made_it() -> None:
    assert bucket().load_level == BURST - WRITE
    assert load_attributes(BURST)["b_wcu_tk"] == BURST - WRITE
    assert bucket().load_burst == BURST


def test_a_partition_takes_as_many_writes_in_a_second_as_it_may_hold() -> None:
    assert load_level_at(loaded(0), START + 1_000) == BURST
    assert load_level_at(loaded(0), START + 100) == BURST // 10
    assert load_level_at(loaded(BURST), START + 1_000) == 2 * BURST, "nothing is forgotten here"


def test_pressure_is_a_level_below_zero() -> None:
    assert is_overloaded(loaded(-WRITE), START)
    assert not is_overloaded(loaded(-WRITE), START + 100), "borne by then"
    assert not is_overloaded(loaded(0), START)


@pytest.mark.parametrize(
    ("level", "age_ms", "expected"),
    [
        (TOO_FULL * BURST, 0, None),
        (TOO_FULL * BURST + 1, 0, BURST),
        (TOO_FULL * BURST + 1, YOUNG_MS - 1, BURST),
        (TOO_FULL * BURST + 1, YOUNG_MS, None),
        (-(BURST // TOO_LOW), 0, None),
        (-(BURST // TOO_LOW) - 1, 0, 0),
        (-(BURST // TOO_LOW) - 1, YOUNG_MS, None),
        (0, 0, None),
    ],
)
def test_only_what_a_young_snapshot_shows_far_off_is_set(level: int, age_ms: int, expected: int | None) -> None:
    assert reset_level(level, BURST, age_ms) == expected


def test_an_undivided_bucket_may_be_split_at_once() -> None:
    assert may_split(bucket(), START)
    assert may_split_at(1, START, START)


def test_a_split_has_time_to_show_its_effect() -> None:
    assert not may_split_at(2, START, START + PAUSE_BETWEEN_SPLITS_MS - 1)
    assert may_split_at(2, START, START + PAUSE_BETWEEN_SPLITS_MS)
    assert may_split_at(MOST_SHARDS // 2, START, START + PAUSE_BETWEEN_SPLITS_MS)
    assert not may_split_at(MOST_SHARDS, START, START + PAUSE_BETWEEN_SPLITS_MS)


def test_a_write_is_charged_for_every_kilobyte_and_for_what_was_refused_before() -> None:
    seen = bucket()
    assert load_of(seen, 0) == seen.kilobytes * WRITE
    assert load_of(seen, 3) == (seen.kilobytes + 3) * WRITE
