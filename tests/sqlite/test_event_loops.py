"""The async side: several loops share a limiter, and none of them is ever blocked by the lock of another program."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from support.held_write_lock import write_lock_held
from support.loop_pulse import Pulse
from support.processes import PATIENCE_S
from support.sqlite_files import opened
from zae_limiter import Limit, RateLimiter, RateLimiterUnavailable, RateLimitExceeded
from zae_limiter.stores.sqlite.connections import Connections
from zae_limiter.stores.sqlite.store import SqliteStore
from zae_limiter.testing.clock import NEW_YEAR_2026_MS

HELD_S = 0.8
"""The deadline of a caller that gets no turn."""

BEATS = 50
"""So often a loop must beat before what its caller waits for may happen: one that is blocked never does."""


def stopped_clock() -> int:
    return NEW_YEAR_2026_MS


async def opened_limiter(folder: Path, **options: Any) -> RateLimiter:
    limiter = await RateLimiter.open(f"sqlite:///{folder}/limits.db", clock=stopped_clock, **options)
    await limiter.set_system_defaults([Limit.per_day("rpd", 1_000)])
    async with limiter.acquire("key", "gpt", {"rpd": 1}):
        pass
    return limiter


def test_loops_in_several_threads_share_one_limiter(tmp_path: Path) -> None:
    limiter = asyncio.run(opened_limiter(tmp_path))
    granted: list[int] = []

    async def caller() -> int:
        count = 0
        for _ in range(60):
            try:
                async with limiter.acquire("key", "gpt", {"rpd": 1}):
                    count += 1
                    await asyncio.sleep(0)
            except RateLimitExceeded:
                pass
        return count

    async def callers() -> None:
        granted.extend(await asyncio.gather(*(caller() for _ in range(5))))
        assert len((await limiter.get_usage_snapshots("key", "gpt", "hourly")).items) == 1

    threads = [threading.Thread(target=lambda: asyncio.run(callers()), daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert len(granted) == 20
    assert sum(granted) == 999
    asyncio.run(limiter.close())


def test_a_limiter_outlives_the_loop_it_was_opened_in(tmp_path: Path) -> None:
    limiter = asyncio.run(opened_limiter(tmp_path))

    async def use() -> None:
        async with limiter.acquire("key", "gpt", {"rpd": 1}):
            await limiter.list_entities()

    for _ in range(3):
        asyncio.run(use())
    assert asyncio.run(limiter.available("key", "gpt")) == {"rpd": 996}
    asyncio.run(limiter.close())


def test_the_loop_goes_on_while_another_process_writes_and_then_the_acquire_succeeds(tmp_path: Path) -> None:
    async def scenario() -> None:
        limiter = await opened_limiter(tmp_path, deadline=PATIENCE_S)
        with write_lock_held(tmp_path / "limits.db") as hold:
            async with Pulse(at={BEATS: hold.let_go}):
                leases = [limiter.acquire("key", "gpt", {"rpd": 1}) for _ in range(10)]
                await asyncio.gather(*(lease.__aenter__() for lease in leases))
                await asyncio.gather(*(lease.__aexit__(None, None, None) for lease in leases))
        assert await limiter.available("key", "gpt") == {"rpd": 989}
        await limiter.close()

    asyncio.run(scenario())


def test_an_acquire_that_gets_no_turn_within_the_deadline_fails_and_takes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        limiter = await opened_limiter(tmp_path, deadline=HELD_S)
        with write_lock_held(tmp_path / "limits.db"):
            async with Pulse() as pulse:
                started = time.monotonic()
                with pytest.raises(RateLimiterUnavailable):
                    await limiter.acquire("key", "gpt", {"rpd": 1}).__aenter__()
                assert HELD_S <= time.monotonic() - started < PATIENCE_S
                assert pulse.beats > 3
            assert await limiter.available("key", "gpt") == {"rpd": 999}
        async with limiter.acquire("key", "gpt", {"rpd": 999}):
            pass
        await limiter.close()

    asyncio.run(scenario())


def test_cancelling_an_acquire_that_waits_for_its_turn_takes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        limiter = await opened_limiter(tmp_path, deadline=PATIENCE_S)
        with write_lock_held(tmp_path / "limits.db") as hold:
            waiting = [asyncio.ensure_future(limiter.acquire("key", "gpt", {"rpd": 1}).__aenter__()) for _ in range(5)]
            await asyncio.sleep(0.2)
            for task in waiting:
                task.cancel()
            hold.let_go()
            results = await asyncio.gather(*waiting, return_exceptions=True)
            assert all(isinstance(result, asyncio.CancelledError) for result in results)
        assert await limiter.available("key", "gpt") == {"rpd": 999}
        async with limiter.acquire("key", "gpt", {"rpd": 1}):
            pass
        await limiter.close()

    asyncio.run(scenario())


class SlowDisk:
    """A connection whose checkpoints wait for a disk that is busy."""

    def __init__(self, connection: Any, pulse: Pulse, beats: int) -> None:
        self._connection = connection
        self._pulse = pulse
        self._beats = beats

    def execute(self, statement: str, *values: Any) -> Any:
        if "wal_checkpoint" in statement:
            self._pulse.wait_for(self._beats, PATIENCE_S)
        return self._connection.execute(statement, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def test_the_loop_goes_on_while_a_checkpoint_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = Connections.connect

    async def scenario() -> None:
        limiter = await opened_limiter(tmp_path, deadline=PATIENCE_S)
        store = limiter._core.store
        assert isinstance(store, SqliteStore)
        maintenance = threading.Thread(target=store._maintenance.run_now, args=(NEW_YEAR_2026_MS,))
        async with Pulse() as pulse:
            monkeypatch.setattr(Connections, "connect", lambda self: SlowDisk(connect(self), pulse, BEATS))
            maintenance.start()
            granted = 0
            while maintenance.is_alive():
                async with limiter.acquire("key", "gpt", {"rpd": 1}):
                    granted += 1
                    await asyncio.sleep(0.01)
            maintenance.join()
        assert not pulse.stood_still
        assert granted > 0
        assert await limiter.available("key", "gpt") == {"rpd": 999 - granted}
        await limiter.close()

    asyncio.run(scenario())


def test_a_full_log_is_moved_into_the_file_while_acquires_go_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        limiter = await opened_limiter(tmp_path, deadline=PATIENCE_S)
        store = limiter._core.store
        assert isinstance(store, SqliteStore)
        path = tmp_path / "limits.db"
        with opened(path) as connection:
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute("CREATE TABLE ballast (stone BLOB)")
            connection.executemany("INSERT INTO ballast VALUES (zeroblob(?))", [(10**6,)] * 20)
        before = path.stat().st_size
        maintenance = asyncio.create_task(asyncio.to_thread(store._maintenance.run_now, NEW_YEAR_2026_MS))
        while not maintenance.done():
            async with limiter.acquire("key", "gpt", {"rpd": 0}):
                await asyncio.sleep(0.001)
        await maintenance
        assert path.stat().st_size > before + 10**7
        await limiter.close()

    asyncio.run(scenario())


def test_giving_up_during_a_checkpoint_does_not_stop_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``Gate.give_up`` waits in the loop for the thread that holds the gate."""
    connect = Connections.connect

    async def scenario() -> None:
        limiter = await opened_limiter(tmp_path, deadline=HELD_S / 5)
        store = limiter._core.store
        assert isinstance(store, SqliteStore)
        maintenance = threading.Thread(target=store._maintenance.run_now, args=(NEW_YEAR_2026_MS,))
        refused = 0
        async with Pulse() as pulse:
            beats = 1_000  # which take longer than the deadline of the callers
            monkeypatch.setattr(Connections, "connect", lambda self: SlowDisk(connect(self), pulse, beats))
            maintenance.start()
            while maintenance.is_alive():
                try:
                    async with limiter.acquire("key", "gpt", {"rpd": 0}):
                        await asyncio.sleep(0.01)
                except RateLimiterUnavailable:
                    refused += 1
        assert not pulse.stood_still
        assert refused > 0
        monkeypatch.undo()
        await limiter.close()

    asyncio.run(scenario())
