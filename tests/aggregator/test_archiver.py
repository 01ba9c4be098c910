"""Audit events that expire become objects that depend on nothing but the batch, and are kept in an archive."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from expired_events import EXPIRY, lines_in, removals
from scripted_streams import Stream, record
from usage_model import TABLE, answer, asking, empty_model, limiter_on, records_of, store_on

from zae_limiter.models.limit import Limit
from zae_limiter.running.plan import Plan
from zae_limiter.testing.clock import FakeClock
from zae_limiter_aggregator.aggregation import Aggregation
from zae_limiter_aggregator.archiver import Archived, archive, objects_of
from zae_limiter_aggregator.archives import ArchiveUnavailable, FolderArchive, KeepObject
from zae_limiter_aggregator.processor import Processor


def test_the_events_of_a_batch_are_an_object_for_each_day_named_after_its_first_record_and_what_it_says() -> None:
    found = objects_of(removals(days=2))
    names = [(wanted.key.rpartition("-")[0], wanted.sequences) for wanted in found.objects]
    assert names == [
        ("audit/year=2026/month=01/day=01/98", ("98", "99")),
        ("audit/year=2026/month=01/day=02/100", ("100", "101")),
    ]
    assert all(wanted.key.endswith(".jsonl.gz") for wanted in found.objects)
    assert found.poisonous == ()
    events = lines_in(found.objects[0].body)
    assert [(event["action"], event["entity_id"]) for event in events] == [
        ("limits_set", "$SYSTEM"),
        ("entity_created", "key-0"),
    ]
    assert events[0]["principal"] == "ann"
    assert events[0]["details"]["to"]["limits"][0]["burst"] == 10
    assert events[0]["timestamp"] == "2026-01-01T00:00:00+00:00"


def test_the_same_batch_gives_the_same_bytes_in_any_order_and_any_number_of_times() -> None:
    records = removals(days=3)
    wanted = objects_of(records)
    for seed in range(5):
        again = records * 2
        random.Random(seed).shuffle(again)
        assert objects_of(again) == wanted
    assert wanted.objects[0].body[4:8] == bytes(4)


LIKE_AN_EVENT = [
    "n/BUCKET#key/AUDIT#key",
    "n/BUCKET#key#gpt/AUDIT#key#0",
    "n/ENTITY#key/AUDIT#key",
    "n/AUDIT#",
    "n/AUDIT#key#more",
    "n/xAUDIT#key",
    "/AUDIT#key",
]


@pytest.mark.parametrize("pk", LIKE_AN_EVENT)
def test_what_has_a_key_like_that_of_an_event_is_not_archived_as_one(pk: str) -> None:
    (forged, *_) = removals()
    for image in (forged["dynamodb"]["Keys"], forged["dynamodb"]["OldImage"]):
        image["PK"] = {"S": pk}
    assert objects_of([forged]) == ((), ())


@pytest.mark.parametrize(
    "sk", ["#AUDIT#", "#AUDIT#../../x", "#AUDIT#01", "x#AUDIT#01JZZZZZZZZZZZZZZZZZZZZZZZ", "#STATE"]
)
def test_an_event_has_the_id_of_one(sk: str) -> None:
    (forged, *_) = removals()
    for image in (forged["dynamodb"]["Keys"], forged["dynamodb"]["OldImage"]):
        image["SK"] = {"S": sk}
    assert objects_of([forged]) == ((), ())


def test_an_event_that_tells_of_another_subject_than_its_key_is_poison() -> None:
    (forged, *_) = removals()
    forged["dynamodb"]["OldImage"]["entity_id"] = {"S": "another"}
    found = objects_of([forged])
    assert found.objects == ()
    assert [failure.sequence for failure in found.poisonous] == ["98"]


def test_a_batch_that_is_cut_otherwise_replaces_nothing() -> None:
    """The shorter batch begins with the same record: were it the name alone, the other event would be lost."""
    first, second = removals()
    whole, short = objects_of([first, second]).objects[0], objects_of([first]).objects[0]
    assert whole.key != short.key
    assert whole.key.startswith("audit/year=2026/month=01/day=01/98-")
    assert short.key.startswith("audit/year=2026/month=01/day=01/98-")


def test_what_is_no_expired_audit_event_is_passed_over() -> None:
    model = empty_model()
    limiter = limiter_on(store_on(model), FakeClock(), create=True)
    limiter.set_system_defaults([Limit.per_day("rpd", 10)])
    limiter.create_entity("a")
    with limiter.acquire("a", "gpt", {"rpd": 1}):
        pass
    limiter.delete_entity("a")
    changes = [{**change, "userIdentity": EXPIRY} for change in records_of(model.changes(TABLE))]
    assert "REMOVE" in {change["eventName"] for change in changes}
    assert objects_of([record(1), *changes, {"eventName": "REMOVE"}, {"dynamodb": None}]) == ((), ())


@pytest.mark.parametrize("identity", [None, {}, {"type": "Service", "principalId": "somebody"}])
def test_an_event_that_an_operator_removed_is_gone(identity: Any) -> None:
    """As with a namespace that is purged: nothing of it is to stay."""
    (first, *_) = removals()
    first["userIdentity"] = identity
    assert objects_of([first]) == ((), ())


@pytest.mark.parametrize("field", ["timestamp", "action", "details"])
def test_an_event_that_makes_no_sense_is_told_and_the_rest_archived(field: str) -> None:
    first, second = removals()
    del first["dynamodb"]["OldImage"][field]
    found = objects_of([first, second])
    assert [failure.sequence for failure in found.poisonous] == ["98"]
    assert [wanted.sequences for wanted in found.objects] == [("99",)]


def test_a_number_beyond_all_days_is_poison() -> None:
    (first, *_) = removals()
    first["dynamodb"]["OldImage"]["timestamp"] = {"N": "9" * 38}
    assert [failure.sequence for failure in objects_of([first]).poisonous] == ["98"]


# Keeping them


def kept_by(plan: Plan[Any], keep: Any, ask: Any = None) -> Any:
    """The result of a plan whose objects go to ``keep``."""
    ask = ask or empty_model().call
    reply: Any = None
    while True:
        try:
            request = plan.throw(reply) if isinstance(reply, Exception) else plan.send(reply)
        except StopIteration as finished:
            return finished.value
        if isinstance(request, KeepObject):
            try:
                reply = keep(request.name, request.body)
            except ArchiveUnavailable as error:
                reply = error
        else:
            reply = answer(request, ask)


def test_an_object_that_cannot_be_kept_is_told_by_its_records_and_the_others_are_kept() -> None:
    kept = {}

    def keep(name: str, body: bytes) -> None:
        if "day=01" in name:
            raise ArchiveUnavailable("full")
        kept[name] = body

    archived: Archived = kept_by(archive(removals(days=2)), keep)
    assert (archived.events, archived.objects) == (2, 1)
    assert [(failure.sequence, str(failure.error)) for failure in archived.unwritten] == [
        ("98", "full"),
        ("99", "full"),
    ]
    assert len(kept) == 1


def test_a_processor_archives_beside_counting_only_if_there_is_an_archive() -> None:
    kept: dict[str, bytes] = {}
    records = [record(1), *removals()]
    processed = kept_by(Processor(asking(), archiving=True).process(records), kept.__setitem__)
    assert (processed.records, processed.archived, processed.failures) == (1, 2, ())
    assert [len(lines_in(body)) for body in kept.values()] == [2]
    processed = kept_by(Processor(asking()).process(records), kept.__setitem__)
    assert processed.archived == 0


def test_a_follower_moves_on_only_when_events_are_kept(tmp_path: Path) -> None:
    stream = Stream(a=[[record(1)], removals()])
    aggregation = Aggregation(asking(), archiving=True)
    archive_there = FolderArchive(tmp_path)

    def follow(keep: Any) -> None:
        for plan in (aggregation.begin(), aggregation.count_available(), aggregation.end()):
            kept_by(plan, keep, stream.ask)

    def refuse(name: str, body: bytes) -> None:
        raise ArchiveUnavailable("full")

    with pytest.raises(ArchiveUnavailable, match="full"):
        follow(refuse)
    assert aggregation.tally.archived == 0
    follow(archive_there.keep)
    assert aggregation.tally.archived == 2
    assert len(archive_there.inside("audit/year=2026/month=01/day=01/")) == 1
