"""Following a stream: everything there is, nothing forgotten, nothing waited for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from usage_worlds import asking, empty_model, run, spans

from zae_limiter.stores.dynamodb.requests import NoAnswer, Refused
from zae_limiter.stores.dynamodb.snapshots import used_by_hour
from zae_limiter.stores.dynamodb.values import encode_item
from zae_limiter_aggregator.follower import EMPTY_PAGES, Follower, NoStream, Position

STREAM = "arn:stream"
START = 1_767_225_600_000


def record(number: int) -> dict[str, Any]:
    """The record of the grant of that number, of one bucket."""

    def image(grants: int) -> Any:
        fields = {"entity_id": "a", "resource": "gpt", "inc": "i", "ev": grants, "w0": f"{START:x}.c1"}
        return encode_item({**fields, "b_rpm_tc": grants * 1_000})

    change = {
        "Keys": encode_item({"PK": "n/BUCKET#a#gpt#0", "SK": "#STATE"}),
        "SequenceNumber": str(10**20 + number),
        "NewImage": image(number),
    }
    if number == 1:
        return {"eventName": "INSERT", "dynamodb": change}
    return {"eventName": "MODIFY", "dynamodb": {**change, "OldImage": image(number - 1)}}


class Stream:
    """A stream of a few shards, beside the model of a table. An iterator is a shard and a place in it."""

    def __init__(self, **shards: list[list[dict[str, Any]]]) -> None:
        self.model = empty_model()
        self.shards = shards
        self.closed = dict.fromkeys(shards, False)
        self.trouble: dict[str, list[Exception]] = {}
        self.calls: list[str] = []

    def ask(self, operation: str, params: Mapping[str, Any]) -> Any:
        self.calls.append(operation)
        if self.trouble.get(operation):
            raise self.trouble[operation].pop(0)
        if operation == "DescribeStream":
            names = sorted(self.shards)
            after = params.get("ExclusiveStartShardId")
            place = 0 if after is None else names.index(after) + 1
            more = {"LastEvaluatedShardId": names[place]} if place + 1 < len(names) else {}
            return {"StreamDescription": {"Shards": [{"ShardId": name} for name in names[place : place + 1]], **more}}
        if operation == "GetShardIterator":
            return {"ShardIterator": f"{params['ShardId']}/{self._place(params)}"}
        if operation == "GetRecords":
            name, _, place = params["ShardIterator"].partition("/")
            pages = self.shards[name]
            page = pages[int(place)] if int(place) < len(pages) else []
            following = min(int(place) + 1, len(pages))
            over = self.closed[name] and following == len(pages)
            return {"Records": page, **({} if over else {"NextShardIterator": f"{name}/{following}"})}
        return self.model.call(operation, params)

    def _place(self, params: Mapping[str, Any]) -> int:
        if params["ShardIteratorType"] == "TRIM_HORIZON":
            return 0
        for place, page in enumerate(self.shards[params["ShardId"]]):
            if page and page[-1]["dynamodb"]["SequenceNumber"] == params["SequenceNumber"]:
                return place + 1
        raise Refused("TrimmedDataAccessException", "gone")

    def follow(self, positions: dict[str, Position], *, empty_pages: int = EMPTY_PAGES) -> Any:
        return run(Follower(asking(), empty_pages=empty_pages).catch_up(STREAM, positions), self.ask)

    def grants(self) -> int:
        return sum(hour.events for hour in used_by_hour(spans(self.model)))


def after(number: int, *, finished: bool = False) -> Position:
    return Position(str(10**20 + number), finished)


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
