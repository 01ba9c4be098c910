"""Several processes on one file: what is admitted is exact, and the counters are what the callers were told."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from support.processes import together
from support.sqlite_files import buckets_in, check_conservation, check_integrity
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter
from zae_limiter.running.clocks import machine_clock
from zae_limiter.testing.clock import NEW_YEAR_2026_MS

PROCESSES = 4
BURST_OF_A_MINUTE = 20_000
"""At 300 a second: however slowly processes start, the bucket is not full again before they are done."""


def stopped_clock() -> int:
    return NEW_YEAR_2026_MS


def take_one_by_one(url: str, entity_id: str, times: int) -> int:
    granted = 0
    with SyncRateLimiter.open(url, clock=stopped_clock) as limiter:
        for _ in range(times):
            try:
                with limiter.acquire(entity_id, "gpt", {"rpd": 1, "tpd": 10}):
                    granted += 1
            except RateLimitExceeded:
                pass
    return granted


def test_four_processes_on_one_key_admit_exactly_the_burst(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/limits.db"
    with SyncRateLimiter.open(url, clock=stopped_clock) as limiter:
        limiter.set_system_defaults([Limit.per_day("rpd", 1_000), Limit.per_day("tpd", 9_000)])
        granted = together(take_one_by_one, [(url, "key", 400)] * PROCESSES)
        assert sum(granted) == 900
        assert limiter.available("key", "gpt") == {"rpd": 100, "tpd": 0}
        (bucket,) = limiter.get_status("key").buckets
        assert [level.total_consumed for level in bucket.limits] == [900, 9_000]
        assert bucket.total_events == 900
        (hour,) = limiter.get_usage_snapshots("key", "gpt", "hourly").items
        assert (hour.counters, hour.total_events) == ({"rpd": 900, "tpd": 9_000}, 900)
    check_integrity(tmp_path / "limits.db")


def test_four_processes_on_distinct_keys_admit_exactly_the_burst_of_each(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/limits.db"
    with SyncRateLimiter.open(url, clock=stopped_clock) as limiter:
        limiter.set_system_defaults([Limit.per_day("rpd", 150), Limit.per_day("tpd", 9_000)])
        keys = [f"key-{place}" for place in range(PROCESSES)]
        assert together(take_one_by_one, [(url, key, 200) for key in keys]) == [150] * PROCESSES
        assert [limiter.available(key, "gpt")["rpd"] for key in keys] == [0] * PROCESSES


def take_what_accrues(url: str, times: int) -> int:
    granted = 0
    with SyncRateLimiter.open(url) as limiter:
        for _ in range(times):
            try:
                with limiter.acquire("key", "gpt", {"rps": 1}):
                    granted += 1
            except RateLimitExceeded:
                pass
    return granted


def test_over_time_what_was_admitted_and_what_is_left_are_burst_and_accrual(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/limits.db"
    with SyncRateLimiter.open(url) as limiter:
        limiter.set_system_defaults([Limit.per_second("rps", 300, burst=BURST_OF_A_MINUTE)])
        with limiter.acquire("key", "gpt", {"rps": BURST_OF_A_MINUTE}):
            pass
        granted = sum(together(take_what_accrues, [(url, 800)] * PROCESSES))
        (bucket,) = buckets_in(tmp_path / "limits.db").values()
        assert granted > 0
        assert bucket.balances[0].tc == (BURST_OF_A_MINUTE + granted) * 1_000
        check_conservation(bucket)
        assert limiter.get_status("key").buckets[0].limits[0].total_consumed == BURST_OF_A_MINUTE + granted


class Body(Exception):
    """The work went wrong."""


def live_a_varied_life(url: str, entity_id: str, times: int) -> Counter[str]:
    """Every way a lease can end. What the leases said they paid, and how often something was granted."""
    told: Counter[str] = Counter()
    with SyncRateLimiter.open(url, clock=stopped_clock) as limiter:
        for number in range(times):
            lease = limiter.acquire(entity_id, "gpt", {"rpd": 1, "tpd": 10})
            try:
                with lease:
                    told["events"] += 1
                    if number % 5 == 0:
                        raise Body
                    if number % 5 == 1:
                        lease.adjust(tpd=7, rpd=1)
                    if number % 5 == 2:
                        lease.settle(tpd=3)
                        lease.flush()
                    if number % 5 == 3:
                        lease.consume(tpd=40)
                        told["events"] += 1
                        lease.release(tpd=5)
                        if number % 2:
                            raise Body
            except (Body, RateLimitExceeded):
                pass
            told.update(lease.consumed)
    return told


def test_parents_and_children_add_up_whatever_becomes_of_the_leases(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/limits.db"
    with SyncRateLimiter.open(url, clock=stopped_clock) as limiter:
        limiter.set_system_defaults([Limit.per_day("rpd", 10_000), Limit.per_day("tpd", 100_000)])
        limiter.create_entity("org")
        limiter.set_limits("org", [Limit.per_day("rpd", 500), Limit.per_day("tpd", 5_000)])
        keys = [f"key-{place}" for place in range(PROCESSES)]
        for key in keys:
            limiter.create_entity(key, parent_id="org", cascade=True)
        told = together(live_a_varied_life, [(url, key, 300) for key in keys])
        for key, said in zip(keys, told, strict=True):
            (bucket,) = limiter.get_status(key).buckets
            paid = {level.limit_name: level.total_consumed for level in bucket.limits}
            assert paid == {"rpd": said["rpd"], "tpd": said["tpd"]}
            assert bucket.total_events == said["events"]
            (hour,) = limiter.get_usage_snapshots(key, "gpt", "hourly").items
            assert (hour.counters, hour.total_events) == (paid, said["events"])
        (org,) = limiter.get_status("org").buckets
        total = sum(told, Counter())
        assert {level.limit_name: level.total_consumed for level in org.limits} == {
            "rpd": total["rpd"],
            "tpd": total["tpd"],
        }
        assert org.total_events == total["events"]
        assert limiter.available("org", "gpt") == {"rpd": 500 - total["rpd"], "tpd": 5_000 - total["tpd"]}
    for bucket in buckets_in(tmp_path / "limits.db").values():
        check_conservation(bucket)
    check_integrity(tmp_path / "limits.db")


class HurriedClock:
    """The same time in every process, in which an hour passes in a fifth of a second."""

    def __init__(self) -> None:
        self.begun = machine_clock()

    def __call__(self) -> int:
        return NEW_YEAR_2026_MS + (machine_clock() - self.begun) * 18_000


def take_for_hours(url: str, clock: HurriedClock, place: int) -> int:
    calls = 0
    until = clock() + 4 * 3_600_000
    with SyncRateLimiter.open(url, clock=clock) as limiter:
        while clock() < until:
            with limiter.acquire(f"key-{(place + calls) % 3}", "gpt", {"tpd": 10}) as lease:
                lease.adjust(tpd=-3)
            calls += 1
    return calls


def test_the_hours_of_usage_add_up_to_what_was_taken_in_all(tmp_path: Path) -> None:
    url, clock = f"sqlite:///{tmp_path}/limits.db", HurriedClock()
    with SyncRateLimiter.open(url, clock=clock) as limiter:
        limiter.set_system_defaults([Limit.per_day("tpd", 10**9)])
        calls = sum(together(take_for_hours, [(url, clock, place) for place in range(PROCESSES)]))
        totals: Counter[str] = Counter()
        hours = 0
        for key in ("key-0", "key-1", "key-2"):
            usage = limiter.get_usage_summary(key, "gpt", "hourly")
            for bucket in limiter.get_status(key).buckets:  # none, if it has expired meanwhile
                assert usage.total == {"tpd": bucket.limits[0].total_consumed}
                assert usage.total_events == bucket.total_events
            totals.update(usage.total, events=usage.total_events)
            hours = max(hours, usage.snapshot_count)
        assert totals == {"tpd": 7 * calls, "events": calls}
        assert hours > 1


def open_a_new_file(url: str, place: int) -> int:
    with SyncRateLimiter.open(url, clock=stopped_clock) as limiter:
        limiter.create_entity(f"key-{place}")
        with limiter.acquire(f"key-{place}", "gpt", {"rpd": 1}, limits=[Limit.per_day("rpd", 5)]):
            pass
        return limiter.available(f"key-{place}", "gpt", limits=[Limit.per_day("rpd", 5)])["rpd"]


@pytest.mark.parametrize("file", ["limits.db", "a/folder/that/is/not/there/yet.db"])
def test_processes_that_find_no_file_make_one_together(tmp_path: Path, file: str) -> None:
    url = f"sqlite:///{tmp_path}/{file}"
    assert together(open_a_new_file, [(url, place) for place in range(6)]) == [4] * 6
    with SyncRateLimiter.open(url) as limiter:
        assert [entity.id for entity in limiter.list_entities().items] == [f"key-{place}" for place in range(6)]
