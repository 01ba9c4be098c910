"""Deleting many rows, a chunk per transaction, so that no acquire waits long for any of them.

A row is found by its whole key: found by a part of it, every chunk of a large removal would walk through all that is
left.
"""

from __future__ import annotations

import sqlite3

from zae_limiter.stores.sqlite.tables import Connection, SqliteTables, expired_buckets
from zae_limiter.stores.windows import counted

KEYS = {
    "buckets": ("ns", "entity_id", "resource"),
    "configs": ("ns", "entity_id", "resource"),
    "entities": ("ns", "id"),
    "usage": ("ns", "entity_id", "resource", "hour"),
    "leases": ("ns", "id"),
    "pulses": ("ns", "process"),
    "audit": ("serial",),
}
"""The tables of a namespace, and what a row of each is found by."""


def delete_chunk(connection: sqlite3.Connection, table: str, where: str, value: int, most: int) -> int:
    """Delete up to ``most`` rows of a table, within a transaction; how many there were."""
    key = KEYS[table]
    found = connection.execute(f"SELECT {', '.join(key)} FROM {table} WHERE {where} LIMIT ?", (value, most)).fetchall()
    connection.executemany(f"DELETE FROM {table} WHERE {' AND '.join(f'{name} = ?' for name in key)}", found)
    return len(found)


def delete_of_namespace(connection: sqlite3.Connection, ns: int, most: int) -> int:
    """Delete up to ``most`` rows of a namespace, from whatever table; how many there were."""
    left = most
    for table in KEYS:
        left -= delete_chunk(connection, table, "ns = ?", ns, left)
        if left == 0:
            break
    return most - left


def delete_idle_buckets(connection: Connection, now: int, most: int) -> int:
    """Delete up to ``most`` buckets that have long been full again, and end their usage; how many there were."""
    expired = expired_buckets(connection, now, most)
    tables = SqliteTables(connection)
    for ns, bucket in expired:
        tables.ns = ns
        tables.close_usage(bucket, counted(bucket))
        tables.drop_bucket(bucket)
    return len(expired)
