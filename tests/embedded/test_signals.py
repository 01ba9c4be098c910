"""Real signals at random moments: nothing is lost, nothing stays locked, on either embedded store."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from zae_limiter import Limit, SyncRateLimiter

LIMIT = Limit.custom("n", 10**9, 1, 86_400)
WANTED_INTERRUPTS = 150
GIVE_UP_AFTER_S = 25.0


armed = [False]
"""A signal may be told to another thread of this process, and reach the main one late: then it is too late."""


def interrupt(number: int, frame: FrameType | None) -> None:
    if armed[0]:
        raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def alarms() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, interrupt)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # where a signal hit a destructor
@pytest.mark.parametrize("store", ["memory", "sqlite"])
@pytest.mark.parametrize("waits", [False, True])
def test_an_interrupted_acquire_takes_nothing_and_locks_nothing(store: str, waits: bool, tmp_path: Path) -> None:
    """``waits``: the long way, with options and a plan."""
    url = "memory://" if store == "memory" else f"sqlite:///{tmp_path}/limits.db"
    longest = 0.000_02 if store == "memory" else 0.000_4
    rng = random.Random(7)
    limiter = SyncRateLimiter.open(url, deadline=1)
    limiter.set_system_defaults([LIMIT])
    kept = interrupts = 0
    started = time.monotonic()
    while interrupts < WANTED_INTERRUPTS and time.monotonic() - started < GIVE_UP_AFTER_S:
        entered = False
        try:
            armed[0] = True
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.000_002, longest))
            with limiter.acquire("key", "gpt", {"n": 1}, timeout=1 if waits else 0):
                armed[0] = False
                entered = True
        except KeyboardInterrupt:
            interrupts += 1
        finally:
            armed[0] = False
            signal.setitimer(signal.ITIMER_REAL, 0)
        kept += entered
        with limiter.acquire("key", "gpt", {"n": 0}):  # raises if something stayed locked
            pass
    used = limiter.get_status("key").buckets[0].limits[0].total_consumed
    limiter.close()
    assert interrupts > 10
    # Nothing is ever minted; CPython may still find a place where a grant is lost, but not one in a hundred.
    assert kept <= used <= kept + interrupts // 100
