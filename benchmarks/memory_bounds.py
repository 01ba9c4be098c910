"""The bound of everything that is remembered, read from the code that keeps to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zae_limiter import bucket
from zae_limiter.config_cache import MAX_ENTRIES
from zae_limiter.stores.dynamodb import items, marks, snapshots, writes
from zae_limiter.stores.dynamodb.images import MAX_BUCKETS, MAX_DIVIDED
from zae_limiter.stores.dynamodb.transport import trust
from zae_limiter.stores.embedded.routes import MAX_ROUTES
from zae_limiter.stores.embedded.tables import BUCKET_MARGIN_MS, USAGE_RETENTION_MS
from zae_limiter.stores.memory import shortcut
from zae_limiter.stores.sqlite import rows

DAY_MS = 86_400_000

TABLES = (
    ("memory: shortcuts", MAX_ROUTES, "stores/memory/store.py", "all go"),
    ("memory: routes", MAX_ROUTES, "stores/embedded/routes.py", "all go"),
    ("SQLite: routes, per connection and namespace", MAX_ROUTES, "stores/embedded/routes.py", "all go"),
    ("SQLite: pairs that were granted before", MAX_ROUTES, "stores/sqlite/store.py", "all go"),
    ("DynamoDB: resolved limits", MAX_ENTRIES, "config_cache.py", "the oldest half goes"),
    ("DynamoDB: remembered buckets", MAX_BUCKETS, "stores/dynamodb/images.py", "the oldest half goes"),
    ("DynamoDB: shards of divided buckets", MAX_DIVIDED, "stores/dynamodb/images.py", "all go"),
    ("DynamoDB: shards to leave alone", MAX_DIVIDED, "stores/dynamodb/images.py", "all go"),
    ("DynamoDB: shards to draw from", MAX_DIVIDED, "stores/dynamodb/images.py", "all go"),
)
"""What, how many, where, and what happens then."""

FUNCTIONS: tuple[tuple[str, Any, str], ...] = (
    ("rates of limits", bucket._rate_of, "bucket.py"),
    ("memory: shapes of shortcuts", shortcut._maker, "stores/memory/shortcut.py"),
    ("SQLite: limits as text", rows.limits_to_text, "stores/sqlite/rows.py"),
    ("SQLite: limits from text", rows.limits_from_text, "stores/sqlite/rows.py"),
    ("DynamoDB: limits of items", items.limit_of, "stores/dynamodb/items.py"),
    ("DynamoDB: shapes of writes", writes._shape, "stores/dynamodb/writes.py"),
    ("DynamoDB: times of marks", marks.nonce_time, "stores/dynamodb/marks.py"),
    ("DynamoDB: names of counters", snapshots._limit_counted_by, "stores/dynamodb/snapshots.py"),
    ("DynamoDB: trusted certificates", trust.trusting, "stores/dynamodb/transport/trust.py"),
)
"""Answers that are remembered."""

DATA = (
    (
        "memory: buckets",
        f"those not yet full for {BUCKET_MARGIN_MS // 1000} s",
        "stores/memory/tables.py",
        "each new bucket drops old ones",
    ),
    (
        "memory: usage rows",
        f"an hour each, for {USAGE_RETENTION_MS // DAY_MS} days",
        "stores/memory/tables.py",
        "the oldest go",
    ),
    (
        "memory: buckets in order",
        "twice the live buckets, and a few",
        "stores/memory/tables.py",
        "",
    ),
    ("DynamoDB: desks", "writes in flight", "stores/dynamodb/desks.py", "each goes with its write"),
    ("lines", "callers that wait", "repository/lines.py", "each goes with its caller"),
    ("namespaces", "those that were opened", "stores/*/store.py", "they stay with the store"),
)
"""What is bounded by something else than a number."""


def bounds() -> list[dict[str, Any]]:
    """All of them."""
    parameters: Callable[[Any], Any] = lambda function: function.cache_parameters()["maxsize"]  # noqa: E731
    found = [*TABLES, *((what, parameters(each), where, "the least used goes") for what, each, where in FUNCTIONS)]
    numbered = [(what, f"{most:,}", where, full) for what, most, where, full in found]
    return [
        {"cache": what, "most": most, "where": where, "full": full} for what, most, where, full in [*numbered, *DATA]
    ]
