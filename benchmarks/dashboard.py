"""What the first view of the dashboard costs, with few keys and with a hundred thousand.

    .venv/bin/python benchmarks/dashboard.py [KEYS]

On memory and on SQLite, the view is read twenty times with each number of keys (SQLite has a tenth: filling
takes its time). What counts is the ratio, and that the calls of the store are the same.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository, SyncRateLimiter, SyncRepository
from zae_limiter.dashboard.overview import read_overview
from zae_limiter.stores.memory.store import MemoryStore
from zae_limiter.stores.protocol import Store
from zae_limiter.stores.sqlite.store import SqliteStore
from zae_limiter.testing import FailingStore

FEW = 100
VIEWS = 20
NOISY = 60


def fill(store: Store, keys: int) -> None:
    """So many keys that have called, and some that are refused."""
    limiter = SyncRateLimiter(SyncRepository(store, pulse=True))
    limiter.set_system_defaults([Limit.per_hour("rpm", 10)])
    for number in range(keys):
        with limiter.acquire(f"key-{number}", "gpt", {"rpm": 1}):
            pass
    for number in range(NOISY):
        for _ in range(12):
            with suppress(RateLimitExceeded), limiter.acquire(f"noisy-{number}", "gpt", {"rpm": 1}):
                pass
    limiter.write_pulse()


async def cost(store: Store) -> tuple[float, int]:
    """Milliseconds of a view, the median of some, and the calls of the store that one takes."""
    counting = FailingStore(store)
    limiter = RateLimiter(Repository(counting))  # type: ignore[arg-type]
    times = []
    for _ in range(VIEWS):
        counting.calls.clear()
        started = time.perf_counter()
        await read_overview(limiter)
        times.append((time.perf_counter() - started) * 1000)
    return sorted(times)[VIEWS // 2], len(counting.calls)


def main(many: int) -> None:
    """Print both, and their ratio."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("memory", "sqlite"):
            found = {}
            most = many if name == "memory" else many // 10
            for keys in (FEW, most):
                store: Store = MemoryStore() if name == "memory" else SqliteStore(str(Path(folder) / f"{keys}.db"))
                fill(store, keys)
                found[keys] = asyncio.run(cost(store))
                print(f"{name}: {keys:,} keys: {found[keys][0]:.2f} ms, {found[keys][1]} calls of the store")
                store.close()
            print(f"{name}: ratio {found[most][0] / found[FEW][0]:.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
