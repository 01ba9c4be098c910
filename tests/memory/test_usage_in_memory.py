"""Usage in memory has a bound: ids that come once do not fill it for ninety days."""

from __future__ import annotations

import logging

import pytest

from zae_limiter import Limit, SyncRateLimiter
from zae_limiter.stores.memory import tables
from zae_limiter.stores.memory.store import MemorySpace
from zae_limiter.testing import FakeClock

ROWS = 50


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def limiter(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> SyncRateLimiter:
    monkeypatch.setattr(tables, "MAX_USAGE_ROWS", ROWS)
    limiter = SyncRateLimiter.open("memory://", clock=clock)
    limiter.set_system_defaults([Limit.per_day("rpd", 1_000)])
    return limiter


def take(limiter: SyncRateLimiter, entity_id: str) -> None:
    with limiter.acquire(entity_id, "gpt", {"rpd": 1}):
        pass


def rows_kept(limiter: SyncRateLimiter) -> int:
    space = limiter.repository._core.space
    assert isinstance(space, MemorySpace)
    return sum(len(rows) for rows in space._tables._usage.values())


def test_ids_that_come_once_leave_a_bounded_number_of_rows(
    limiter: SyncRateLimiter, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "zae_limiter"):
        for number in range(4 * ROWS):
            take(limiter, f"user-{number}")
            clock.advance(60)
    assert rows_kept(limiter) == ROWS
    assert [record.message for record in caplog.records] == [
        f"more than {ROWS} rows of usage in memory: the oldest are dropped"
    ]
    assert limiter.repository.get_usage_snapshots("user-0", "gpt").items == []
    assert limiter.repository.get_usage_summary(resource="gpt", window_type="hourly").total == {"rpd": ROWS}


def test_an_entity_whose_first_hours_were_dropped_goes_on_counting_and_its_proof_says_so(
    limiter: SyncRateLimiter, clock: FakeClock
) -> None:
    for _ in range(3):
        take(limiter, "regular")
        clock.advance(3_600)
    for number in range(ROWS - 1):
        take(limiter, f"user-{number}")
    for _ in range(2):  # the row of this hour may be dropped while the bucket goes on
        take(limiter, "regular")
        clock.advance(3_600)
    proof = limiter.repository.verify_usage("regular")
    assert proof.holds
    (chain,) = [chain for chain in proof.chains if chain.limit_name == "rpd"]
    assert (chain.counted, chain.expired) == (2, 3)
    hours = limiter.repository.get_usage_snapshots("regular", "gpt", "hourly").items
    assert [hour.counters for hour in hours] == [{"rpd": 1}, {"rpd": 1}]
