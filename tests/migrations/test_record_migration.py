"""Entities, limits and usage of older layouts are there afterwards, and the verbs of today work on them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from old_tables import NOW, OldTable, Was, composite, config, entity, usage

from zae_limiter import Limit, OnUnavailable, ValidationError
from zae_limiter.migrations import migrate
from zae_limiter.running.sync_driver import SyncDriver
from zae_limiter.stores.dynamodb.store import DynamoStore

RPM = Limit.per_minute("rpm", 100)
TPM = Limit.custom("tpm", 10_000, 500, 3, burst=15_000)


def run(table: OldTable, **options: Any) -> Any:
    return migrate(table.url, clock=lambda: NOW, **options)


def test_entities_keep_who_they_are_and_whose_children_they_are(table: OldTable) -> None:
    table.put(
        entity("key", "team", cascade=True, version=7, created_at="2025-01-31T12:00:00Z"),
        entity("other", "team"),
        entity("team", "org"),
        entity("org"),
        entity("orphan", "gone"),
    )
    assert run(table).done[-1].converted == 5
    with table.limiter() as limiter:
        key = limiter.get_entity("key")
        assert (key.name, key.parent_id, key.cascade, key.metadata, key.version) == (
            "Key",
            "team",
            True,
            {"team": "search"},
            7,
        )
        assert key.created_at == datetime(2025, 1, 31, 12, tzinfo=UTC)
        assert [child.id for child in limiter.get_children("team").items] == ["key", "other"]
        assert {found.id for found in limiter.list_entities().items} == {"key", "other", "team", "org", "orphan"}
        assert limiter.get_entity("orphan").parent_id is None
        with pytest.raises(ValidationError, match="has children"):
            limiter.delete_entity("team")
        for entity_id in ("key", "other", "team", "org", "orphan"):
            limiter.delete_entity(entity_id)


@pytest.mark.parametrize("prefix", ["", "x/"])
def test_circles_and_parents_that_make_no_sense_end_somewhere(table: OldTable, prefix: str) -> None:
    strange = entity("strange", prefix=prefix) | {"metadata": "text"}
    table.put(
        entity("self", "self", prefix=prefix),
        entity("one", "two", prefix=prefix),
        entity("two", "one", prefix=prefix),
        strange,
        entity("child", "strange", prefix=prefix),
    )
    report = run(table)
    assert (report.done[-1].converted, len(report.unreadable)) == (4, 1)
    ns = prefix.removesuffix("/") or table.ns()
    found = {key[0].removeprefix(f"{ns}/ENTITY#"): item for key, item in table.items().items() if key[1] == "#META"}
    assert found["self"].get("parent_id") is None
    assert found["child"].get("parent_id") is None
    with_parents = [name for name in ("one", "two") if found[name].get("parent_id") is not None]
    assert found["one"]["children"] + found["two"]["children"] == len(with_parents) < 2
    assert "children" not in table.items()[strange["PK"], "#META"]


def test_limits_of_every_level_hold_and_live_buckets_follow_changes(table: OldTable) -> None:
    prefix = ""
    table.put(
        config("ENTITY#key", "#CONFIG#gpt-4", RPM, TPM, resource="gpt-4", entity_id="key"),
        config("ENTITY#key", "#CONFIG#_default_", RPM, resource="_default_", entity_id="key"),
        config("RESOURCE#gpt-4", "#CONFIG", TPM, resource="gpt-4"),
        config("SYSTEM#", "#CONFIG", RPM, on_unavailable="allow", prefix=prefix),
        composite("key", "gpt-4", {"rpm": Was(RPM, 50_000, 0, NOW), "tpm": Was(TPM, 1_000, 0, NOW)}),
    )
    run(table)
    with table.limiter() as limiter:
        repository = limiter.repository
        assert repository.resolve_limits("key", "gpt-4") == ([RPM, TPM], OnUnavailable.ALLOW, "entity")
        assert repository.resolve_limits("key", "other")[::2] == ([RPM], "entity_default")
        assert repository.resolve_limits("new", "gpt-4")[::2] == ([TPM], "resource")
        assert repository.resolve_limits("new", "other")[::2] == ([RPM], "system")
        assert limiter.list_entities_with_custom_limits("gpt-4").items == ["key"]
        assert limiter.list_resources_with_defaults().items == ["gpt-4"]
        limiter.set_limits("key", [Limit.per_minute("rpm", 20)], resource="gpt-4")
        assert limiter.available("key", "gpt-4") == {"rpm": 20}
        limiter.delete_limits("key", resource="gpt-4")
        assert repository.resolve_limits("key", "gpt-4")[2] == "entity_default"


def test_what_was_set_anew_in_todays_layout_stays(table: OldTable) -> None:
    run(table)
    with table.limiter() as limiter:
        limiter.set_system_defaults([TPM])
        limiter.create_entity("key", name="new")
    table.put(config("SYSTEM#", "#CONFIG", RPM), entity("key"))
    assert run(table, from_layout=2).done[0].converted == 2
    with table.limiter() as limiter:
        assert limiter.get_system_defaults() == ([TPM], None)
        assert limiter.get_entity("key").name == "new"
    assert not [key for key in table.items() if key[0] in ("SYSTEM#", "ENTITY#key")]


@pytest.mark.parametrize("prefix", ["", "ns/"])
def test_hours_of_usage_are_there_and_other_windows_kept_aside(table: OldTable, prefix: str) -> None:
    run(table)
    prefix = prefix and f"{table.ns()}/"
    table.put(
        usage("key", "gpt-4", "hourly", "2025-06-01T14:00:00Z", prefix, tpm=5_000, total_events=10),
        usage("key", "gpt-4", "hourly", "2025-06-01T15:00:00Z", prefix, tpm=70, rpm=1, total_events=1),
        usage("key", "gpt-4", "daily", "2025-06-01T00:00:00Z", prefix, tpm=5_070, total_events=11),
    )
    assert run(table, from_layout=2).done[0].converted == 3
    with table.limiter() as limiter:
        rows = limiter.get_usage_snapshots("key").items
        assert [(row.window_type.value, row.window_start.hour, row.counters, row.total_events) for row in rows] == [
            ("hourly", 14, {"tpm": 5_000}, 10),
            ("hourly", 15, {"rpm": 1, "tpm": 70}, 1),
            ("daily", 0, {"rpm": 1, "tpm": 5_070}, 11),
            ("monthly", 0, {"rpm": 1, "tpm": 5_070}, 11),
        ]
        store: DynamoStore = limiter.repository._core.store  # type: ignore[assignment]
        assert SyncDriver(lambda: NOW, store.perform).run(store.space("default").verify_usage("key", None, NOW)).holds
    kept = table.items()[f"{table.ns()}/ENTITY#key", "#KEPT#USAGE#gpt-4#2025-06-01T00:00:00Z"]
    assert (kept["tpm"], kept["window"]) == (5_070, "daily")


def test_records_that_make_no_sense_are_named_and_stay(table: OldTable) -> None:
    strange = [
        config("SYSTEM#", "#CONFIG", RPM) | {"l_rpm_ra": "many"},
        entity("key") | {"parent_id": "#"},
        usage("key", "gpt-4", "hourly", "yesterday"),
    ]
    table.put(*strange)
    report = run(table)
    assert set(report.unreadable) == {f"{item['PK']} {item['SK']}" for item in strange}
    assert {(item["PK"], item["SK"]) for item in strange} <= table.items().keys()
