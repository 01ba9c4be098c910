"""Usage of limits that were removed and have ended, and may come back: exact in every hour, and no gap."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from usage_model import empty_model, limiter_on, process, records_of, store_on

from zae_limiter.models.limit import Limit
from zae_limiter.stores.memory.store import MemoryStore
from zae_limiter.stores.protocol import Store
from zae_limiter.testing.clock import NEW_YEAR_2026_MS, FakeClock

HOUR_MS = 3_600_000
NAMES = ("a", "b", "c")
LIMITS = {name: Limit.per_minute(name, 60) for name in NAMES}

STEPS = st.lists(
    st.tuples(
        st.sets(st.sampled_from(NAMES), min_size=1),
        st.integers(1, 5),
        st.sampled_from([0, 100, 60_000, HOUR_MS // 3, HOUR_MS]),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.parametrize("store", ["memory", "dynamodb"])
@settings(max_examples=80, deadline=None)
@given(steps=STEPS)
def test_every_hour_says_what_was_taken_in_it_and_hours_join(store: str, steps: list[Any]) -> None:
    """Each step takes of some limits, by those alone, and some give back part of it after the next change."""
    model, clock = empty_model(), FakeClock()
    opened: Store = store_on(model) if store == "dynamodb" else MemoryStore()
    limiter = limiter_on(opened, clock, create=True)
    expected: dict[int, dict[str, int]] = {}

    def count(names: set[str], amount: int) -> None:
        hour = expected.setdefault((clock() - NEW_YEAR_2026_MS) // HOUR_MS, {})
        for name in names:
            hour[name] = hour.get(name, 0) + amount

    late: Any = None
    for names, amount, later_ms, settles_late in steps:
        lease = limiter.acquire(
            "key", "gpt", dict.fromkeys(sorted(names), 0), limits=[LIMITS[name] for name in sorted(names)]
        )
        with lease:
            lease.adjust(**dict.fromkeys(names, amount))
        count(names, amount)
        if late is not None:
            (owing, owed), late = late, None
            owing.__exit__(None, None, None)
            count(owed, 1)
        if settles_late:
            owing = limiter.acquire(
                "key", "gpt", dict.fromkeys(sorted(names), 0), limits=[LIMITS[name] for name in sorted(names)]
            )
            owing.__enter__()
            owing.adjust(**dict.fromkeys(names, 1))
            late = owing, names
        clock.step_to(clock() + max(later_ms, 60_000 if settles_late else 0))
    if late is not None:
        late[0].__exit__(None, None, None)
        count(late[1], 1)
    if store == "dynamodb":
        assert process(model, records_of(model.changes("limits"))).failures == ()
    windows = limiter.repository.get_usage_snapshots("key", "gpt", "hourly").items
    told = {
        (int(window.window_start.timestamp() * 1000) - NEW_YEAR_2026_MS) // HOUR_MS: {
            name: amount for name, amount in window.counters.items() if amount
        }
        for window in windows
    }
    assert {hour: used for hour, used in told.items() if used} == expected
    assert limiter.repository.verify_usage("key").holds
