"""How far a stream was counted is kept in the table, and only moves forward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from scripted_streams import STREAM, Stream, after, record
from usage_model import EPOCH_S, answer, asking, run

from zae_limiter.exceptions import RateLimiterUnavailable, ZAELimiterError
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.requests import MachineTime, NoAnswer, ReadMachineTime
from zae_limiter_aggregator.aggregation import SAVE_EVERY_MS, Aggregation, Tally
from zae_limiter_aggregator.follower import Position
from zae_limiter_aggregator.stream_checkpoints import CHECKPOINT, Checkpoints, checkpoint_key, place_of


def checkpoints() -> Checkpoints:
    return Checkpoints(asking(), STREAM)


def saved(stream: Stream) -> dict[str, Position]:
    return run(checkpoints().load(), stream.ask)


def aggregation(**options: Any) -> Aggregation:
    return Aggregation(asking(), empty_pages=1, **options)


def once(stream: Stream) -> Tally:
    """A whole aggregation, from its beginning to its end."""
    working = aggregation()
    for step in (working.begin, working.count_available, working.end):
        run(step(), stream.ask)
    return working.tally


def writes(stream: Stream) -> int:
    return stream.calls.count("PutItem")


# Checkpoints


def test_a_position_is_found_again_as_it_was() -> None:
    stream = Stream()
    positions = {"shard-1": after(7), "shard-2": after(8, finished=True), "shard-3": Position(None, finished=True)}
    run(checkpoints().save(positions, positions), stream.ask)
    assert saved(stream) == positions
    assert run(Checkpoints(asking(), "arn:another").load(), stream.ask) == {}


def test_many_shards_are_kept() -> None:
    stream = Stream()
    positions = {f"shard-{number:03}": after(number) for number in range(40)}
    run(checkpoints().save(positions, sorted(positions)), stream.ask)
    assert saved(stream) == positions


def test_a_checkpoint_expires_and_has_no_index() -> None:
    stream = Stream()
    run(checkpoints().save({"a": after(1)}, ["a"]), stream.ask)
    ((key, item),) = [(key, item) for key, item in stream.model.snapshot("limits").items() if CHECKPOINT in key[1]]
    assert key == checkpoint_key(STREAM, "a")
    assert int(item["ttl"]["N"]) > EPOCH_S
    assert not [name for name in item if name.startswith("GSI")]


def test_a_follower_that_is_behind_takes_over_what_is_further() -> None:
    stream = Stream()
    run(checkpoints().save({"a": after(10), "b": after(3, finished=True)}, ["a", "b"]), stream.ask)
    positions = {"a": after(9), "b": after(3)}
    run(checkpoints().save(positions, ["a", "b"]), stream.ask)
    assert positions == saved(stream) == {"a": after(10), "b": after(3, finished=True)}


def test_nothing_is_written_about_a_shard_of_which_nothing_is_known() -> None:
    stream = Stream()
    run(checkpoints().save({"a": Position()}, ["a", "b"]), stream.ask)
    assert saved(stream) == {}


def test_positions_sort_by_number_and_the_end_is_last() -> None:
    ordered = [Position(), Position("9"), Position("10"), Position("10", finished=True), Position("11")]
    assert sorted(ordered, key=place_of) == ordered


# Aggregations


def test_an_aggregation_goes_on_where_any_ended() -> None:
    stream = Stream(a=[[record(1), record(2)]], b=[[record(3)]])
    stream.closed["a"] = True
    assert once(stream) == Tally(records=3, snapshots=2, lag_s=2.5)
    assert saved(stream) == {"a": after(2, finished=True), "b": after(3)}
    stream.shards["b"].append([record(4)])
    assert once(stream).records == 1
    assert stream.grants() == 4


def test_an_aggregation_with_nothing_to_count_writes_nothing() -> None:
    """Its own checkpoints come back as records: they must not be the reason for others."""
    stream = Stream(a=[[record(1)]])
    once(stream)
    mine = {"Keys": {"PK": {"S": "_/SYSTEM#"}, "SK": {"S": f"{CHECKPOINT}x#a"}}, "SequenceNumber": str(10**20 + 5)}
    stream.shards["a"].append([{"eventName": "INSERT", "dynamodb": mine}])
    before = writes(stream)
    assert once(stream) == Tally()
    assert writes(stream) == before


def test_checkpoints_are_written_every_few_seconds_on_the_way() -> None:
    stream = Stream(a=[[record(number)] for number in range(1, 21)])
    time = 0

    def ask_in_time(plan: Plan[Any]) -> None:
        """Every record takes a second."""
        nonlocal time
        reply: Any = None
        while True:
            try:
                request = plan.throw(reply) if isinstance(reply, Exception) else plan.send(reply)
            except StopIteration:
                return
            if isinstance(request, ReadMachineTime):
                reply = MachineTime(time, EPOCH_S)
            else:
                time += 1_000 if getattr(request, "operation", "") == "GetRecords" else 0
                reply = answer(request, stream.ask)

    working = aggregation()
    ask_in_time(working.begin())
    ask_in_time(working.count_available())
    assert writes(stream) == 20 * 1_000 // SAVE_EVERY_MS
    ask_in_time(working.end())
    assert saved(stream) == {"a": after(20)}


def test_two_at_once_count_nothing_twice() -> None:
    stream = Stream(a=[[record(1)], [record(2)], [record(3)]])
    one, other = aggregation(), aggregation()
    for step in (one.begin, other.begin, one.count_available, other.count_available, other.end, one.end):
        run(step(), stream.ask)
    assert one.tally.records == other.tally.records == 3
    assert stream.grants() == 3
    assert once(stream).records == 0


def test_poison_is_told_once_and_passed_over() -> None:
    broken = record(2)
    del broken["dynamodb"]["NewImage"]
    stream = Stream(a=[[record(1), broken], [record(3)]])
    told = []
    working = aggregation(on_page=lambda tally, failures: told.append((tally.records, len(failures))))
    for step in (working.begin, working.count_available, working.end):
        run(step(), stream.ask)
    assert told == [(1, 1), (2, 0)]
    assert working.tally.poisonous == 1
    assert once(stream).poisonous == 0


def test_what_was_counted_before_an_outage_can_still_be_kept() -> None:
    stream = Stream(a=[[record(1)], [record(2)]])
    working = aggregation()
    run(working.begin(), stream.ask)
    replies = stream.ask

    def ask(operation: str, params: Mapping[str, Any]) -> Any:
        if operation == "GetRecords" and stream.calls.count("GetRecords") >= 1:
            raise NoAnswer("lost")
        return replies(operation, params)

    with pytest.raises(RateLimiterUnavailable):
        run(working.count_available(), ask)
    run(working.end(), stream.ask)
    assert saved(stream) == {"a": after(1)}


def test_records_that_left_unread_are_told_once() -> None:
    stream = Stream(a=[])
    run(checkpoints().save({"a": after(1)}, ["a"]), stream.ask)
    working = aggregation()
    for step in (working.begin, working.count_available, working.count_available, working.end):
        run(step(), stream.ask)
    assert working.tally.trimmed == 1


def test_a_table_without_a_stream_is_an_error_with_words() -> None:
    with pytest.raises(ZAELimiterError, match="has no stream"):
        run(aggregation().begin(), lambda operation, params: {"Table": {}})
