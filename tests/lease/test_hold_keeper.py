"""The keeper renews calls that last long; it begins with the first hold, and ends with the last or with close."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from zae_limiter import HoldLost, HoldsRenewed, Limit, RateLimiter, SyncRateLimiter, ValidationError
from zae_limiter.lease import hold_keeper
from zae_limiter.testing import FakeClock, sync_memory_limiter

CALLS = Limit.concurrent("calls", 2, ttl=60)
NEW_YEAR_2026_MS = 1_767_225_600_000


class SetClock:
    """Stands still until it is set. It does not drive waiting, so the keeper runs by the machine's timer."""

    def __init__(self) -> None:
        self.now = NEW_YEAR_2026_MS

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    monkeypatch.setattr(hold_keeper, "LONGEST_WAIT_MS", 5)
    monkeypatch.setattr(hold_keeper, "IDLE_MS", 20)
    return SetClock()


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'limits.db'}"


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, "waited in vain"
        time.sleep(0.002)


@pytest.fixture
def threads_end() -> Iterator[None]:
    yield
    until(lambda: not [one for one in threading.enumerate() if one.name == "zae-limiter-holds"])


def is_running(limiter: Any) -> bool:
    return bool(limiter._core.keeper.is_running)


@pytest.mark.usefixtures("threads_end")
def test_a_call_that_lasts_long_keeps_its_slots(url: str, clock: SetClock) -> None:
    events: list[Any] = []
    with SyncRateLimiter.open(url, clock=clock, observer=events.append) as limiter:
        limiter.set_system_defaults([CALLS])
        assert not is_running(limiter)
        with limiter.acquire("key", "gpt", {"calls": 2}) as lease:
            for _ in range(6):
                due = lease.holds[0].due
                clock.now += 45_000
                until(lambda due=due: lease.holds[0].due > due)  # type: ignore[misc]
                assert limiter.available("key", "gpt") == {"calls": 0}
            assert is_running(limiter)
        assert limiter.available("key", "gpt") == {"calls": 2}
        until(lambda: not is_running(limiter))
        with limiter.acquire("key", "gpt", {"calls": 1}):
            assert is_running(limiter)
    renewed = [event for event in events if isinstance(event, HoldsRenewed)]
    assert (renewed[0].entity_id, renewed[0].resource, renewed[0].slots) == ("key", "gpt", {"calls": 2})
    assert not [event for event in events if isinstance(event, HoldLost)]


@pytest.mark.usefixtures("threads_end")
def test_a_task_that_blocks_its_loop_keeps_its_slots_too(url: str, clock: SetClock) -> None:
    async def program() -> None:
        async with RateLimiter.open(url, clock=clock) as limiter:
            await limiter.set_system_defaults([CALLS])
            async with limiter.acquire("key", "gpt", {"calls": 1}) as lease:
                due = lease.holds[0].due
                clock.now += 40_000
                until(lambda: lease.holds[0].due > due)  # the loop does not run meanwhile
            assert await limiter.available("key", "gpt") == {"calls": 2}

    asyncio.run(program())


@pytest.mark.usefixtures("threads_end")
def test_what_was_lost_is_taken_again(url: str, clock: SetClock) -> None:
    events: list[Any] = []
    with SyncRateLimiter.open(url, clock=clock, observer=events.append) as limiter:
        limiter.set_system_defaults([CALLS])
        with limiter.acquire("key", "gpt", {"calls": 2}):
            limiter.reset("key")
            clock.now += 40_000
            until(lambda: any(isinstance(event, HoldLost) for event in events))
            assert limiter.available("key", "gpt") == {"calls": 0}
        assert limiter.available("key", "gpt") == {"calls": 2}


@pytest.mark.usefixtures("threads_end")
def test_an_abandoned_lease_is_not_renewed(url: str, clock: SetClock) -> None:
    with SyncRateLimiter.open(url, clock=clock) as limiter:
        limiter.set_system_defaults([CALLS])
        lease = limiter.acquire("key", "gpt", {"calls": 2})
        lease.__enter__()
        del lease
        gc.collect()
        clock.now += 75_000
        until(lambda: not is_running(limiter))
        assert limiter.available("key", "gpt") == {"calls": 2}


@pytest.mark.usefixtures("threads_end")
def test_closing_ends_it_while_calls_are_running(url: str, clock: SetClock) -> None:
    limiter = SyncRateLimiter.open(url, clock=clock)
    limiter.set_system_defaults([CALLS])
    with limiter.acquire("key", "gpt", {"calls": 1}):
        assert is_running(limiter)
        limiter.close()
        assert not is_running(limiter)


@pytest.mark.usefixtures("threads_end")
def test_a_failure_is_told_and_tried_again(
    clock: SetClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hold_keeper, "PAUSE_AFTER_FAILURE_MS", 5)
    with SyncRateLimiter.open("memory://", clock=clock) as limiter:
        limiter.set_system_defaults([CALLS])
        space: Any = limiter._core.space
        renew, failures = space.renew, [OSError("away"), OSError("away")]

        def failing(holds: Any, now: int) -> Any:
            if failures:
                raise failures.pop()
            return renew(holds, now)

        monkeypatch.setattr(space, "renew", failing)
        with limiter.acquire("key", "gpt", {"calls": 1}) as lease:
            due = lease.holds[0].due
            clock.now += 45_000
            until(lambda: lease.holds[0].due > due)
    assert not failures
    assert "could not renew 1 calls in flight" in caplog.text


def test_there_is_none_without_holds_under_a_fake_clock_or_when_none_is_wanted() -> None:
    plain = SyncRateLimiter.open("memory://")
    plain.set_system_defaults([Limit.per_minute("rpm", 10)])
    with plain.acquire("key", "gpt", {"rpm": 1}):
        assert not is_running(plain)
    fake = sync_memory_limiter([CALLS], clock=FakeClock())
    unkept = SyncRateLimiter.open("memory://", keep_holds=False)
    unkept.set_system_defaults([CALLS])
    for limiter in (fake, unkept):
        with limiter.acquire("key", "gpt", {"calls": 1}) as lease:
            assert limiter._core.keeper is None
            lease.renew()
    with pytest.raises(ValidationError, match="keep_holds"):
        SyncRateLimiter.open("memory://", keep_holds=1)  # type: ignore[arg-type]


def in_child(limiter: SyncRateLimiter, outcome: Any) -> None:
    keeper: Any = limiter._core.keeper
    outcome.put((len(keeper._holds), keeper.is_running))
    with limiter.acquire("other", "gpt", {"calls": 1}):
        outcome.put((len(keeper._holds), keeper.is_running))


@pytest.mark.usefixtures("threads_end")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_keeps_nothing_of_its_parent(clock: SetClock, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    with SyncRateLimiter.open(f"sqlite:///{tmp_path / 'limits.db'}", clock=clock) as limiter:
        limiter.set_system_defaults([CALLS])
        with limiter.acquire("key", "gpt", {"calls": 1}) as lease:
            outcome = context.Queue()
            child = context.Process(target=in_child, args=(limiter, outcome))
            child.start()
            assert outcome.get(timeout=30) == (0, False)
            assert outcome.get(timeout=30) == (1, True)
            child.join(30)
            assert child.exitcode == 0
            due = lease.holds[0].due
            clock.now += 45_000
            until(lambda: lease.holds[0].due > due)
            assert os.getpid()
