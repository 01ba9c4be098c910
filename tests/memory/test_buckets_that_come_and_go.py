"""What the memory store notes of buckets goes with them."""

from __future__ import annotations

from zae_limiter import Limit, SyncRateLimiter
from zae_limiter.stores.memory.tables import SPARE, MemoryTables
from zae_limiter.testing import FakeClock


def opened() -> tuple[SyncRateLimiter, FakeClock]:
    clock = FakeClock()
    limiter = SyncRateLimiter.open("memory://", clock=clock)
    limiter.set_system_defaults([Limit.per_minute("rpm", 10)])
    return limiter, clock


def tables_of(limiter: SyncRateLimiter) -> MemoryTables:
    tables = limiter.repository._core.space._tables  # type: ignore[attr-defined]
    assert isinstance(tables, MemoryTables)
    return tables


def take(limiter: SyncRateLimiter, entity_id: str) -> None:
    with limiter.acquire(entity_id, "gpt-4", {"rpm": 5}):
        pass


def test_an_entity_that_is_deleted_and_comes_again_leaves_no_trail() -> None:
    limiter, _ = opened()
    for _ in range(1_000):
        take(limiter, "key-1")
        limiter.delete_entity("key-1")
    assert len(tables_of(limiter)._oldest_buckets) <= 2 + SPARE


def test_buckets_are_still_dropped_once_they_are_full_after_others_were_deleted() -> None:
    limiter, clock = opened()
    for number in range(300):
        take(limiter, f"key-{number}")
        if number % 2:
            limiter.delete_entity(f"key-{number}")
            take(limiter, f"key-{number}")
    clock.advance(3_600)
    for number in range(300):
        take(limiter, f"other-{number}")
    tables = tables_of(limiter)
    assert {entity_id for entity_id, _ in tables._buckets} == {f"other-{number}" for number in range(300)}
    assert set(tables._oldest_buckets) == set(tables._buckets)
