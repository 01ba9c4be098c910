"""Many threads on one limiter: exact counts, and no thread is left waiting."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from support.held_write_lock import write_lock_held
from support.processes import PATIENCE_S
from support.sqlite_files import buckets_in, check_conservation, check_integrity
from zae_limiter import Limit, RateLimiterUnavailable, RateLimitExceeded, SyncRateLimiter
from zae_limiter.testing import FakeClock

THREADS = 8


def in_threads(work: Callable[[int], object]) -> None:
    """Do it in every thread at once; what one of them raises fails the test."""
    failures: list[BaseException] = []
    ready = threading.Barrier(THREADS)

    def run(place: int) -> None:
        try:
            ready.wait(PATIENCE_S)
            work(place)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(place,), daemon=True) for place in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "a thread waits for ever"
    assert not failures, failures


def test_eight_threads_on_one_limiter_admit_exactly_the_burst(tmp_path: Path) -> None:
    limiter = SyncRateLimiter.open(f"sqlite:///{tmp_path}/limits.db", clock=FakeClock())
    limiter.set_system_defaults([Limit.per_day("rpd", 500)])
    granted = [0] * THREADS

    def hammer(place: int) -> None:
        for _ in range(120):
            try:
                with limiter.acquire("key", "gpt", {"rpd": 1}):
                    granted[place] += 1
            except RateLimitExceeded:
                pass

    in_threads(hammer)
    assert sum(granted) == 500
    assert limiter.get_status("key").buckets[0].total_events == 500
    limiter.close()


class Body(Exception):
    """The work went wrong."""


def test_threads_that_take_settle_fail_read_and_configure_at_once_agree_in_the_end(tmp_path: Path) -> None:
    limiter = SyncRateLimiter.open(f"sqlite:///{tmp_path}/limits.db", clock=FakeClock())
    limiter.set_system_defaults([Limit.per_day("rpd", 10**6), Limit.per_day("tpd", 10**9)])
    limiter.create_entity("org")
    for place in range(THREADS):
        limiter.create_entity(f"key-{place}", parent_id="org", cascade=True)
    told = [Counter[str]() for _ in range(THREADS)]

    def live(place: int) -> None:
        key = f"key-{place}"
        for number in range(80):
            lease = limiter.acquire(key, "gpt", {"rpd": 1, "tpd": 100})
            try:
                with lease:
                    if number % 4 == 0:
                        raise Body
                    lease.settle(tpd=number)
            except Body:
                pass
            told[place].update(lease.consumed)
            if number % 10 == 5:
                assert limiter.available(key, "gpt")["tpd"] == 10**9 - told[place]["tpd"]
                limiter.get_children("org")
                limiter.get_usage_summary(key, "gpt")
            if number % 20 == 7:
                limiter.set_limits("elsewhere", [Limit.per_day("rpd", number)])

    in_threads(live)
    buckets = buckets_in(tmp_path / "limits.db")
    for place, said in enumerate(told):
        bucket = buckets.pop((f"key-{place}", "gpt"))
        assert [balance.tc for balance in bucket.balances] == [said["rpd"] * 1_000, said["tpd"] * 1_000]
        check_conservation(bucket)
    total = sum(told, Counter())
    (org,) = buckets.values()
    assert [balance.tc for balance in org.balances] == [total["rpd"] * 1_000, total["tpd"] * 1_000]
    limiter.close()
    check_integrity(tmp_path / "limits.db")


def test_threads_waiting_in_the_queue_are_all_served(tmp_path: Path) -> None:
    limiter = SyncRateLimiter.open(f"sqlite:///{tmp_path}/limits.db")
    limiter.set_system_defaults([Limit.custom("rps", 5, 400, 1, burst=5)])
    served: list[int] = []

    def wait(place: int) -> None:
        for _ in range(8):
            with limiter.acquire("key", "gpt", {"rps": 1}, timeout=PATIENCE_S):
                served.append(place)

    in_threads(wait)
    assert Counter(served) == dict.fromkeys(range(THREADS), 8)
    limiter.close()


def test_a_write_lock_that_is_never_released_makes_the_store_unavailable(tmp_path: Path) -> None:
    limiter = SyncRateLimiter.open(f"sqlite:///{tmp_path}/limits.db", deadline=0.2, clock=FakeClock())
    limiter.set_system_defaults([Limit.per_day("rpd", 10)])
    with write_lock_held(tmp_path / "limits.db"):

        def acquire(place: int) -> None:
            with pytest.raises(RateLimiterUnavailable, match="another process"):
                limiter.acquire("key", "gpt", {"rpd": 1}).__enter__()

        in_threads(acquire)
        with limiter.acquire("key", "gpt", {"rpd": 1}, on_unavailable="allow") as lease:
            assert lease.degraded
        assert limiter.available("key", "gpt") == {"rpd": 10}
    with limiter.acquire("key", "gpt", {"rpd": 10}):
        pass
    limiter.close()


HAMMERED = """
import glob, pathlib, sys, threading, time
from zae_limiter import Limit, RateLimiterUnavailable, SyncRateLimiter

path, happens = sys.argv[1:]
limits = [Limit.per_day("rpd", 10**6)]
limiter = SyncRateLimiter.open(f"sqlite:///{path}")
over = False
unexpected = []


def use(work):
    while not over:
        try:
            work()
        except RateLimiterUnavailable:
            pass
        except BaseException as error:
            unexpected.append(error)


def take():
    with limiter.acquire("key", "gpt", {"rpd": 1}, limits=limits):
        pass


threads = [
    threading.Thread(target=use, args=(work,))
    for work in (take, lambda: limiter.available("key", "gpt", limits=limits), lambda: limiter.get_status("key"))
]
for thread in threads:
    thread.start()
for _ in range(12):
    time.sleep(0.15)
    if happens == "closed":
        limiter.close()
    else:
        for name in glob.glob(f"{path}*"):
            pathlib.Path(name).unlink(missing_ok=True)  # the store may have been faster
over = True
for thread in threads:
    thread.join()
assert not unexpected, unexpected
"""


@pytest.mark.parametrize("happens", ["closed", "removed"])
def test_threads_in_the_midst_of_their_work_survive(tmp_path: Path, happens: str) -> None:
    """One thread closes connections that others are using: the interpreter dies of it."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", HAMMERED, str(tmp_path / "limits.db"), happens],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]


def test_threads_that_read_all_the_time_let_one_another_in(tmp_path: Path) -> None:
    """A thread that did not get the reader's lock at once never got it."""
    limiter = SyncRateLimiter.open(f"sqlite:///{tmp_path}/limits.db", deadline=1)
    limiter.set_system_defaults([Limit.per_day("rpd", 10)])
    failures: list[RateLimiterUnavailable] = []
    until = time.monotonic() + 2

    def read() -> None:
        while time.monotonic() < until:
            try:
                limiter.available("key", "gpt")
            except RateLimiterUnavailable as error:
                failures.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    limiter.close()
    assert failures == []
