"""The first view: which rows it shows and why, and that its cost does not grow with the number of keys."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from types import SimpleNamespace

import pytest

from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository, SyncRateLimiter, SyncRepository
from zae_limiter.dashboard import routes
from zae_limiter.dashboard.overview import MOST_ROWS, read_overview
from zae_limiter.dashboard.routes import SharedReads
from zae_limiter.stores.memory.store import MemoryStore
from zae_limiter.testing import FailingStore, FakeClock

RPM = Limit.per_minute("rpm", 10)
LARGE = 10_000


def take(limiter: SyncRateLimiter, key: str, times: int, resource: str = "gpt", **amounts: int) -> None:
    for _ in range(times):
        with suppress(RateLimitExceeded), limiter.acquire(key, resource, amounts or {"rpm": 1}):
            pass


def world(store: MemoryStore, clock: FakeClock) -> SyncRateLimiter:
    limiter = SyncRateLimiter(SyncRepository(store, clock=clock, pulse=True))
    limiter.set_system_defaults([RPM])
    return limiter


def overview(store: object, clock: FakeClock) -> dict[str, object]:
    return asyncio.run(read_overview(RateLimiter(Repository(store, clock=clock))))  # type: ignore[arg-type]


def test_rows_say_why_they_need_attention() -> None:
    store, clock = MemoryStore(), FakeClock()
    limiter = world(store, clock)
    limiter.create_entity("org")
    limiter.create_entity("child", parent_id="org", cascade=True)
    take(limiter, "refused", 13)
    take(limiter, "near", 9)
    take(limiter, "well", 2)
    take(limiter, "child", 10)
    with limiter.acquire("owing", "gpt", {"rpm": 1}) as lease:
        lease.adjust(rpm=20)
    limiter.set_limits("paused", [RPM, Limit.custom("gate", 1, 1_000, 1)])
    take(limiter, "paused", 1)
    limiter.lower("paused", "gpt", {"gate": -4_000})
    take(limiter, "paused", 1, gate=1)
    limiter.write_pulse()
    view = overview(store, clock)
    rows = {row["entity"]: row for row in view["rows"]}  # type: ignore[attr-defined]
    assert {name: row["kinds"] for name, row in rows.items()} == {
        "refused": ["refused", "near"],
        "paused": ["refused"],
        "near": ["near"],
        "child": ["near"],
        "owing": ["debt"],
    }
    assert view["counts"] == {"refused": 2, "near": 3, "debt": 1}
    assert rows["child"]["path"] == ["org"]
    assert [leg["entity"] for leg in rows["child"]["legs"]] == ["child", "org"]
    assert (rows["owing"]["binding"]["available"], rows["owing"]["fits"]) == (-11, False)
    assert {row["access"] for row in rows.values()} == {None}
    limiter.set_access("block", entity_id="near")
    blocked = next(row for row in overview(store, clock)["rows"] if row["entity"] == "near")  # type: ignore[attr-defined]
    assert (blocked["access"], blocked["fits"]) == ("block", False)
    assert view["providers"] == [{"entity": "paused", "resource": "gpt", "paused_seconds": 4.001}]
    assert view["noisiest"][0] == {  # type: ignore[index]
        "entity": "refused",
        "calls": 13,
        "share": 13 / 37,
        "refused_share": 3 / 13,
    }


def test_a_key_whose_limits_are_gone_is_left_out() -> None:
    store, clock = MemoryStore(), FakeClock()
    limiter = world(store, clock)
    take(limiter, "key", 12)
    limiter.write_pulse()
    limiter.set_system_defaults([Limit.per_minute("other", 1)])
    assert [row["entity"] for row in overview(store, clock)["rows"]] == ["key"]  # type: ignore[attr-defined]
    limiter.delete_system_defaults()
    assert overview(store, clock)["rows"] == []


def test_the_cost_does_not_grow_with_the_number_of_keys() -> None:
    calls = {}
    for keys in (100, LARGE):
        store, clock = MemoryStore(), FakeClock()
        limiter = world(store, clock)
        for number in range(keys):
            take(limiter, f"key-{number}", 1)
            clock.advance(0.001)
        for number in range(60):
            take(limiter, f"noisy-{number}", 12)
        limiter.write_pulse()
        counting = FailingStore(store)
        view = overview(counting, clock)
        assert len(view["rows"]) == MOST_ROWS  # type: ignore[arg-type]
        calls[keys] = sorted(counting.calls)
    assert calls[100] == calls[LARGE]
    assert Counter(calls[LARGE]) == {"pulses": 1, "look": MOST_ROWS}


def test_viewers_share_what_one_of_them_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []

    async def read() -> int:
        reads.append(1)
        await asyncio.sleep(0.01)
        return len(reads)

    async def fail() -> int:
        raise ZeroDivisionError

    async def look() -> None:
        now = 0.0
        monkeypatch.setattr(routes, "time", SimpleNamespace(monotonic=lambda: now))
        shared = SharedReads(seconds=0.2)
        assert await asyncio.gather(*(shared.get("view", read) for _ in range(20))) == [1] * 20
        assert await shared.get("view", read) == 1
        assert await shared.get("another", read) == 2
        with pytest.raises(ZeroDivisionError):
            await shared.get("failed", fail)
        assert await shared.get("failed", read) == 3
        now += 0.25
        assert await shared.get("view", read) == 4

    asyncio.run(look())
