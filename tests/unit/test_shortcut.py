"""The shortcut of the memory store does what the long way does, and never more."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from zae_limiter import Limit, SyncRateLimiter, ZAELimiterError
from zae_limiter.bucket import Bucket
from zae_limiter.stores.memory.fast_draw import shortcut
from zae_limiter.stores.protocol import Leg
from zae_limiter.testing import FakeClock, sync_memory_limiter

LIMITS = {
    "key": [Limit.per_second("rps", 3, burst=5), Limit.per_minute("tpm", 100)],
    "project": [Limit.custom("tpm", 50, 7, 3), Limit.per_day("tpd", 900)],
    "org": [Limit.per_second("rps", 20)],
}
amounts = st.integers(0, 12) | st.sampled_from([60, 101, -1, True, 1.5, None, "1"])
requests = st.dictionaries(st.sampled_from(["rps", "tpm", "tpd", "unknown"]), amounts, max_size=3)
steps = st.tuples(
    st.sampled_from(["key", "project", "org"]),
    requests,
    st.sampled_from([0, 0, 1, 7, 400, 61_000, 3_600_000, -900]),
    st.sampled_from(["", "", "", "", "fail", "adjust", "change", "reset", "delete"]),
)


def limiter(clock: FakeClock) -> SyncRateLimiter:
    made = sync_memory_limiter(clock=clock)
    made.create_entity("org")
    made.create_entity("project", parent_id="org", cascade=True)
    made.create_entity("key", parent_id="project", cascade=True)
    for entity, limits in LIMITS.items():
        made.set_limits(entity, limits)
    return made


def outcome(made: SyncRateLimiter, entity: str, wanted: Any, event: str) -> Any:
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
            if event == "adjust":
                lease.adjust(**{next(iter(lease.consumed), "rps"): 2})
            if event == "fail":
                raise ZeroDivisionError
            return lease.consumed, lease.statuses
    except (ZAELimiterError, ZeroDivisionError) as error:
        return type(error), str(error)


def everything(made: SyncRateLimiter) -> Any:
    return [
        (made.get_status(entity), made.get_usage_snapshots(entity, window_type="hourly").items) for entity in LIMITS
    ]


@given(st.lists(steps, max_size=25))
@example([("org", {}, 0, ""), ("key", {"rps": 60}, 3_600_000, ""), ("org", {}, 0, "reset")])
@example([("key", {}, 0, ""), ("key", {"rps": 6}, 1, "reset"), ("project", {}, -900, "")])
def test_the_shortcut_does_what_the_long_way_does(schedule: list[Any]) -> None:
    clock = FakeClock()
    short, long = limiter(clock), limiter(clock)
    long._core.shortcuts = {}
    for entity, wanted, pause, event in schedule:
        clock.step_to(max(clock() + pause, 0))
        assert outcome(short, entity, wanted, event) == outcome(long, entity, wanted, event)
    assert everything(short) == everything(long)


def test_the_shortcut_is_taken_for_every_draw_but_the_first() -> None:
    made = limiter(FakeClock())
    long_ways: list[Any] = []
    space: Any = made._core.space
    real = space.draw
    space.draw = lambda *args: long_ways.append(args) or real(*args)
    for entity in ("key", "project", "org"):
        for _ in range(3):
            with made.acquire(entity, "gpt", {"tpm" if entity == "project" else "rps": 1}):
                pass
    assert [draw.entity_id for draw, _ in long_ways] == ["key", "project", "org"]


def test_a_route_with_very_many_limits_goes_the_long_way() -> None:
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
    found = shortcut(lock, (Leg("key", "gpt", bucket.limits, "entity"),), [bucket])
    assert found is not None
    with pytest.raises(KeyboardInterrupt):
        found[0](found, {"rpm": 1}, 0, None)
    assert not lock._is_owned()
    assert bucket.balances[0].tk == 3_000
