"""A migration may be killed at any write: the next run continues, and the result is the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from killed_migration import Doomed
from old_tables import NOW, OldTable, Was, composite, config, entity, old_table, separate_items, usage

from engines.servers import Engine
from zae_limiter import Limit, VersionError
from zae_limiter.migrations import DEADLINE_S, migrate, migrate_store
from zae_limiter.migrations.table_migration import Progress
from zae_limiter.stores.dynamodb.namespace import LAYOUT
from zae_limiter.stores.open_store import open_store

PAGE = 7
LATER = NOW + 1_234_567

RPM, TPM = Limit.per_minute("rpm", 100), Limit.per_second("tpm", 333)


def fill(table: OldTable, buckets: int = 12) -> None:
    """Everything an old table may have, in both layouts, and two of one place."""
    items: list[dict[str, Any]] = [config("SYSTEM#", "#CONFIG", RPM, TPM), entity("org")]
    for number in range(buckets):
        limits = {
            "rpm": Was(RPM, 1_000 * number - 3_000, 7 * number, NOW - number * 1_001),
            "tpm": Was(TPM, 300_000 - number, 11 * number, NOW - number * 77),
        }
        whole = {name: was._replace(rf=NOW - number * 13) for name, was in limits.items()}
        items += separate_items(f"key-{number}", "gpt-4", limits)
        items += [composite(f"key-{number}", "a/b", whole), entity(f"key-{number}", "org", cascade=True)]
        items.append(usage(f"key-{number}", "gpt-4", "hourly", "2025-06-01T14:00:00Z", tpm=number))
    twice = {"rpm": Was(RPM, 50_000, 50_000, NOW)}
    items += [*separate_items("twice", "gpt-4", twice), composite("twice", "gpt-4", twice)]
    table.put(*items)


def comparable(table: OldTable) -> dict[tuple[str, ...], dict[str, Any]]:
    """All that must be the same: not which client wrote, nor when."""
    ns, found = table.ns(), {}
    for (pk, sk), item in table.items().items():
        inc = item.get("inc", "-")
        place = tuple(part.replace(ns, "ns").replace(inc, "inc") for part in (pk, sk.rpartition("#")[0] + sk[-3:]))
        differing = {"ttl", "inc", "w0", "ns", "GSI4PK", "migration", "created_at"}
        found[place] = {
            name: value.replace(ns, "ns") if isinstance(value, str) else value
            for name, value in item.items()
            if name not in differing and not (name == "SK" and "#USAGE#" in value)
        }
    return {place: item for place, item in found.items() if not place[1].startswith(("#NSID", "#USAGE"))}


@pytest.fixture(scope="module")
def expected(engine: Engine) -> dict[tuple[str, ...], dict[str, Any]]:
    """What a migration makes that is not disturbed."""
    with old_table(engine) as table:
        fill(table)
        migrate(table.url, clock=lambda: NOW)
        return comparable(table)


def killed(table: OldTable, writes: int) -> None:
    script = Path(__file__).with_name("killed_migration.py")
    command = [sys.executable, str(script), table.url, str(NOW), str(PAGE), str(writes)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == -9, ended.stderr


@pytest.mark.parametrize("writes", [3, 25, 60])
def test_a_migration_killed_half_way_is_continued_with_the_same_result(
    table: OldTable, expected: dict[tuple[str, ...], dict[str, Any]], writes: int
) -> None:
    fill(table)
    killed(table, writes)
    with table.limiter() as limiter, pytest.raises(VersionError, match="is being migrated"):
        limiter.available("key-1", "gpt-4")
    report = migrate(table.url, clock=lambda: LATER, page=PAGE)
    assert report.after_layout == LAYOUT
    assert comparable(table) == expected


class Killed(BaseException):
    """Ends a run without giving it a chance to clean up."""


def test_a_migration_cut_off_at_every_single_write_gets_there(dynoxide: Engine) -> None:
    with old_table(dynoxide) as undisturbed:
        fill(undisturbed, 2)
        migrate(undisturbed.url, clock=lambda: NOW)
        wanted = comparable(undisturbed)
    with old_table(dynoxide) as table:
        fill(table, 2)
        runs = 0
        store = open_store(table.url, deadline=DEADLINE_S, config_cache_ttl=0, options={})
        while True:
            runs += 1
            assert runs < 200
            doomed = CutOff(store, writes=6)
            try:
                migrate_store(doomed, clock=lambda late=runs - 1: NOW + late, page=PAGE)
                break
            except Killed:
                continue
        store.close()
        assert runs > 5
        assert comparable(table) == wanted


class CutOff(Doomed):
    """Raises instead of being killed, after the write was done."""

    def _perform(self, request: Any) -> Any:
        if self._left == 0:
            raise Killed
        return super()._perform(request)


# Others at the same time


def test_a_run_that_was_taken_over_stops_and_does_no_harm(table: OldTable) -> None:
    fill(table)
    other: list[Any] = []

    def on_progress(progress: Progress) -> None:
        if progress.phase == "convert" and progress.seen and not other:
            other.append(migrate(table.url, clock=lambda: NOW))

    with pytest.raises(VersionError, match="taken over"):
        migrate(table.url, clock=lambda: NOW, on_progress=on_progress, page=PAGE)
    assert other[0].after_layout == LAYOUT
    assert {bucket["b_rpm_tc"] for bucket in table.buckets().values()} >= {0, 7, 77, 100_000}


def test_an_old_client_that_writes_meanwhile_is_found_out_and_taken_in_by_the_next_run(table: OldTable) -> None:
    table.put(composite("key", "gpt-4", {"rpm": Was(RPM, 60_000, 40_000, NOW)}))
    written: list[int] = []

    def write_again(progress: Progress) -> None:
        if progress.phase == "convert" and progress.converted == 1 and not written:
            written.append(1)
            table.put(composite("key", "gpt-4", {"rpm": Was(RPM, 90_000, 10_000, NOW)}))

    with pytest.raises(VersionError, match="stop the clients that do"):
        migrate(table.url, clock=lambda: NOW, on_progress=write_again)
    with table.limiter() as limiter, pytest.raises(VersionError, match="zae-limiter migrate"):
        limiter.available("key", "gpt-4")
    migrate(table.url, clock=lambda: NOW)
    bucket = table.buckets()["key", "gpt-4"]
    assert (bucket["b_rpm_tk"], bucket["b_rpm_tc"]) == (50_000, 50_000)


def test_a_bucket_that_is_lost_meanwhile_is_noticed(table: OldTable) -> None:
    table.put(entity("key"), entity("other"))

    def lose(progress: Progress) -> None:
        if progress.phase == "convert" and progress.converted == 2:
            key = {"PK": {"S": f"{table.ns()}/ENTITY#other"}, "SK": {"S": "#META"}}
            table.ask("DeleteItem", {"TableName": table.name, "Key": key})

    with pytest.raises(VersionError, match="1 entities are gone"):
        migrate(table.url, clock=lambda: NOW, on_progress=lose)


def test_progress_is_told_page_by_page(table: OldTable) -> None:
    fill(table, 3)
    seen: list[Progress] = []
    migrate(table.url, clock=lambda: NOW, on_progress=seen.append, page=PAGE)
    assert {progress.phase for progress in seen} == {"survey", "convert", "verify"}
    for title in {progress.title for progress in seen}:
        last = [progress for progress in seen if progress.title == title][-1]
        assert (last.phase, last.converted > 0) == ("verify", True)
