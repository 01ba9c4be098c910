"""Ctrl-C at any line: no thread is locked out afterwards, nothing is minted, and no leg is taken without the other."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from support.sqlite_files import buckets_in, check_conservation
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.running.plan import Interrupted
from zae_limiter.stores.sqlite import maintenance, transactions
from zae_limiter.stores.sqlite.store import SqliteStore
from zae_limiter.testing import FakeClock

TAKEN = 3
HARMLESS = ("with ", "try:", "return connection", "connection.close()")
"""Tracing stops before these lines, CPython does not: it takes interrupts after calls, and there is none before."""


def interrupted_at(point: int, work: Callable[[], object]) -> bool:
    """Run ``work`` with a KeyboardInterrupt at that line of our own code. Whether it got that far."""
    seen = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal seen
        if "zae_limiter" not in frame.f_code.co_filename:
            return None
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if event == "line" and not line.startswith(HARMLESS):
            seen += 1
            if seen > point:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    return seen > point


@pytest.mark.parametrize("patience", [0, 1], ids=["at once", "the long way"])
def test_an_interrupt_at_any_line_leaves_no_lock_and_mints_nothing(tmp_path: Path, patience: float) -> None:
    clock = FakeClock()
    limiter, other = (
        SyncRateLimiter.open(f"sqlite:///{tmp_path}/limits.db", clock=clock, deadline=0.5) for _ in range(2)
    )
    limiter.set_system_defaults([Limit.per_day("rpd", 10**6)])
    limiter.create_entity("org")
    limiter.create_entity("key", parent_id="org", cascade=True)
    for each in (limiter, other):
        with each.acquire("key", "gpt", {"rpd": 100}):
            pass
    entered = 0

    def enter() -> None:
        nonlocal entered
        limiter.acquire("key", "gpt", {"rpd": TAKEN}, timeout=patience).__enter__()
        entered += 1

    before = 200
    point = 0
    while interrupted_at(point, enter):
        buckets = buckets_in(tmp_path / "limits.db")
        key, org = buckets["key", "gpt"], buckets["org", "gpt"]
        assert key.balances[0].tc == org.balances[0].tc
        check_conservation(key)
        taken = key.balances[0].tc // 1_000
        assert taken - before in (0, TAKEN)
        before = taken
        with other.acquire("key", "gpt", {"rpd": 0}), limiter.acquire("key", "gpt", {"rpd": 0}):
            pass
        point += 1
    assert entered == 1
    assert point > 50
    limiter.close()
    other.close()


def test_an_interrupt_at_any_line_of_the_end_never_charges_less_than_was_taken(tmp_path: Path) -> None:
    limiter = SyncRateLimiter.open(f"sqlite:///{tmp_path}/limits.db", clock=FakeClock(), deadline=0.5)
    limiter.set_system_defaults([Limit.per_day("rpd", 10**6)])
    with limiter.acquire("key", "gpt", {"rpd": 100}):
        pass
    paid = 100
    point = 0
    while True:
        lease = limiter.acquire("key", "gpt", {"rpd": TAKEN})
        lease.__enter__()
        lease.adjust(rpd=2)
        further = interrupted_at(point, lambda lease=lease: lease.__exit__(None, None, None))  # type: ignore[misc]
        (bucket,) = buckets_in(tmp_path / "limits.db").values()
        check_conservation(bucket)
        # The debit of 2 may be lost with the interrupt.
        assert bucket.balances[0].tc // 1_000 - paid in (TAKEN, TAKEN + 2)
        paid = bucket.balances[0].tc // 1_000
        point += 1
        if not further:
            break
    assert point > 50
    limiter.close()


def test_an_interrupt_at_any_line_of_a_sweep_is_the_callers_and_loses_no_count(tmp_path: Path) -> None:
    clock = FakeClock()
    store = SqliteStore(f"{tmp_path}/limits.db", deadline=0.5)
    limiter = SyncRateLimiter(SyncRepository(store, clock=clock))
    limiter.set_system_defaults([Limit.per_minute("rpm", 10)])
    point = 0
    further = True
    while further:
        with limiter.acquire("key", "gpt", {"rpm": TAKEN}):
            pass
        clock.advance(2 * 3_600)
        further = interrupted_at(point, lambda: store._maintenance.run_now(clock()))
        point += 1
    assert point > 50
    assert limiter.get_usage_summary("key", "gpt").total == {"rpm": point * TAKEN}
    assert limiter.verify_usage("key").holds
    store.close()


def test_an_interrupt_after_a_chunk_was_committed_is_the_callers_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No line stands between the commit and the return, so tracing cannot come there; a signal can."""

    def interrupted_late(*words: Any) -> None:
        raise Interrupted(KeyboardInterrupt(), reply=transactions.transact(*words))

    monkeypatch.setattr(maintenance, "transact", interrupted_late)
    store = SqliteStore(f"{tmp_path}/limits.db")
    with pytest.raises(KeyboardInterrupt):
        store._maintenance.run_now(1)
    store.close()
