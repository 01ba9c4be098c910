"""Four processes share one limit through one SQLite file: together they get what it gives, and not one job more."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter

LIMIT = Limit.per_second("jobs", 100, burst=50)
WORKERS = 4
SECONDS = 1.0


class Shift(NamedTuple):
    """What one worker did, and from when to when (clocks of one host agree)."""

    jobs: int
    began: float
    ended: float


def work(url: str, ready: Barrier, done: multiprocessing.Queue[Shift]) -> None:
    """Take jobs as fast as possible for a while, beginning together with the others."""
    jobs = 0
    with SyncRateLimiter.open(url) as limiter:
        ready.wait(timeout=30)
        began = time.time()
        while time.time() < began + SECONDS:
            try:
                with limiter.acquire("pool", "queue", {"jobs": 1}):
                    jobs += 1
            except RateLimitExceeded as refused:
                time.sleep(refused.retry_after_seconds or 0)
        done.put(Shift(jobs, began, time.time()))


def main() -> None:
    """Start the workers, and compare what they got with what the limit allows."""
    processes = multiprocessing.get_context("spawn")
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder).as_posix()}/limits.db"
        with SyncRateLimiter.open(url) as limiter:
            limiter.set_system_defaults([LIMIT])
            ready, done = processes.Barrier(WORKERS), processes.Queue()
            pool = [processes.Process(target=work, args=(url, ready, done)) for _ in range(WORKERS)]
            for worker in pool:
                worker.start()
            shifts: list[Shift] = [done.get(timeout=60) for _ in pool]
            for worker in pool:
                worker.join()
            buckets = limiter.get_status("pool", "queue").buckets
            counted = sum(bucket.limits[0].total_consumed for bucket in buckets)

    jobs = sum(shift.jobs for shift in shifts)
    seconds = max(shift.ended for shift in shifts) - min(shift.began for shift in shifts)
    allowed = LIMIT.burst + LIMIT.refill_amount * seconds
    print(f"jobs by worker: {[shift.jobs for shift in shifts]}")
    print(f"together {jobs} in {seconds:.2f} s; the limit gives {allowed:.1f}; the store counted {counted}")
    assert counted == jobs <= allowed + 0.001
    print("the limit held")


if __name__ == "__main__":
    main()
