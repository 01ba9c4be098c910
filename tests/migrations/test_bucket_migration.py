"""Balances and counters of older layouts come over exactly, and nothing is used up or made by it."""

from __future__ import annotations

import time
from typing import Any

import pytest
from old_tables import NOW, OldTable, Was, composite, config, separate_items

from support.dynamodb.aggregated_store import drain
from zae_limiter import Limit, RateLimitExceeded, VersionError
from zae_limiter.migrations import migrate
from zae_limiter.running.sync_driver import SyncDriver
from zae_limiter.stores.dynamodb.namespace import LAYOUT, MINOR
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.version import __version__

RPM = Limit.per_minute("rpm", 100)
TPM = Limit.per_minute("tpm", 10_000, burst=15_000)
TPD = Limit.per_day("tpd", 50)

SEPARATE = {
    "rpm": Was(RPM, 40_123, 77_000, NOW - 7_001),
    "tpm": Was(TPM, -2_500_000, 900_000_000, NOW - 3_333),
    "tpd": Was(TPD, 49_999, 1_000, NOW + 2_000),
}
COMPOSITE = {
    "rpm": Was(RPM, 99_999, 5_000, NOW - 61_000),
    "tpm": Was(TPM, 1, 123_456_789, NOW - 61_000),
}


def run(table: OldTable, **options: Any) -> Any:
    return migrate(table.url, clock=lambda: NOW, **options)


@pytest.mark.parametrize("prefix", ["", "x7/"], ids=["without namespaces", "in a namespace"])
def test_an_item_per_limit_becomes_a_bucket_of_today_with_the_same_balances(table: OldTable, prefix: str) -> None:
    table.put(*separate_items("key", "gpt-4", SEPARATE, prefix))
    report = run(table)
    assert [(done.migration.after, done.converted) for done in report.done] == [(2, 3), (3, 1)]
    bucket = table.buckets()["key", "gpt-4"]
    ns = prefix.removesuffix("/") or table.ns()
    assert (bucket["PK"], bucket["SK"]) == (f"{ns}/BUCKET#key#gpt-4#0", "#STATE")
    for name, was in SEPARATE.items():
        assert 0 <= was.level(NOW) - bucket[f"b_{name}_tk"] < 1
        assert bucket[f"b_{name}_tc"] == was.tc
    assert bucket["rf"] == NOW


def test_one_item_per_bucket_gets_a_partition_of_its_own_with_the_same_balances(table: OldTable) -> None:
    table.put(composite("key", "gpt-4", COMPOSITE), composite("key", "a/b", COMPOSITE, "x7/"))
    report = run(table)
    assert [(done.migration.after, done.converted) for done in report.done] == [(2, 0), (3, 2)]
    buckets = table.buckets()
    assert buckets["key", "a/b"]["PK"] == "x7/BUCKET#key#a/b#0"
    for bucket in buckets.values():
        assert (bucket["b_rpm_tk"], bucket["b_tpm_tk"]) == (100_000, 1 + 61_000 * 10_000 // 60)
        assert (bucket["b_rpm_tc"], bucket["b_tpm_tc"]) == (5_000, 123_456_789)
        assert (bucket["b_tpm_cp"], bucket["b_tpm_bx"], bucket["b_tpm_ra"], bucket["b_tpm_rp"]) == (
            10_000_000,
            15_000_000,
            10_000_000,
            60_000,
        )
        assert {"cv", "inc", "ev", "w0", "w3", "shard_count", "GSI2PK", "GSI3PK", "GSI4PK", "ttl"} <= bucket.keys()


def test_a_limiter_goes_on_where_the_old_one_stopped(table: OldTable) -> None:
    table.put(
        composite("key", "gpt-4", {"rpm": Was(RPM, 3_500, 1_000, NOW - 60), "tpm": Was(TPM, -1_000, 0, NOW - 60)}),
        config("SYSTEM#", "#CONFIG", RPM, TPM),
    )
    run(table)
    with table.limiter() as limiter:
        assert limiter.available("key", "gpt-4") == {"rpm": 3, "tpm": 9}
        with limiter.acquire("key", "gpt-4", {"rpm": 3, "tpm": 9}):
            pass
        with pytest.raises(RateLimitExceeded):
            limiter.acquire("key", "gpt-4", {"rpm": 1}).__enter__()
        (status,) = limiter.get_status("key").buckets
        assert {level.limit_name: level.total_consumed for level in status.limits} == {"rpm": 4, "tpm": 9}


def test_debt_is_not_forgiven_by_expiry(table: OldTable) -> None:
    table.put(composite("key", "gpt-4", {"tpd": Was(TPD, -500_000, 0, NOW)}))
    started = int(time.time())
    run(table)
    assert table.buckets()["key", "gpt-4"]["ttl"] >= started + (500_000 + 50_000) * 86_400 // 50_000


def test_what_was_counted_before_is_not_used_in_the_hour_of_the_migration(table: OldTable) -> None:
    table.put(composite("key", "gpt-4", COMPOSITE), config("SYSTEM#", "#CONFIG", RPM, TPM))
    run(table)
    with table.limiter() as limiter:
        with limiter.acquire("key", "gpt-4", {"rpm": 2}):
            pass
        store: DynamoStore = limiter.repository._core.store  # type: ignore[assignment]
        driver = SyncDriver(lambda: NOW, store.perform)
        driver.run(drain(store))
        used = limiter.get_usage_snapshots("key", "gpt-4").items
        assert {(row.window_type.value, row.counters["rpm"], row.counters.get("tpm", 0)) for row in used} == {
            (window, 2, 0) for window in ("hourly", "daily", "monthly")
        }
        proof = driver.run(store.space("default").verify_usage("key", None, NOW))
        assert proof.holds
        assert {link.limit_name: (link.counted, link.expired, link.behind) for link in proof.chains} == {
            None: (1, 0, 0),
            "rpm": (2, 5, 0),
            "tpm": (0, 123_457, 0),
        }


# Two of one place


def test_limits_written_apart_again_join_the_bucket(table: OldTable) -> None:
    table.put(composite("key", "gpt-4", {"rpm": Was(RPM, 60_000, 40_000, NOW)}))
    table.put(*separate_items("key", "gpt-4", {"rpm": Was(RPM, 95_000, 5_000, NOW), "tpm": Was(TPM, 7, 8, NOW)}))
    report = run(table)
    bucket = table.buckets()["key", "gpt-4"]
    assert (bucket["b_rpm_tk"], bucket["b_rpm_tc"]) == (55_000, 45_000)
    assert (bucket["b_tpm_tk"], bucket["b_tpm_tc"]) == (7, 8)
    assert [(done.before.there["limits"], done.after.there["limits"]) for done in report.done] == [(3, 2), (2, 2)]
    assert all(done.before.consumed == done.after.consumed == 45_008 for done in report.done)


def test_an_old_bucket_joins_the_one_of_today(table: OldTable) -> None:
    table.put(config("SYSTEM#", "#CONFIG", RPM))
    run(table)
    with table.limiter() as limiter, limiter.acquire("key", "gpt-4", {"rpm": 30}):
        pass
    table.put(composite("key", "gpt-4", {"rpm": Was(RPM, 80_000, 20_000, NOW), "tpm": Was(TPM, 5, 6, NOW)}))
    with table.limiter() as limiter:
        assert limiter.available("key", "gpt-4") == {"rpm": 70}
    report = run(table, from_layout=2)
    assert report.done[0].converted == 1
    with table.limiter() as limiter:
        assert limiter.available("key", "gpt-4") == {"rpm": 50}
        limiter.set_system_defaults([RPM, TPM])
        assert limiter.available("key", "gpt-4") == {"rpm": 50, "tpm": 0}
        (status,) = limiter.get_status("key").buckets
        assert {level.limit_name: level.total_consumed for level in status.limits}["rpm"] == 50


# What is left alone


def test_what_cannot_be_read_is_named_and_stays(table: OldTable) -> None:
    broken = composite("broken", "gpt-4", COMPOSITE)
    del broken["b_rpm_ra"]
    odd = composite("odd", "gpt-4", {"rpm": Was(RPM, 1, 1, NOW)}) | {"b_rpm_bx": 100_001}
    ahead = composite("ahead", "gpt-4", {"rpm": Was(RPM, 1, 1, NOW + 10**12)})
    table.put(broken, odd, ahead, composite("key", "gpt-4", COMPOSITE))
    before = table.items()
    report = run(table)
    places = {(item["PK"], item["SK"]) for item in (broken, odd, ahead)}
    assert set(report.unreadable) == {" ".join(place) for place in places}
    assert {place: table.items()[place] for place in places} == {place: before[place] for place in places}
    assert table.buckets().keys() == {("key", "gpt-4")}


def test_a_dry_run_writes_nothing(table: OldTable) -> None:
    table.put(*separate_items("key", "gpt-4", SEPARATE), composite("key", "a/b", COMPOSITE))
    before = table.items()
    report = run(table, dry_run=True)
    assert table.items() == before
    assert (report.census.old, report.census.there) == ({"old limit": 3, "old bucket": 1}, {"limits": 5})
    assert report.done == ()


# The version record


def test_the_table_is_refused_until_it_is_migrated_and_used_afterwards(table: OldTable) -> None:
    table.put({"PK": "SYSTEM#", "SK": "#VERSION", "schema_version": "0.8.0"}, composite("key", "gpt-4", COMPOSITE))
    with table.limiter() as limiter, pytest.raises(VersionError, match="older layout"):
        limiter.available("key", "gpt-4")
    run(table)
    record = table.items()["_/SYSTEM#", "#VERSION"]
    assert record.items() >= {"layout_version": LAYOUT, "layout_minor": MINOR, "library_version": __version__}.items()
    assert "migration" not in record
    assert ("_/SYSTEM#", "#MIGRATION") not in table.items()
    with table.limiter() as limiter:
        limiter.set_system_defaults([RPM, TPM])
        assert limiter.available("key", "gpt-4")["rpm"] == 100


def test_migrating_again_changes_nothing(table: OldTable) -> None:
    table.put(*separate_items("key", "gpt-4", SEPARATE))
    run(table)
    before = table.items()
    assert run(table).done == ()
    assert table.items() == before
    assert [done.converted for done in run(table, from_layout=1).done] == [0, 0]
    assert table.items() == before


def test_a_newer_table_is_left_alone(table: OldTable) -> None:
    table.put({"PK": "_/SYSTEM#", "SK": "#VERSION", "layout_version": LAYOUT + 1})
    with pytest.raises(VersionError, match="newer"):
        run(table)
    assert len(table.items()) == 1
