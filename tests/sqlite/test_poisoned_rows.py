"""Rows that another program has changed: a clear error, at once, and never anything else."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from zae_limiter import Limit, SyncRateLimiter, VersionError, ZAELimiterError
from zae_limiter.testing.clock import FakeClock

LIMITS = [Limit.per_day("rpd", 10)]

USES: dict[str, Callable[[SyncRateLimiter], object]] = {
    "acquire": lambda limiter: limiter.acquire("key", "gpt", {"rpd": 1}).__enter__(),
    "available": lambda limiter: limiter.available("key", "gpt"),
    "status": lambda limiter: limiter.get_status("key"),
    "capacity": lambda limiter: limiter.repository.get_resource_capacity("gpt", limit_name="rpd"),
    "usage": lambda limiter: limiter.get_usage_snapshots("key"),
    "verify": lambda limiter: limiter.verify_usage("key"),
    "entity": lambda limiter: limiter.get_entity("key"),
    "entities": lambda limiter: limiter.list_entities(),
    "limits": lambda limiter: limiter.get_limits("key"),
    "system": lambda limiter: limiter.get_system_defaults(),
    "audit": lambda limiter: limiter.get_audit_events(),
    "namespaces": lambda limiter: limiter.repository.list_namespaces(),
    "reset": lambda limiter: limiter.reset("key"),
    "set": lambda limiter: limiter.set_limits("key", [Limit.per_day("rpd", 20)]),
    "delete": lambda limiter: limiter.delete_entity("key"),
}

DEEP = "[" * 100_000
VALUES: list[Any] = [
    None,
    "",
    "many",
    b"\xff\x00",
    1.5,
    -1,
    2**62,
    -(2**62),
    "9" * 5_000,
    f"{'9' * 60} 0",
    "{}",
    "[]",
    "null",
    '[["rpd",1e400,1,1,1]]',
    '[["rpd",10,10,86400,10],["rpd",10,10,86400,10]]',
    '[["rpd",99999999999999999999999999999999,1,1,1]]',
    '[1e400,{"rpd":1}]',
    '[1,{"rpd":"x"}]',
    '{"rpd":1e400}',
    DEEP,
]

COLUMNS = {
    "buckets": ["rf", "events", "hour", "terms", "tokens", "carried", "expires_ms"],
    "configs": ["limits", "on_unavailable", "version"],
    "entities": ["name", "parent_id", "cascade", "metadata", "version", "created_ms"],
    "usage": ["hour", "start", "end"],
    "namespaces": ["created_ms", "deleted_ms", "epoch"],
    "audit": ["at_ms", "action", "details", "principal"],
}

PLACES = [(table, column) for table, columns in COLUMNS.items() for column in columns]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, FakeClock]:
    """A file with something of everything."""
    path = tmp_path_factory.mktemp("sound") / "limits.db"
    clock = FakeClock()
    with SyncRateLimiter.open(f"sqlite:///{path}", clock=clock) as limiter:
        limiter.set_system_defaults(LIMITS, on_unavailable="allow")
        limiter.create_entity("key", name="a key", metadata={"team": "a"})
        limiter.set_limits("key", LIMITS)
        for _ in range(2):
            with limiter.acquire("key", "gpt", {"rpd": 1}):
                pass
            clock.advance(3_600)
    return path, clock


def poisoned(sound: Path, path: Path, table: str, column: str, value: Any) -> bool:
    """A copy in which one column has another value; whether SQLite took it."""
    path.unlink(missing_ok=True)
    source, copy = sqlite3.connect(sound), sqlite3.connect(path)
    try:
        source.backup(copy)
        copy.execute(f'UPDATE OR IGNORE "{table}" SET "{column}" = ?', (value,))
        copy.commit()
    except sqlite3.IntegrityError:
        return False
    finally:
        source.close()
        copy.close()
    return True


@pytest.mark.parametrize(("table", "column"), PLACES)
def test_whatever_stands_in_a_row_every_use_ends_in_a_result_or_in_an_error_of_ours(
    sound: tuple[Path, FakeClock], tmp_path: Path, table: str, column: str
) -> None:
    tried = 0
    for value in VALUES:
        path = tmp_path / "limits.db"
        if not poisoned(sound[0], path, table, column, value):
            continue
        with SyncRateLimiter.open(f"sqlite:///{path}", clock=FakeClock(sound[1]())) as limiter:
            for use in USES.values():
                with suppress(ZAELimiterError):
                    use(limiter)
        tried += 1
    assert tried > 10


POISONED: dict[str, tuple[str, Any]] = {
    "a baseline before all time": ("rf", -1),
    "a baseline after all time": ("rf", 10**18),
    "tokens in words": ("tokens", "many few"),
    "a balance out of bounds": ("tokens", f"{10**37} 0"),
    "a counter out of bounds": ("tokens", f"0 {10**37}"),
    "too few numbers": ("tokens", "1"),
    "a burst out of bounds": ("terms", f'[["rpd",10,10,86400,{10**16}]]'),
    "a limit of another kind": ("terms", '[["rpd"]]'),
    "grants in words": ("events", "many"),
}


@pytest.mark.parametrize("what", POISONED)
def test_a_poisoned_bucket_grants_nothing_and_says_why(
    sound: tuple[Path, FakeClock], tmp_path: Path, what: str
) -> None:
    path = tmp_path / "limits.db"
    assert poisoned(sound[0], path, "buckets", *POISONED[what])
    with SyncRateLimiter.open(f"sqlite:///{path}", clock=FakeClock(sound[1]())) as limiter:
        for _ in range(2):
            with (
                pytest.raises(VersionError, match="cannot be read"),
                limiter.acquire("key", "gpt", {"rpd": 1}),
            ):
                pass
