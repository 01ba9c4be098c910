"""Limits at their bounds: every store gives the same answers, and none fails.

A prepaid quota that hardly refills takes longer to fill than there are milliseconds in 64 bits; a burst of 10^15 that
refills every second accrues more in a year than fits there. Names come, go and come back among all that.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator.usage_model import empty_model, limiter_on, store_on
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, ValidationError
from zae_limiter.models.limit import MAX_LIMITS, MAX_PERIOD_SECONDS, MAX_TOKENS
from zae_limiter.stores.memory.store import MemoryStore
from zae_limiter.stores.protocol import Store
from zae_limiter.stores.sqlite.store import SqliteStore
from zae_limiter.testing import FakeClock
from zae_limiter.testing.clock import NEW_YEAR_2026_MS

YEAR = 365 * 86_400
TOKENS = st.sampled_from([1, 2, 999, 10**9, 10**12, MAX_TOKENS - 1, MAX_TOKENS])
AMOUNTS = st.one_of(st.integers(0, 3), TOKENS)
NAMES = ("tokens", "x" * 64, *(f"l{number}" for number in range(MAX_LIMITS)))


@contextmanager
def every_store() -> Iterator[dict[str, tuple[SyncRateLimiter, FakeClock]]]:
    """A limiter on each, all with clocks of their own that are advanced alike."""
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(str(Path(folder) / "limits.db"))
        try:
            stores: dict[str, Store] = {"memory": MemoryStore(), "sqlite": store, "dynamodb": store_on(empty_model())}
            clocks = {name: FakeClock() for name in stores}
            yield {name: (limiter_on(stores[name], clock, create=True), clock) for name, clock in clocks.items()}
        finally:
            store.close()


@st.composite
def limits(draw: st.DrawFn, most: int = 3) -> list[Limit]:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=most, unique=True))
    periods = st.sampled_from([1, 60, 86_400, YEAR, MAX_PERIOD_SECONDS])
    return [Limit(name, draw(TOKENS), draw(TOKENS), draw(periods), draw(TOKENS)) for name in names]


class Step(NamedTuple):
    """One call, and the time that passes before it."""

    verb: str
    amounts: tuple[int, int, int]
    limits: list[Limit]
    later_ms: int


STEPS = st.builds(
    Step,
    st.sampled_from(["take", "take", "settle", "fail", "wait", "look", "change", "for one call", "reset", "lower"]),
    st.tuples(AMOUNTS, AMOUNTS, AMOUNTS),
    st.one_of(limits(), limits(MAX_LIMITS)),
    st.sampled_from([0, 1, 999, 60_000, 86_400_000, YEAR * 1_000]),
)


def told(limiter: SyncRateLimiter, clock: FakeClock, step: Step, held: list[Limit]) -> Any:
    """What a store answers to a step."""
    names = [limit.name for limit in held]
    wanted = dict(zip(names, step.amounts, strict=False))
    try:
        if step.verb == "change":
            limiter.set_limits("key", step.limits, resource="gpt")
        elif step.verb == "reset":
            limiter.reset("key")
        elif step.verb == "lower":
            limiter.lower("key", "gpt", wanted)
        elif step.verb == "wait":
            wait = limiter.time_until_available("key", "gpt", wanted)
            if wait is None or wait > 10**8:
                return wait
            clock.advance(wait)
            with limiter.acquire("key", "gpt", wanted):
                return wait
        elif step.verb == "take":
            with limiter.acquire("key", "gpt", wanted):
                pass
        elif step.verb == "for one call":
            own = {
                limit.name: min(amount, limit.burst) for limit, amount in zip(step.limits, step.amounts, strict=False)
            }
            with limiter.acquire("key", "gpt", own, limits=step.limits):
                pass
        elif step.verb == "settle":
            with limiter.acquire("key", "gpt", {names[0]: 0}) as lease:
                lease.adjust(**wanted)
        elif step.verb == "fail":
            with limiter.acquire("key", "gpt", wanted):
                raise ZeroDivisionError
    except RateLimitExceeded as refused:
        return type(refused).__name__, refused.as_dict()
    except (ValidationError, ZeroDivisionError) as error:
        return repr(error)
    status = limiter.get_status("key")
    levels = [level for bucket in status.buckets for level in bucket.limits]
    # A bucket that is full and one that is not there are the same.
    drawn = [(level.limit_name, level.available) for level in levels if level.available != level.limit.burst]
    return limiter.available("key", "gpt"), drawn


@settings(max_examples=60, deadline=None)
@given(limits(MAX_LIMITS), st.lists(STEPS, min_size=1, max_size=12))
def test_every_store_gives_the_same_answers_to_limits_at_their_bounds(first: list[Limit], steps: list[Step]) -> None:
    with every_store() as stores:
        for limiter, _ in stores.values():
            limiter.set_limits("key", first, resource="gpt")
        held = first
        for step in steps:
            for _, clock in stores.values():
                clock.step_to(clock() + step.later_ms)
            answers = {name: told(limiter, clock, step, held) for name, (limiter, clock) in stores.items()}
            assert answers["memory"] == answers["sqlite"] == answers["dynamodb"], step
            held = step.limits if step.verb == "change" else held
        if stores["memory"][1]() - NEW_YEAR_2026_MS > 30 * 86_400_000:
            return  # the hours before may have expired
        for name in ("memory", "sqlite"):
            assert stores[name][0].repository.verify_usage("key").holds


@pytest.mark.parametrize("burst", [10**9, 10**12, MAX_TOKENS])
def test_a_prepaid_quota_that_hardly_refills_works_everywhere(burst: int) -> None:
    quota = [Limit.custom("tokens", burst, refill_amount=1, refill_period_seconds=YEAR)]
    with every_store() as stores:
        for limiter, _ in stores.values():
            for _ in range(2):  # the second is written by what is known of the row
                with limiter.acquire("key", "gpt", {"tokens": burst // 4}, limits=quota) as lease:
                    lease.adjust(tokens=burst // 4)
            with pytest.raises(RateLimitExceeded) as refused:
                limiter.acquire("key", "gpt", {"tokens": burst // 2}, limits=quota).__enter__()
            assert refused.value.retry_after_seconds == pytest.approx(burst // 2 * YEAR)
            assert limiter.available("key", "gpt", limits=quota) == {"tokens": 0}
