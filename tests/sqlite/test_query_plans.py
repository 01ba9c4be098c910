"""Every statement finds its rows by an index: none walks through a table, none sorts what it found."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

from support.sqlite_files import opened
from zae_limiter.stores.sqlite.connections import Connections
from zae_limiter.stores.sqlite.store import SqliteStore
from zae_limiter.stores.sqlite.tables import Connection
from zae_limiter.testing.clock import NEW_YEAR_2026_MS
from zae_limiter.testing.contract import CASES, play

DAY_MS = 86_400_000
WHOLE_TABLES = re.compile(r"DELETE FROM \w+$")
"""What ``delete_table`` does on purpose."""

REMOVAL = re.compile(r"DELETE FROM (\w+) WHERE ")


@pytest.fixture(scope="module")
def statements(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Everything that the whole contract and maintenance ever asked of SQLite, each kind of it once."""
    seen: dict[str, str] = {}
    connect = Connections.connect

    def listening(self: Connections) -> Connection:
        connection = connect(self)
        connection.set_trace_callback(lambda text: seen.setdefault(shape(text), text))
        return connection

    folder = tmp_path_factory.mktemp("plans")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connections, "connect", listening)
        for number, case in enumerate(CASES):
            path = str(folder / f"{number}.db")
            play(case, "sync", lambda path=path: SqliteStore(path))  # type: ignore[misc]
            store = SqliteStore(path)
            store._maintenance.run_now(NEW_YEAR_2026_MS + 400 * DAY_MS)
            store.close()
    return set(seen.values())


def shape(statement: str) -> str:
    """The statement without its values."""
    return re.sub(r"'(?:[^']|'')*'|\b\d+\b", "?", " ".join(statement.split()))


def test_no_statement_walks_through_a_table_or_sorts(statements: set[str], tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    store = SqliteStore(str(path))
    store._connections.get("write", lambda: NEW_YEAR_2026_MS)
    store.close()
    explained = 0
    wrong = []
    with opened(path) as connection:
        for statement in sorted(statements):
            if not statement.startswith(("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")):
                continue
            if "sqlite_master" in statement or WHOLE_TABLES.match(statement):
                continue
            explained += 1
            wrong += [(step, shape(statement)) for step in plan_of(connection, statement) if is_bad(step)]
    assert explained > 30
    assert wrong == []


def test_what_is_removed_is_found_by_its_whole_key(statements: set[str], tmp_path: Path) -> None:
    """Found by a part of it, every chunk of a large removal would walk through all that is left."""
    path = tmp_path / "limits.db"
    SqliteStore(str(path))._connections.prepared(lambda: NEW_YEAR_2026_MS).close()
    removals = {found[1]: statement for statement in statements if (found := REMOVAL.match(statement))}
    assert set(removals) == {"audit", "buckets", "configs", "entities", "leases", "namespaces", "pulses", "usage"}
    with opened(path) as connection:
        for table, statement in removals.items():
            key = [name for _, name, *_, place in connection.execute(f"PRAGMA table_info ({table})") if place]
            assert plan_of(connection, statement)[0].count("=?") == len(key), shape(statement)


def plan_of(connection: sqlite3.Connection, statement: str) -> list[str]:
    return [step for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]


def is_bad(step: str) -> bool:
    return (step.startswith("SCAN") and "CONSTANT ROW" not in step) or "TEMP B-TREE" in step
