"""Audit events that leave the table become objects that depend on nothing but the batch."""

from __future__ import annotations

import gzip
import json
import random
from typing import Any

import pytest
from stream_worlds import record
from usage_worlds import TABLE, empty_model, limiter_on, records_of, store_on

from zae_limiter.models.limit import Limit
from zae_limiter.testing.clock import FakeClock
from zae_limiter_aggregator.archiver import archive_of

EXPIRY = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}


def removals(days: int = 1) -> list[dict[str, Any]]:
    """The records of audit events that expired, as a table wrote them: two for each of some days."""
    model, clock = empty_model(), FakeClock()
    limiter = limiter_on(store_on(model), clock, create=True)
    for day in range(days):
        limiter.set_system_defaults([Limit.per_day("rpd", 10 + day)], principal="ann")
        limiter.create_entity(f"key-{day}", name="Ünïcode")
        clock.advance(86_400)
    items = [item for key, item in model.snapshot(TABLE).items() if key[1].startswith("#AUDIT#")]
    return [
        {
            "eventName": "REMOVE",
            "userIdentity": EXPIRY,
            "dynamodb": {
                "Keys": {"PK": item["PK"], "SK": item["SK"]},
                "SequenceNumber": str(98 + number),
                "OldImage": dict(item),
            },
        }
        for number, item in enumerate(sorted(items, key=lambda item: item["SK"]["S"]))
    ]


def lines_in(body: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(body).decode().splitlines()]


def test_the_events_of_a_batch_are_an_object_for_each_day_named_after_its_first_record() -> None:
    archived = archive_of(removals(days=2))
    assert [(found.key, found.events) for found in archived.objects] == [
        ("audit/year=2026/month=01/day=01/98.jsonl.gz", 2),
        ("audit/year=2026/month=01/day=02/100.jsonl.gz", 2),
    ]
    assert archived.poisonous == ()
    events = lines_in(archived.objects[0].body)
    assert [(event["action"], event["entity_id"], event["expired"]) for event in events] == [
        ("limits_set", "$SYSTEM", True),
        ("entity_created", "key-0", True),
    ]
    assert events[0]["principal"] == "ann"
    assert events[0]["details"]["limits"][0]["burst"] == 10
    assert events[0]["timestamp"] == "2026-01-01T00:00:00+00:00"


def test_the_same_batch_gives_the_same_bytes_in_any_order_and_any_number_of_times() -> None:
    records = removals(days=3)
    wanted = archive_of(records)
    for seed in range(5):
        again = records * 2
        random.Random(seed).shuffle(again)
        assert archive_of(again) == wanted
    assert wanted.objects[0].body[4:8] == bytes(4)


def test_what_is_no_removed_audit_event_is_passed_over() -> None:
    model = empty_model()
    limiter = limiter_on(store_on(model), FakeClock(), create=True)
    limiter.set_system_defaults([Limit.per_day("rpd", 10)])
    limiter.create_entity("a")
    with limiter.acquire("a", "gpt", {"rpd": 1}):
        pass
    limiter.delete_entity("a")
    changes = records_of(model.changes(TABLE))
    assert "REMOVE" in {change["eventName"] for change in changes}
    assert archive_of([record(1), *changes]) == ((), ())


def test_an_event_that_somebody_removed_is_archived_as_such() -> None:
    (first, *_) = removals()
    del first["userIdentity"]
    (found,) = archive_of([first]).objects
    assert lines_in(found.body)[0]["expired"] is False


@pytest.mark.parametrize("field", ["timestamp", "action", "details"])
def test_an_event_that_makes_no_sense_is_told_and_the_rest_archived(field: str) -> None:
    first, second = removals()
    del first["dynamodb"]["OldImage"][field]
    archived = archive_of([first, second, {"eventName": "REMOVE"}])
    assert [failure.sequence for failure in archived.poisonous] == ["98", ""]
    assert [found.key for found in archived.objects] == ["audit/year=2026/month=01/day=01/99.jsonl.gz"]


def test_a_number_beyond_all_days_is_poison() -> None:
    (first, *_) = removals()
    first["dynamodb"]["OldImage"]["timestamp"] = {"N": "9" * 38}
    assert [failure.sequence for failure in archive_of([first]).poisonous] == ["98"]
