"""An optimistic draw does what the whole transaction does, whichever process writes in between."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from zae_limiter import Limit, SyncRateLimiter, ZAELimiterError
from zae_limiter.stores.sqlite import row_cache
from zae_limiter.testing import FakeClock

LIMITS = {
    "key": [Limit.per_second("rps", 3, burst=5), Limit.per_minute("tpm", 100)],
    "project": [Limit.custom("tpm", 50, 7, 3), Limit.per_day("tpd", 900)],
}
amounts = st.integers(0, 12) | st.sampled_from([60, 101, -1, True, 1.5])
requests = st.dictionaries(st.sampled_from(["rps", "tpm", "unknown"]), amounts, max_size=2)
steps = st.tuples(
    st.booleans(),
    st.sampled_from(["key", "key", "project"]),
    requests,
    st.sampled_from([0, 0, 1, 7, 400, 61_000, 3_600_000, -900]),
    st.sampled_from(["", "", "", "", "", "fail", "adjust", "change", "call", "reset", "delete"]),
)


def clients(file: Path, clock: FakeClock) -> list[SyncRateLimiter]:
    """Two processes' worth of clients on one file."""
    made = [SyncRateLimiter.open(f"sqlite:///{file}", clock=clock) for _ in range(2)]
    made[0].create_entity("project")
    made[0].create_entity("key", parent_id="project", cascade=True)
    for entity, limits in LIMITS.items():
        made[0].set_limits(entity, limits)
    return made


def outcome(client: SyncRateLimiter, entity: str, wanted: Any, event: str) -> Any:
    options: dict[str, Any] = {}
    if event == "change":
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
            if event == "fail":
                raise ZeroDivisionError
            return lease.consumed, lease.statuses
    except (ZAELimiterError, ZeroDivisionError) as error:
        return type(error), str(error)


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
        for client in long:
            client._core.fast_paths = {}
        for second, entity, wanted, pause, event in schedule:
            clock.step_to(max(clock() + pause, 0))
            assert outcome(short[second], entity, wanted, event) == outcome(long[second], entity, wanted, event)
        assert everything(short[0]) == everything(short[1]) == everything(long[0])
        for client in (*short, *long):
            client.close()


def statements_of(client: SyncRateLimiter, entity: str) -> list[str]:
    """What one acquire of that entity asks of SQLite."""
    store: Any = client._core.store
    connection = store._connections._open["write"]
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    with client.acquire(entity, "gpt", {"tpm": 1}):
        pass
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
    # One try that changes nothing, then the whole transaction; after that the row is known again.
    assert statements_of(first, "project")[:2] == ["UPDATE", "BEGIN"]
    assert statements_of(first, "project") == ["UPDATE"]
    with first.acquire("key", "gpt", {"tpm": 1}):
        pass
    assert statements_of(first, "key") == ["BEGIN", "UPDATE", "UPDATE", "COMMIT"]
    first.set_resource_defaults("other", LIMITS["key"])  # another epoch: limits may have changed
    assert "SELECT" in statements_of(first, "project")
    for client in (first, second):
        client.close()


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
