"""Following a stream: everything there is, nothing forgotten, nothing waited for."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_streams import STREAM, Stream, after, record
from usage_model import EPOCH_S, asking, run

from zae_limiter.stores.dynamodb.requests import NoAnswer, Refused
from zae_limiter_aggregator.follower import Follower, NoStream, Position, Shard, parents_first


def test_every_shard_is_read_to_its_end_or_until_it_is_quiet() -> None:
    stream = Stream(a=[[record(1), record(2)], [], [record(3)]], b=[[record(4)], [record(5)]])
    stream.closed["a"] = True
    positions: dict[str, Position] = {}
    progress = stream.follow(positions)
    assert (progress.records, progress.poisonous, progress.trimmed) == (5, (), ())
    assert positions == {"a": after(3, finished=True), "b": after(5)}
    assert stream.grants() == 5


def test_the_next_time_goes_on_where_the_last_one_ended() -> None:
    stream = Stream(a=[[record(1)]], b=[[record(2)]])
    stream.closed["a"] = True
    positions: dict[str, Position] = {}
    stream.follow(positions)
    stream.calls.clear()
    stream.shards["b"].append([record(3)])
    assert stream.follow(positions, empty_pages=1).records == 1
    assert stream.calls.count("GetShardIterator") == 1
    assert stream.grants() == 3


def test_a_shard_that_is_gone_is_forgotten() -> None:
    stream = Stream(b=[[record(1)]])
    positions = {"a": after(0, finished=True)}
    stream.follow(positions)
    assert positions == {"b": after(1)}


def test_records_that_left_the_stream_unread_are_told_and_the_rest_is_read() -> None:
    stream = Stream(a=[[record(7)], [record(8)]])
    positions = {"a": after(3)}
    progress = stream.follow(positions)
    assert (progress.records, progress.trimmed) == (2, ("a",))
    assert positions == {"a": after(8)}


@pytest.mark.parametrize("code", ["ExpiredIteratorException", "TrimmedDataAccessException"])
def test_an_iterator_that_expired_is_made_anew(code: str) -> None:
    stream = Stream(a=[[record(1)], [record(2)]])
    stream.trouble["GetRecords"] = [Refused(code, "too old")]
    stream.follow({})
    assert stream.grants() == 2


def test_throttles_and_lost_answers_are_waited_out() -> None:
    stream = Stream(a=[[record(1)], [record(2)]])
    stream.trouble["GetRecords"] = [Refused("LimitExceededException", "slowly"), NoAnswer("lost")]
    stream.trouble["UpdateItem"] = [NoAnswer("lost"), Refused("ThrottlingException", "slowly")]
    stream.follow({})
    assert stream.grants() == 2


def test_a_position_is_not_moved_over_records_that_could_not_be_counted() -> None:
    stream = Stream(a=[[record(1)], [record(2)], [record(3)]])
    positions: dict[str, Position] = {}
    stream.trouble["UpdateItem"] = [NoAnswer("lost")] * 3
    with pytest.raises(NoAnswer):
        stream.follow(positions)
    assert positions == {}
    stream.trouble["GetRecords"] = []
    assert stream.follow(positions).records == 3
    assert stream.grants() == 3


def test_a_poisonous_record_is_told_and_passed_over() -> None:
    broken = record(2)
    del broken["dynamodb"]["NewImage"]
    stream = Stream(a=[[record(1), broken], [{"eventName": "MODIFY"}], [record(3)]])
    positions: dict[str, Position] = {}
    progress = stream.follow(positions)
    assert [failure.sequence for failure in progress.poisonous] == [broken["dynamodb"]["SequenceNumber"], ""]
    assert positions == {"a": after(3)}
    assert stream.grants() == 3


def test_a_table_without_a_stream_has_nothing_to_follow() -> None:
    def ask(operation: str, params: Any) -> Any:
        return {"Table": {"TableName": "limits"}}

    with pytest.raises(NoStream):
        run(Follower(asking()).stream(), ask)


# Lineage


def test_a_shard_comes_after_the_one_it_came_from() -> None:
    shards = [Shard("c", "b"), Shard("a", "gone"), Shard("d", "a"), Shard("b", "a"), Shard("e", "e")]
    assert [shard.id for shard in parents_first(shards)] == ["a", "b", "c", "d", "e"]


def test_a_child_waits_until_its_parent_was_read_to_its_end() -> None:
    stream = Stream(a=[[record(3)]], b=[[record(1)], [record(2)]])
    stream.parents["a"] = "b"
    positions: dict[str, Position] = {}
    assert stream.follow(positions, empty_pages=1).records == 2
    assert positions == {"b": after(2)}
    stream.closed["b"] = True
    assert stream.follow(positions, empty_pages=1).records == 1
    assert positions == {"a": after(3), "b": after(2, finished=True)}


def test_a_closed_shard_is_read_over_any_number_of_empty_pages() -> None:
    stream = Stream(a=[*[[]] * 20, [record(1)]])
    stream.closed["a"] = True
    assert stream.follow({}, empty_pages=2).records == 1


def test_an_open_shard_is_read_on_behind_its_empty_pages_the_next_time() -> None:
    stream = Stream(a=[*[[]] * 5, [record(1)]])
    follower, positions = Follower(asking(), empty_pages=2), dict[str, Position]()
    counted = [run(follower.catch_up(STREAM, positions), stream.ask).records for _ in range(3)]
    assert counted == [0, 0, 1]
    assert stream.calls.count("GetShardIterator") == 1


def test_a_shard_that_is_never_quiet_does_not_keep_the_others_waiting() -> None:
    busy = [[record(number)] for number in range(1, 6)]
    for (later,) in busy[1:]:
        later["dynamodb"]["ApproximateCreationDateTime"] = EPOCH_S + 2.5
    stream = Stream(a=busy, b=[[record(6)]])
    follower, positions = Follower(asking(), empty_pages=1), dict[str, Position]()
    counted = [run(follower.catch_up(STREAM, positions), stream.ask).records for _ in range(5)]
    assert counted == [3, 1, 1, 1, 0]
    assert positions == {"a": after(5), "b": after(6)}
