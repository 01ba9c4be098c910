"""A file of an older layout is brought up to date, all of it or nothing, by the process that comes first."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from support.processes import together
from support.sqlite_files import check_integrity, opened
from zae_limiter import Limit, RateLimiterUnavailable, SyncRateLimiter, VersionError
from zae_limiter.stores.sqlite import schema
from zae_limiter.stores.sqlite.schema import VERSION, prepare, version_of

NEXT = """
    CREATE TABLE notes (ns INTEGER NOT NULL, note TEXT);
    ALTER TABLE entities ADD COLUMN colour TEXT;
    INSERT INTO notes SELECT ns, id FROM entities;
    """
BROKEN = """
    CREATE TABLE notes (ns INTEGER NOT NULL, note TEXT);
    INSERT INTO no_such_table VALUES (1);
    """


def make_old_file(path: Path) -> str:
    url = f"sqlite:///{path}"
    with SyncRateLimiter.open(url) as limiter:
        limiter.set_system_defaults([Limit.per_day("rpd", 100)])
        limiter.create_entity("key")
        with limiter.acquire("key", "gpt", {"rpd": 40}):
            pass
    return url


def know_more(patch: pytest.MonkeyPatch, *scripts: str) -> None:
    """Be a later version of the library."""
    patch.setattr(schema, "UPGRADES", (*schema.UPGRADES, *scripts))
    patch.setattr(schema, "VERSION", len(schema.UPGRADES))


def layout(path: Path) -> tuple[int, list[str]]:
    """Its version, and what stands in the table that the upgrade makes."""
    with opened(path) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        tables = connection.execute("SELECT name FROM sqlite_master WHERE name = 'notes'").fetchall()
        return version, [note for (note,) in connection.execute("SELECT note FROM notes")] if tables else []


def test_an_older_file_is_upgraded_and_keeps_what_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "limits.db"
    url = make_old_file(path)
    old = schema.VERSION
    know_more(monkeypatch, NEXT)
    with SyncRateLimiter.open(url) as limiter:
        assert limiter.available("key", "gpt") == {"rpd": 60}
    assert layout(path) == (old + 1, ["key"])
    monkeypatch.undo()
    with SyncRateLimiter.open(url) as limiter, pytest.raises(VersionError):
        limiter.available("key", "gpt")


def test_several_versions_are_caught_up_with_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "limits.db"
    url = make_old_file(path)
    old = schema.VERSION
    know_more(monkeypatch, NEXT, "ALTER TABLE notes ADD COLUMN author TEXT", "UPDATE notes SET note = upper(note)")
    with SyncRateLimiter.open(url) as limiter:
        limiter.create_entity("other")
    assert layout(path) == (old + 3, ["KEY"])


def test_a_new_file_has_the_newest_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = schema.VERSION
    know_more(monkeypatch, NEXT)
    make_old_file(tmp_path / "limits.db")
    assert layout(tmp_path / "limits.db") == (old + 1, [])


def test_an_upgrade_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "limits.db"
    url = make_old_file(path)
    before = layout(path)
    know_more(monkeypatch, NEXT.replace("notes", "other_notes"), BROKEN)
    with SyncRateLimiter.open(url) as limiter:
        for _ in range(2):
            with pytest.raises(RateLimiterUnavailable, match="no_such_table"):
                limiter.available("key", "gpt")
    assert layout(path) == before
    monkeypatch.undo()
    with SyncRateLimiter.open(url) as limiter:
        assert limiter.available("key", "gpt") == {"rpd": 60}
    check_integrity(path)


def upgrade_and_take(url: str) -> int:
    with pytest.MonkeyPatch.context() as patch:
        know_more(patch, NEXT)
        with SyncRateLimiter.open(url) as limiter:
            for _ in range(10):
                with limiter.acquire("key", "gpt", {"rpd": 1}):
                    pass
    return 10


def test_processes_that_race_to_upgrade_do_it_once(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    url = make_old_file(path)
    assert together(upgrade_and_take, [(url,)] * 4) == [10] * 4
    assert layout(path) == (schema.VERSION + 1, ["key"])
    check_integrity(path)
    with opened(path) as connection:
        assert connection.execute("SELECT events FROM buckets").fetchall() == [(41,)]


class Overtaken:
    """A connection during whose first statement another process makes the file."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._first = True

    def execute(self, statement: str) -> Any:
        found = self._connection.execute(statement).fetchone()
        if self._first:
            self._first = False
            with opened(self._path) as other:
                prepare(other, str(self._path), 0)
        return _Found(found)


class _Found:
    def __init__(self, row: Any) -> None:
        self._row = row

    def fetchone(self) -> Any:
        return self._row


def test_a_file_that_is_just_being_made_is_not_taken_for_another_programs(tmp_path: Path) -> None:
    """Seen with eight processes on a new file, about once in forty times."""
    path = tmp_path / "limits.db"
    with opened(path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    with opened(path) as connection:
        overtaken = Overtaken(connection, path)
        assert version_of(overtaken, str(path)) in (0, VERSION)  # type: ignore[arg-type]
