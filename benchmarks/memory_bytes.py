"""What each thing that is kept weighs.

Bytes are counted by tracemalloc over some thousand entities, each taken from once with two limits. What one cache has
of them is what is freed when it is emptied; what two of them share weighs on the one that is emptied last.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from canned import RESOURCE, canned_limiter

from zae_limiter import Limit, SyncRateLimiter

LIMITS = [Limit.per_minute("rpm", 10**9), Limit.per_minute("tpm", 10**12)]
AMOUNTS = {"rpm": 1, "tpm": 500}
COUNTED = 4_000
REST = "everything else"


def take(limiter: SyncRateLimiter, entity_id: str) -> None:
    """Once, from two limits."""
    with limiter.acquire(entity_id, RESOURCE, AMOUNTS):
        pass


def limited(limiter: SyncRateLimiter) -> SyncRateLimiter:
    limiter.set_system_defaults(LIMITS)
    return limiter


def bytes_of_each(folder: Path) -> list[dict[str, Any]]:
    """Every store, every part."""
    found = {**in_memory(), **on_sqlite(folder / "weighed.db"), **on_dynamodb()}
    return [{"what": what, "bytes": size} for what, size in found.items()]


def in_memory() -> dict[str, int]:
    limiter = limited(SyncRateLimiter.open("memory://"))
    space: Any = limiter.repository._core.space
    found = weighed(
        limiter,
        {
            "memory: route of an entity and resource": lambda: space._tables.routes._known.clear(),
            "memory: fast path of a live bucket": lambda: space.fast_paths.clear(),
        },
    )
    found["memory: live bucket of two limits, with its usage row and places in lists"] = found.pop(REST)
    return found


def on_sqlite(path: Path) -> dict[str, int]:
    limiter = limited(SyncRateLimiter.open(f"sqlite:///{path}"))
    space: Any = limiter.repository._core.space
    found = weighed(
        limiter,
        {
            "SQLite client: row that it wrote last": lambda: space._used_last.row_cache.clear(),
            "SQLite client: route of an entity and resource": lambda: space._used_last.routes._known.clear(),
            "SQLite client: fast path of an entity and resource": lambda: space.fast_paths.clear(),
        },
    )
    found["SQLite client: everything else"] = found.pop(REST)
    limiter.close()
    found["SQLite file: bucket with its usage row and indexes"] = round(path.stat().st_size / COUNTED)
    return found


def on_dynamodb() -> dict[str, int]:
    limiter = canned_limiter(LIMITS, parsed=True)
    space: Any = limiter.repository._core.space
    found = weighed(
        limiter,
        {
            "DynamoDB client: remembered bucket": space.cache.forget_all,
            "DynamoDB client: resolved limits of an entity and resource": space.resolver.configs.clear,
        },
    )
    found["DynamoDB client: everything else"] = found.pop(REST)
    return found


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
        return {**found, REST: round((left - before) / COUNTED)}
    finally:
        tracemalloc.stop()


def traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
