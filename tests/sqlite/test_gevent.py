"""Under gevent's patched threads: greenlets share a limiter, and those who wait let the others run."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.held_write_lock import write_lock_held
from support.processes import PATIENCE_S
from zae_limiter import Limit, SyncRateLimiter

pytestmark = pytest.mark.skipif(importlib.util.find_spec("gevent") is None, reason="gevent is not installed")

GREENLETS = """
from gevent import monkey
monkey.patch_all()

import json, sys, time
import gevent
from zae_limiter import RateLimitExceeded, SyncRateLimiter

limiter = SyncRateLimiter.open(sys.argv[1], deadline=60)
granted = beats = 0


def call():
    global granted
    for _ in range(int(sys.argv[2])):
        try:
            with limiter.acquire("key", "gpt", {"rpd": 1}) as lease:
                granted += 1
                time.sleep(0)
                lease.adjust(rpd=1)
        except RateLimitExceeded:
            pass


def beat():
    global beats
    while True:
        time.sleep(0.001)
        beats += 1
        if beats == 50:
            print("beating", flush=True)


beating = gevent.spawn(beat)
calling = [gevent.spawn(call) for _ in range(10)]
print("begun", flush=True)
gevent.joinall(calling, raise_error=True)
beating.kill()
limiter.close()
print(json.dumps(granted))
"""


def greenlets(url: str, times: int) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", GREENLETS, url, str(times)], stdout=subprocess.PIPE, text=True)


def test_greenlets_of_two_processes_count_exactly(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/limits.db"
    with SyncRateLimiter.open(url) as limiter:
        limiter.set_system_defaults([Limit.per_day("rpd", 1_000)])
        processes = [greenlets(url, 60) for _ in range(2)]
        answers = [process.communicate(timeout=PATIENCE_S)[0].splitlines()[-1] for process in processes]
        granted = sum(json.loads(answer) for answer in answers)
        assert limiter.get_status("key").buckets[0].limits[0].total_consumed == 2 * granted
        assert 500 <= granted <= 510


def test_greenlets_go_on_while_another_process_holds_the_write_lock(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/limits.db"
    with SyncRateLimiter.open(url) as limiter:
        limiter.set_system_defaults([Limit.per_day("rpd", 1_000)])
        with write_lock_held(tmp_path / "limits.db") as hold:
            process = greenlets(url, 1)
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            assert process.stdout.readline() == "beating\n"  # while all the others wait for the lock
            hold.let_go()
            assert json.loads(process.communicate(timeout=PATIENCE_S)[0]) == 10
        assert limiter.available("key", "gpt") == {"rpd": 980}
