"""Optimistic draws and settlements do what the whole transaction does, whichever process writes in between."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zae_limiter import Limit, SyncRateLimiter, ZAELimiterError
from zae_limiter.stores.sqlite import row_cache
from zae_limiter.stores.sqlite.optimistic_draw import DrawRequest
from zae_limiter.stores.sqlite.optimistic_write import SettleRequest
from zae_limiter.testing import FakeClock

LIMITS = {
    "key": [Limit.per_second("rps", 3, burst=5), Limit.per_minute("tpm", 100)],
    "project": [Limit.custom("tpm", 50, 7, 3), Limit.per_day("tpd", 900)],
}
amounts = st.integers(0, 12) | st.sampled_from([60, 101, -1, True, 1.5])
ordinary = st.sampled_from([{"rps": 1, "tpm": 2}, {"rps": 1, "tpm": 2}, {"tpm": 3}, {"tpm": 1}])
requests = ordinary | st.dictionaries(st.sampled_from(["rps", "tpm", "unknown"]), amounts, max_size=2)
steps = st.tuples(
    st.booleans(),
    st.sampled_from(["key", "key", "project"]),
    requests,
    st.sampled_from([0, 0, 1, 7, 400, 61_000, 3_600_000, -900]),
    st.sampled_from(
        ["", "", "", "", "", "fail", "adjust", "settle", "debt", "late", "change", "call", "reset", "delete", "forget"]
    ),
)


def clients(file: Path, clock: FakeClock) -> list[SyncRateLimiter]:
    """Two processes' worth of clients on one file."""
    made = [SyncRateLimiter.open(f"sqlite:///{file}", clock=clock) for _ in range(2)]
    made[0].create_entity("project")
    made[0].create_entity("key", parent_id="project", cascade=True)
    for entity, limits in LIMITS.items():
        made[0].set_limits(entity, limits)
    return made


def outcome(client: SyncRateLimiter, entity: str, wanted: Any, event: str, clock: FakeClock) -> Any:
    options: dict[str, Any] = {}
    if event == "forget":
        forget_routes_and_rows(client)
    elif event == "change":
        client.set_limits("project", [*LIMITS["project"], Limit.per_minute("extra", 1)])
    elif event == "call":
        options["limits"] = [Limit.per_second("rps", 4), Limit.per_minute("tpm", 100)]
    elif event == "reset":
        client.reset(entity)
    elif event == "delete":
        client.delete_entity("key")
        client.create_entity("key", parent_id="project", cascade=True)
        client.set_limits("key", LIMITS["key"])
    try:
        with client.acquire(entity, "gpt", wanted, **options) as lease:
            if event == "adjust":
                lease.adjust(**{next(iter(lease.consumed), "rps"): 2})
            if event in ("settle", "debt", "late"):
                lease.settle(**dict.fromkeys(lease.consumed, 400 if event == "debt" else 1))
            if event == "late":
                clock.advance(3_600)
            if event == "fail":
                raise ZeroDivisionError
            return lease.consumed, lease.statuses
    except (ZAELimiterError, ZeroDivisionError) as error:
        return type(error), str(error)


def forget_routes_and_rows(client: SyncRateLimiter) -> None:
    """As if it had met too many other entities since."""
    store: Any = client._core.store
    client._core.space.fast_paths.clear()  # type: ignore[attr-defined]
    connection = store._connections._open.get("write")
    for tables in connection.tables.values() if connection else ():
        tables.row_cache.clear()


def everything(client: SyncRateLimiter) -> Any:
    return [
        (client.get_status(entity), client.get_usage_snapshots(entity, window_type="hourly").items)
        for entity in LIMITS
    ]


@settings(max_examples=60, deadline=None)
@given(st.lists(steps, max_size=25))
def test_a_cached_row_is_drawn_from_as_a_row_that_was_read(schedule: list[Any]) -> None:
    clock = FakeClock()
    with tempfile.TemporaryDirectory() as folder:
        short, long = (clients(Path(folder, name), clock) for name in ("short.db", "long.db"))
        for second, entity, wanted, pause, event in schedule:
            clock.step_to(max(clock() + pause, 0))
            began = clock()
            found = outcome(short[second], entity, wanted, event, clock)
            clock.step_to(began)
            with (
                patch.object(DrawRequest, "_draw_optimistically", return_value=None) as asked,
                patch.object(SettleRequest, "_settle_optimistically", return_value=False) as settled,
            ):
                assert found == outcome(long[second], entity, wanted, event, clock)
            assert asked.called or not isinstance(found[0], dict)
            assert settled.called or event != "debt" or not isinstance(found[0], dict) or not found[0]
        assert everything(short[0]) == everything(short[1]) == everything(long[0])
        for client in (*short, *long):
            client.close()


def statements_of(client: SyncRateLimiter, entity: str) -> list[str]:
    """What one acquire of that entity asks of SQLite."""

    def acquire() -> None:
        with client.acquire(entity, "gpt", {"tpm": 1}):
            pass

    return traced(client, acquire)


def traced(client: SyncRateLimiter, work: Callable[[], object]) -> list[str]:
    """What of SQLite is asked meanwhile."""
    store: Any = client._core.store
    connection = store._connections._open["write"]
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    work()
    connection.set_trace_callback(None)
    return [statement.split()[0] for statement in statements]


def test_the_client_that_wrote_last_needs_one_statement_and_another_reads(tmp_path: Path) -> None:
    clock = FakeClock()
    first, second = clients(tmp_path / "limits.db", clock)
    for _ in range(2):
        with first.acquire("project", "gpt", {"tpm": 1}):
            pass
    assert statements_of(first, "project") == ["UPDATE"]
    with second.acquire("project", "gpt", {"tpm": 1}):
        pass
    # One try that changes nothing, then the row is read; after that it is known again.
    assert statements_of(first, "project") == ["UPDATE", "SELECT", "UPDATE"]
    assert statements_of(first, "project") == ["UPDATE"]
    with first.acquire("key", "gpt", {"tpm": 1}):
        pass
    assert statements_of(first, "key") == ["BEGIN", "UPDATE", "UPDATE", "COMMIT"]
    first.set_resource_defaults("other", LIMITS["key"])  # another epoch: limits may have changed
    assert "SELECT" in statements_of(first, "project")
    for client in (first, second):
        client.close()


def test_a_settlement_is_one_statement(tmp_path: Path) -> None:
    first, second = clients(tmp_path / "limits.db", FakeClock())

    def settlement_of(entity: str, *, meanwhile: bool = False) -> list[str]:
        with first.acquire(entity, "gpt", {"tpm": 5}) as lease:
            lease.settle(tpm=7)
            if meanwhile:
                with second.acquire(entity, "gpt", {"tpm": 1}):
                    pass
            return traced(first, lambda: lease.flush())

    for entity in ("project", "key"):
        settlement_of(entity)
    assert settlement_of("project") == ["UPDATE"]
    assert settlement_of("project", meanwhile=True) == ["UPDATE", "SELECT", "UPDATE"]
    assert settlement_of("key") == ["BEGIN", "UPDATE", "UPDATE", "COMMIT"]
    for client in (first, second):
        client.close()


def test_an_interrupt_right_after_the_statement_of_a_settlement_loses_and_doubles_nothing(tmp_path: Path) -> None:
    first, second = clients(tmp_path / "limits.db", FakeClock())
    store: Any = first._core.store
    for taken, late in ((0, True), (7, False)):
        lease = first.acquire("project", "gpt", {"tpm": 5})
        lease.__enter__()
        lease.settle(tpm=7)
        connection = store._connections._open["write"]
        execute, interrupts = connection.execute, [KeyboardInterrupt()]

        def interrupted(*words: Any, execute: Any = execute, late: bool = late, left: Any = interrupts) -> Any:
            # A signal that arrives while SQLite is at work is raised when it returns; one before it, before it begins.
            done = execute(*words) if late or not left else None
            if left:
                raise left.pop()
            return done

        connection.execute = interrupted
        with pytest.raises(KeyboardInterrupt):
            lease.__exit__(None, None, None)
        del connection.execute
        assert not interrupts
        consumed = {limit.limit_name: limit.total_consumed for limit in second.get_status("project").buckets[0].limits}
        assert consumed["tpm"] == taken + 7
        assert first._core.unresolved == 0
    for client in (first, second):
        client.close()


def test_an_entity_that_was_not_met_of_late_is_found_in_one_statement(tmp_path: Path) -> None:
    first, second = clients(tmp_path / "limits.db", FakeClock())
    for entity in ("project", "key"):
        with first.acquire(entity, "gpt", {"tpm": 1}), second.acquire(entity, "gpt", {"tpm": 1}):
            pass
    forget_routes_and_rows(first)
    assert statements_of(first, "project") == ["SELECT", "UPDATE"]
    # That of its parent is known by now.
    assert statements_of(first, "key") == ["SELECT", "BEGIN", "UPDATE", "UPDATE", "COMMIT"]
    for client in (first, second):
        client.close()


@pytest.mark.parametrize("limits", [[], [Limit.per_day("tpd", 5)]], ids=["no limits", "other limits"])
def test_a_route_is_found_as_the_whole_transaction_resolves_it(tmp_path: Path, limits: list[Limit]) -> None:
    file = tmp_path / "limits.db"
    first, second = clients(file, FakeClock())
    first.set_system_defaults([Limit.per_minute("tpm", 70)])
    second.set_resource_defaults("gpt", [Limit.per_minute("tpm", 80)])
    for entity in ("key", "project", "stranger"):
        for client in (first, second):
            with client.acquire(entity, "gpt", {"tpm": 1}):
                pass
    for entity in ("key", "project"):
        second.set_limits(entity, limits or [Limit.per_minute("tpm", 90)])  # for all resources
        if not limits:
            second.delete_limits(entity)
    second.set_limits("key", [Limit.per_minute("tpm", 95)], resource="gpt")
    for entity in ("key", "project", "stranger"):
        forget_routes_and_rows(first)
        asked = {} if limits and entity == "project" else {"tpm": 2}
        with first.acquire(entity, "gpt", asked) as found, second.acquire(entity, "gpt", asked) as resolved:
            terms = [[(s.entity_id, s.limit, s.source) for s in lease.statuses] for lease in (found, resolved)]
            assert terms[0] == terms[1]
    # The bucket of the project has retired limits otherwise, and those are the whole transaction's.
    for entity in ("stranger",) if limits else ("key", "stranger"):
        forget_routes_and_rows(first)
        statements = statements_of(first, entity)
        # Nothing is read in a transaction: the limits that were found are those that the row was written with.
        assert ("BEGIN", "SELECT") not in pairwise(statements)
        assert statements[0] == "SELECT"
    for client in (first, second):
        client.close()


def test_a_transaction_that_two_interrupts_left_open_is_not_joined(tmp_path: Path) -> None:
    first, second = clients(tmp_path / "limits.db", FakeClock())
    for _ in range(2):
        with first.acquire("project", "gpt", {"tpm": 1}):
            pass
    store: Any = first._core.store
    store._connections._open["write"].execute("BEGIN IMMEDIATE")
    with first.acquire("project", "gpt", {"tpm": 1}):
        pass
    assert not store._connections._open["write"].in_transaction
    assert second.get_status("project").buckets[0].limits[0].total_consumed == 3
    for client in (first, second):
        client.close()


def test_a_row_with_other_limits_is_the_whole_transactions(tmp_path: Path) -> None:
    clock = FakeClock()
    client, other = clients(tmp_path / "limits.db", clock)

    def acquire(**options: Any) -> tuple[str, ...]:
        with client.acquire("project", "gpt", {"tpm": 1}, **options) as lease:
            lease.settle(tpm=2)
            return tuple(status.limit_name for status in lease.statuses)

    store: Any = client._core.store
    for options, terms in ({}, 2), ({"limits": [Limit.per_minute("tpm", 9)]}, 1), ({}, 2), ({}, 2):
        assert len(acquire(**options)) == terms
        # Nothing is left of the limits that were given with the call, and what was retired by them is back.
        stored = store._connections._open["write"].execute("SELECT terms FROM buckets").fetchone()[0]
        assert len(json.loads(stored.partition("\n")[0])) == terms
    for each in (client, other):
        each.close()


def test_a_row_that_would_expire_too_soon_is_written_by_the_whole_transaction(tmp_path: Path) -> None:
    clock = FakeClock()
    client = SyncRateLimiter.open(f"sqlite:///{tmp_path / 'limits.db'}", clock=clock)
    client.set_system_defaults([Limit.per_hour("tpm", 10_000, burst=100_000)])
    with client.acquire("key", "gpt", {"tpm": 1}):
        pass
    store: Any = client._core.store

    def expires() -> int:
        found: int = store._connections._open["write"].execute("SELECT expires_ms FROM buckets").fetchone()[0]
        return found

    before = expires()
    with client.acquire("key", "gpt", {"tpm": 90_000}):
        pass
    full_at = clock() + 90_001 * 360
    assert before < full_at < expires()
    client.close()


def test_only_so_many_rows_are_cached(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("zae_limiter.stores.sqlite.tables.MAX_CACHED_ROWS", 10)
    client = SyncRateLimiter.open(f"sqlite:///{tmp_path / 'limits.db'}")
    client.set_system_defaults([Limit.per_minute("tpm", 100)])
    for number in range(30):
        with client.acquire(f"key-{number}", "gpt", {"tpm": 1}):
            pass
    store: Any = client._core.store
    known = store._connections._open["write"].tables["default"].row_cache
    assert len(known) + len(known._old) <= 10 < row_cache.MAX_CACHED_ROWS
    client.close()
