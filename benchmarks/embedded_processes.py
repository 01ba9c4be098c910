"""The SQLite store in one process and in four, against pyrate-limiter's SQLite bucket. Ratios in one run.

A note on fairness. Ours takes from two limits in one call, all or nothing, and counts usage. Theirs takes one
token of one limit (for more tokens it would insert more rows), from a window of a second (a longer one would hold
more rows, and each call counts them). By default theirs waits for the disk at every call, and is not exact among
several processes; its file lock is, and comes with a log that waits less. Both are shown, and the goals are held
against the default. All files are on the disk that holds temporary files, so a ratio against the default says as
much about that disk. The time on the wall is counted, because waiting is what the callers do.
"""

from __future__ import annotations

import asyncio
import importlib.util
import math
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import pyrate_limiter
from comparing import Comparison, Finding, Goal, Waits, find
from measuring import Contender, Costs, Pace, measure, spread_of

from zae_limiter import Limit, RateLimiter, SyncRateLimiter

PROCESSES = 4
WORST_WAIT_MS = 100
THROUGHPUT = Goal(30, first_step=15)
THROUGHPUT_OF_FOUR = Goal(20)
SETTLED = Goal(2.2, at_most=True)
"""What an acquire and its settlement may cost of an acquire alone: one transaction each."""

RPM, TPM = 10**9, 10**12
"""Per minute: never runs out while we measure."""

Operation = Callable[[], object]


def our_operation(path: str, key: str) -> Operation:
    """One acquire of two limits."""
    limiter = SyncRateLimiter.open(f"sqlite:///{path}")

    def acquire() -> None:
        with limiter.acquire(key, "gpt-4", {"rpm": 1, "tpm": 500}):
            pass

    return acquire


def our_settled_operation(path: str, key: str) -> Operation:
    """One acquire of two limits, and what it really used."""
    limiter = SyncRateLimiter.open(f"sqlite:///{path}")

    def acquire_and_settle() -> None:
        with limiter.acquire(key, "gpt-4", {"rpm": 1, "tpm": 500}) as lease:
            lease.settle(tpm=620)

    return acquire_and_settle


def their_operation(path: str, key: str, *, use_file_lock: bool = False) -> Operation:
    """One token of one limit. A key has a table of its own, as its users have it."""
    bucket = pyrate_limiter.SQLiteBucket.init_from_file(
        [pyrate_limiter.Rate(RPM, pyrate_limiter.Duration.SECOND)],
        table=key.replace("-", "_"),
        db_path=path,
        use_file_lock=use_file_lock,
    )
    limiter = pyrate_limiter.Limiter(bucket)
    return lambda: limiter.try_acquire(key)


def their_locked_operation(path: str, key: str) -> Operation:
    """The same, safe among several processes."""
    return their_operation(path, key, use_file_lock=True)


def prepare(path: Path) -> str:
    """Our file, with limits in it."""
    with SyncRateLimiter.open(f"sqlite:///{path}") as limiter:
        limiter.set_system_defaults([Limit.per_minute("rpm", RPM), Limit.per_minute("tpm", TPM)])
    return str(path)


# One process


def contender(name: str, does: str, operation: Operation) -> Contender:
    def run(times: int) -> None:
        for _ in range(times):
            operation()

    return Contender(name, does, run)


def async_contender(path: str, runner: asyncio.Runner) -> Contender:
    limiter = runner.run(RateLimiter.open(f"sqlite:///{path}"))

    async def work(times: int) -> None:
        for _ in range(times):
            async with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 500}):
                pass

    return Contender(
        "zae-limiter, SQLite, async", "async with acquire, two limits", lambda times: runner.run(work(times))
    )


def measure_one_process(
    folder: Path, pace: Pace, runner: asyncio.Runner, tell: Callable[[str], None]
) -> list[Finding]:
    """Ours, with a settlement, and in an event loop; theirs with and without its file lock."""
    path = prepare(folder / "ours.db")
    ours = contender("zae-limiter, SQLite", "with acquire, two limits", our_operation(path, "key-1"))
    ours_settled = contender(
        "zae-limiter, SQLite, settled",
        "with acquire, two limits, and settle",
        our_settled_operation(str(prepare(folder / "settled.db")), "key-1"),
    )
    ours_async = async_contender(path, runner)
    theirs = contender(
        "pyrate-limiter, SQLite", "try_acquire of one", their_operation(str(folder / "theirs.db"), "key-1")
    )
    rows = [
        Comparison("SQLite, one process", ours, theirs, THROUGHPUT),
        Comparison("SQLite, one process, async", ours_async, theirs),
        Comparison("SQLite, acquire and settle", ours_settled, theirs),
    ]
    if has_file_lock():
        locked = contender(
            "pyrate-limiter, SQLite, file lock",
            "try_acquire of one, safe among processes",
            their_locked_operation(str(folder / "locked.db"), "key-1"),
        )
        rows.append(Comparison("SQLite, one process", ours, locked))
    contenders = list({id(one): one for row in rows for one in (row.ours, row.theirs)}.values())
    costs = measure(contenders, pace, tell, timer=time.perf_counter)
    # Both are ours, and neither waits: CPU time, on which the disk and other programs have no say.
    settled = Comparison("SQLite, acquire and settle (CPU)", ours_settled, ours, SETTLED, cost_ratio=True)
    return [*(find(row, costs) for row in rows), find(settled, measure([ours_settled, ours], pace, tell))]


# Four processes


class Shift(NamedTuple):
    """What one process did in one round: operations, the longest of them and the 99th percentile, in seconds."""

    operations: int
    worst: float
    p99: float


class Crew:
    """Four processes that do the same thing, for as long as they are told to."""

    def __init__(self, make: Callable[[str, str], Operation], path: str, keys: Sequence[str]) -> None:
        world = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes = []
        for key in keys:
            ours, theirs = world.Pipe()
            process = world.Process(target=serve, args=(theirs, make, path, key), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)
        for pipe in self._pipes:
            pipe.recv()

    def work(self, seconds: float) -> list[Shift]:
        """A round, of all of them at the same time."""
        for pipe in self._pipes:
            pipe.send(seconds)
        return [pipe.recv() for pipe in self._pipes]

    def dismiss(self) -> None:
        """Send them home."""
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join(10)
            if process.is_alive():
                process.kill()


def serve(pipe: Connection, make: Callable[[str, str], Operation], path: str, key: str) -> None:
    """One process of a crew."""
    operation = make(path, key)
    operation()
    pipe.send("ready")
    while (seconds := pipe.recv()) is not None:
        spent = []
        begun = last = time.perf_counter()
        while last - begun < seconds:
            operation()
            now = time.perf_counter()
            spent.append(now - last)
            last = now
        spent.sort()
        pipe.send(Shift(len(spent), spent[-1], spent[math.ceil(len(spent) * 0.99) - 1]))


@dataclass(frozen=True)
class Trial:
    """A crew in a comparison, and what its rounds gave."""

    contender: Contender
    crew: Crew
    shifts: list[list[Shift]]

    def round(self, seconds: float) -> float:
        """Seconds per operation of all together."""
        shifts = self.crew.work(seconds)
        self.shifts.append(shifts)
        return seconds / sum(shift.operations for shift in shifts)

    def waits(self, title: str, goal_ms: float | None) -> Waits:
        """How long its processes waited, and how evenly they were served."""
        return Waits(
            title=title,
            contender=self.contender.name,
            worst_ms=1000 * max(shift.worst for shifts in self.shifts for shift in shifts),
            p99_ms=spread_of([1000 * max(shift.p99 for shift in shifts) for shifts in self.shifts]).median,
            fairness=spread_of([evenness(shifts) for shifts in self.shifts]).median,
            goal_ms=goal_ms,
        )


def evenness(shifts: Sequence[Shift]) -> float:
    """What the least served process got of what the best served one did."""
    operations = [shift.operations for shift in shifts]
    return min(operations) / max(operations)


@contextmanager
def trial(
    contender: Contender, make: Callable[[str, str], Operation], path: str, keys: Sequence[str]
) -> Iterator[Trial]:
    """A crew, for as long as it is needed."""
    crew = Crew(make, path, keys)
    try:
        yield Trial(contender, crew, [])
    finally:
        crew.dismiss()


def by_the_clock(times: int) -> None:
    """Crews work for a time, not a number of times."""
    raise AssertionError


OURS = Contender("zae-limiter, SQLite", "with acquire, two limits", by_the_clock)
THEIRS = Contender("pyrate-limiter, SQLite", "try_acquire of one; not exact among processes", by_the_clock)
THEIRS_LOCKED = Contender("pyrate-limiter, SQLite, file lock", "try_acquire of one", by_the_clock)


def measure_four_processes(
    folder: Path, rounds: int, seconds: float, tell: Callable[[str], None]
) -> tuple[list[Finding], list[Waits]]:
    """On one key, and each on a key of its own. Ours and theirs, with and without its lock, take turns."""
    findings, waits = [], []
    for title, keys in (
        ("SQLite, four processes, one key", ["key-1"] * PROCESSES),
        ("SQLite, four processes, a key each", [f"key-{place}" for place in range(PROCESSES)]),
    ):
        stem = f"{len(set(keys))}-keys.db"
        path = prepare(folder / f"ours-{stem}")
        with ExitStack() as stack:

            def start(contender: Contender, make: Callable[[str, str], Operation], path: str) -> Trial:
                return stack.enter_context(trial(contender, make, path, keys))  # noqa: B023 (used at once)

            ours = start(OURS, our_operation, path)
            theirs = start(THEIRS, their_operation, str(folder / f"theirs-{stem}"))
            locked = start(THEIRS_LOCKED, their_locked_operation, str(folder / f"locked-{stem}"))
            trials = [ours, theirs, locked]
            costs: dict[str, list[float]] = {each.contender.name: [] for each in trials}
            for number in range(rounds):
                tell(f"{title}: round {number + 1} of {rounds}")
                for each in trials[number % 3 :] + trials[: number % 3]:
                    costs[each.contender.name].append(each.round(seconds))
        rows = [Comparison(title, OURS, THEIRS, THROUGHPUT_OF_FOUR), Comparison(title, OURS, THEIRS_LOCKED)]
        findings += [find(row, Costs(costs)) for row in rows]
        waits += [each.waits(title, WORST_WAIT_MS if each is ours else None) for each in trials]
    return findings, waits


def has_file_lock() -> bool:
    """Whether pyrate-limiter's file lock can be had: it needs a package of its own."""
    return importlib.util.find_spec("filelock") is not None


def measure_sqlite(
    folder: Path, pace: Pace, runner: asyncio.Runner, tell: Callable[[str], None]
) -> tuple[list[Finding], list[Waits]]:
    """Everything on SQLite."""
    findings = measure_one_process(folder, pace, runner, tell)
    if not has_file_lock():
        print("without the package filelock there is nothing to compare four processes with")
        return findings, []
    rounds = max(pace.rounds // 7, 2)
    seconds = 30 * pace.seconds
    more, waits = measure_four_processes(folder, rounds, seconds, tell)
    return findings + more, waits
