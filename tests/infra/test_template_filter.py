"""The filter before the function: of a real stream it lets through what the function uses, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from event_patterns import matches, passes
from public_operations import World, asked_for_everything
from resolved_template import Resolved
from stream_records import stream_records

from engines.servers import Engine
from zae_limiter import SyncRepository
from zae_limiter_aggregator.archiver import line_of
from zae_limiter_aggregator.stream_records import parse_record

FILTERS: list[dict[str, str]] = Resolved(CodeKey="x").properties("StreamMapping")["FilterCriteria"]["Filters"]


@pytest.fixture(scope="module")
def records(dynoxide: Engine) -> Iterator[list[dict[str, Any]]]:
    """What the stream tells after every public operation, the last of which removes a whole namespace."""
    table = "filtered"
    url = f"dynamodb://{table}?region={dynoxide.region}&endpoint_url={dynoxide.endpoint_url}"
    with SyncRepository.open(url, create=True) as repository:
        world = World(dynoxide.endpoint_url, table)
        world.prepare()
        asked_for_everything(world)
        yield stream_records(world.transport, table)
        world.close()
        repository.delete_table()


def kind_of(record: dict[str, Any]) -> tuple[str, str]:
    sk = record["dynamodb"]["Keys"]["SK"]["S"]
    return record["eventName"], "#" + sk.split("#")[1]


def as_if_expired(record: dict[str, Any]) -> dict[str, Any]:
    """The same removal by DynamoDB itself. A filter does not see who removed an item; the function does."""
    return {**record, "userIdentity": {"type": "Service", "principalId": "dynamodb.amazonaws.com"}}


def test_what_the_function_uses_passes_and_nothing_else(records: list[dict[str, Any]]) -> None:
    passed = Counter[tuple[str, str]]()
    for record in records:
        used = parse_record(record) is not None or line_of(as_if_expired(record)) is not None
        assert passes(record, FILTERS) is used, record
        if used:
            passed[kind_of(record)] += 1
    assert set(passed) == {("INSERT", "#STATE"), ("MODIFY", "#STATE"), ("REMOVE", "#AUDIT")}
    assert min(passed.values()) > 1


def test_most_kinds_of_records_are_kept_from_the_function(records: list[dict[str, Any]]) -> None:
    kept_away = {kind_of(record) for record in records if not passes(record, FILTERS)}
    assert {("INSERT", "#META"), ("INSERT", "#AUDIT"), ("MODIFY", "#META"), ("REMOVE", "#STATE")} <= kept_away


def test_usage_that_the_function_writes_does_not_come_back_to_it() -> None:
    keys = {"PK": {"S": "n/ENTITY#a"}, "SK": {"S": "#USAGE#gpt#hourly#2026-01-01T00#0#i"}}
    change = {"Keys": keys, "NewImage": keys, "OldImage": keys}
    assert not passes({"eventName": "MODIFY", "dynamodb": change}, FILTERS)


def test_what_is_written_under_the_sort_key_of_an_audit_event_does_not_call_the_function() -> None:
    """A client that may only write buckets may choose their sort keys, and write to them as often as it likes."""
    keys = {"PK": {"S": "n/BUCKET#a#gpt#0"}, "SK": {"S": "#AUDIT#01JZZZZZZZZZZZZZZZZZZZZZZZ"}}
    modified = {"eventName": "MODIFY", "dynamodb": {"Keys": keys, "NewImage": keys, "OldImage": keys}}
    assert not passes(modified, FILTERS)
    removed = as_if_expired({"eventName": "REMOVE", "dynamodb": {"Keys": keys, "OldImage": keys}})
    assert passes(removed, FILTERS)
    assert line_of(removed) is None


# The filter's own rules


@pytest.mark.parametrize(
    ("rule", "values"),
    [
        (["#STATE"], {"#STATE": True, "#STATE2": False}),
        ([{"prefix": "#AUDIT#"}], {"#AUDIT#1": True, "x#AUDIT#1": False}),
        ([{"suffix": "#1"}], {"a#1": True, "a#2": False}),
        ([{"prefix": "a"}, "b"], {"abc": True, "b": True, "c": False}),
        ([{"exists": True}], {"anything": True}),
        ([{"exists": False}], {"anything": False}),
    ],
)
def test_a_pattern_matches_as_lambda_says(rule: list[Any], values: dict[str, bool]) -> None:
    pattern = {"dynamodb": {"Keys": {"SK": {"S": rule}}}}
    for value, wanted in values.items():
        assert matches({"dynamodb": {"Keys": {"SK": {"S": value}}}}, pattern) is wanted, value


def test_what_is_not_there_matches_only_a_rule_that_says_so() -> None:
    nothing: dict[str, Any] = {"dynamodb": {"Keys": {}}}
    assert not matches(nothing, {"dynamodb": {"NewImage": {"PK": {"S": [{"exists": True}]}}}})
    assert matches(nothing, {"dynamodb": {"NewImage": {"PK": {"S": [{"exists": False}]}}}})
