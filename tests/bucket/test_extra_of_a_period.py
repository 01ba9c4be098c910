"""What a calendar limit may hold above its burst in one period, against an exact reference."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from support.budget_account import Account
from zae_limiter.bucket import (
    MILLI,
    Bucket,
    SteppedBalance,
    balance_of,
    book,
    calculate_retry_after,
    lower,
    rebase,
    try_consume,
)
from zae_limiter.models.limit import Limit

START = 1_767_225_600_000  # 2026-01-01T00:00Z
DAY = 86_400_000


def budget(amount: int, more: int, *, carry: bool) -> Limit:
    return Limit.per_day("x", amount, amount + more, tz="Europe/Berlin", carry_debt=carry)


steps = st.lists(
    st.tuples(
        st.sampled_from(["take", "take", "book", "give", "give", "lift", "lower", "terms", "reset"]),
        st.integers(0, 3 * DAY // 2),
        st.integers(0, 90_000),
        st.integers(1, 60),
    ),
    max_size=30,
)


@given(amount=st.integers(1, 50), more=st.integers(0, 80), carry=st.booleans(), steps=steps)
def test_a_lifted_budget_is_what_the_account_says(
    amount: int, more: int, carry: bool, steps: list[tuple[str, int, int, int]]
) -> None:
    now = START
    limit = budget(amount, more, carry=carry)
    bucket, account = Bucket("key", "gpt", now), Account(limit, now)
    bucket.adopt((limit,), now)
    for what, later, milli, whole in steps:
        now += later
        account.go_to(now)
        [seen] = bucket.balances
        assert seen.level(now) == account.level * MILLI, "also if nothing was written since the boundary"
        assert seen.extra_at(now) == account.extra * MILLI
        _waits_are_exact(seen, now, milli)
        assert seen.extra_at(now) == 0 or bucket.full_at() >= account.period_ends
        if what == "lift":
            bucket.lift({"x": whole * MILLI}, now)
            account.lift(whole)
        elif what == "reset":
            bucket.refill(now)
            account.fill()
        elif what == "terms":
            limit = budget(whole, more, carry=carry)
            bucket.adopt((limit,), now)
            account.change(limit)
        else:
            bucket.begin_periods(now)
            [balance] = bucket.balances
            if what == "take":
                left = try_consume(balance, milli, now)
                assert (left is None) == (account.level * MILLI < milli)
                if left is not None:
                    balance.tk = left
                    account.take(milli)
            elif what == "book":
                balance.tk = book(balance, milli, now)
                account.take(milli)
            elif what == "give":
                balance.tk = book(balance, -milli, now)
                account.give_back(milli)
            else:
                balance.tk = lower(balance, milli, now)
                account.lower(milli)


def _waits_are_exact(balance: object, now: int, milli: int) -> None:
    assert isinstance(balance, SteppedBalance)
    burst = balance.limit.burst * MILLI
    wait = calculate_retry_after(balance, milli, now)
    if wait is None:
        assert milli > burst
        assert balance.level(now) < milli
        return
    assert balance.level(now + wait) >= milli
    if wait:
        assert balance.level(now + wait - 1) < milli
    full_in = balance.full_in(balance.tk, now)
    assert balance.level(now + full_in) >= burst


@given(
    spent=st.integers(0, 200),
    lifted=st.integers(0, 100),
    later=st.integers(0, 250),
    amount=st.integers(1, 60),
    more=st.integers(0, 100),
)
def test_a_period_holds_what_it_would_hold_without_the_lift_before(
    spent: int, lifted: int, later: int, amount: int, more: int
) -> None:
    """Whatever was granted because of it: it is spent in its own period."""
    limit = budget(amount, more, carry=True)
    with_it, without = balance_of(limit, START), balance_of(limit, START)
    assert isinstance(with_it, SteppedBalance)
    both = (with_it, without)
    for balance in both:
        balance.tk = book(balance, min(spent, limit.burst) * MILLI, START)
    with_it.lift(lifted * MILLI)
    left = without.level(START)
    for balance in both:
        balance.tk = book(balance, min(later * MILLI, balance.level(START)), START)
    boundary = with_it.calendar.start(with_it.pn + 1)
    for balance in both:
        balance.advance(boundary)
    if later * MILLI <= left:
        assert with_it.level(boundary) == without.level(boundary)
    assert with_it.level(boundary) <= without.level(boundary)


def test_another_calendar_ends_it_and_mints_nothing() -> None:
    balance = balance_of(budget(100, 0, carry=True), START)
    assert isinstance(balance, SteppedBalance)
    balance.lift(50_000)
    balance.tk = book(balance, 20_000, START)
    for limit in (Limit.per_week("x", 500, tz="UTC"), Limit.per_minute("x", 500)):
        moved = rebase(balance, limit, START)
        assert (moved.level(START), moved.extra) == (80_000, 0)
        assert rebase(moved, balance.limit, START).level(START) == 80_000


def test_a_limit_that_was_lifted_does_not_end_while_it_is_retired() -> None:
    limit = budget(100, 0, carry=True)
    bucket = Bucket("key", "gpt", START)
    bucket.adopt((limit,), START)
    bucket.lift({"x": 50_000}, START)
    bucket.adopt((Limit.per_minute("rpm", 5),), START + 1)
    bucket.adopt((limit,), START + 2)
    assert bucket.balances[0].level(START + 2) == 150_000
