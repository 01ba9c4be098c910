"""Four processes share one limit through one SQLite file, and keep it together."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter

LIMIT = Limit.per_second("jobs", 100, burst=50)
WORKERS = 4
SECONDS = 1.0


def work(url: str, seconds: float) -> int:
    """Take jobs as fast as possible for a while; how many were granted."""
    granted = 0
    until = time.monotonic() + seconds
    with SyncRateLimiter.open(url) as limiter:
        while time.monotonic() < until:
            try:
                with limiter.acquire("pool", "queue", {"jobs": 1}):
                    granted += 1
            except RateLimitExceeded as refused:
                time.sleep(refused.retry_after_seconds or 0)
    return granted


def main() -> None:
    """Start the workers, and compare what they got with what the limit allows."""
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder).as_posix()}/limits.db"
        with SyncRateLimiter.open(url) as limiter:
            limiter.set_system_defaults([LIMIT])
            with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:
                started = time.time()
                granted = pool.starmap(work, [(url, SECONDS)] * WORKERS)
                elapsed = time.time() - started
                pool.close()
                pool.join()
            counted = limiter.get_status("pool", "queue").buckets[0].limits[0].total_consumed
    allowed = LIMIT.burst + LIMIT.refill_amount * elapsed
    print(f"granted by worker: {granted}")
    print(f"together {sum(granted)} in {elapsed:.2f} s; the limit allows {allowed:.1f}; the store counted {counted}")
    assert counted == sum(granted) <= allowed + 0.001
    print("the limit held")


if __name__ == "__main__":
    main()
