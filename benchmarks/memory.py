"""What a client keeps in memory: bytes of each thing, the bound of every cache, and a long walk past all of them.

    .venv/bin/python benchmarks/memory.py [--quick]

Bytes are counted by tracemalloc over some thousand entities, each taken from once with two limits; what one cache has
of them is what is freed when it is emptied. A *soak* is a process of its own that takes once as each of a million
entities (``--quick``: a quarter of that) and looks at its resident memory meanwhile: what does not belong to the data
itself must stay where it is once the bounds are reached. DynamoDB's answers are canned (``canned.py``), so nothing
grows but us.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from canned import RESOURCE, canned_limiter
from memory_bounds import bounds
from presenting import OUT, circumstances

from zae_limiter import Limit, SyncRateLimiter
from zae_limiter.config_cache import MAX_ENTRIES
from zae_limiter.stores.embedded.routes import MAX_ROUTES

LIMITS = [Limit.per_minute("rpm", 10**9), Limit.per_minute("tpm", 10**12)]
AMOUNTS = {"rpm": 1, "tpm": 500}
COUNTED = 4_000
SOAKED, QUICK_SOAKED = 1_000_000, 250_000
SAMPLES = 200
COMING_AND_GOING = 10_000
WITHIN_AN_HOUR = 250_000
"""Acquires of those that come and go: each hour adds rows to their usage, which are data."""

FLAT = 1.05
"""How much more than at its bounds a flat soak may have at its end."""

NOTE = (
    "Resident memory above what the process had before its first acquire. *At its bounds*: the most until the\n"
    "largest cache was one and a half times full. A soak whose memory belongs to the data (a bucket that is not full\n"
    f"again is data) may grow; the others are flat if the end has at most {100 * (FLAT - 1):.0f} % more."
)


def take(limiter: SyncRateLimiter, entity_id: str) -> None:
    with limiter.acquire(entity_id, RESOURCE, AMOUNTS):
        pass


def limited(limiter: SyncRateLimiter) -> SyncRateLimiter:
    limiter.set_system_defaults(LIMITS)
    return limiter


# Bytes


def traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def weighed(limiter: SyncRateLimiter, parts: Mapping[str, Callable[[], object]]) -> dict[str, int]:
    """Bytes per entity of each part, by emptying one after the other, and of what is left."""
    take(limiter, "before")
    tracemalloc.start()
    try:
        before = traced()
        for number in range(COUNTED):
            take(limiter, f"key-{number:012}")
        left = traced()
        found = {}
        for name, empty in parts.items():
            empty()
            now = traced()
            found[name] = round((left - now) / COUNTED)
            left = now
        return {**found, "": round((left - before) / COUNTED)}
    finally:
        tracemalloc.stop()


def bytes_of_each(folder: Path) -> list[dict[str, Any]]:
    """Every store, every part."""
    memory = limited(SyncRateLimiter.open("memory://"))
    space: Any = memory.repository._core.space
    of_memory = weighed(
        memory,
        {
            "memory: shortcut of an entity and resource": lambda: space._shortcuts.clear(),
            "memory: route of an entity and resource": lambda: space._tables.routes._known.clear(),
        },
    )
    of_memory["memory: live bucket of two limits, with its usage row and places in lists"] = of_memory.pop("")
    path = folder / "weighed.db"
    sqlite = limited(SyncRateLimiter.open(f"sqlite:///{path}"))
    kept: Any = sqlite.repository._core.space
    of_sqlite = weighed(
        sqlite,
        {
            "SQLite client: route of an entity and resource": lambda: kept._used_last.routes._known.clear(),
            "SQLite client: pair that was granted before": lambda: kept._known.clear(),
        },
    )
    of_sqlite["SQLite client: everything else"] = of_sqlite.pop("")
    sqlite.close()
    of_sqlite["SQLite file: bucket with its usage row and indexes"] = round(path.stat().st_size / COUNTED)
    dynamodb = canned_limiter(LIMITS, parsed=True)
    seen: Any = dynamodb.repository._core.space
    of_dynamodb = weighed(
        dynamodb,
        {
            "DynamoDB client: remembered bucket": seen.images.forget_all,
            "DynamoDB client: resolved limits of an entity and resource": seen._standings.clear,
        },
    )
    of_dynamodb["DynamoDB client: everything else"] = of_dynamodb.pop("")
    return [
        {"what": what, "bytes": size} for part in (of_memory, of_sqlite, of_dynamodb) for what, size in part.items()
    ]


# Soaks


class Soak(NamedTuple):
    """A walk over very many entities: with which limiter, as whom, and past which bound."""

    where: str
    limiter: Callable[[Path], SyncRateLimiter]
    bound: int | None
    """The largest bound of its caches; none where the data itself is in memory."""
    names: Callable[[], Iterator[str]] = lambda: (f"key-{number:012}" for number in count())
    most: int = 10**9


def passing(step_ms: int) -> Callable[[], int]:
    """A clock that moves on with every look at it."""
    return count(1_750_000_000_000, step_ms).__next__


def the_same() -> Iterator[str]:
    return (f"key-{number % COMING_AND_GOING:012}" for number in count())


SOAKS = {
    "dynamodb": Soak("DynamoDB client", lambda folder: canned_limiter(LIMITS, parsed=True), MAX_ENTRIES),
    "sqlite": Soak(
        "SQLite client", lambda folder: limited(SyncRateLimiter.open(f"sqlite:///{folder}/soak.db")), MAX_ROUTES
    ),
    "memory": Soak("memory, every bucket alive", lambda folder: limited(SyncRateLimiter.open("memory://")), None),
    "coming": Soak(
        f"memory, {COMING_AND_GOING:,} entities that come and go",
        lambda folder: limited(SyncRateLimiter.open("memory://", clock=passing(10))),
        COMING_AND_GOING,
        the_same,
        WITHIN_AN_HOUR,
    ),
}


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def soak(name: str, entities: int) -> dict[str, Any]:
    """What became of the memory of this process."""
    walk = SOAKS[name]
    entities = min(entities, walk.most)
    with tempfile.TemporaryDirectory() as folder:
        limiter = walk.limiter(Path(folder))
        names = walk.names()
        take(limiter, "before")
        gc.collect()
        start, began = resident_bytes(), time.monotonic()
        samples = []
        for number in range(1, entities + 1):
            take(limiter, next(names))
            if number % (entities // SAMPLES) == 0:
                samples.append({"entities": number, "mb": round((resident_bytes() - start) / 2**20, 2)})
        seconds = time.monotonic() - began
        limiter.close()
    return judged(walk, entities, samples, seconds)


def judged(walk: Soak, entities: int, samples: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """Whether it stayed flat."""
    until = entities // 4 if walk.bound is None else round(walk.bound * 1.5)
    early = max(sample["mb"] for sample in samples if sample["entities"] <= until)
    late = max(sample["mb"] for sample in samples if sample["entities"] > until)
    verdict = "grows: it is the data" if walk.bound is None else "flat" if late <= early * FLAT else "**grows**"
    return {
        "where": walk.where,
        "entities": entities,
        "bound": walk.bound,
        "mb_at_bounds": early,
        "mb_at_end": late,
        "bytes_per_entity_since": max(late - early, 0) * 2**20 / (entities - until),
        "seconds": round(seconds, 1),
        "verdict": verdict,
        "samples": samples,
    }


def soak_apart(name: str, entities: int) -> dict[str, Any]:
    """In a process of its own."""
    command = [sys.executable, __file__, "--soak", name, "--entities", str(entities)]
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(finished.stdout)
    return found


def show(report: Mapping[str, Any]) -> None:
    for row in report["bytes"]:
        print(f"{row['bytes']:>8,}  {row['what']}")
    for row in report["bounds"]:
        print(f"{row['most']:>14}  {row['cache']} ({row['where']})")
    for row in report["soaks"]:
        print(
            f"{row['where']}: {row['entities']:,} entities, {row['mb_at_bounds']:.0f} MB at its bounds, "
            f"{row['mb_at_end']:.0f} MB at the end, {row['seconds']:.0f} s: {row['verdict']}"
        )


def main() -> None:
    """Weigh, soak, show, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help=f"soaks of {QUICK_SOAKED:,} entities")
    parser.add_argument("--entities", type=int, help="soaks of so many")
    parser.add_argument("--soak", choices=SOAKS, help="only this one, in this process; prints JSON")
    chosen = parser.parse_args()
    entities = chosen.entities or (QUICK_SOAKED if chosen.quick else SOAKED)
    if entities < 2 * max(MAX_ENTRIES, MAX_ROUTES):
        parser.error("so few say nothing about the bounds")
    if chosen.soak:
        print(json.dumps(soak(chosen.soak, entities)))
        return
    with tempfile.TemporaryDirectory() as folder:
        weights = bytes_of_each(Path(folder))
    with ThreadPoolExecutor(2) as pool:
        soaks = list(pool.map(lambda name: soak_apart(name, entities), SOAKS))
    report = {**circumstances(["zae-limiter"]), "bytes": weights, "bounds": bounds(), "soaks": soaks, "note": NOTE}
    show(report)
    OUT.mkdir(exist_ok=True)
    path = OUT / "memory.json"
    path.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    print(f"written: {path}")


if __name__ == "__main__":
    main()
