"""What the first view of the dashboard costs, with a hundred keys and with a hundred thousand.

    .venv/bin/python benchmarks/dashboard.py [--quick]

On memory and on SQLite, both views in turns. They must not differ: the view is made of what processes tell of
themselves, and asks the store for the same few keys however many there are.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from comparing import Comparison, Finding, Goal, find
from measuring import Contender, Pace, measure
from presenting import circumstances, show, write

from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository, SyncRateLimiter, SyncRepository
from zae_limiter.dashboard.overview import read_overview
from zae_limiter.stores.memory.store import MemoryStore
from zae_limiter.stores.protocol import Store
from zae_limiter.stores.sqlite.store import SqliteStore
from zae_limiter.testing import FailingStore

FEW, MANY, QUICK_MANY = 100, 100_000, 2_000
NOISY = 60
THOROUGH, QUICK = Pace(rounds=15, seconds=0.1), Pace(rounds=5, seconds=0.05)
INDEPENDENT = Goal(1.25, at_most=True)
"""The same, as far as a processor's caches let it be."""


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


class View:
    """The first view of a store, and how often the store was asked for the last one."""

    def __init__(self, name: str, store: Store, loop: asyncio.Runner) -> None:
        self._counting = FailingStore(store)
        self._limiter = RateLimiter(Repository(self._counting))  # type: ignore[arg-type]
        self._loop = loop
        self.contender = Contender(name, "one view", self._run)

    @property
    def calls(self) -> int:
        return len(self._counting.calls)

    def _run(self, times: int) -> None:
        for _ in range(times):
            self._counting.calls.clear()
            self._loop.run(read_overview(self._limiter))


def stores(folder: Path, keys: int) -> Iterator[tuple[str, Store]]:
    yield "memory", MemoryStore()
    yield "SQLite", SqliteStore(str(folder / f"{keys}.db"))


def views(folder: Path, keys: int, loop: asyncio.Runner, stack: ExitStack) -> dict[str, View]:
    """One of each store, filled."""
    made = {}
    for where, store in stores(folder, keys):
        stack.callback(store.close)
        fill(store, keys)
        made[where] = View(f"{where}, {keys:,} keys", store, loop)
    return made


def main() -> None:
    """Measure, show, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer keys: for trying out, not for quoting")
    quick = parser.parse_args().quick
    many, pace = (QUICK_MANY, QUICK) if quick else (MANY, THOROUGH)
    about = circumstances(["zae-limiter"])
    findings: list[Finding] = []
    calls = []
    with ExitStack() as stack, asyncio.Runner() as loop:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        few_keys, many_keys = (views(folder, keys, loop, stack) for keys in (FEW, many))
        for where, more in many_keys.items():
            less = few_keys[where]
            title = f"the dashboard's first view, {many:,} keys, {where}"
            row = Comparison(title, more.contender, less.contender, INDEPENDENT, cost_ratio=True)
            findings.append(find(row, measure([more.contender, less.contender], pace)))
            calls.append({"where": where, "keys": many, "calls": more.calls, "calls_with_few": less.calls})
    show(findings, about)
    for row in calls:
        print(f"{row['where']}: {row['calls']} calls of the store for a view, {row['calls_with_few']} with {FEW} keys")
    print(f"written: {write('dashboard', findings, about | {'calls': calls})}")


if __name__ == "__main__":
    main()
