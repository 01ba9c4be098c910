"""Calendar limits against an exact reference: what comes, what a change of terms does, and the shares of shards."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.bucket import (
    MILLI,
    Balance,
    Bucket,
    SteppedBalance,
    balance_of,
    book,
    calculate_retry_after,
    rebase,
    share,
    try_consume,
)
from zae_limiter.models.limit import Limit
from zae_limiter.models.moments import milliseconds_at

START = 1_767_225_600_000  # 2026-01-01T00:00Z
DAY = 86_400_000


def monthly(amount: int, burst: int | None = None, *, carry_debt: bool = True, tz: str = "UTC") -> Limit:
    return Limit.per_month("usd", amount, burst, tz=tz, carry_debt=carry_debt)


def stepped(limit: Limit, now: int = START, **named: int) -> SteppedBalance:
    balance = balance_of(limit, now, **named)
    assert isinstance(balance, SteppedBalance)
    return balance


class Reference:
    """A budget as a caller would keep it: a level, topped up at each start of a period that has passed."""

    def __init__(self, limit: Limit, now: int) -> None:
        assert limit.periods is not None
        self.limit = limit
        self.level = limit.burst * MILLI
        self.number = limit.periods.ordinal(now)

    def at(self, now: int) -> int:
        assert self.limit.periods is not None
        while self.number < self.limit.periods.ordinal(now):
            self.number += 1
            topped = self.level + self.limit.refill_amount * MILLI
            self.level = min(topped, self.limit.burst * MILLI)
            if not self.limit.periods.carry_debt:
                self.level = self.limit.burst * MILLI
        return self.level


limits = st.builds(
    lambda amount, more, unit, every, carry: Limit.calendar(
        "x", amount, f"{every}{unit}", amount + more, tz="Europe/Berlin", carry_debt=carry
    ),
    st.integers(1, 50),
    st.integers(0, 120),
    st.sampled_from(["hour", "day", "week", "month"]),
    st.integers(1, 3),
    st.booleans(),
)
steps = st.lists(st.tuples(st.integers(0, 40 * DAY), st.integers(-40_000, 60_000)), max_size=30)


@given(limit=limits, steps=steps)
def test_a_budget_is_what_the_reference_keeps(limit: Limit, steps: list[tuple[int, int]]) -> None:
    """Whatever is taken, booked and given back, whenever: level, refusals and waits are exact."""
    now = START
    balance, reference = stepped(limit), Reference(limit, now)
    for later, delta in steps:
        now += later
        balance.advance(now)
        assert balance.level(now) == reference.at(now)
        if delta > 0 and delta % 2:
            left = try_consume(balance, delta, now)
            assert (left is None) == (reference.level < delta)
            if left is not None:
                balance.tk, reference.level = left, reference.level - delta
        else:
            balance.tk = book(balance, delta, now)
            reference.level = min(reference.level - delta, limit.burst * MILLI)
        wait = calculate_retry_after(balance, balance.bx, now)
        assert wait is not None
        assert balance.level(now + wait) == balance.bx
        if wait:
            assert balance.level(now + wait - 1) < balance.bx


@given(limit=limits, moments=st.lists(st.integers(0, 60 * DAY), min_size=1, max_size=20))
def test_what_periods_grant_is_bounded(limit: Limit, moments: list[int]) -> None:
    """In periods j to k no more than the burst and an amount for each start in between, however greedy."""
    if limit.periods is None or not limit.periods.carry_debt:
        return
    now, granted = START, 0
    balance = stepped(limit)
    first = limit.periods.ordinal(now)
    for later in moments:
        now += later
        balance.advance(now)
        take = balance.level(now)
        if take > 0:
            balance.tk = book(balance, take, now)
            granted += take
        passed = limit.periods.ordinal(now) - first
        assert granted <= (limit.burst + limit.refill_amount * passed) * MILLI


@given(
    amount=st.integers(1, 10_000),
    more=st.integers(0, 30_000),
    shards=st.sampled_from([1, 2, 4, 8, 16]),
    months=st.integers(0, 5),
)
def test_shares_of_every_step_add_up(amount: int, more: int, shards: int, months: int) -> None:
    limit = monthly(amount, amount + more)
    assert limit.periods is not None
    parts = [stepped(limit, shard=shard, shards=shards) for shard in range(shards)]
    assert sum(part.step for part in parts) == amount * MILLI
    assert sum(part.bx for part in parts) == limit.burst * MILLI
    later = limit.periods.start(limit.periods.ordinal(START) + months)
    for part in parts:
        part.tk = 0
    expected = min(amount * months, limit.burst) * MILLI
    assert sum(part.level(later) for part in parts) == expected
    assert all(part.step == share(amount * MILLI, part.shard, shards) for part in parts)


def test_the_whole_amount_comes_at_the_boundary_and_not_before() -> None:
    balance = stepped(monthly(500, tz="Europe/Berlin"))
    balance.tk = 0
    boundary = milliseconds_at(datetime.fromisoformat("2026-01-31T23:00:00+00:00"))
    assert balance.level(boundary - 1) == 0
    assert balance.level(boundary) == 500_000
    assert balance.resets_at(START) == boundary


def test_debt_is_carried_or_not() -> None:
    february = milliseconds_at(datetime.fromisoformat("2026-02-01T00:00:00+00:00"))
    carried, fresh = stepped(monthly(100)), stepped(monthly(100, carry_debt=False))
    for balance in (carried, fresh):
        balance.tk = book(balance, 130_000, START)
        balance.advance(february)
    assert (carried.level(february), fresh.level(february)) == (70_000, 100_000)


def test_what_is_left_rolls_over_up_to_the_burst() -> None:
    balance = stepped(monthly(100, 150))
    balance.tk = 90_000
    assert balance.limit.periods is not None
    assert balance.level(balance.limit.periods.start(25)) == 150_000


@given(spent=st.integers(0, 200_000), amount=st.integers(1, 300), other=st.integers(1, 300), later=st.integers(0, DAY))
def test_a_changed_amount_counts_at_once_and_flipping_mints_nothing(
    spent: int, amount: int, other: int, later: int
) -> None:
    balance: Balance = stepped(monthly(amount))
    balance.tk = book(balance, spent, START)
    changed = rebase(balance, monthly(other), START + later)
    assert changed.level(START + later) == other * MILLI - spent
    back = rebase(changed, monthly(amount), START + later)
    assert back.level(START + later) == balance.level(START + later)


@given(level=st.integers(-50_000, 100_000), burst=st.integers(1, 300))
def test_another_calendar_or_kind_clamps_and_mints_nothing(level: int, burst: int) -> None:
    balance: Balance = stepped(monthly(100))
    balance.tk = level
    others = (Limit.per_day("usd", burst, tz="Asia/Tokyo"), Limit.per_minute("usd", burst))
    for limit in others:
        moved = rebase(balance, limit, START)
        assert moved.level(START) == min(level, burst * MILLI)
        returned = rebase(moved, balance.limit, START)
        assert returned.level(START) <= level


def test_a_host_with_another_database_credits_a_period_once() -> None:
    """The number of the period is kept: a boundary that is seen early by one host is not credited by the next."""
    balance = stepped(monthly(100))
    balance.tk = 0
    early = balance.calendar.start(balance.pn + 1)
    balance.advance(early)  # a host for which it is February
    assert balance.level(early - 1000) == 100_000  # one for which it is not yet
    balance.advance(early - 1000)
    balance.advance(early)
    assert balance.level(early) == 100_000


def test_retired_and_back_within_a_period_mints_nothing() -> None:
    bucket = Bucket("key", "gpt", START)
    bucket.adopt((monthly(100),), START)
    bucket.settle({"usd": 60_000}, START)
    bucket.adopt((Limit.per_minute("rpm", 5),), START + 1)
    assert list(bucket.retired) == ["usd"]
    bucket.adopt((monthly(100),), START + 2)
    assert bucket.balances[0].level(START + 2) == 40_000


@pytest.mark.parametrize("tz", ["UTC", "Europe/Berlin"])
def test_a_bucket_is_kept_until_its_budget_is_full(tz: str) -> None:
    bucket = Bucket("key", "gpt", START)
    bucket.adopt((monthly(100, tz=tz),), START)
    assert bucket.full_at() == START
    bucket.settle({"usd": 250_000}, START)
    assert bucket.full_at() >= bucket.balances[0].limit.periods.start(27)  # type: ignore[union-attr]
