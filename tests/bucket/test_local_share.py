"""Shares of a limit while the store is away: how they are measured, what they grant, what is booked on return."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.balances import MILLI
from zae_limiter.local_share import (
    HARDLY_USED,
    MEASURED_OVER_MS,
    WHOLE_SHARE,
    Heard,
    LimitShare,
    ShareMeter,
    first_level,
    share_of,
)
from zae_limiter.models.limit import Limit

RPS = Limit.custom("rps", 500, 100, 1)
NOON = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()) * MILLI


def meter_of(*heard: tuple[int, int, int]) -> ShareMeter:
    """One that took so much, heard that counter, at these seconds."""
    meter = ShareMeter()
    for second, own, counter in heard:
        meter.took(own * MILLI)
        meter.heard(counter * MILLI, NOON + second * MILLI)
    return meter


def test_a_share_is_what_was_taken_of_what_all_took():
    assert meter_of((0, 1, 1), (10, 5, 21)).share() == WHOLE_SHARE // 4
    assert meter_of((0, 1, 1), (10, 5, 6)).share() == WHOLE_SHARE


def test_a_limit_that_was_heard_of_once_was_hardly_used():
    assert ShareMeter().share() == HARDLY_USED
    assert meter_of((0, 5, 5)).share() == HARDLY_USED
    assert meter_of((0, 5, 100), (10, 0, 200)).share() == HARDLY_USED


def test_what_is_older_than_a_minute_no_longer_counts():
    meter = meter_of(*((second, 10, 10 + second) for second in range(0, 60, 5)))
    for second in range(60, 200, 5):
        meter.took(1 * MILLI)
        meter.heard((1_000 + 10 * second) * MILLI, NOON + second * MILLI)
    assert meter.share() == WHOLE_SHARE // 50  # one of fifty, each five seconds


def test_a_process_that_was_away_measures_since_the_sample_before():
    meter = meter_of((0, 1, 1), (300, 1, 1_000), (301, 1, 1_001))
    assert meter.share() == 2 * WHOLE_SHARE // 1_000


def test_give_backs_count_on_both_sides():
    assert meter_of((0, 1, 1), (10, 8, 17), (20, -4, 17)).share() == WHOLE_SHARE // 4


def test_a_meter_keeps_few_samples():
    meter = meter_of(*((second, 1, second) for second in range(1_000)))
    assert len(meter._samples) <= MEASURED_OVER_MS // 5_000 + 2


def test_what_others_took_since_is_not_granted():
    meter = meter_of((0, 1, 1), (10, 10, 111))  # the others take 10 per second
    assert meter.taken_by_others(2_000) == 20 * MILLI
    heard = Heard(100 * MILLI, NOON)
    slow = Limit.custom("slow", 1_000, 1, 86_400)
    assert first_level(slow, heard, WHOLE_SHARE // 2, 20 * MILLI, NOON) == 40 * MILLI
    assert first_level(slow, heard, WHOLE_SHARE // 2, 200 * MILLI, NOON) == 0


def test_a_burst_of_others_says_no_rate():
    meter = meter_of((0, 1, 1), (0, 10, 111))  # a hundred by others, in no time
    assert meter.taken_by_others(1_000) == 20 * MILLI


def test_a_debt_is_a_debt_of_the_share():
    assert first_level(RPS, Heard(-100 * MILLI, NOON), WHOLE_SHARE // 2, 0, NOON) == -50 * MILLI
    assert first_level(RPS, Heard(-100 * MILLI, NOON), WHOLE_SHARE // 2, 0, NOON + 2_000) == 50 * MILLI


def test_a_share_of_a_period_is_of_its_whole_amount():
    limit = Limit.per_day("rpd", 1_000, tz="UTC")
    balance = share_of(limit, WHOLE_SHARE // 4, 10 * MILLI, NOON)
    assert balance.level(NOON) == 10 * MILLI
    assert balance.level(NOON + 12 * 3_600_000) == 250 * MILLI
    assert share_of(Limit.per_day("rpd", 1, tz="UTC"), 1, 0, NOON).level(NOON + 86_400_000) == 0


def test_slots_are_whole():
    assert share_of(Limit.concurrent("calls", 10, ttl=60), WHOLE_SHARE // 4, 10**9, NOON).level(NOON) == 2 * MILLI


def test_on_return_only_what_refill_has_not_paid_is_owed():
    share = LimitShare(RPS, WHOLE_SHARE // 2, 250 * MILLI, NOON)
    share.balance.tk -= 100 * MILLI
    share.balance.tc += 100 * MILLI
    assert share.owed(NOON) == 100 * MILLI
    assert share.owed(NOON + 1_000) == 50 * MILLI  # it refills 50 per second, and would have been full
    assert share.owed(NOON + 2_000) == 0
    assert share.granted == 100 * MILLI


def test_a_share_that_would_not_have_been_full_owes_everything():
    share = LimitShare(RPS, WHOLE_SHARE // 2, 0, NOON)
    share.balance.tk -= 50 * MILLI
    share.balance.tc += 50 * MILLI
    assert share.owed(NOON + 1_000) == 50 * MILLI


limits = st.builds(
    lambda burst, amount, period: Limit.custom("x", max(burst, 1), amount, period),
    st.integers(1, 10_000),
    st.integers(1, 10_000),
    st.integers(1, 86_400),
)


@given(
    limits,
    st.integers(1, WHOLE_SHARE),
    st.integers(-20_000_000, 10_000_000),
    st.lists(st.tuples(st.integers(0, 20_000), st.integers(1, 50)), max_size=40),
)
def test_a_share_never_grants_above_its_bound(limit, share, level, asked):
    """At most ``f * (level + accrual)``; what is owed is never above what was granted, and is whole."""
    heard = Heard(min(level, limit.burst * MILLI), NOON)
    local = LimitShare(limit, share, first_level(limit, heard, share, 0, NOON), NOON)
    now = NOON
    for later, tokens in asked:
        now += later
        if local.balance.level(now) >= tokens * MILLI:
            local.balance.tk = local.balance.level(now) - tokens * MILLI - local.balance.since_rf(now)
            local.balance.tc += tokens * MILLI
    amount, seconds = limit.refill_amount, limit.refill_period_seconds
    accrual = (now - NOON) * amount / seconds + 1
    assert local.granted <= max(heard.level + accrual, 0) * share / WHOLE_SHARE + 1
    assert 0 <= local.owed(now) <= local.granted
    assert local.owed(now) % MILLI == 0
    lower = local.idle.level(now) - local.balance.level(now)
    assert lower <= local.owed(now) < lower + MILLI


@pytest.mark.parametrize("limit", [RPS, Limit.per_day("rpd", 1_000, tz="UTC"), Limit.per_month("usd", 7)])
def test_shares_of_a_fleet_are_no_more_than_the_whole(limit):
    shares = [333_333, 333_333, 333_334]
    whole = share_of(limit, WHOLE_SHARE, 10**12, NOON)
    for later in (0, 1, 999, 86_400_000, 40 * 86_400_000):
        parts = [share_of(limit, share, 0, NOON) for share in shares]
        empty = share_of(limit, WHOLE_SHARE, 0, NOON)
        assert sum(part.level(NOON + later) for part in parts) <= empty.level(NOON + later)
    assert sum(share_of(limit, share, 10**12, NOON).bx for share in shares) <= whole.bx
