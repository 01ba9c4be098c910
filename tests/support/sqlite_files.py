"""The file as it is: what its buckets hold, to the millitoken, and whether SQLite finds it in order."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from zae_limiter.bucket import Bucket
from zae_limiter.stores.sqlite.tables import SqliteTables

SIDE_FILES = ("-wal", "-shm", "-gate", "-turn")
"""What stands beside the file, by the end of its name."""


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A plain connection that knows nothing of limiters."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=10)) as connection:
        yield connection


def buckets_in(path: Path, namespace: str = "default") -> dict[tuple[str, str], Bucket]:
    """Every bucket of a namespace, by entity and resource."""
    with opened(path) as connection:
        tables = SqliteTables(connection)
        (tables.ns,) = connection.execute("SELECT id FROM namespaces WHERE name = ?", (namespace,)).fetchone()
        return {(bucket.entity_id, bucket.resource): bucket for bucket in tables.buckets(None, 10**7)}


def check_integrity(path: Path) -> None:
    """SQLite itself finds nothing wrong with the file."""
    with opened(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def check_conservation(bucket: Bucket) -> None:
    """What was taken and what is left add up to the burst, for a bucket that has never been at its ceiling.

    ``tk`` is relative to the baseline, so refill does not come into it.
    """
    for balance in bucket.balances:
        assert balance.tk + balance.tc == balance.bx, (bucket.entity_id, balance.name, balance.tk, balance.tc)
