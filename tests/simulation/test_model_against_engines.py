"""The model answers as the engines do: the same random calls, the same replies, errors and items.

A failure names the seed. ``ZAEL_MODEL_SEED=123`` runs that one alone; ``ZAEL_MODEL_SEQUENCES=2000`` runs many.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

import pytest

from engines.servers import Engine
from simulation.drawn import Drawn
from simulation.engine_differences import (
    DIFFERENCES,
    EMPTY_FOR_NOTHING,
    EXPRESSION_DIFFERENCES,
    WITHOUT_CAPACITY,
    other_differences,
)
from simulation.expression_cases import CONDITIONS, HELD, SIZES, UPDATES
from simulation.model import Model
from simulation.random_calls import Caller
from simulation.wrong_calls import all_wrong
from zae_limiter.stores.dynamodb.items import address
from zae_limiter.stores.dynamodb.operations.namespaces import table_params
from zae_limiter.stores.dynamodb.requests import Refused
from zae_limiter.stores.dynamodb.schema import INDEXES, Key, encode, encode_item
from zae_limiter.stores.dynamodb.transport.botocore_fallback import BotocoreTransport
from zae_limiter.stores.dynamodb.transport.protocol import Target

SEQUENCES = int(os.environ.get("ZAEL_MODEL_SEQUENCES", "20"))
CALLS = 60
FIRST_SEED = 1
SECONDS = 30.0
NUMBERS = count()


class Pair:
    """A table of an engine, and the same table of a model."""

    def __init__(self, engine: Engine) -> None:
        self.name = engine.name
        self.table = f"model-{os.getpid()}-{next(NUMBERS)}"
        self.model = Model()
        self.transport = BotocoreTransport(Target(engine.region, engine.endpoint_url))
        self.both("CreateTable", table_params(self.table))
        self.differences = DIFFERENCES[engine.name]

    def both(self, operation: str, params: Mapping[str, Any]) -> None:
        """Do something on both, whatever they answer."""
        self.by_model(operation, params)
        self.by_engine(operation, params)

    def by_model(self, operation: str, params: Mapping[str, Any]) -> tuple[Any, ...]:
        try:
            reply = self.model.call(operation, params)
        except Refused as refusal:
            return _refused(refusal)
        return "answered", self._comparable(reply)

    def by_engine(self, operation: str, params: Mapping[str, Any]) -> tuple[Any, ...]:
        try:
            reply = self.transport.call(operation, params, SECONDS)
        except Refused as refusal:
            return _refused(refusal)
        return "answered", self._comparable(reply)

    def _comparable(self, reply: Mapping[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in reply.items() if name != "ResponseMetadata"}
        if self.name in WITHOUT_CAPACITY:
            kept.pop("ConsumedCapacity", None)
        if self.name in EMPTY_FOR_NOTHING and kept.get("Attributes") == {}:
            del kept["Attributes"]
        for table, items in kept.get("Responses", {}).items():
            kept["Responses"][table] = sorted(items, key=lambda item: json.dumps(item, sort_keys=True))
        return kept

    def close(self) -> None:
        self.transport.call("DeleteTable", {"TableName": self.table}, SECONDS)
        self.transport.close()


def _refused(refusal: Refused) -> tuple[Any, ...]:
    return "refused", refusal.code, refusal.item, refusal.reasons


@pytest.fixture(scope="module")
def pair(engine: Engine) -> Iterator[Pair]:
    """The same table twice, empty. Tests share it, each in namespaces of its own."""
    pair = Pair(engine)
    yield pair
    pair.close()


def seeds() -> list[int]:
    one = os.environ.get("ZAEL_MODEL_SEED")
    return [int(one)] if one else list(range(FIRST_SEED, FIRST_SEED + SEQUENCES))


@pytest.mark.timeout(60 + 10 * SEQUENCES)
def test_random_calls_are_answered_alike(pair: Pair) -> None:
    for seed in seeds():
        caller = Caller(pair.table, f"s{seed}", pair.model, seed)
        history: list[Drawn] = []
        for _ in range(CALLS):
            call = caller.draw()
            if call.trait in pair.differences:
                continue
            history.append(call)
            expected = pair.by_model(call.operation, call.params)
            found = pair.by_engine(call.operation, call.params)
            assert found == expected, f"ZAEL_MODEL_SEED={seed}, call {len(history)}: {call}"
        check_everything(pair, caller, f"ZAEL_MODEL_SEED={seed}, at the end")


def check_everything(pair: Pair, caller: Caller, when: str) -> None:
    """All items and the indexes are the same."""
    check_items(pair, caller, when)
    partitions = {
        item[f"{index}PK"]["S"]: index
        for key in caller.keys
        for item in [pair.model.item(pair.table, *key) or {}]
        for index in INDEXES
        if f"{index}PK" in item
    }
    for partition, index in partitions.items():
        params: dict[str, Any] = {
            "TableName": pair.table,
            "IndexName": index,
            "KeyConditionExpression": "#pk = :pk",
            "ExpressionAttributeNames": {"#pk": f"{index}PK"},
            "ExpressionAttributeValues": {":pk": {"S": partition}},
        }
        assert pair.by_engine("Query", params) == pair.by_model("Query", params), f"{when}: {index} {partition}"


def check_items(pair: Pair, caller: Caller, when: str) -> None:
    """All items are the same."""
    params = reading(pair, caller)
    assert pair.by_engine("BatchGetItem", params) == pair.by_model("BatchGetItem", params), when


def reading(pair: Pair, caller: Caller) -> dict[str, Any]:
    """Everything a caller may have touched."""
    keys = [address(key) for key in caller.keys]
    return {"RequestItems": {pair.table: {"Keys": keys, "ConsistentRead": True}}}


WRONG = sorted(all_wrong("", Key("here", "x"), Key("there", "x")))


def _prepared(pair: Pair) -> Caller:
    """A caller whose first two buckets are there."""
    caller = Caller(pair.table, f"wrong{next(NUMBERS)}", pair.model, seed=1)
    for key in caller.buckets[:2]:
        pair.both("PutItem", {"TableName": pair.table, "Item": caller.bucket(key)})
    return caller


def test_wrong_calls_are_answered_alike(pair: Pair) -> None:
    for what in WRONG:
        if what in pair.differences:
            continue
        caller = _prepared(pair)
        call = all_wrong(pair.table, *caller.buckets[:2])[what]
        expected = pair.by_model(call.operation, call.params)
        assert pair.by_engine(call.operation, call.params) == expected, what
        check_items(pair, caller, what)


def test_every_known_difference_is_still_one(pair: Pair) -> None:
    gone = []
    for what in pair.differences:
        caller = _prepared(pair)
        here, there, nowhere = caller.buckets
        call = (all_wrong(pair.table, here, there) | other_differences(pair.table, here, nowhere))[what]
        answers = [ask(call.operation, call.params) for ask in (pair.by_model, pair.by_engine)]
        items = [ask("BatchGetItem", reading(pair, caller)) for ask in (pair.by_model, pair.by_engine)]
        if answers[0] == answers[1] and items[0] == items[1]:
            gone.append(what)
    assert not gone, f"{pair.name} answers these as the model does now: remove them from engine_differences"


def _update(pair: Pair, caller: Caller, literals: Mapping[str, Any], **expressions: str | None) -> dict[str, Any]:
    params: dict[str, Any] = {"TableName": pair.table, "Key": address(caller.buckets[0]), "ReturnValues": "ALL_NEW"}
    params |= {name: text for name, text in expressions.items() if text is not None}
    if literals:
        params["ExpressionAttributeValues"] = {f":{name}": encode(value) for name, value in literals.items()}
    return params


def test_conditions_mean_the_same(pair: Pair) -> None:
    caller = Caller(pair.table, f"conditions{next(NUMBERS)}", pair.model, seed=1)
    pair.both("PutItem", {"TableName": pair.table, "Item": address(caller.buckets[0]) | encode_item(HELD)})
    for condition, literals, holds in CONDITIONS:
        if condition not in EXPRESSION_DIFFERENCES[pair.name]:
            params = _update(pair, caller, literals, UpdateExpression="SET done = yes", ConditionExpression=condition)
            expected = pair.by_model("UpdateItem", params)
            assert (expected[0] == "answered") is holds
            assert pair.by_engine("UpdateItem", params) == expected, condition


def test_updates_mean_the_same(pair: Pair) -> None:
    for before, expression, literals, _ in UPDATES:
        if before is None and expression in EXPRESSION_DIFFERENCES[pair.name]:
            continue
        caller = Caller(pair.table, f"updates{next(NUMBERS)}", pair.model, seed=1)
        if before is not None:
            pair.both("PutItem", {"TableName": pair.table, "Item": address(caller.buckets[0]) | encode_item(before)})
        params = _update(pair, caller, literals, UpdateExpression=expression)
        assert pair.by_engine("UpdateItem", params) == pair.by_model("UpdateItem", params), (before, expression)


def test_values_are_charged_to_the_byte(dynoxide: Engine) -> None:
    pair = Pair(dynoxide)
    for value, size in SIZES:
        key = Key(f"sizes{next(NUMBERS)}", "s")
        padding = 1024 - size - len("PK" + key.pk + "SK" + key.sk + "a" + "p")
        for more, units in ((0, 1.0), (1, 2.0)):
            item = address(key) | {"a": value, "p": {"S": "x" * (padding + more)}}
            params = {"TableName": pair.table, "Item": item, "ReturnConsumedCapacity": "TOTAL"}
            expected = pair.by_model("PutItem", params)
            assert expected[1]["ConsumedCapacity"]["CapacityUnits"] == units, value
            assert pair.by_engine("PutItem", params) == expected, value
    pair.close()


def test_a_scan_finds_the_same(engine: Engine) -> None:
    pair = Pair(engine)
    keys = [Key(f"p{number % 3}", f"s{number}") for number in range(11)]
    for key in keys:
        pair.both("PutItem", {"TableName": pair.table, "Item": address(key)})
    for ask in (pair.by_model, pair.by_engine):
        found: list[tuple[str, str]] = []
        start: dict[str, Any] = {}
        for _ in range(4):
            _, page = ask("Scan", {"TableName": pair.table, "Limit": 3, **start})
            found += [(item["PK"]["S"], item["SK"]["S"]) for item in page["Items"]]
            start = {"ExclusiveStartKey": page["LastEvaluatedKey"]} if "LastEvaluatedKey" in page else {}
        assert sorted(found) == sorted(keys)
        assert not start
    pair.close()
