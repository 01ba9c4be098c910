"""Clocks that jump ahead and back, on the embedded stores: no caller is starved, and at most a burst is minted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter.bucket import FURTHEST_AHEAD_MS
from zae_limiter.lease.admission import AcquireArguments, admit
from zae_limiter.running.plan import AwaitWakeUp, ReadClock, ReadTimer
from zae_limiter.stores.memory.store import MemoryStore
from zae_limiter.stores.protocol import Draw, Grant, NotedGrant
from zae_limiter.stores.sqlite.store import SqliteStore
from zae_limiter.testing import FakeClock

DAY_MS = 86_400_000
RPM = Limit.per_minute("rpm", 60)


class Stage:
    """One store, and clients whose clocks may differ."""

    def __init__(self, open_store: Callable[[], Any]) -> None:
        self._open_store = open_store
        self.clock = FakeClock()
        self.opened: list[Any] = []
        self.limiter = self.client()
        self.limiter.set_system_defaults([RPM])

    def client(self, clock: FakeClock | None = None) -> SyncRateLimiter:
        store = self._open_store()
        self.opened.append(store)
        return SyncRateLimiter(SyncRepository(store, clock=clock or self.clock))

    def take(self, amount: int = 1, limiter: SyncRateLimiter | None = None, **options: Any) -> bool:
        try:
            with (limiter or self.limiter).acquire("key", "gpt", {"rpm": amount}, **options):
                return True
        except RateLimitExceeded:
            return False

    def ahead(self, act: Callable[[], object], milliseconds: int = DAY_MS) -> None:
        now = self.clock()
        self.clock.step_to(now + milliseconds)
        act()
        self.clock.step_to(now)

    def available(self, limiter: SyncRateLimiter | None = None) -> int:
        return (limiter or self.limiter).available("key", "gpt")["rpm"]


@pytest.fixture(params=["memory", "sqlite"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    if request.param == "memory":
        store = MemoryStore()
        stage = Stage(lambda: store)
    else:
        stage = Stage(lambda: SqliteStore(str(tmp_path / "limits.db")))
    yield stage
    for opened in stage.opened:
        opened.close()


def settle(stage: Stage) -> None:
    with stage.limiter.acquire("key", "gpt", {"rpm": 1}) as lease:
        lease.adjust(rpm=1)


WRITES: dict[str, Callable[[Stage], object]] = {
    "a draw": lambda stage: stage.take(2),
    "a draw of another client": lambda stage: stage.take(2, stage.client()),
    "several draws": lambda stage: [stage.take() for _ in range(2)],
    "a settlement": settle,
    "a reset": lambda stage: stage.limiter.reset("key"),
    "other limits": lambda stage: stage.limiter.set_limits("key", [Limit.per_minute("rpm", 60, burst=50)]),
}


@pytest.mark.parametrize("ahead_ms", [FURTHEST_AHEAD_MS + 1, DAY_MS, 365 * DAY_MS])
@pytest.mark.parametrize("write", WRITES)
def test_every_caller_goes_on_after_a_write_that_was_far_ahead(stage: Stage, write: str, ahead_ms: int) -> None:
    assert stage.take(20)
    stage.ahead(lambda: WRITES[write](stage), ahead_ms)
    for limiter in (stage.limiter, stage.client()):
        assert 40 <= stage.available(limiter) <= 60
    left = stage.available()
    assert stage.take(left, stage.client())
    with pytest.raises(RateLimitExceeded) as denied, stage.limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    assert denied.value.retry_after_seconds == 1
    stage.clock.advance(1)
    assert stage.take()
    (status,) = stage.limiter.get_status("key").buckets
    assert status.limits[0].seconds_to_full <= 60
    if ahead_ms <= DAY_MS:  # by a clock that is a year ahead, usage has long expired
        assert stage.limiter.verify_usage("key").holds


def test_a_settlement_that_was_far_ahead_of_the_draw_before_it(stage: Stage) -> None:
    """The lease is held while the clock is set; what it owes is settled by the wrong one."""
    lease = stage.limiter.acquire("key", "gpt", {"rpm": 10})
    lease.__enter__()
    lease.adjust(rpm=5)
    stage.ahead(lambda: lease.__exit__(None, None, None))
    assert stage.take(40)


def test_a_retired_limit_goes_on_too(stage: Stage) -> None:
    tpm = Limit.per_minute("tpm", 60)
    stage.limiter.set_limits("key", [RPM, tpm])
    assert stage.take()
    stage.limiter.set_limits("key", [RPM])
    stage.ahead(stage.take)
    assert stage.take()
    stage.limiter.set_limits("key", [RPM, tpm])
    with stage.limiter.acquire("key", "gpt", {"tpm": 60}):
        pass
    stage.clock.advance(1)
    with stage.limiter.acquire("key", "gpt", {"tpm": 1}):
        pass


def test_a_jump_mints_at_most_a_burst(stage: Stage) -> None:
    assert stage.take(60)
    stage.ahead(stage.take)
    granted = 0
    while stage.take():
        granted += 1
    assert granted == 59


def test_clocks_that_never_agree_get_one_burst_a_minute_and_not_one_per_draw(stage: Stage) -> None:
    late = FakeClock()
    late.step_to(stage.clock() - DAY_MS)
    wrong = stage.client(late)
    granted = 0
    for _ in range(10):
        stage.take(1, wrong)
        granted += sum(stage.take(10) for _ in range(20))
    assert granted <= 2 * 6 + 1


def test_the_wait_that_is_told_while_a_bucket_may_not_be_brought_back_again_comes_true(stage: Stage) -> None:
    stage.ahead(stage.take)
    assert stage.take(1)
    stage.ahead(lambda: stage.take(58), 2 * DAY_MS)
    with pytest.raises(RateLimitExceeded) as denied, stage.limiter.acquire("key", "gpt", {"rpm": 3}):
        pass
    wait = denied.value.retry_after_seconds
    assert wait is not None
    assert wait <= FURTHEST_AHEAD_MS / 1000
    stage.clock.advance(wait)
    assert stage.take()


def test_a_caller_that_was_held_up_is_late_itself_and_brings_nothing_back(stage: Stage) -> None:
    """It read the clock, was stopped for minutes, and went on: others have drawn meanwhile."""
    began = stage.clock()
    assert stage.take(60)
    stage.clock.advance(300)
    assert stage.take(60)
    core = stage.limiter._core
    plan = core.space.draw(Draw("key", "gpt", {"rpm": 1}), began)
    outcome = core_run(stage, plan)
    assert not isinstance(outcome, Grant)
    stage.clock.advance(10)
    assert not stage.take(11)
    assert stage.take(10)


def core_run(stage: Stage, plan: Any) -> Any:
    return stage.limiter._driver.run(plan)


def test_a_clock_that_is_only_a_minute_ahead_is_followed_as_before(stage: Stage) -> None:
    assert stage.take(60)
    stage.ahead(lambda: stage.take(60), FURTHEST_AHEAD_MS)
    assert not stage.take()
    stage.clock.advance(60)
    assert not stage.take()
    stage.clock.advance(1)
    assert stage.take()


def test_a_waiter_does_not_sleep_until_the_time_of_a_clock_that_was_set_back() -> None:
    """The denial is of a clock that was a day ahead; when the wait begins, the clock is right."""
    now = FakeClock()()
    limiter = SyncRateLimiter(SyncRepository(MemoryStore(), clock=lambda: now + DAY_MS))
    limiter.set_system_defaults([RPM])
    with limiter.acquire("key", "gpt", {"rpm": 60}):
        pass
    plan = admit(limiter._core, AcquireArguments("key", "gpt", {"rpm": 1}, timeout_ms=30 * DAY_MS), NotedGrant())
    readings = iter([now + DAY_MS, now])
    request, timer = next(plan), 0
    while not isinstance(request, AwaitWakeUp):
        if isinstance(request, ReadClock):
            request = plan.send(next(readings))
        else:
            assert isinstance(request, ReadTimer)
            request = plan.send(timer)
    assert request.milliseconds == 1_000
    plan.close()


def test_rows_of_earlier_versions_have_no_latest_moment(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "limits.db"
    stage = Stage(lambda: SqliteStore(str(path)))
    assert stage.take(20)
    for opened in stage.opened:
        opened.close()
    with sqlite3.connect(path) as connection:
        (tokens,) = connection.execute("SELECT tokens FROM buckets").fetchone()
        connection.execute("UPDATE buckets SET tokens = ?", (" ".join(tokens.split()[:-1]),))
    assert stage.available(stage.client()) == 40
    assert stage.take(40, stage.client())
    for opened in stage.opened:
        opened.close()
