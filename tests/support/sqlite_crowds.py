"""Files with many entities in them, made in seconds: rows that exist are copied under other names."""

from __future__ import annotations

from pathlib import Path

from support.sqlite_files import opened
from zae_limiter import Limit, SyncRateLimiter
from zae_limiter.testing.clock import NEW_YEAR_2026_MS

COPIED = {
    "entities": "id",
    "buckets": "entity_id",
    "usage": "entity_id",
    "configs": "entity_id",
    "audit": "subject",
}
"""Which column says whose a row is."""


def stopped_clock() -> int:
    return NEW_YEAR_2026_MS


def make_crowd(path: Path, entities: int) -> SyncRateLimiter:
    """A limiter on a file where ``key-1`` to ``key-N`` are children of ``org``, all of them with a past."""
    limiter = SyncRateLimiter.open(f"sqlite:///{path}", clock=stopped_clock)
    limiter.set_system_defaults([Limit.per_day("rpd", 1_000_000)])
    limiter.create_entity("org")
    limiter.create_entity("key-0", parent_id="org")
    limiter.set_limits("key-0", [Limit.per_day("rpd", 1_000)], resource="gpt")
    with limiter.acquire("key-0", "gpt", {"rpd": 1}):
        pass
    with opened(path) as connection:
        connection.execute("BEGIN")
        for table, whose in COPIED.items():
            columns = [name for _, name, *_ in connection.execute(f"PRAGMA table_info ({table})") if name != "serial"]
            chosen = ["'key-' || n" if name == whose else name for name in columns]
            if table == "audit":
                chosen[columns.index("event_id")] = "event_id || printf('%08d', n)"
            connection.execute(
                f"WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {entities})"
                f" INSERT INTO {table} ({', '.join(columns)})"
                f" SELECT {', '.join(chosen)} FROM {table}, numbers WHERE {whose} = 'key-0'"
            )
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint (TRUNCATE)")
    return limiter
