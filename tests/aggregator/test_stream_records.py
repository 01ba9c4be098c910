"""What a record of the stream means: a change of a bucket, nothing, or something that an operator should look at."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from usage_model import asking, empty_model, limiter_on, process, records_of, run, snapshot_items, store_on

from zae_limiter.models.limit import Limit
from zae_limiter.stores.dynamodb.requests import Refused
from zae_limiter.testing.clock import NEW_YEAR_2026_MS, FakeClock
from zae_limiter_aggregator.processor import Processor
from zae_limiter_aggregator.stream_records import ConsumptionDelta, PoisonousRecord, extract_deltas, parse_record

RPM, TPM = Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 1_000)
LATER_MS = NEW_YEAR_2026_MS + 5_400_000


def told() -> list[dict[str, Any]]:
    """A bucket's records: created, drawn from, settled, told of other limits, drawn from again, removed."""
    model = empty_model()
    clock = FakeClock()
    limiter = limiter_on(store_on(model), clock, create=True)
    limiter.set_system_defaults([RPM, TPM])
    limiter.create_entity("key")
    with limiter.acquire("key", "gpt", {"rpm": 2}):
        pass
    clock.advance(milliseconds=5_400_000)
    with limiter.acquire("key", "gpt", {"rpm": 1, "tpm": 100}) as lease:
        lease.adjust(tpm=-30)
    limiter.set_system_defaults([RPM])
    with limiter.acquire("key", "gpt", {"rpm": 3}):
        pass
    limiter.delete_entity("key")
    limiter.close()
    return records_of(model.changes("limits"))


RECORDS = told()
BUCKET_RECORDS = [record for record in RECORDS if "/BUCKET#" in record["dynamodb"]["Keys"]["PK"]["S"]]


def deltas_of(record: Any) -> dict[str, int]:
    parsed = parse_record(record)
    assert parsed is not None
    return {delta.limit_name: delta.tokens_delta for delta in extract_deltas(parsed)}


def test_a_record_of_a_bucket_says_what_was_taken_when_and_from_which_life() -> None:
    created, drawn, settled, changed, again, fenced, _removed = BUCKET_RECORDS
    first = parse_record(created)
    assert first is not None
    assert (first.life.entity_id, first.life.resource, first.life.shard) == ("key", "gpt", 0)
    assert (first.written_ms, first.earlier_ms, first.hour) == (NEW_YEAR_2026_MS, None, NEW_YEAR_2026_MS)
    assert (first.before.events, dict(first.before.milli)) == (0, {})
    assert (first.after.events, dict(first.after.milli)) == (1, {"rpm": 2_000, "tpm": 0})
    second = parse_record(drawn)
    assert second is not None
    assert second.life == first.life
    assert (second.written_ms, second.earlier_ms) == (LATER_MS, NEW_YEAR_2026_MS)
    assert extract_deltas(second) == [
        ConsumptionDelta("key", "gpt", "rpm", 1_000, LATER_MS),
        ConsumptionDelta("key", "gpt", "tpm", 100_000, LATER_MS),
    ]
    assert extract_deltas(drawn) == extract_deltas(second), "a record of the stream will do"
    assert (second.shard_id, second.shard_count) == (0, 1)
    assert (second.grants, second.begins_hour) == (1, True)
    assert deltas_of(settled) == {"tpm": -30_000}
    assert deltas_of(changed) == {}
    assert deltas_of(again) == {"rpm": 3_000}
    assert deltas_of(fenced) == {}, "who deletes a bucket fences it first"


def test_a_retired_limit_is_still_in_the_counters() -> None:
    last = parse_record(BUCKET_RECORDS[4])
    assert last is not None
    assert "b_tpm_cp" not in BUCKET_RECORDS[4]["dynamodb"]["NewImage"]
    assert dict(last.after.milli) == {"rpm": 6_000, "tpm": 70_000}


def test_the_gauge_of_writes_is_not_usage() -> None:
    record = copy.deepcopy(BUCKET_RECORDS[1])
    record["dynamodb"]["NewImage"]["b_wcu_tc"] = {"N": "123"}
    assert deltas_of(record) == {"rpm": 1_000, "tpm": 100_000}


def test_other_items_and_removed_buckets_are_passed_over() -> None:
    assert len(RECORDS) > len(BUCKET_RECORDS) + 5
    for record in RECORDS:
        if record not in BUCKET_RECORDS:
            assert parse_record(record) is None
    assert BUCKET_RECORDS[-1]["eventName"] == "REMOVE"
    assert parse_record(BUCKET_RECORDS[-1]) is None


def test_a_bucket_that_was_replaced_begins_a_life_of_its_own() -> None:
    record = copy.deepcopy(BUCKET_RECORDS[1])
    record["dynamodb"]["OldImage"]["inc"] = {"S": "another"}
    parsed = parse_record(record)
    assert parsed is not None
    assert (parsed.before.events, dict(parsed.before.milli), parsed.earlier_ms) == (0, {}, None)


@pytest.mark.parametrize("pk", ["n/ENTITY#a/BUCKET#b#c#0", "BUCKET#a#b#0", "n/xBUCKET#a#b#0", "n/AUDIT#/BUCKET#a#b#0"])
def test_what_has_a_key_like_that_of_a_bucket_is_passed_over(pk: str) -> None:
    keys = {"PK": {"S": pk}, "SK": {"S": "#STATE"}}
    change = {"Keys": keys, "NewImage": keys, "OldImage": keys, "SequenceNumber": "1"}
    assert parse_record({"eventName": "MODIFY", "dynamodb": change}) is None


# Poison


def without(path: str) -> Callable[[Any], None]:
    def spoil(record: Any) -> None:
        *way, last = path.split(".")
        for step in way:
            record = record[step]
        del record[last]

    return spoil


def with_value(path: str, value: Any) -> Callable[[Any], None]:
    def spoil(record: Any) -> None:
        *way, last = path.split(".")
        for step in way:
            record = record[step]
        record[last] = value

    return spoil


POISON: dict[str, Callable[[Any], None]] = {
    "no event": without("eventName"),
    "an unknown event": with_value("eventName", "EXPLODE"),
    "no change": without("dynamodb"),
    "no keys": without("dynamodb.Keys"),
    "a key of a number": with_value("dynamodb.Keys.PK", {"N": "1"}),
    "a key that is no bucket's": with_value("dynamodb.Keys.PK", {"S": "n/BUCKET#key#gpt"}),
    "a key of another bucket": with_value("dynamodb.Keys.PK", {"S": "n/BUCKET#key#claude#0"}),
    "no number": without("dynamodb.SequenceNumber"),
    "a number that is none": with_value("dynamodb.SequenceNumber", "12x"),
    "an endless number": with_value("dynamodb.SequenceNumber", "1" * 41),
    "no new image": without("dynamodb.NewImage"),
    "no old image": without("dynamodb.OldImage"),
    "an old image of something else": with_value("dynamodb.OldImage", {"PK": {"S": "x"}}),
    "no entity": without("dynamodb.NewImage.entity_id"),
    "no life": without("dynamodb.NewImage.inc"),
    "a life that would break the key": with_value("dynamodb.NewImage.inc", {"S": "a#b"}),
    "no grants": without("dynamodb.NewImage.ev"),
    "grants that are text": with_value("dynamodb.NewImage.ev", {"S": "1"}),
    "no mark": without("dynamodb.NewImage.w0"),
    "an empty mark": with_value("dynamodb.NewImage.w0", {"S": "-"}),
    "a mark before all time": with_value("dynamodb.NewImage.w0", {"S": "-1f.c1"}),
    "a mark after all time": with_value("dynamodb.NewImage.w0", {"S": "ffffffffffff.c1"}),
    "a broken total": with_value("dynamodb.NewImage.b_rpm_tc", {"N": "1.5"}),
    "a limit without a name": with_value("dynamodb.NewImage.b__tc", {"N": "1"}),
}


@pytest.mark.parametrize("kind", [kind for kind in POISON if kind != "a key of a number"])
def test_a_poisonous_record_is_told_by_its_number_and_the_rest_of_the_batch_counts(kind: str) -> None:
    bad = copy.deepcopy(BUCKET_RECORDS[1])
    POISON[kind](bad)
    number = bad.get("dynamodb", {}).get("SequenceNumber", "")
    model = empty_model()
    processed = process(model, [BUCKET_RECORDS[0], bad, BUCKET_RECORDS[2], {"eventName": "INSERT", "dynamodb": None}])
    assert [failure.sequence for failure in processed.poisonous] == [number, ""]
    assert all(isinstance(failure.error, PoisonousRecord) for failure in processed.failures)
    assert (processed.records, processed.snapshots, processed.unwritten) == (2, 2, ())
    assert len(snapshot_items(model)) == 2


def test_a_record_under_no_key_of_ours_is_none_of_ours() -> None:
    stranger = copy.deepcopy(BUCKET_RECORDS[1])
    POISON["a key of a number"](stranger)
    assert parse_record(stranger) is None


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.sampled_from(["S", "N", "PK", "SK"]), parts),
    max_leaves=6,
)


@given(st.sampled_from(BUCKET_RECORDS), st.data())
@settings(deadline=None)
def test_a_spoiled_record_is_understood_passed_over_or_poisonous(record: dict[str, Any], data: st.DataObject) -> None:
    spoiled = copy.deepcopy(record)
    part: Any = spoiled
    for _ in range(data.draw(st.integers(0, 3))):
        inner = [value for value in part.values() if isinstance(value, dict) and value]
        part = data.draw(st.sampled_from(inner)) if inner else part
    part[data.draw(st.sampled_from(sorted(part)))] = data.draw(json_like)
    with suppress(PoisonousRecord):
        parse_record(spoiled)


@given(json_like)
@settings(deadline=None)
def test_anything_at_all_is_understood_passed_over_or_poisonous(anything: Any) -> None:
    for record in (anything, {"eventName": "MODIFY", "dynamodb": anything}):
        with suppress(PoisonousRecord):
            parse_record(record)


def test_what_could_not_be_written_is_told_by_its_numbers_and_the_rest_counts() -> None:
    model = empty_model()
    early, late = BUCKET_RECORDS[0], BUCKET_RECORDS[1:5]

    def ask(operation: str, params: Any) -> Any:
        if "T00#" in params["Key"]["SK"]["S"]:
            raise Refused("AccessDeniedException", "not you")
        return model.call(operation, params)

    processed = run(Processor(asking()).process([early, *late]), ask)
    assert [failure.sequence for failure in processed.unwritten] == [early["dynamodb"]["SequenceNumber"]]
    assert (processed.records, processed.poisonous) == (3, ())
    assert [key[1].split("#")[4] for key in snapshot_items(model)] == ["2026-01-01T01"]
