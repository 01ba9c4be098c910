"""A file that is not ours, is damaged, or is from the future: refused by name, every time, and left as it is."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from support.sqlite_files import check_integrity, opened
from zae_limiter import (
    ConfigurationError,
    Limit,
    RateLimiter,
    SyncRateLimiter,
    VersionError,
    ZAELimiterError,
)
from zae_limiter.stores.sqlite.schema import APPLICATION_ID, VERSION

LIMITS = [Limit.per_day("rpd", 10)]

USES: dict[str, Callable[[SyncRateLimiter], object]] = {
    "acquire": lambda limiter: limiter.acquire("key", "gpt", {"rpd": 1}, limits=LIMITS).__enter__(),
    "read": lambda limiter: limiter.get_status("key"),
    "scan": lambda limiter: limiter.list_entities(),
    "write": lambda limiter: limiter.set_system_defaults(LIMITS),
    "create": lambda limiter: SyncRateLimiter.open(f"sqlite:///{limiter._core.store._path}", create=True),
}


def refusals(path: Path, kind: type[ZAELimiterError]) -> list[str]:
    """Every use, twice each, through one limiter and through the async one, must raise ``kind``."""
    said = []
    limiter = SyncRateLimiter.open(f"sqlite:///{path}")
    for use in (*USES.values(), *USES.values()):
        with pytest.raises(kind) as caught:
            use(limiter)
        said.append(str(caught.value))
    assert not limiter.is_available()
    limiter.close()

    async def asynchronously() -> None:
        limiter = await RateLimiter.open(f"sqlite:///{path}")
        for _ in range(2):
            with pytest.raises(kind):
                await limiter.acquire("key", "gpt", {"rpd": 1}, limits=LIMITS).__aenter__()
            with pytest.raises(kind):
                await limiter.list_entities()
        await limiter.close()

    asyncio.run(asynchronously())
    return said


def ours(path: Path) -> None:
    """A file with something in it, closed properly."""
    with SyncRateLimiter.open(f"sqlite:///{path}") as limiter:
        limiter.set_system_defaults(LIMITS)
        with limiter.acquire("key", "gpt", {"rpd": 3}):
            pass


def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    ours(path)
    with opened(path) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    for said in refusals(path, VersionError):
        assert str(path) in said
        assert "upgrade the library" in said
    with opened(path) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION}")
    with SyncRateLimiter.open(f"sqlite:///{path}") as limiter:
        assert limiter.available("key", "gpt") == {"rpd": 7}


FOREIGN = {
    "with a table": "CREATE TABLE notes (text)",
    "with an application's mark": "PRAGMA application_id = 42",
    "with a version": "PRAGMA user_version = 3",
}


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
@pytest.mark.parametrize("statement", FOREIGN.values(), ids=FOREIGN)
def test_the_database_of_another_program_is_refused_and_not_touched(tmp_path: Path, statement: str, mode: str) -> None:
    path = tmp_path / "notes.db"
    with opened(path) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
        connection.execute(statement)
    before = path.read_bytes()
    for said in refusals(path, VersionError):
        assert "another program" in said
    assert path.read_bytes() == before


def random_bytes() -> bytes:
    return random.Random(7).randbytes(10_000)


GARBAGE: dict[str, Callable[[], bytes]] = {
    "random bytes": random_bytes,
    "a short text": lambda: b"hello\n",
    "a long text": lambda: b"# limits\n" * 2_000,
    "zeros": lambda: bytes(8_192),
    "the beginning of a database": lambda: b"SQLite format 3\0" + random_bytes(),
    "nothing but the name of the format": lambda: b"SQLite format 3\0",
}


@pytest.mark.parametrize("content", GARBAGE.values(), ids=GARBAGE)
def test_a_file_that_is_no_database_is_refused_and_never_overwritten(
    tmp_path: Path, content: Callable[[], bytes]
) -> None:
    path = tmp_path / "limits.db"
    path.write_bytes(content())
    for said in refusals(path, ConfigurationError):
        assert str(path) in said
        assert "start anew" in said
    assert path.read_bytes() == content()


def test_an_empty_file_becomes_ours(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    path.touch()
    ours(path)
    with opened(path) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    check_integrity(path)


def test_an_empty_database_becomes_ours(tmp_path: Path) -> None:
    path = tmp_path / "limits.db"
    with opened(path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    assert path.stat().st_size > 0
    ours(path)
    check_integrity(path)


def test_a_folder_in_the_place_of_the_file_is_a_named_error(tmp_path: Path) -> None:
    refusals(tmp_path, ConfigurationError)


def test_a_file_in_the_place_of_a_folder_is_a_named_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("I am no folder")
    refusals(tmp_path / "file" / "limits.db", ConfigurationError)


def test_a_damaged_file_gives_named_errors_and_no_wrong_grants(tmp_path: Path) -> None:
    """Pages of a good file are overwritten, one file each: everything either works or is refused by name."""
    good = tmp_path / "good.db"
    ours(good)
    size = good.stat().st_size
    with sqlite3.connect(good) as connection:
        (page,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    refused = 0
    for number in range(size // page):
        path = tmp_path / f"damaged-{number}.db"
        shutil.copy(good, path)
        with path.open("r+b") as file:
            file.seek(number * page)
            file.write(random.Random(number).randbytes(page))
        limiter = SyncRateLimiter.open(f"sqlite:///{path}")
        granted = 0
        try:
            for _ in range(8):
                with limiter.acquire("key", "gpt", {"rpd": 1}, limits=LIMITS):
                    granted += 1
        except ZAELimiterError:
            refused += 1
        assert granted <= 7
        limiter.close()
    assert refused > 0
