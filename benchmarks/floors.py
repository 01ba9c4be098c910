"""What nothing written in Python can go below: the same steps without a limiter around them. Ratios in one run.

    .venv/bin/python benchmarks/floors.py [--quick]

Some goals compare an acquire with a library that does much less. Where one is missed, this says how much of an acquire
is its necessary steps, written out in one place with nothing checked, no denial, no interrupt in mind and no books:

- *async with*: an object per call, found by entity and resource; the time; a lock; two balances and two counters;
- *acquire and settle*: the same without ``async``, a method with a keyword, and the second half: time, lock, balances;
- *SQLite*: one transaction that reads a row and writes it back, by the same driver with the same settings.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import threading
from pathlib import Path
from time import time_ns
from typing import Any, Self

from comparing import Comparison, find
from embedded_processes import our_operation, prepare
from measuring import QUICK, THOROUGH, Contender, measure
from presenting import circumstances, show

from embedded import aiolimiter_once, in_the_loop, limits_three_times, ours_async, ours_settled

PACKAGES = ["zae-limiter", "limits", "aiolimiter"]


class Balance:
    __slots__ = ("tc", "tk")

    def __init__(self) -> None:
        self.tk, self.tc = 10**15, 0


LOCK = threading.RLock()
ROUTES = {("key-1", "gpt-4"): (Balance(), Balance(), LOCK.acquire, LOCK.release)}


class BareLease:
    """What a lease has to remember, and the least that entering and leaving it does."""

    __slots__ = ("actual", "entity_id", "grant", "resource", "wanted")

    def __init__(self, entity_id: str, resource: str, wanted: dict[str, int]) -> None:
        self.entity_id = entity_id
        self.resource = resource
        self.wanted = wanted
        self.actual: dict[str, int] | None = None
        self.grant: Any = None

    def settle(self, **actual: int) -> None:
        self.actual = actual

    def __enter__(self) -> Self:
        one, two, enter, leave = ROUTES[self.entity_id, self.resource]
        now, wanted = time_ns() // 1_000_000, self.wanted
        rpm, tpm = wanted["rpm"] * 1000, wanted["tpm"] * 1000
        enter()
        one.tk -= rpm
        one.tc += rpm
        two.tk -= tpm
        two.tc += tpm
        leave()
        self.grant = now, rpm, tpm
        return self

    def __exit__(self, *_: object) -> None:
        actual = self.actual
        if actual is not None:
            _, two, enter, leave = ROUTES[self.entity_id, self.resource]
            now = time_ns() // 1_000_000
            more = actual["tpm"] * 1000 - self.grant[2]
            enter()
            two.tk -= more
            two.tc += more
            leave()
            self.grant = now, more

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        return None


def bare_async() -> Contender:
    async def work(times: int) -> None:
        for _ in range(times):
            async with BareLease("key-1", "gpt-4", {"rpm": 1, "tpm": 500}):
                pass

    return Contender("the steps alone, async", "an object, a lookup, the time, a lock, four sums", in_the_loop(work))


def bare_settled() -> Contender:
    def run(times: int) -> None:
        for _ in range(times):
            with BareLease("key-1", "gpt-4", {"rpm": 1, "tpm": 500}) as lease:
                lease.settle(tpm=620)

    return Contender("the steps alone, settled", "the same, and again at the end", run)


def bare_transaction(path: Path) -> Contender:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("CREATE TABLE buckets (entity, resource, tk, tc, tk2, tc2, PRIMARY KEY (entity, resource))")
    connection.execute("INSERT INTO buckets VALUES ('key-1', 'gpt-4', 0, 0, 0, 0)")
    execute = connection.execute

    def run(times: int) -> None:
        for _ in range(times):
            execute("BEGIN IMMEDIATE")
            execute("SELECT * FROM buckets WHERE entity = ? AND resource = ?", ("key-1", "gpt-4")).fetchone()
            execute(
                "UPDATE buckets SET tk = tk - ?, tc = tc + ?, tk2 = tk2 - ?, tc2 = tc2 + ?"
                " WHERE entity = ? AND resource = ?",
                (1000, 1000, 500_000, 500_000, "key-1", "gpt-4"),
            )
            execute("COMMIT")

    return Contender("one transaction alone", "BEGIN IMMEDIATE, SELECT, UPDATE, COMMIT", run)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    pace = QUICK if arguments.parse_args().quick else THOROUGH
    with tempfile.TemporaryDirectory() as folder:
        acquire = our_operation(prepare(Path(folder, "ours.db")), "key-1")

        def on_sqlite(times: int) -> None:
            for _ in range(times):
                acquire()

        ours, settled = ours_async(), ours_settled()
        aiolimiter, limits = aiolimiter_once(), limits_three_times()
        floor, settled_floor = bare_async(), bare_settled()
        sqlite = Contender("zae-limiter, SQLite", "with acquire, two limits", on_sqlite)
        transaction = bare_transaction(Path(folder, "bare.db"))
        rows = [
            Comparison("async acquire", ours, floor, cost_ratio=True),
            Comparison("aiolimiter", aiolimiter, floor, cost_ratio=True),
            Comparison("acquire and settle", settled, settled_floor, cost_ratio=True),
            Comparison("limits, three times", limits, settled_floor, cost_ratio=True),
            Comparison("SQLite (CPU)", sqlite, transaction, cost_ratio=True),
        ]
        contenders = [ours, settled, aiolimiter, limits, floor, settled_floor, sqlite, transaction]
        costs = measure(contenders, pace)
        show([find(row, costs) for row in rows], circumstances(PACKAGES))


if __name__ == "__main__":
    main()
