"""An outage of a fleet whose processes grant from their shares: twenty limiters on one store, by one clock.

A minute in which the store answers, a minute in which it does not, and half a minute after. 100 per second, a burst of
500; the processes are busy by Zipf's law.
"""

from __future__ import annotations

from itertools import accumulate
from random import Random

import pytest

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter.local_share import LimitShare
from zae_limiter.stores.memory.store import MemoryStore
from zae_limiter.testing import FailingStore, FakeClock

RATE, BURST, SECONDS, PROCESSES = 100, 500, 60, 20
BOUND = BURST + RATE * SECONDS


class Fleet:
    def __init__(self, seed: int = 7) -> None:
        self.clock = FakeClock(auto_advance=False)
        self.shared = MemoryStore()
        self.stores = [FailingStore(self.shared) for _ in range(PROCESSES)]
        self.limiters = [
            SyncRateLimiter(SyncRepository(store, clock=self.clock, on_unavailable="local")) for store in self.stores
        ]
        self.observer = SyncRateLimiter(SyncRepository(self.shared, clock=self.clock))
        self.observer.set_system_defaults([Limit.custom("rps", BURST, RATE, 1)])
        self.rng = Random(seed)
        self.weights = list(accumulate(1 / rank for rank in range(1, PROCESSES + 1)))
        self.granted = [0] * PROCESSES

    def run(self, seconds: float, load: float, *, reverse: bool = False) -> tuple[int, int]:
        """So much traffic; how many asked, and how many of them were granted."""
        asked = granted = 0
        until = self.clock() + seconds * 1000
        while self.clock() < until:
            self.clock.advance(milliseconds=max(round(self.rng.expovariate(load * RATE / 1000)), 1))
            (place,) = self.rng.choices(range(PROCESSES), cum_weights=self.weights)
            place = PROCESSES - 1 - place if reverse else place
            asked += 1
            try:
                with self.limiters[place].acquire("key", "gpt", {"rps": 1}):
                    granted += 1
                    self.granted[place] += 1
            except RateLimitExceeded:
                pass
        return asked, granted

    def outage(self, load: float, *, reverse: bool = False) -> tuple[int, int]:
        self.run(SECONDS, load)
        self.granted = [0] * PROCESSES
        for store in self.stores:
            store.fail()
        outcome = self.run(SECONDS, load, reverse=reverse)
        for store in self.stores:
            store.heal()
        return outcome

    def come_back(self) -> int:
        """Every process books; what is left in the bucket."""
        for limiter in self.limiters:
            limiter.repository._driver.run(limiter.repository._finish())
        return self.observer.available("key", "gpt")["rps"]

    def counted(self) -> int:
        (bucket,) = self.observer.get_status("key").buckets
        return bucket.limits[0].total_consumed


def shares_of(fleet: Fleet) -> list[int]:
    return [
        next((share.share for bucket in one._core.local._away.values() for share in bucket.shares.values()), 0)
        for one in fleet.limiters
    ]


def test_three_times_the_limit_is_asked_and_no_more_than_the_limit_is_granted():
    fleet = Fleet()
    asked, granted = fleet.outage(3.0)
    shares = shares_of(fleet)
    assert asked > 2.5 * RATE * SECONDS
    assert 0.8 * RATE * SECONDS < granted <= BOUND
    assert sum(shares) <= 1_050_000  # each process has its own last minute
    for share, own in zip(shares, fleet.granted, strict=True):
        assert own <= share * BOUND / 1_000_000 + 1


def test_four_fifths_of_the_limit_are_asked_and_nearly_all_is_granted():
    fleet = Fleet()
    asked, granted = fleet.outage(0.8)
    assert granted >= 0.99 * asked
    counted = fleet.counted()
    assert fleet.come_back() >= 0  # no debt that was not owed
    assert fleet.counted() == counted + granted
    asked, granted = fleet.run(30, 0.8)
    assert granted == asked


def test_traffic_that_moves_to_other_processes_is_granted_less_and_never_more():
    fleet = Fleet()
    asked, granted = fleet.outage(0.8, reverse=True)
    assert 0 < granted < asked
    assert granted <= BOUND


def test_a_fleet_that_was_over_its_limit_comes_back_without_debt_and_without_a_gift():
    fleet = Fleet()
    _, granted = fleet.outage(3.0)
    counted = fleet.counted()
    assert 0 <= fleet.come_back() <= BURST
    assert fleet.counted() == counted + granted


def test_taking_everything_that_was_granted_would_leave_a_debt(monkeypatch):
    """What the rule is for: with the plain one, the same fleet comes back to a debt and is refused."""
    monkeypatch.setattr(LimitShare, "owed", lambda share, now: share.granted)
    fleet = Fleet()
    fleet.outage(0.8)
    assert fleet.come_back() < -RATE
    asked, granted = fleet.run(30, 0.8)
    assert granted < 0.9 * asked


@pytest.mark.parametrize("load", [0.8, 3.0])
def test_a_process_that_is_killed_before_it_books_leaves_a_loss_within_its_share(load):
    fleet = Fleet()
    _, granted = fleet.outage(load)
    counted = fleet.counted()
    lost = fleet.limiters.pop(0)  # the busiest one, and what it granted
    assert fleet.come_back() <= BURST
    missing = granted - (fleet.counted() - counted)
    assert missing == fleet.granted[0]
    (bucket,) = lost._core.local._away.values()
    assert missing <= bucket.shares["rps"].share * BOUND / 1_000_000
