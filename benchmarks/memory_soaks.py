"""Long walks past every bound: a process that takes once as each of very many entities and looks at its memory.

    .venv/bin/python benchmarks/memory_soaks.py SOAK ENTITIES     prints JSON

What is looked at is the private memory of the process (a file that is mapped does not count), and how many entries
each cache has. A walk is *flat* if the second half of it, counted from where all its bounds are reached, needs no more
than the first half did: caches that forget a part when they are full make saw teeth, so halves are compared by their
peaks. DynamoDB's answers are canned (``canned.py``), so nothing grows but us.

In memory the buckets are data, and so is usage, which is kept for 90 days. So there are two walks: one in which every
bucket stays alive, to see what an entity weighs; and one in which every acquire is by a new entity and comes a minute
and a half after the last, so that in the course of it buckets are full again and go, and usage becomes too old and
goes. Everything has a bound there, and the verdict is about all of it.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from canned import RESOURCE, canned_limiter
from memory_bytes import AMOUNTS, LIMITS, limited

from zae_limiter import Limit, SyncRateLimiter
from zae_limiter.config_cache import MAX_ENTRIES
from zae_limiter.stores.embedded.routes import MAX_ROUTES
from zae_limiter.stores.embedded.tables import USAGE_RETENTION_MS
from zae_limiter.testing import FakeClock

SAMPLES = 200
DAY_S = 86_400
KEPT_USAGE = 100_000
"""How many rows of usage a walk of those who come and go has at a time."""

STEP_S = USAGE_RETENTION_MS / 1000 / KEPT_USAGE
ALIVE_S = 9 * DAY_S
"""How long a bucket of theirs takes to be full again: a tenth of the time that usage is kept."""

FLAT = 1.05
"""How much more than the first half the second half of a flat walk may have."""

Counts = Callable[[Any], Mapping[str, int]]


class Soak(NamedTuple):
    """A walk over very many entities: with which limiter, and past which bound."""

    where: str
    limiter: Callable[[Path, FakeClock], SyncRateLimiter]
    counts: Counts
    """How many entries there are of what, in a space."""

    bound: int | None
    """After how many entities everything is full; none where it is the data."""

    amounts: Mapping[str, int] = AMOUNTS
    step_s: float = 0


def entries(cache: Any) -> int:
    """All that a cache has, whatever its generation."""
    return len(cache) + len(getattr(cache, "_old", ()))


def of_memory(space: Any) -> Mapping[str, int]:
    tables = space._tables
    return {
        "buckets": len(tables._buckets),
        "fast paths": entries(space.fast_paths),
        "routes": entries(tables.routes._known),
        "usage rows": len(tables._oldest_usage),
        "names in lists": len(tables._bucket_keys._listed) + len(tables._usage_pairs._listed),
    }


def of_sqlite(space: Any) -> Mapping[str, int]:
    tables = space._used_last
    return {
        "fast paths": entries(space.fast_paths),
        "routes": entries(tables.routes._known),
        "cached rows": entries(tables.row_cache),
    }


def of_dynamodb(space: Any) -> Mapping[str, int]:
    return {
        "remembered buckets": entries(space.cache.buckets),
        "resolved limits": entries(space.resolver.configs._entries),
    }


def slowly_filled(clock: FakeClock) -> SyncRateLimiter:
    """A limit that takes nine days to give back what is taken."""
    limiter = SyncRateLimiter.open("memory://", clock=clock)
    limiter.set_system_defaults([Limit.custom("rare", 10, 10, 10 * ALIVE_S), Limit.per_minute("rpm", 10**9)])
    return limiter


SOAKS = {
    "dynamodb": Soak(
        "DynamoDB client", lambda folder, clock: canned_limiter(LIMITS, parsed=True), of_dynamodb, MAX_ENTRIES
    ),
    "sqlite": Soak(
        "SQLite client",
        lambda folder, clock: limited(SyncRateLimiter.open(f"sqlite:///{folder}/soak.db")),
        of_sqlite,
        MAX_ROUTES,
    ),
    "coming": Soak(
        "memory, entities that come and go",
        lambda folder, clock: slowly_filled(clock),
        of_memory,
        max(2 * KEPT_USAGE, MAX_ROUTES),  # names in lists wait until half of them are gone
        {"rare": 1, "rpm": 1},
        STEP_S,
    ),
    "memory": Soak(
        "memory, every bucket alive",
        lambda folder, clock: limited(SyncRateLimiter.open("memory://", clock=clock)),  # which stands still
        of_memory,
        None,
    ),
}


def private_bytes() -> int:
    """Resident memory that is not mapped from a file."""
    _, resident, shared, *_ = Path("/proc/self/statm").read_text().split()
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def soak(name: str, entities: int) -> dict[str, Any]:
    """What became of the memory of this process."""
    walk, clock = SOAKS[name], FakeClock()
    samples: list[dict[str, Any]] = []
    most: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder, walk.limiter(Path(folder), clock) as limiter:
        space = limiter.repository._core.space
        amounts, step_s, every = walk.amounts, walk.step_s, max(entities // SAMPLES, 1)
        with limiter.acquire("before", RESOURCE, amounts):
            pass
        gc.collect()
        start, began = private_bytes(), time.process_time()
        for number in range(1, entities + 1):
            if step_s:
                clock.advance(step_s)
            with limiter.acquire(f"key-{number:012}", RESOURCE, amounts):
                pass
            if number % every == 0:
                samples.append({"entities": number, "mb": round((private_bytes() - start) / 2**20, 2)})
                for what, count in walk.counts(space).items():
                    most[what] = max(most.get(what, 0), count)
        spent = time.process_time() - began
    return {
        "where": walk.where,
        "entities": entities,
        "bound": walk.bound,
        "most": most,
        "cpu_seconds": round(spent, 1),
        **judged(walk.bound, entities, samples),
        "samples": samples,
    }


def judged(bound: int | None, entities: int, samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Whether it stayed flat, and what an entity added."""
    if bound is None or bound * 1.2 > entities:
        early, late, since = 0.0, samples[-1]["mb"], entities
        verdict = "it is the data" if bound is None else "too short to tell"
    else:
        middle = (bound + entities) // 2
        early = max(sample["mb"] for sample in samples if bound <= sample["entities"] <= middle)
        late = max(sample["mb"] for sample in samples if sample["entities"] > middle)
        since = entities - middle
        verdict = "flat" if late <= early * FLAT else "**grows**"
    return {
        "mb_first": early,
        "mb_second": late,
        "bytes_per_entity": round((late - early) * 2**20 / since, 1),
        "verdict": verdict,
    }


if __name__ == "__main__":
    print(json.dumps(soak(sys.argv[1], int(sys.argv[2]))))
