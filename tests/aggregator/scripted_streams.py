"""A stream of a few shards, as scripted as a test needs it, beside the model of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from usage_model import EPOCH_S, asking, empty_model, run, spans

from zae_limiter.stores.dynamodb.requests import Refused
from zae_limiter.stores.dynamodb.schema import encode_item
from zae_limiter.stores.dynamodb.usage_items import used_by_hour
from zae_limiter_aggregator.follower import EMPTY_PAGES, Follower, Position

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
        "ApproximateCreationDateTime": EPOCH_S - 2.5,
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
        self.parents: dict[str, str] = {}
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
            listed = [self._description(name) for name in names[place : place + 1]]
            return {"StreamDescription": {"Shards": listed, **more}}
        if operation == "DescribeTable":
            return {"Table": {"LatestStreamArn": STREAM}}
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

    def _description(self, name: str) -> dict[str, Any]:
        ended = {"SequenceNumberRange": {"EndingSequenceNumber": "9"}} if self.closed[name] else {}
        parent = {"ParentShardId": self.parents[name]} if name in self.parents else {}
        return {"ShardId": name, **parent, **ended}

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
        return sum(hour.used.events for hour in used_by_hour(spans(self.model)))


def after(number: int, *, finished: bool = False) -> Position:
    return Position(str(10**20 + number), finished)
