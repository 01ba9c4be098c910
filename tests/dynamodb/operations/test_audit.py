"""The audit trail: complete, newest first, read to the end."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from support.dynamodb.plan_driver import EPOCH_S, Space, World
from zae_limiter.exceptions import ValidationError
from zae_limiter.models.entity import Entity
from zae_limiter.models.limit import Limit
from zae_limiter.models.reports import AuditEvent
from zae_limiter.stores.cursors import encode_cursor
from zae_limiter.stores.dynamodb.items import address
from zae_limiter.stores.dynamodb.operations import paging
from zae_limiter.stores.dynamodb.schema import Key, pk_audit, sk_audit
from zae_limiter.stores.protocol import EntityChange, Scope

RPM = (Limit.per_minute("rpm", 10),)
START = 1_700_000_000_000


def set_limits(world: World, scope: Scope, now: int, space: Space | None = None, by: str | None = None) -> None:
    world.run((space or world.space).set_config(scope, RPM, None, by, False, now))


def pages(
    world: World, subject: str | None, limit: int, start: int | None = None, end: int | None = None
) -> list[AuditEvent]:
    found: list[AuditEvent] = []
    cursor = None
    while True:
        page = world.run(world.space.audit_events(subject, start, end, limit, cursor))
        assert len(page.items) == limit or page.next_cursor is None
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found


def test_an_event_says_everything_and_expires(world: World) -> None:
    world.run(world.space.create_entity(Entity("key", name="Ännä ☃", metadata={"a": '"\\'}), "ann", START + 7))
    (event,) = world.run(world.space.audit_events("key", None, None, 10, None)).items
    assert (event.action, event.entity_id, event.resource, event.principal) == ("entity_created", "key", None, "ann")
    assert event.timestamp == datetime.fromtimestamp(1_700_000_000.007, UTC)
    created = {"name": "Ännä ☃", "parent_id": None, "cascade": False, "metadata": {"a": '"\\'}}
    assert event.details == {"from": None, "to": created}
    (item,) = [item for item in world.items() if "AUDIT" in item["PK"]]
    assert (item["PK"], item["SK"]) == (f"{world.ns()}/AUDIT#key", f"#AUDIT#{event.event_id}")
    assert (item["GSI4SK"], item["ttl"]) == (f"AUDIT#{event.event_id}", EPOCH_S + 90 * 86_400)


def test_how_it_was_is_left_out_where_no_item_could_hold_both(world: World) -> None:
    before, after = ({"note": letter * 250_000} for letter in "ab")
    world.run(world.space.create_entity(Entity("key", metadata=before), "ann", START))
    world.run(world.space.update_entity("key", EntityChange({"metadata": after}), "ann", START + 1))
    event, _ = world.run(world.space.audit_events("key", None, None, 10, None)).items
    assert event.details["to"] == {"metadata": after}
    assert event.details["from"]["left_out"].endswith(" bytes")


def test_events_of_one_client_within_a_millisecond_keep_their_order(world: World) -> None:
    for number in range(40):
        set_limits(world, Scope(f"key-{number % 5}", "gpt"), START, by=f"p{number:02}")
    for subject in (None, "key-3"):
        expected = [f"p{number:02}" for number in range(40) if subject is None or number % 5 == 3]
        assert [event.principal for event in pages(world, subject, 100)] == expected[::-1]


@pytest.mark.parametrize("limit", [1, 4, 30, 1_000])
def test_the_trail_is_read_to_the_end_newest_first(world: World, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(paging, "READ_AHEAD", 2)
    monkeypatch.setattr(paging, "BATCH_GET", 3)
    spaces = [world.client() for _ in range(3)]
    scopes = (Scope(), Scope(None, "gpt"), Scope("key", "gpt"))
    for number in range(30):
        set_limits(world, scopes[number % 3], START + number // 2, spaces[number % 2])
    everything = pages(world, None, limit)
    ids = [event.event_id for event in everything]
    assert ids == sorted(set(ids), reverse=True)
    assert len(ids) == 30
    for scope in scopes:
        subject = scope.audited_as
        assert pages(world, subject, limit) == [event for event in everything if event.entity_id == subject]
    assert pages(world, "nobody", limit) == []


def test_times_are_from_the_start_on_and_before_the_end(world: World) -> None:
    for number in range(10):
        set_limits(world, Scope("key", "gpt"), START + number)

    def found(subject: str | None, start: int | None, end: int | None) -> list[int]:
        events = pages(world, subject, 2, start, end)
        return [round(event.timestamp.timestamp() * 1000) - START for event in events]

    for subject in ("key", None):
        assert found(subject, START + 3, START + 6) == [5, 4, 3]
        assert found(subject, START + 8, None) == [9, 8]
        assert found(subject, None, START + 2) == [1, 0]
        assert found(subject, 0, 2**53) == list(range(9, -1, -1))
        for start, end in ((START + 3, START + 3), (START + 6, START + 3), (None, 0), (START + 10, None)):
            assert found(subject, start, end) == []


def test_a_cursor_and_times_hold_together(world: World) -> None:
    for number in range(6):
        set_limits(world, Scope("key", "gpt"), START + number)
    first = world.run(world.space.audit_events("key", START, START + 5, 2, None))
    assert first.next_cursor is not None
    rest = world.run(world.space.audit_events("key", START + 2, START + 5, 5, first.next_cursor))
    assert [event.timestamp.microsecond // 1000 for event in rest.items] == [2]
    earlier = world.run(world.space.audit_events("key", None, START + 2, 5, first.next_cursor))
    assert [event.timestamp.microsecond // 1000 for event in earlier.items] == [1, 0]


def test_events_that_have_expired_are_left_out_although_the_index_has_them(world: World) -> None:
    for number in range(6):
        set_limits(world, Scope("key", "gpt"), START + number)
    everything = pages(world, None, 100)
    for event in everything[::2]:
        key = Key(pk_audit(world.ns(), "key"), sk_audit(event.event_id))
        world.ask("DeleteItem", {"TableName": world.table, "Key": address(key)})
    world.driver.freeze_indexes()
    assert pages(world, None, 100) == everything[1::2]


def test_namespaces_have_trails_of_their_own(world: World) -> None:
    world.run(world.store.register_namespace("tenant", "ops", START))
    set_limits(world, Scope("key", "gpt"), START)
    tenant = world.client("tenant")
    page = world.run(tenant.audit_events(None, None, None, 10, None))
    assert [(event.entity_id, event.action) for event in page.items] == [("$NAMESPACE", "registered")]


@pytest.mark.parametrize("cursor", ["nonsense", encode_cursor(("a#b",)), encode_cursor((1,))])
def test_a_cursor_that_no_page_gave_is_refused(world: World, cursor: str) -> None:
    for subject in (None, "key"):
        with pytest.raises(ValidationError):
            world.run(world.space.audit_events(subject, None, None, 10, cursor))
