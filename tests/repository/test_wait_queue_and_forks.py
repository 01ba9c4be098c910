"""The wait queue is a process's own: shared by its limiters, left behind at a fork."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
import weakref
from pathlib import Path

import pytest

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter
from zae_limiter.testing import FakeClock, MemoryStore, sync_memory_limiter

LIMITS = [Limit.per_minute("rpm", 60, burst=5)]


def waiting(limiter: SyncRateLimiter, amount: int) -> threading.Thread:
    """A caller that is in the queue for long."""

    def wait() -> None:
        with limiter.acquire("key", "gpt", {"rpm": amount}, timeout=20):
            pass

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    give_up = time.monotonic() + 10
    while not limiter._core.wait_queue:
        assert time.monotonic() < give_up
        time.sleep(0.001)
    return thread


def test_two_limiters_on_one_store_share_a_wait_queue() -> None:
    store, clock = MemoryStore(), FakeClock(auto_advance=False)
    one, other = (sync_memory_limiter(LIMITS, store=store, clock=clock) for _ in range(2))
    with one.acquire("key", "gpt", {"rpm": 5}):
        pass
    thread = waiting(one, 5)
    clock.advance(3)
    with pytest.raises(RateLimitExceeded), other.acquire("key", "gpt", {"rpm": 1}):
        pass
    clock.advance(2)
    thread.join(10)
    assert not thread.is_alive()


def test_limiters_on_different_stores_have_wait_queues_of_their_own() -> None:
    one, other = sync_memory_limiter(LIMITS), sync_memory_limiter(LIMITS)
    assert one._core.wait_queue is not other._core.wait_queue


def test_a_forked_child_has_an_empty_wait_queue(tmp_path: Path) -> None:
    limiter = SyncRateLimiter.open(f"sqlite:///{tmp_path}/limits.db")
    limiter.set_system_defaults([Limit.per_minute("rpm", 600, burst=5)])
    with limiter.acquire("key", "gpt", {"rpm": 5}):
        pass
    thread = waiting(limiter, 5)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with limiter.acquire("other", "gpt", {"rpm": 5}, timeout=5):
                status = 0 if not limiter._core.wait_queue else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    thread.join(20)
    assert not thread.is_alive()
    limiter.close()


def test_a_child_of_a_busy_process_uses_the_memory_store_at_once() -> None:
    limiter = sync_memory_limiter([Limit.per_day("rpd", 10**9)])
    over = threading.Event()

    def hammer(place: int) -> None:
        number = 0
        while not over.is_set():
            number += 1
            with limiter.acquire(f"key-{place}-{number % 50}", "gpt", {"rpd": 1}) as lease:
                lease.adjust(rpd=1)

    threads = [threading.Thread(target=hammer, args=(place,), daemon=True) for place in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(12):
            child = os.fork()
            if child == 0:
                signal.alarm(20)  # a child that hangs dies
                status = 1
                try:
                    with limiter.acquire("key-0-0", "gpt", {"rpd": 1}), limiter.acquire("new", "gpt", {"rpd": 1}):
                        status = 0 if limiter.get_status("new").buckets else 2
                finally:
                    os._exit(status)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        over.set()
        for thread in threads:
            thread.join(20)
    with limiter.acquire("key-0-0", "gpt", {"rpd": 1}):
        pass


def test_a_memory_store_is_collected_although_forks_know_it() -> None:
    limiter = sync_memory_limiter(LIMITS)
    store = weakref.ref(limiter._core.store)
    del limiter
    gc.collect()
    assert store() is None
