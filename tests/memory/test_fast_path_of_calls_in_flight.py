"""The fast path of calls in flight in memory is what the plan does: the same grants, slots and counters."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from zae_limiter import Limit, RateLimitExceeded, SyncLease, SyncRateLimiter
from zae_limiter.testing import FakeClock, sync_memory_limiter

LIMITS = [Limit.per_minute("rpm", 300), Limit.concurrent("calls", 3, ttl=40), Limit.per_day("usd", 50, tz="UTC")]

actions = st.lists(
    st.tuples(
        st.sampled_from(["begin", "begin", "begin", "end", "end", "fail", "settle", "reset", "abandon"]),
        st.integers(0, 15_000),
        st.dictionaries(st.sampled_from(["rpm", "calls", "usd"]), st.integers(0, 2)),
        st.integers(0, 5),
    ),
    max_size=50,
)


def begin(
    limiter: SyncRateLimiter, entity: str, wanted: dict[str, int], limits: list[Limit] | None
) -> SyncLease | None:
    lease = limiter.acquire(entity, "gpt", wanted, limits=limits)
    try:
        lease.__enter__()
    except RateLimitExceeded:
        return None
    return lease


def end(lease: SyncLease, action: str) -> None:
    if action == "settle":
        lease.settle(usd=1)
    error = LookupError() if action == "fail" else None
    lease.__exit__(None if error is None else LookupError, error, None)


@given(actions)
def test_the_fast_path_is_what_the_plan_does(actions: list[tuple[str, int, dict[str, int], int]]) -> None:
    clock = FakeClock()
    limiter = sync_memory_limiter(LIMITS, clock=clock)
    running: list[tuple[SyncLease, SyncLease]] = []
    for action, later, wanted, number in actions:
        clock.advance(milliseconds=later)
        if action == "begin":
            fast = begin(limiter, "fast", wanted, None)
            plan = begin(limiter, "plan", wanted, LIMITS)  # limits that come with the call know no fast path
            assert (fast is None) == (plan is None)
            if fast is not None and plan is not None:
                running.append((fast, plan))
        elif action == "reset":
            limiter.reset("fast")
            limiter.reset("plan")
        elif running:
            both = running.pop(number % len(running))
            if action != "abandon":
                for lease in both:
                    end(lease, action)
        assert limiter.available("fast", "gpt") == limiter.available("plan", "gpt", limits=LIMITS)
        assert whole(limiter, "fast") == whole(limiter, "plan") == 3_000
    fast_status, plan_status = limiter.get_status("fast"), limiter.get_status("plan")
    consumed = [
        [level.total_consumed for bucket in status.buckets for level in bucket.limits]
        for status in (fast_status, plan_status)
    ]
    assert consumed[0] == consumed[1]


def whole(limiter: SyncRateLimiter, entity: str) -> int:
    """What is free and what is lent."""
    space: Any = limiter._core.space
    bucket = space._tables.bucket(entity, "gpt")
    if bucket is None:
        return 3_000
    balance = bucket.held("calls")
    return int(balance.tk + sum(balance.counts.values()))


def test_a_warm_call_has_a_fast_path_and_gives_its_slot_back_there() -> None:
    limiter = sync_memory_limiter(LIMITS, clock=FakeClock())
    with limiter.acquire("key", "gpt", {"rpm": 1, "calls": 1}):
        pass
    path: Any = limiter._core.fast_paths["key", "gpt"]
    with limiter.acquire("key", "gpt", {"rpm": 1, "calls": 2}) as lease:
        grant: Any = lease._grant
        assert grant[0] is path
        assert [hold.amount for hold in grant[-1]] == [2]
        assert limiter.available("key", "gpt")["calls"] == 1
    assert limiter.available("key", "gpt")["calls"] == 3
    assert grant[-1][0].amount == 0
    with limiter.acquire("key", "gpt", {"rpm": 1, "calls": 2}) as lease:
        assert lease.holds[0].due_at > lease.holds[0].due_at.replace(year=2025)
        lease.renew()
    assert limiter.available("key", "gpt")["calls"] == 3


def test_an_interrupt_in_the_end_gives_back_once() -> None:
    """Whatever comes after the slot was given back, the lease ends it no second time."""
    limiter = sync_memory_limiter(LIMITS, clock=FakeClock())
    for _ in range(2):
        with limiter.acquire("key", "gpt", {"calls": 1}):
            pass
    lease = limiter.acquire("key", "gpt", {"calls": 1})
    with limiter.acquire("key", "gpt", {"calls": 1}):
        lease.__enter__()
        grant: Any = lease._grant
        assert grant[0].end(grant)
        assert not grant[0].end(grant)
        lease.__exit__(None, None, None)
        assert limiter.available("key", "gpt")["calls"] == 2
    assert limiter.available("key", "gpt")["calls"] == 3
