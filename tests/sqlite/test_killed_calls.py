"""Processes that are killed with calls in flight: every slot is back within 1.25 of its time, and none twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter

TTL = 10
SLOTS = 12

WORKER = """
import sys, time
from zae_limiter import SyncRateLimiter, RateLimitExceeded

path, count = sys.argv[1], int(sys.argv[2])
limiter = SyncRateLimiter.open(f"sqlite:///{path}")
held = []
for _ in range(count):
    lease = limiter.acquire("key", "gpt", {"rpm": 1, "calls": 1})
    lease.__enter__()
    held.append(lease)
print(len(held), flush=True)
time.sleep(120)
"""


def start(path: Path, count: int) -> subprocess.Popen[str]:
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(path), str(count)], stdout=subprocess.PIPE, text=True, env=os.environ.copy()
    )
    assert worker.stdout is not None
    assert worker.stdout.readline().strip() == str(count)
    return worker


def kill(worker: subprocess.Popen[str]) -> None:
    worker.send_signal(signal.SIGKILL)
    worker.wait(30)
    assert worker.stdout is not None
    worker.stdout.close()


def whole(limiter: Any, path: Path) -> int:
    """What is free and what is lent, as it stands in the file."""
    space = limiter._core.space

    def look(tables: Any) -> int:
        bucket = tables.bucket("key", "gpt")
        balance = bucket.held("calls")
        assert balance.tk + sum(balance.counts.values()) == balance.bx
        return int(balance.bx)

    return int(limiter._driver.run(space._read(look)))


@pytest.mark.timeout(120)
def test_killed_processes_give_every_slot_back_in_time(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    limiter = SyncRateLimiter.open(f"sqlite:///{path}")
    limiter.set_system_defaults([Limit.per_minute("rpm", 10_000), Limit.concurrent("calls", SLOTS, ttl=TTL)])
    workers = [start(path, 4) for _ in range(3)]
    assert limiter.available("key", "gpt")["calls"] == 0
    with pytest.raises(RateLimitExceeded), limiter.acquire("key", "gpt", {"calls": 1}):
        pass
    time.sleep(TTL)  # they are alive, and renew what they hold: nothing is free although it would be due
    assert limiter.available("key", "gpt")["calls"] == 0
    for worker in workers[:2]:
        kill(worker)
    killed_at = time.time()
    assert limiter.available("key", "gpt")["calls"] == 0
    while limiter.available("key", "gpt")["calls"] < 8:
        assert time.time() < killed_at + 1.25 * TTL + 0.5, limiter.available("key", "gpt")
        time.sleep(0.05)
    assert whole(limiter, path) == SLOTS * 1000
    with limiter.acquire("key", "gpt", {"calls": 8}):  # takes what the dead held; the living keep theirs
        assert limiter.available("key", "gpt")["calls"] == 0
        assert whole(limiter, path) == SLOTS * 1000
    kill(workers[2])
    killed_at = time.time()
    while limiter.available("key", "gpt")["calls"] < SLOTS:
        assert time.time() < killed_at + 1.25 * TTL + 0.5
        time.sleep(0.05)
    with limiter.acquire("key", "gpt", {"calls": SLOTS}):
        assert limiter.available("key", "gpt")["calls"] == 0
    assert limiter.available("key", "gpt")["calls"] == SLOTS
    assert whole(limiter, path) == SLOTS * 1000
    limiter.close()
