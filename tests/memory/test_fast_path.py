"""The fast path of the memory store does what the plan does, and never more."""

from __future__ import annotations

import asyncio
import threading
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from zae_limiter import Limit, RateLimiter, SyncRateLimiter, ValidationError, ZAELimiterError
from zae_limiter.bucket import MILLI, Bucket, calculate_retry_after
from zae_limiter.stores.memory.fast_path import fast_path
from zae_limiter.stores.protocol import Denial, Leg, NotedGrant, Settlement
from zae_limiter.stores.windows import hour_of
from zae_limiter.testing import FakeClock, sync_memory_limiter

LIMITS = {
    "key": [Limit.per_second("rps", 3, burst=5), Limit.per_minute("tpm", 100)],
    "project": [Limit.custom("tpm", 50, 7, 3), Limit.per_day("tpd", 900)],
    "org": [Limit.per_second("rps", 20)],
}
amounts = st.integers(0, 12) | st.sampled_from([60, 101, -1, True, 1.5, None, "1"])
requests = st.dictionaries(st.sampled_from(["rps", "tpm", "tpd", "usd", "unknown"]), amounts, max_size=3)
steps = st.tuples(
    st.sampled_from(["key", "project", "org"]),
    requests,
    st.sampled_from([0, 0, 1, 7, 400, 61_000, 3_600_000, -900]),
    st.sampled_from(
        ["", "", "", "fail", "adjust", "settle", "settle, fail", "wait, settle", "change", "reset", "delete"]
    ),
)


def limiter(clock: FakeClock) -> SyncRateLimiter:
    made = sync_memory_limiter(clock=clock)
    made.create_entity("org")
    made.create_entity("project", parent_id="org", cascade=True)
    made.create_entity("key", parent_id="project", cascade=True)
    made.set_system_defaults([Limit.per_minute("usd", 5)])  # known, and no limit of these
    for entity, limits in LIMITS.items():
        made.set_limits(entity, limits)
    return made


def outcome(made: SyncRateLimiter, clock: FakeClock, entity: str, wanted: Any, event: str) -> Any:
    if event == "change":
        made.set_limits("project", [*LIMITS["project"], Limit.per_minute("extra", 1)])
    elif event == "reset":
        made.reset(entity)
    elif event == "delete":
        made.delete_entity("key")
        made.create_entity("key", parent_id="project", cascade=True)
        made.set_limits("key", LIMITS["key"])
    try:
        with made.acquire(entity, "gpt", wanted) as lease:
            name = next(iter(wanted), "rps")
            if event == "adjust":
                lease.adjust({name: 2})
            if event == "wait, settle":
                clock.step_to(clock() + 900)
            if "settle" in event:
                lease.settle({name: 3})
            if "fail" in event:
                raise ZeroDivisionError
            return lease.consumed, lease.statuses
    except (ZAELimiterError, ZeroDivisionError) as error:
        return type(error), getattr(error, "retry_after_seconds", None), str(error)


def everything(made: SyncRateLimiter) -> Any:
    return [
        (made.get_status(entity), made.get_usage_snapshots(entity, window_type="hourly").items) for entity in LIMITS
    ]


@given(st.lists(steps, max_size=25))
@example([("org", {}, 0, ""), ("key", {"rps": 60}, 3_600_000, ""), ("org", {}, 0, "reset")])
@example([("key", {}, 0, ""), ("key", {"rps": 6}, 1, "reset"), ("project", {}, -900, "")])
def test_the_fast_path_does_what_the_plan_does(schedule: list[Any]) -> None:
    clocks = FakeClock(), FakeClock()
    fast, planned = map(limiter, clocks)
    planned._core.fast_paths = {}
    for entity, wanted, pause, event in schedule:
        outcomes = []
        for made, clock in zip((fast, planned), clocks, strict=True):
            clock.step_to(max(clock() + pause, 0))
            outcomes.append(outcome(made, clock, entity, wanted, event))
        assert outcomes[0] == outcomes[1]
    assert everything(fast) == everything(planned)


@settings(max_examples=300)
@given(
    st.integers(1, 7),
    st.integers(1, 9),
    st.integers(0, 3_000),
    st.dictionaries(st.sampled_from(["rps", "tpm"]), st.integers(0, 9), min_size=1),
    st.dictionaries(st.sampled_from(["rps", "tpm"]), st.integers(0, 30)),
    st.integers(-900, 9_000),
)
@example(3, 5, 0, {"rps": 5, "tpm": 1}, {"tpm": 0}, 1_000)
@example(7, 9, 0, {"rps": 9, "tpm": 9}, {"rps": 0}, 0)
def test_what_a_bucket_holds_after_a_settlement_or_lacks_is_as_the_arithmetic_of_buckets_has_it(
    rate: int, burst: int, start: int, wanted: dict[str, int], totals: dict[str, int], later: int
) -> None:
    limits = Limit.custom("rps", burst, rate, 11), Limit.custom("tpm", 9, 2, 7)
    now = 1_750_000_000_000
    bucket, other = (Bucket("key", "gpt", now) for _ in range(2))
    for one in (bucket, other):
        one.adopt(limits, now)
        one.hour = hour_of(now)
        one.settle({"rps": start, "tpm": start * 2}, now)
    path = fast_path(threading.RLock(), (Leg("key", "gpt", limits, "entity"),), [bucket])
    assert path is not None
    receipt = NotedGrant()
    denial = path.draw(wanted, now + 5, receipt)
    waits = [calculate_retry_after(one, wanted.get(one.name, 0) * MILLI, now + 5) for one in other.balances]
    if denial is not True:
        assert isinstance(denial, Denial)
        assert denial.wait_ms == (None if None in waits else max(wait or 0 for wait in waits))
        return
    assert receipt._grant is not None
    assert waits == [0, 0]
    other.settle({name: amount * MILLI for name, amount in wanted.items()}, now + 5)
    settlement = Settlement([])
    assert path.settle(receipt._grant, totals, now + 5 + later, settlement)
    deltas = {name: (total - wanted.get(name, 0)) * MILLI for name, total in totals.items()}
    other.settle(deltas, max(now + 5 + later, now + 5))
    assert settlement.postings == ()
    for mine, theirs in zip(bucket.balances, other.balances, strict=True):
        assert mine.tc == theirs.tc
        assert mine.tk <= mine.bx, "draws in the same millisecond go by it"
        assert mine.level(now + 10_000) == theirs.level(now + 10_000)


def test_settlements_and_what_comes_back_are_fast() -> None:
    made = limiter(FakeClock())
    with made.acquire("key", "gpt", {"rps": 1}):
        pass
    planned: list[Any] = []
    space: Any = made._core.space
    space.settle = lambda *args: planned.append(args)
    with made.acquire("key", "gpt", {"rps": 1}) as lease:
        lease.settle(rps=0)
    with pytest.raises(ZeroDivisionError), made.acquire("key", "gpt", {"rps": 1}):
        raise ZeroDivisionError
    assert not planned
    assert made.available("key", "gpt")["rps"] == 4


def test_every_draw_but_the_first_is_fast() -> None:
    made = limiter(FakeClock())
    planned: list[Any] = []
    space: Any = made._core.space
    real = space.draw
    space.draw = lambda *args: planned.append(args) or real(*args)
    for entity in ("key", "project", "org"):
        for _ in range(3):
            with made.acquire(entity, "gpt", {"tpm" if entity == "project" else "rps": 1}):
                pass
    assert [draw.entity_id for draw, _ in planned] == ["key", "project", "org"]


def test_a_route_with_very_many_limits_is_drawn_by_the_plan() -> None:
    names = [f"l{number}" for number in range(20)]
    made = sync_memory_limiter([Limit.per_minute(name, 3) for name in names], clock=FakeClock())
    made.create_entity("org")
    made.create_entity("key", parent_id="org", cascade=True)
    for _ in range(3):
        with made.acquire("key", "gpt", dict.fromkeys(names, 1)):
            pass
    assert set(made.available("key", "gpt").values()) == set(made.available("org", "gpt").values()) == {0}


def test_an_interrupt_right_after_the_lock_was_taken_leaves_it_free() -> None:
    class InterruptedLock:
        def __init__(self) -> None:
            self._lock = threading.RLock()
            self.release = self._lock.release
            self._is_owned = self._lock._is_owned  # type: ignore[attr-defined]

        def acquire(self) -> None:
            self._lock.acquire()
            raise KeyboardInterrupt

    bucket = Bucket("key", "gpt", 0)
    bucket.adopt((Limit.per_minute("rpm", 3),), 0)
    lock = InterruptedLock()
    found = fast_path(lock, (Leg("key", "gpt", bucket.limits, "entity"),), [bucket])
    assert found is not None
    with pytest.raises(KeyboardInterrupt):
        found.draw({"rpm": 1}, 0, Mock())
    assert not lock._is_owned()
    assert bucket.balances[0].tk == 3_000


class BrokenClock(FakeClock):
    """A clock with a bug, once."""

    broken: Exception | None = None

    def __call__(self) -> int:
        error, self.broken = self.broken, None
        if error is not None:
            raise error
        return super().__call__()


@pytest.mark.parametrize("error", [AttributeError("clock"), KeyError("clock"), TypeError("clock")], ids=repr)
def test_an_error_of_the_callers_clock_reaches_the_caller(error: Exception) -> None:
    clock = BrokenClock()
    made = limiter(clock)
    with made.acquire("org", "gpt", {"rps": 1}):
        pass
    clock.broken = error
    with pytest.raises(type(error)) as raised, made.acquire("org", "gpt", {"rps": 1}):
        pass
    assert raised.value is error
    assert clock.broken is None
    assert made.available("org", "gpt") == {"rps": 19}


async def entered(made: RateLimiter) -> None:
    async with made.acquire("org", "gpt", {"rps": 1}):
        pass


def test_an_error_of_the_callers_clock_reaches_the_task() -> None:
    clock = BrokenClock()

    async def main() -> dict[str, int]:
        async with await RateLimiter.open("memory://", clock=clock) as made:
            await made.set_system_defaults(LIMITS["org"])
            await entered(made)
            clock.broken = error = AttributeError("clock")
            with pytest.raises(AttributeError) as raised:
                await entered(made)
            assert raised.value is error
            return await made.available("org", "gpt")

    assert asyncio.run(main()) == {"rps": 19}


def test_an_id_that_is_no_key_is_refused_by_name() -> None:
    made = limiter(FakeClock())
    with made.acquire("org", "gpt", {"rps": 1}):
        pass
    unhashable: Any = ["org"]
    with pytest.raises(ValidationError, match="entity_id"), made.acquire(unhashable, "gpt", {"rps": 1}):
        pass
