"""The fast path of limits that only watch is what the plan does: the same verdicts, levels and counters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter
from zae_limiter.stores.protocol import Grant
from zae_limiter.testing import FakeClock, sync_memory_limiter

LIMITS = [
    Limit.per_minute("rpm", 12),
    Limit.per_minute("tpm", 8, enforce=False),
    Limit.per_hour("usd", 10, tz="UTC", enforce=False),
    Limit.concurrent("calls", 1, ttl=60, enforce=False),
]
NAMES = [limit.name for limit in LIMITS]

steps = st.lists(
    st.tuples(
        st.integers(0, 40_000),
        st.dictionaries(st.sampled_from(NAMES), st.integers(0, 4)),
        st.one_of(st.none(), st.integers(0, 12)),
        st.booleans(),
    ),
    max_size=40,
)


def acquire(
    limiter: SyncRateLimiter, entity: str, wanted: dict[str, int], used: int | None, fails: bool, *, by_plan: bool
) -> object:
    """The answer to one call: which limits would have refused it, or how long it would have to wait."""
    limits = LIMITS if by_plan else None  # limits that come with the call know no fast path
    told: object = None
    try:
        with limiter.acquire(entity, "gpt", wanted, limits=limits) as lease:
            told = [status.limit_name for status in lease.refused_by]
            if used is not None:
                lease.settle(tpm=used)
            if fails:
                raise LookupError
    except LookupError:
        pass
    except RateLimitExceeded as error:
        return error.retry_after_seconds, [status.limit_name for status in error.violations]
    return told


@given(steps)
def test_the_fast_path_is_what_the_plan_does(steps: list[tuple[int, dict[str, int], int | None, bool]]) -> None:
    clock = FakeClock()
    limiter = sync_memory_limiter(LIMITS, clock=clock)
    for later, wanted, used, fails in steps:
        clock.advance(milliseconds=later)
        fast = acquire(limiter, "fast", wanted, used, fails, by_plan=False)
        plan = acquire(limiter, "plan", wanted, used, fails, by_plan=True)
        assert fast == plan
        assert limiter.available("fast", "gpt") == limiter.available("plan", "gpt", limits=LIMITS)
    buckets = [bucket for entity in ("fast", "plan") for bucket in limiter.get_status(entity).buckets]
    if len(buckets) == 2:
        counted = [
            (bucket.total_events, [(level.total_consumed, level.denials) for level in bucket.limits])
            for bucket in buckets
        ]
        assert counted[0] == counted[1]


@pytest.mark.parametrize("watching", LIMITS[1:3], ids=lambda limit: str(limit.name))
def test_a_warm_draw_has_a_fast_path_until_it_would_be_refused(watching: Limit) -> None:
    limiter = sync_memory_limiter([LIMITS[0], watching], clock=FakeClock())
    wanted = {"rpm": 1, watching.name: 4}
    with limiter.acquire("key", "gpt", wanted):
        pass
    path = limiter._core.fast_paths["key", "gpt"]
    with limiter.acquire("key", "gpt", wanted) as lease:
        assert isinstance(lease._grant, tuple)
        assert lease._grant[0] is path
    with limiter.acquire("key", "gpt", wanted) as lease:
        assert isinstance(lease._grant, Grant)
        assert [status.limit_name for status in lease.refused_by] == [watching.name]
    assert limiter._core.fast_paths["key", "gpt"] is path, "legs that were refused are not those of the next draw"
    assert limiter.available("key", "gpt")[watching.name] == watching.burst - 8
