"""Nothing grows for ever: idle buckets, old usage and old audit go, and no caller has to wait for it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes import PATIENCE_S
from support.sqlite_files import buckets_in, check_integrity, opened
from zae_limiter import Limit, SyncRateLimiter
from zae_limiter.repository.sync_repository import SyncRepository
from zae_limiter.stores.sqlite import maintenance
from zae_limiter.stores.sqlite.store import SqliteStore
from zae_limiter.stores.windows import DAY_MS
from zae_limiter.testing import FakeClock

DAY = DAY_MS / 1000


class Aging:
    """A limiter whose days pass when the test says so, and the maintenance of its store."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = FakeClock()
        self.store = SqliteStore(str(path))
        self.limiter = SyncRateLimiter(SyncRepository(self.store, clock=self.clock))

    def take(self, entity_id: str, amount: int = 1) -> None:
        with self.limiter.acquire(entity_id, "gpt", {"rpm": amount}):
            pass

    def sweep(self) -> None:
        self.store._maintenance.run_now(self.clock())

    def buckets(self) -> set[str]:
        return {entity_id for entity_id, _ in buckets_in(self.path)}

    def rows(self, table: str) -> int:
        with opened(self.path) as connection:
            (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
            return int(count)


@pytest.fixture
def aging(tmp_path: Path) -> Iterator[Aging]:
    aging = Aging(tmp_path / "limits.db")
    aging.limiter.set_system_defaults([Limit.per_minute("rpm", 10)])
    yield aging
    aging.store.close()
    check_integrity(aging.path)


def test_idle_buckets_go_and_what_they_counted_stays(aging: Aging) -> None:
    for number in range(250):
        aging.take(f"key-{number}", 1 + number % 10)
    aging.clock.advance(DAY)
    aging.take("key-0")
    aging.sweep()
    assert aging.buckets() == {"key-0"}
    assert aging.limiter.get_status("key-7").buckets == ()
    assert aging.limiter.available("key-7", "gpt") == {"rpm": 10}
    for number in range(0, 250, 25):
        usage = aging.limiter.get_usage_summary(f"key-{number}", "gpt")
        assert (usage.total, usage.total_events) == ({"rpm": 1 + number % 10 + (number == 0)}, 1 + (number == 0))


def test_a_bucket_that_comes_back_goes_on_counting_where_it_ended(aging: Aging) -> None:
    for day in range(1, 6):
        aging.take("key", 4)
        aging.clock.advance(DAY)
        aging.sweep()
        assert aging.buckets() == set()
        usage = aging.limiter.get_usage_summary("key", "gpt", "daily")
        assert (usage.total, usage.total_events, usage.snapshot_count) == ({"rpm": 4 * day}, day, day)
    aging.take("key")
    (bucket,) = aging.limiter.get_status("key").buckets
    assert (bucket.limits[0].total_consumed, bucket.total_events) == (21, 6)


def test_a_bucket_that_is_swept_and_back_within_the_hour_counts_everything_once(aging: Aging) -> None:
    aging.limiter.set_limits("key", [Limit.per_second("rpm", 10)])
    aging.take("key", 3)
    aging.store._maintenance.run_now(aging.clock() + 2 * DAY_MS)  # as by a process whose clock is far ahead
    assert aging.buckets() == set()
    aging.take("key", 2)
    usage = aging.limiter.get_usage_summary("key", "gpt")
    assert (usage.total, usage.total_events, usage.snapshot_count) == ({"rpm": 5}, 2, 1)


def test_a_bucket_in_debt_stays_until_its_debt_is_repaid(aging: Aging) -> None:
    with aging.limiter.acquire("key", "gpt", {"rpm": 10}) as lease:
        lease.adjust(rpm=10 * 60 * 24 * 3)  # three days' worth
    for _ in range(3):
        aging.clock.advance(DAY - 60)
        aging.sweep()
        assert aging.limiter.available("key", "gpt")["rpm"] < 0
        assert aging.buckets() == {"key"}
    aging.clock.advance(DAY)
    aging.sweep()
    assert aging.buckets() == set()


def test_usage_and_audit_go_when_they_are_three_months_old(aging: Aging) -> None:
    for month in range(5):
        aging.take("key", 1 + month)
        aging.limiter.create_entity(f"entity-{month}")
        aging.clock.advance(30 * DAY)
        aging.sweep()
    hours = aging.limiter.get_usage_snapshots("key", "gpt", "hourly").items
    assert [hour.counters["rpm"] for hour in hours] == [3, 4, 5]
    events = aging.limiter.get_audit_events().items
    assert [event.entity_id for event in events] == ["entity-4", "entity-3", "entity-2"]
    assert (aging.rows("usage"), aging.rows("audit"), aging.rows("entities")) == (3, 3, 5)


def test_acquires_go_on_while_thousands_of_buckets_are_removed(aging: Aging) -> None:
    aging.take("key")
    with opened(aging.path) as connection:
        columns = [name for _, name, *_ in connection.execute("PRAGMA table_info (buckets)")]
        chosen = ", ".join("'old-' || n" if name == "entity_id" else name for name in columns)
        connection.execute(
            "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 5000)"
            f" INSERT INTO buckets ({', '.join(columns)}) SELECT {chosen} FROM buckets, numbers"
        )
    aging.clock.advance(DAY)
    sweeping = threading.Thread(target=aging.sweep)
    sweeping.start()
    taken = 0
    while sweeping.is_alive():
        aging.take(f"key-{taken}")
        taken += 1
    sweeping.join()
    assert taken > 0
    assert aging.buckets() == {f"key-{number}" for number in range(taken)}


def test_expiry_comes_by_itself(aging: Aging, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "SWEEP_EVERY_S", 0)
    for number in range(50):
        aging.take(f"old-{number}")
    aging.clock.advance(DAY)
    give_up = time.monotonic() + PATIENCE_S
    while aging.buckets() != {"key"}:
        for _ in range(maintenance.COMMITS_BETWEEN_LOOKS):
            aging.take("key", 0)
        assert time.monotonic() < give_up
    assert aging.rows("usage") == 51


def test_the_log_starts_over_again_and_again(aging: Aging, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "CHECKPOINT_AT_BYTES", 2**18)
    largest = 0
    for _ in range(40):
        for _ in range(maintenance.COMMITS_BETWEEN_LOOKS):
            aging.take("key", 0)
        largest = max(largest, os.stat(f"{aging.path}-wal").st_size)
    written = 40 * maintenance.COMMITS_BETWEEN_LOOKS * 4096
    assert largest < written / 3
