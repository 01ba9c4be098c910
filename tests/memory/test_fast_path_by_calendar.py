"""The fast path of budgets in memory is what the plan does: the same grants, denials, levels and counters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter
from zae_limiter.testing import FakeClock, sync_memory_limiter

LIMITS = [
    Limit.per_minute("rpm", 30),
    Limit.per_hour("calls", 5, 8, tz="Asia/Kolkata"),
    Limit.calendar("usd", 40, "2day", tz="Europe/Berlin", carry_debt=False),
]

steps = st.lists(
    st.tuples(
        st.integers(0, 5_400_000),
        st.dictionaries(st.sampled_from(["rpm", "calls", "usd"]), st.integers(0, 6)),
        st.one_of(st.none(), st.integers(0, 60)),
        st.booleans(),
    ),
    max_size=40,
)


def acquire(
    limiter: SyncRateLimiter, entity: str, wanted: dict[str, int], used: int | None, fails: bool, *, by_plan: bool
) -> object:
    """The answer to one call: whether it was granted, and how long it would have to wait."""
    limits = LIMITS if by_plan else None  # limits that come with the call know no fast path
    try:
        with limiter.acquire(entity, "gpt", wanted, limits=limits) as lease:
            if used is not None:
                lease.settle(usd=used)
            if fails:
                raise LookupError
    except LookupError:
        pass
    except RateLimitExceeded as error:
        return error.retry_after_seconds
    return True


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
    [fast_bucket, *_] = limiter.get_status("fast").buckets or [None]
    [plan_bucket, *_] = limiter.get_status("plan").buckets or [None]
    if fast_bucket is not None and plan_bucket is not None:
        assert fast_bucket.total_events == plan_bucket.total_events
        assert [level.total_consumed for level in fast_bucket.limits] == [
            level.total_consumed for level in plan_bucket.limits
        ]


def test_a_warm_budget_has_a_fast_path() -> None:
    limiter = sync_memory_limiter(LIMITS, clock=FakeClock())
    with limiter.acquire("key", "gpt", {"rpm": 1, "usd": 1}):
        pass
    path = limiter._core.fast_paths["key", "gpt"]
    before = limiter.available("key", "gpt")
    with limiter.acquire("key", "gpt", {"rpm": 1, "usd": 1}) as lease:
        assert isinstance(lease._grant, tuple)
        assert lease._grant[0] is path
        assert [status.resets_at is None for status in lease.statuses] == [True, False, False]
    assert limiter.available("key", "gpt") == {**before, "rpm": before["rpm"] - 1, "usd": before["usd"] - 1}
