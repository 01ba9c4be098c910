"""Removing many rows a few at a time, each found by its whole key."""

from __future__ import annotations

import sqlite3

KEYS = {
    "buckets": ("ns", "entity_id", "resource"),
    "configs": ("ns", "entity_id", "resource"),
    "entities": ("ns", "id"),
    "usage": ("ns", "entity_id", "resource", "hour"),
    "audit": ("serial",),
}
"""The tables of a namespace, and what a row of each is found by."""


def bite(connection: sqlite3.Connection, table: str, where: str, value: int, most: int) -> int:
    """Remove up to ``most`` rows of a table, within a transaction; how many there were."""
    key = KEYS[table]
    found = connection.execute(f"SELECT {', '.join(key)} FROM {table} WHERE {where} LIMIT ?", (value, most)).fetchall()
    connection.executemany(f"DELETE FROM {table} WHERE {' AND '.join(f'{name} = ?' for name in key)}", found)
    return len(found)
