"""A limiter that was opened and used before a fork is good in the parent and in every child."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import count
from multiprocessing import get_context
from pathlib import Path

import pytest

from support.processes import PATIENCE_S, together
from support.sqlite_files import check_integrity, opened
from zae_limiter import Limit, RateLimiter, RateLimitExceeded, SyncRateLimiter
from zae_limiter.stores.sqlite import connections
from zae_limiter.stores.sqlite.store import SqliteStore
from zae_limiter.testing.clock import NEW_YEAR_2026_MS

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks on this platform"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
]


def stopped_clock() -> int:
    return NEW_YEAR_2026_MS


@pytest.fixture
def limiter(tmp_path: Path) -> Iterator[SyncRateLimiter]:
    """A limiter that is in use already: both of its connections are open."""
    limiter = SyncRateLimiter.open(f"sqlite:///{tmp_path}/limits.db", clock=stopped_clock)
    limiter.set_system_defaults([Limit.per_day("rpd", 1_000)])
    assert take(limiter, 1) == 1
    assert limiter.available("key", "gpt") == {"rpd": 999}
    yield limiter
    limiter.close()


def take(limiter: SyncRateLimiter, times: int, entity_id: str = "key") -> int:
    granted = 0
    for _ in range(times):
        try:
            with limiter.acquire(entity_id, "gpt", {"rpd": 1}):
                granted += 1
        except RateLimitExceeded:
            pass
    return granted


def in_a_fork(work: Callable[[], object]) -> None:
    """Do it in a child of os.fork, which must end well."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_parent_and_forked_children_admit_exactly_the_burst_together(limiter: SyncRateLimiter) -> None:
    here: list[int] = []
    granted = together(take, [(limiter, 400)] * 3, start="fork", meanwhile=lambda: here.append(take(limiter, 400)))
    assert sum(granted) + sum(here) == 999
    assert take(limiter, 1) == 0
    limiter.reset("key")
    assert take(limiter, 7) == 7
    limiter.close()


def test_a_parent_goes_on_while_its_children_come_and_go(limiter: SyncRateLimiter, tmp_path: Path) -> None:
    for generation in range(20):
        in_a_fork(lambda: take(limiter, 3))
        assert take(limiter, 2) == 2
        assert limiter.available("key", "gpt") == {"rpd": 999 - 5 * (generation + 1)}
    limiter.close()
    check_integrity(tmp_path / "limits.db")


def test_grandchildren_count_on_the_same_file(limiter: SyncRateLimiter) -> None:
    def child() -> None:
        take(limiter, 10)
        in_a_fork(lambda: take(limiter, 10))
        take(limiter, 10)

    in_a_fork(child)
    assert limiter.available("key", "gpt") == {"rpd": 969}


def test_a_child_that_leaves_through_the_interpreters_exit_disturbs_no_other_process(limiter: SyncRateLimiter) -> None:
    child = os.fork()
    if child == 0:
        # What a finalizer does to whatever was inherited, without the rest of pytest's own exit.
        limiter.close()
        os._exit(0)
    with limiter.acquire("key", "gpt", {"rpd": 5}):
        os.waitpid(child, 0)
        assert take(limiter, 1) == 1
    assert limiter.available("key", "gpt") == {"rpd": 993}


POOLED: list[SyncRateLimiter] = []
"""As a prefork server has it: a global of a module that was imported before the fork."""


def one_request(number: int) -> int:
    (limiter,) = POOLED
    return take(limiter, 1, f"key-{number % 2}")


def test_a_prefork_pool_counts_exactly(limiter: SyncRateLimiter) -> None:
    POOLED[:] = [limiter]
    try:
        with ProcessPoolExecutor(3, mp_context=get_context("fork")) as pool:
            results = list(pool.map(one_request, range(600), chunksize=10, timeout=PATIENCE_S))
        assert sum(results) == 600
        assert [limiter.available(f"key-{key}", "gpt") for key in (0, 1)] == [{"rpd": 700}] * 2
        assert take(limiter, 5) == 5
    finally:
        POOLED.clear()


def test_a_child_may_run_an_event_loop_of_its_own(tmp_path: Path) -> None:
    async def used() -> RateLimiter:
        limiter = await RateLimiter.open(f"sqlite:///{tmp_path}/limits.db", clock=stopped_clock)
        await limiter.set_system_defaults([Limit.per_day("rpd", 100)])
        async with limiter.acquire("key", "gpt", {"rpd": 1}):
            pass
        return limiter

    async def use_more(limiter: RateLimiter) -> None:
        for _ in range(10):
            async with limiter.acquire("key", "gpt", {"rpd": 1}):
                await asyncio.sleep(0)
        assert len((await limiter.list_entities()).items) == 0

    limiter = asyncio.run(used())
    for _ in range(3):
        in_a_fork(lambda: asyncio.run(use_more(limiter)))
    asyncio.run(use_more(limiter))
    assert asyncio.run(limiter.available("key", "gpt")) == {"rpd": 59}
    asyncio.run(limiter.close())


def test_a_child_does_not_hold_on_to_the_gate_of_its_parent(limiter: SyncRateLimiter, tmp_path: Path) -> None:
    """A child that never uses the limiter, and so never opens anything of its own, keeps no other process waiting."""
    release, hold = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(hold)
        os.read(release, 1)
        os._exit(0)
    os.close(release)
    try:
        limiter.close()
        with SyncRateLimiter.open(f"sqlite:///{tmp_path}/limits.db", clock=stopped_clock) as other:
            assert take(other, 50) == 50
        with opened(tmp_path / "limits.db") as connection:
            connection.execute("BEGIN EXCLUSIVE")
    finally:
        os.close(hold)
        os.waitpid(child, 0)


def test_a_fork_in_the_midst_of_other_threads_leaves_usable_children(limiter: SyncRateLimiter) -> None:
    """Threads use the limiter at the moment of the fork: in a transaction, before the gate, or between."""
    over = threading.Event()

    def hammer() -> None:
        while not over.is_set():
            take(limiter, 1, "busy")
            limiter.available("busy", "gpt")

    threads = [threading.Thread(target=hammer) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            in_a_fork(lambda: (take(limiter, 2), limiter.available("key", "gpt")))
    finally:
        over.set()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert limiter.available("key", "gpt") == {"rpd": 959}


def test_children_go_on_after_their_parent_has_closed_its_limiter(limiter: SyncRateLimiter, tmp_path: Path) -> None:
    def child() -> None:
        assert take(limiter, 10) == 10
        os.write(used, b".")
        os.read(closed_read, 1)
        assert take(limiter, 10) == 10
        assert limiter.available("key", "gpt") == {"rpd": 979}

    used_read, used = os.pipe()
    closed_read, closed = os.pipe()
    closer = threading.Thread(target=lambda: (os.read(used_read, 1), limiter.close(), os.write(closed, b".")))
    closer.start()
    in_a_fork(child)
    closer.join(PATIENCE_S)
    with SyncRateLimiter.open(f"sqlite:///{tmp_path}/limits.db", clock=stopped_clock) as other:
        assert other.available("key", "gpt") == {"rpd": 979}
    check_integrity(tmp_path / "limits.db")


def test_callers_that_wait_in_the_queue_of_the_parent_do_not_hold_up_the_child(limiter: SyncRateLimiter) -> None:
    def wait() -> None:
        with pytest.raises(RateLimitExceeded), limiter.acquire("key", "gpt", {"rpd": 1_000}, timeout=2):
            pass

    with limiter.acquire("key", "gpt", {"rpd": 1}):  # which may give back: else there is nothing to wait for
        waiting = threading.Thread(target=wait)
        waiting.start()
        while not limiter._core.wait_queue:
            pass
        in_a_fork(lambda: limiter.acquire("key", "gpt", {"rpd": 1}).__enter__())
        waiting.join(PATIENCE_S)
    assert limiter.available("key", "gpt") == {"rpd": 997}


def test_a_fork_during_maintenance_does_not_wait_for_it_in_vain_and_loses_no_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fork that held the gate's lock would wait for maintenance, which waits for that lock, until its time is over.

    Then a connection is open in the child, which refuses to work. On a busy machine maintenance itself may take long:
    here a fork may wait for it much longer than usual.
    """
    monkeypatch.setattr(connections, "LONGEST_WAIT_BEFORE_FORK_S", PATIENCE_S / 2)
    limiter = SyncRateLimiter.open(f"sqlite:///{tmp_path}/limits.db")
    limiter.set_system_defaults([Limit.per_day("rpd", 1_000)])
    assert take(limiter, 1) == 1
    store = limiter._core.store
    assert isinstance(store, SqliteStore)
    over, runs = threading.Event(), count()

    def keep_up() -> None:
        while not over.is_set():
            store._maintenance.run_now(int(time.time() * 1_000))
            next(runs)

    maintenance = threading.Thread(target=keep_up)
    maintenance.start()
    try:
        for _ in range(10):
            in_a_fork(lambda: take(limiter, 3))
    finally:
        over.set()
        maintenance.join(PATIENCE_S)
    assert next(runs) > 0, "maintenance was at work"
    assert limiter.get_status("key").buckets[0].total_events == 31
    limiter.close()
    check_integrity(tmp_path / "limits.db")
