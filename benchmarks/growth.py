"""How the cost of an acquire grows as the work grows: more entities, limits, levels of a hierarchy, and processes.

    .venv/bin/python benchmarks/growth.py [--quick]

Within a row every size is measured in every round, in turns, and its cost is told as a ratio to the smallest size of
that round. CPU of this process, except for processes: there it is time on the wall per acquire of all together.

Entities are drawn at random from as many as there are, which is the worst a cache can meet; every one has a bucket
already, and keeps it: so much was taken that it is not full again, and dropped, before an hour is over. Files are
filled by copying a row (``tests/support/sqlite_crowds.py`` does the same); for DynamoDB it is the client without a
network (``canned.py``). Both clients have seen beforehand as many entities as they remember.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

from canned import RESOURCE, canned_limiter, make_chain
from embedded_processes import Contender as Member
from embedded_processes import by_the_clock, our_operation, prepare, trial
from measuring import Contender, Costs, Pace, measure
from presenting import OUT, circumstances

from zae_limiter import Limit, SyncRateLimiter
from zae_limiter.stores.dynamodb.bucket_cache import MAX_BUCKETS
from zae_limiter.stores.sqlite.row_cache import MAX_CACHED_ROWS

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.sqlite_files import opened

ENTITIES = {
    "memory": (100, 1_000, 10_000, 100_000, 1_000_000),
    "SQLite": (100, 1_000, 10_000, 100_000, 1_000_000),
    "DynamoDB client": (100, 1_000, 10_000, 100_000, 1_000_000),
}
WARMED = {"SQLite": MAX_CACHED_ROWS, "DynamoDB client": MAX_BUCKETS}
"""So many entities a client has seen before it is measured: as many as it remembers, or all if there are fewer."""

LIMITS = (1, 2, 3, 5, 10)
DEPTHS = (1, 2, 3, 4, 5)
PROCESSES = (1, 2, 4, 8)
TWO = [Limit.custom("rpm", 10**12, 10**9, 60), Limit.custom("tpm", 10**12, 10**9, 60)]
LONG = 10**11
"""So much taken once is back after more than an hour and a half: until then no bucket is dropped."""

PACE, QUICK = Pace(rounds=15, seconds=0.03), Pace(rounds=7, seconds=0.02)
CREW_ROUNDS, QUICK_CREW_ROUNDS, CREW_SECONDS = 7, 3, 0.3
COPIED = {"buckets": "entity_id", "usage": "entity_id"}
NOTE = (
    "CPU per acquire, as a ratio to the smallest size of the same round; the first column has the cost of that one.\n"
    "Entities are drawn at random from all there are, which is the worst a cache can meet; all have a bucket. The\n"
    f"SQLite client knows the {MAX_CACHED_ROWS:,} rows that it wrote last, the DynamoDB client {MAX_BUCKETS:,} "
    "buckets: of more entities they\nsee most as if for the first time, which costs a statement that reads, or "
    "calls that look. In memory it is the\nprocessor's caches that miss. *Processes* share one SQLite file: time on "
    "the wall per acquire of all together."
)

Open = Callable[[Sequence[Limit]], SyncRateLimiter]


_EARLIER = time.time_ns() // 1_000_000 % 3_600_000


def in_one_hour() -> int:
    """The time, if the hour had begun with the benchmark: in each hour the first acquire of every entity begins a
    window of usage, and a million of them would be all that is seen."""
    return time.time_ns() // 1_000_000 - _EARLIER


class Row(NamedTuple):
    """One thing that grows, in one place."""

    what: str
    where: str
    sizes: Sequence[int]
    contenders: Sequence[Contender]
    costs: Costs

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        points = [
            {
                "size": size,
                "seconds": self.costs.of(each)._asdict(),
                "ratio": self.costs.ratio(each, self.contenders[0])._asdict(),
            }
            for size, each in zip(self.sizes, self.contenders, strict=True)
        ]
        return {"what": self.what, "where": self.where, "points": points}


class World:
    """A folder for files, and what is to be closed at the end."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._files = 0

    def memory(self, limits: Sequence[Limit]) -> SyncRateLimiter:
        return self._limited(SyncRateLimiter.open("memory://", clock=in_one_hour), limits)

    def sqlite(self, limits: Sequence[Limit]) -> SyncRateLimiter:
        self._files += 1
        return self._limited(SyncRateLimiter.open(f"sqlite:///{self.path}", clock=in_one_hour), limits)

    @property
    def path(self) -> Path:
        """The file that was opened last."""
        return self._folder / f"{self._files}.db"

    def _limited(self, limiter: SyncRateLimiter, limits: Sequence[Limit]) -> SyncRateLimiter:
        self._stack.enter_context(closing(limiter))
        limiter.set_system_defaults(list(limits))
        return limiter


def taking(
    name: str, limiter: SyncRateLimiter, names: Iterator[str], limits: Sequence[Limit], amount: int = 1
) -> Contender:
    """One acquire after the other, each as the next name."""
    amounts = {limit.name: amount for limit in limits}

    def run(times: int) -> None:
        for _ in range(times):
            with limiter.acquire(next(names), RESOURCE, amounts):
                pass

    return Contender(name, "with acquire", run)


def at_random(entities: int, seed: str) -> Iterator[str]:
    """Names of any of them. Another seed is another order: who warms up must not show what is measured then."""
    chance = random.Random(f"{seed} {entities}")
    while True:
        yield f"key-{chance.randrange(entities)}"


def in_turn(entities: int) -> Iterator[str]:
    """Each of them, once."""
    return (f"key-{number}" for number in range(entities))


def always(name: str) -> Iterator[str]:
    while True:
        yield name


# Entities


def crowded_memory(world: World, entities: int) -> SyncRateLimiter:
    limiter = world.memory(TWO)
    gc.disable()  # while it grows, the collector would look at all of it again and again
    taking("", limiter, in_turn(entities), TWO, LONG).run(entities)
    gc.enable()
    return limiter


def crowded_sqlite(world: World, entities: int) -> SyncRateLimiter:
    limiter = world.sqlite(TWO)
    taking("", limiter, always("key-0"), TWO, LONG).run(1)
    with opened(world.path) as connection:
        connection.execute("BEGIN")
        for table, whose in COPIED.items():
            columns = [name for _, name, *_ in connection.execute(f"PRAGMA table_info ({table})") if name != "serial"]
            chosen = ["'key-' || n" if name == whose else name for name in columns]
            last = entities - 1
            connection.execute(
                f"WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {last})"
                f" INSERT INTO {table} ({', '.join(columns)})"
                f" SELECT {', '.join(chosen)} FROM {table}, numbers WHERE {whose} = 'key-0'"
            )
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint (TRUNCATE)")
    return limiter


def crowded_dynamodb(world: World, entities: int) -> SyncRateLimiter:
    return canned_limiter(TWO)


def acquainted(where: str, limiter: SyncRateLimiter, entities: int) -> SyncRateLimiter:
    """It has seen as many of them as it remembers."""
    most = WARMED.get(where, 0)
    if most:
        names = in_turn(entities) if entities <= most else at_random(entities, "before")
        taking("", limiter, names, TWO).run(min(entities, most))
    return limiter


CROWDED = {"memory": crowded_memory, "SQLite": crowded_sqlite, "DynamoDB client": crowded_dynamodb}


def by_entities(world: World, where: str, pace: Pace, most: int, tell: Callable[[str], None]) -> Row:
    sizes = [size for size in ENTITIES[where] if size <= most]
    contenders = []
    for size in sizes:
        tell(f"{where}: making {size:,} entities")
        limiter = acquainted(where, CROWDED[where](world, size), size)
        contenders.append(taking(str(size), limiter, at_random(size, "measured"), TWO))
    return Row("entities", where, sizes, contenders, measure(contenders, pace, tell))


# Limits and levels


def so_many(count: int) -> list[Limit]:
    return [Limit.per_minute(f"limit-{number}", 10**9) for number in range(count)]


def by_limits(where: str, make: Open, pace: Pace, tell: Callable[[str], None]) -> Row:
    contenders = [taking(str(size), make(so_many(size)), always("key-0"), so_many(size)) for size in LIMITS]
    return Row("limits per bucket", where, LIMITS, contenders, measure(contenders, pace, tell))


def deep(limiter: SyncRateLimiter, depth: int) -> SyncRateLimiter:
    make_chain(limiter, depth)
    return limiter


def by_depth(where: str, make: Callable[[int], SyncRateLimiter], pace: Pace, tell: Callable[[str], None]) -> Row:
    contenders = [taking(str(depth), make(depth), always("key-0"), TWO) for depth in DEPTHS]
    return Row("levels of the hierarchy", where, DEPTHS, contenders, measure(contenders, pace, tell))


# Processes


def by_processes(folder: Path, shared: bool, rounds: int, tell: Callable[[str], None]) -> tuple[Row, list[float]]:
    """Crews of several sizes take turns; also the longest wait of each, in milliseconds."""
    where = "SQLite, one key" if shared else "SQLite, a key each"
    members = [Member(str(size), "with acquire, two limits", by_the_clock) for size in PROCESSES]
    costs: dict[str, list[float]] = {member.name: [] for member in members}
    with ExitStack() as stack:
        trials = []
        for member, size in zip(members, PROCESSES, strict=True):
            path = prepare(folder / f"{size}-{'one' if shared else 'each'}.db")
            keys = ["key-1" if shared else f"key-{number}" for number in range(size)]
            trials.append(stack.enter_context(trial(member, our_operation, path, keys)))
        for number in range(rounds):
            tell(f"{where}: round {number + 1} of {rounds}")
            first = number % len(trials)
            for each in trials[first:] + trials[:first]:
                costs[each.contender.name].append(each.round(CREW_SECONDS))
        waits = [each.waits(where, None).worst_ms for each in trials]
    return Row("processes", where, PROCESSES, members, Costs(costs)), waits


def grown(folder: Path, pace: Pace, rounds: int, most: int, tell: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Every row, as soon as it is known. Whatever is large is gone before the next begins."""
    for where in ENTITIES:
        with ExitStack() as stack:
            row = by_entities(World(folder, stack), where, pace, most, tell).as_dict()
        gc.unfreeze()
        gc.collect()
        for path in folder.iterdir():
            path.unlink()
        yield row
    with ExitStack() as stack:
        world = World(folder, stack)
        places: dict[str, Open] = {"memory": world.memory, "SQLite": world.sqlite, "DynamoDB client": canned_limiter}
        for where, make in places.items():
            yield by_limits(where, make, pace, tell).as_dict()
        yield by_depth("memory", lambda depth: deep(world.memory(TWO), depth), pace, tell).as_dict()
        yield by_depth("SQLite", lambda depth: deep(world.sqlite(TWO), depth), pace, tell).as_dict()
        yield by_depth("DynamoDB client", lambda depth: canned_limiter(TWO, depth), pace, tell).as_dict()
    for shared in (True, False):
        of_processes, waits = by_processes(folder, shared, rounds, tell)
        yield {**of_processes.as_dict(), "worst_ms": waits}


def show(row: dict[str, Any]) -> None:
    points = row["points"]
    cells = "  ".join(f"{point['size']:,}: {point['ratio']['median']:.2f}x" for point in points)
    first = points[0]["seconds"]["median"] * 1e6
    print(f"{row['what']:<24} {row['where']:<20} {first:8.1f} µs  {cells}", flush=True)


def main() -> None:
    """Measure, show, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds, and at most 10,000 entities")
    parser.add_argument("--most", type=int, default=10**6, help="at most so many entities")
    chosen = parser.parse_args()
    shows = sys.stderr.isatty()

    def tell(text: str) -> None:
        if shows:
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    began = time.monotonic()
    pace, rounds = (QUICK, QUICK_CREW_ROUNDS) if chosen.quick else (PACE, CREW_ROUNDS)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for row in grown(Path(folder), pace, rounds, min(chosen.most, 10_000 if chosen.quick else 10**6), tell):
            tell("")
            show(row)
            rows.append(row)
    OUT.mkdir(exist_ok=True)
    path = OUT / "growth.json"
    report = {**circumstances(["zae-limiter"]), "rows": rows, "note": NOTE, "took": round(time.monotonic() - began)}
    path.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    print(f"written: {path}")


if __name__ == "__main__":
    main()
