"""How the cost of an acquire grows as the work grows: more entities, limits, levels of a hierarchy, and processes.

    .venv/bin/python benchmarks/growth.py [--quick]

Within a row every size is measured in every round, in turns, and its cost is told as a ratio to the smallest size of
that round. CPU of this process, except for processes: there it is time on the wall per acquire of all together.

Entities are drawn at random from as many as there are, which is the worst a cache can meet; every one has a bucket
already. Files of SQLite are filled by copying a row (``tests/sqlite/crowds.py`` does the same); for DynamoDB it is the
client without a network (``canned.py``), which sees most of a million entities for the first time when it sees them.
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

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "sqlite"))

from looking_inside import opened

ENTITIES = {
    "memory": (100, 1_000, 10_000, 100_000, 1_000_000),
    "SQLite": (100, 1_000, 10_000, 100_000, 1_000_000),
    "DynamoDB client": (100, 1_000, 10_000, 100_000, 1_000_000),
}
WARMED = 50_000
"""More than that of one size a client without a network is not shown beforehand."""

LIMITS = (1, 2, 3, 5, 10)
DEPTHS = (1, 2, 3, 4, 5)
PROCESSES = (1, 2, 4, 8)
TWO = [Limit.per_minute("rpm", 10**9), Limit.per_minute("tpm", 10**12)]
PACE, QUICK = Pace(rounds=15, seconds=0.03), Pace(rounds=7, seconds=0.02)
CREW_ROUNDS, QUICK_CREW_ROUNDS, CREW_SECONDS = 7, 3, 0.3
COPIED = {"buckets": "entity_id", "usage": "entity_id"}
NOTE = (
    "CPU per acquire, as a ratio to the smallest size of the same round; the first column has the cost of that one.\n"
    "Entities are drawn at random from all there are, and all have a bucket; the SQLite client, and the DynamoDB\n"
    "client beyond 50,000, see most of very many for the first time, which costs them more reads. *Processes* share\n"
    "one SQLite file: time on the wall per acquire of all together."
)

Open = Callable[[Sequence[Limit]], SyncRateLimiter]


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
    """A folder for files, and whoever is to be closed at the end."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._files = 0

    def memory(self, limits: Sequence[Limit]) -> SyncRateLimiter:
        return self._limited(SyncRateLimiter.open("memory://"), limits)

    def sqlite(self, limits: Sequence[Limit]) -> SyncRateLimiter:
        self._files += 1
        return self._limited(SyncRateLimiter.open(f"sqlite:///{self.path}"), limits)

    @property
    def path(self) -> Path:
        """The file that was opened last."""
        return self._folder / f"{self._files}.db"

    def _limited(self, limiter: SyncRateLimiter, limits: Sequence[Limit]) -> SyncRateLimiter:
        self._stack.enter_context(closing(limiter))
        limiter.set_system_defaults(list(limits))
        return limiter


def taking(name: str, limiter: SyncRateLimiter, names: Iterator[str], limits: Sequence[Limit]) -> Contender:
    """One acquire after the other, each as the next name."""
    amounts = {limit.name: 1 for limit in limits}

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


def always(name: str) -> Iterator[str]:
    while True:
        yield name


# Entities


def crowded_memory(world: World, entities: int) -> SyncRateLimiter:
    limiter = world.memory(TWO)
    gc.disable()  # while it grows, the collector would look at all of it again and again
    taking("", limiter, (f"key-{number}" for number in range(entities)), TWO).run(entities)
    gc.enable()
    return limiter


def crowded_sqlite(world: World, entities: int) -> SyncRateLimiter:
    limiter = world.sqlite(TWO)
    taking("", limiter, always("key-0"), TWO).run(1)
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
    limiter = canned_limiter(TWO)
    if entities <= WARMED:
        taking("", limiter, (f"key-{number}" for number in range(entities)), TWO).run(entities)
    else:
        taking("", limiter, at_random(entities, "before"), TWO).run(WARMED)
    return limiter


CROWDED = {"memory": crowded_memory, "SQLite": crowded_sqlite, "DynamoDB client": crowded_dynamodb}


def by_entities(world: World, where: str, pace: Pace, most: int, tell: Callable[[str], None]) -> Row:
    sizes = [size for size in ENTITIES[where] if size <= most]
    contenders = []
    for size in sizes:
        tell(f"{where}: making {size:,} entities")
        contenders.append(taking(str(size), CROWDED[where](world, size), at_random(size, "measured"), TWO))
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


def grown(folder: Path, pace: Pace, rounds: int, most: int, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """Every row. Whatever is large is gone before the next begins."""
    rows: list[dict[str, Any]] = []
    for where in ENTITIES:
        with ExitStack() as stack:
            rows.append(by_entities(World(folder, stack), where, pace, most, tell).as_dict())
        for path in folder.iterdir():
            path.unlink()
    with ExitStack() as stack:
        world = World(folder, stack)
        places: dict[str, Open] = {"memory": world.memory, "SQLite": world.sqlite, "DynamoDB client": canned_limiter}
        for where, make in places.items():
            tell(f"{where}: limits and levels")
            rows.append(by_limits(where, make, pace, tell).as_dict())
        rows += [
            by_depth("memory", lambda depth: deep(world.memory(TWO), depth), pace, tell).as_dict(),
            by_depth("SQLite", lambda depth: deep(world.sqlite(TWO), depth), pace, tell).as_dict(),
            by_depth("DynamoDB client", lambda depth: canned_limiter(TWO, depth), pace, tell).as_dict(),
        ]
    for shared in (True, False):
        row, waits = by_processes(folder, shared, rounds, tell)
        rows.append({**row.as_dict(), "worst_ms": waits})
    return rows


def show(rows: Sequence[dict[str, Any]]) -> None:
    for row in rows:
        points = row["points"]
        cells = "  ".join(f"{point['size']:,}: {point['ratio']['median']:.2f}x" for point in points)
        first = points[0]["seconds"]["median"] * 1e6
        print(f"{row['what']:<24} {row['where']:<20} {first:8.1f} µs  {cells}")


def main() -> None:
    """Measure, show, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds, and at most 10,000 entities")
    quick = parser.parse_args().quick
    shows = sys.stderr.isatty()

    def tell(text: str) -> None:
        if shows:
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    began = time.monotonic()
    pace, rounds, most = (QUICK, QUICK_CREW_ROUNDS, 10_000) if quick else (PACE, CREW_ROUNDS, 10**6)
    with tempfile.TemporaryDirectory() as folder:
        rows = grown(Path(folder), pace, rounds, most, tell)
    tell("")
    show(rows)
    OUT.mkdir(exist_ok=True)
    path = OUT / "growth.json"
    report = {**circumstances(["zae-limiter"]), "rows": rows, "note": NOTE, "took": round(time.monotonic() - began)}
    path.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    print(f"written: {path}")


if __name__ == "__main__":
    main()
