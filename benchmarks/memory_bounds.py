"""The bound of everything that is remembered, read from the code that keeps to it.

Functions that remember their answers are found by looking into every module of the package, so none can be left out;
tables are named here, with the number that bounds each.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import _lru_cache_wrapper
from types import ModuleType
from typing import Any

import zae_limiter
from zae_limiter.config_cache import MAX_ENTRIES
from zae_limiter.stores.dynamodb.bucket_cache import MAX_BUCKETS, MAX_DIVIDED
from zae_limiter.stores.embedded.routes import MAX_ROUTES
from zae_limiter.stores.embedded.tables import BUCKET_MARGIN_MS, USAGE_RETENTION_MS
from zae_limiter.stores.memory.tables import MAX_USAGE_ROWS
from zae_limiter.stores.sqlite.row_cache import MAX_CACHED_ROWS

DAY_MS = 86_400_000
LESS_USED, OLDER_HALF, ALL = "those not used of late go", "the oldest half goes", "all go"
APART = ("cli", "infra", "manifests", "migrations", "testing", "visualization", "__main__")
"""What no acquire touches."""

TABLES = (
    ("memory: routes", MAX_ROUTES, "stores/embedded/routes.py", LESS_USED),
    ("SQLite: routes, per connection and namespace", MAX_ROUTES, "stores/embedded/routes.py", LESS_USED),
    ("SQLite: fast draws", MAX_ROUTES, "stores/sqlite/store.py", LESS_USED),
    ("SQLite: rows as they were written last", MAX_CACHED_ROWS, "stores/sqlite/row_cache.py", LESS_USED),
    ("DynamoDB: resolved limits", MAX_ENTRIES, "config_cache.py", OLDER_HALF),
    ("DynamoDB: remembered buckets", MAX_BUCKETS, "stores/dynamodb/bucket_cache.py", OLDER_HALF),
    ("DynamoDB: shards of divided buckets", MAX_DIVIDED, "stores/dynamodb/bucket_cache.py", ALL),
    ("DynamoDB: shards to leave alone", MAX_DIVIDED, "stores/dynamodb/bucket_cache.py", ALL),
    ("DynamoDB: shards to draw from", MAX_DIVIDED, "stores/dynamodb/bucket_cache.py", ALL),
)
"""What, how many, where, and what happens then."""

DATA = (
    (
        "memory: buckets",
        f"those not yet full for {BUCKET_MARGIN_MS // 1000} s",
        "stores/memory/tables.py",
        "each new bucket drops old ones",
    ),
    ("memory: fast draws", "one for each live bucket", "stores/memory/tables.py", "each goes with its bucket"),
    (
        "memory: usage rows",
        f"an hour each, for {USAGE_RETENTION_MS // DAY_MS} days, {MAX_USAGE_ROWS:,} in a namespace",
        "stores/memory/tables.py",
        "the oldest go",
    ),
    ("memory: names in order", "twice as many as there are, and a few", "stores/memory/tables.py", ""),
    ("DynamoDB: write queues", "writes in flight", "stores/dynamodb/write_queue.py", "each goes with its write"),
    ("lines", "callers that wait", "repository/wait_queue.py", "each goes with its caller"),
    ("namespaces", "those that were opened", "stores/*/store.py", "they stay with the store"),
)
"""What is bounded by something else than a number."""


def bounds() -> list[dict[str, Any]]:
    """All of them."""
    numbered = [(what, f"{most:,}", where, full) for what, most, where, full in TABLES]
    rows = [*numbered, *remembered_answers(), *DATA]
    return [{"cache": what, "most": most, "where": where, "full": full} for what, most, where, full in rows]


def remembered_answers() -> Iterator[tuple[str, str, str, str]]:
    """Every function that remembers what it answered."""
    for module in modules():
        where = module.__name__.partition(".")[2].replace(".", "/") + ".py"
        for name, function in vars(module).items():
            if isinstance(function, _lru_cache_wrapper) and function.__module__ == module.__name__:
                most = function.cache_parameters()["maxsize"]
                if most is not None:
                    yield f"answers of `{name}`", f"{most:,}", where, "the least used goes"
                elif function.__wrapped__.__code__.co_argcount:
                    yield f"answers of `{name}`", "**no bound**", where, "never"


def modules() -> Iterator[ModuleType]:
    """Every module that an acquire may touch."""
    yield zae_limiter
    for found in pkgutil.walk_packages(zae_limiter.__path__, "zae_limiter.", onerror=lambda name: None):
        if found.name.split(".")[1] not in APART:
            try:
                yield importlib.import_module(found.name)
            except ImportError as error:  # an optional library that is not installed
                print(f"not looked at: {found.name} ({error})")
