"""Calls in flight against an exact reference: what is free and what is lent is the whole, always."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zae_limiter.bucket import MILLI, Bucket, HeldBalance, balance_of, rebase
from zae_limiter.models.limit import Limit

START = 1_767_225_600_000


def held(slots: int = 5, ttl: int = 40, now: int = START) -> HeldBalance:
    balance = balance_of(Limit.concurrent("calls", slots, ttl=ttl), now)
    assert isinstance(balance, HeldBalance)
    return balance


class Holds:
    """What clients hold, one by one: the reference. Each is an amount and when it is due."""

    def __init__(self) -> None:
        self.live: list[tuple[int, int]] = []

    def lent(self) -> int:
        return sum(amount for amount, _ in self.live)


operations = st.lists(
    st.tuples(
        st.sampled_from(["draw", "draw", "end", "end twice", "renew", "force", "reset", "resize"]),
        st.integers(0, 30_000),
        st.integers(0, 5),
    ),
    max_size=60,
)


@given(operations=operations, ttl=st.integers(10, 100))
def test_what_is_free_and_what_is_lent_is_the_whole(operations: list[tuple[str, int, int]], ttl: int) -> None:
    now = START
    balance = held(5, ttl)
    mine: list[list[int]] = []  # amount and due time, as leases know them
    for action, later, number in operations:
        now += later
        returned_by = {due for due in balance.counts if due * MILLI <= now}
        if action in ("draw", "force"):
            amount = (number or 1) * MILLI
            if action == "force" or balance.level(now) >= amount:
                after, due = balance.taken(amount, now)
                assert due * MILLI >= now + ttl * MILLI
                assert due > balance.hb
                if balance.hb * MILLI <= now:
                    assert due * MILLI < now + 1.25 * ttl * MILLI + 1_250
                balance.become(after)
                mine.append([amount, due])
        elif mine and action in ("end", "end twice"):
            amount, due = mine.pop(number % len(mine))
            before = balance.tk
            for _ in range(1 + (action == "end twice")):
                after_end = balance.given_back(amount, due)
                if after_end is not None:
                    balance.become(after_end)
            assert balance.tk - before in (0, amount, 2 * amount)
        elif mine and action == "renew":
            hold = mine[number % len(mine)]
            renewed = balance.renewed(hold[0], hold[1], now)
            if renewed is not None:
                balance.become(renewed[0])
                hold[1] = renewed[1]
        elif action == "reset":
            balance.refill(now)
            assert all(balance.given_back(amount, due) is None for amount, due in mine)
            assert balance.tk == balance.bx
        elif action == "resize":
            rebased = rebase(balance, Limit.concurrent("calls", number + 1, ttl=ttl), now)
            assert isinstance(rebased, HeldBalance)
            assert rebased.tk - balance.tk == rebased.bx - balance.bx
            balance = rebased
        assert balance.tk + sum(balance.counts.values()) == balance.bx
        assert all(count > 0 for count in balance.counts.values())
        assert len(balance.counts) <= 6 + len(returned_by)


@given(st.lists(st.tuples(st.integers(0, 9_000), st.booleans()), max_size=40), st.integers(1, 6))
def test_no_more_than_the_limit_are_in_flight_for_at_least_their_time(
    calls: list[tuple[int, bool]], slots: int
) -> None:
    """Clients that die give nothing back: their slots are free again within 1.25 of the time, and not before it."""
    ttl, now = 40, START
    balance = held(slots, ttl)
    running: list[tuple[int, int, bool]] = []
    for later, dies in calls:
        now += later
        for taken_at, due, died in list(running):
            if not died and now - taken_at > 5_000:
                after = balance.given_back(MILLI, due)
                assert after is not None
                balance.become(after)
                running.remove((taken_at, due, died))
        holding = [taken_at for taken_at, _, _ in running if now - taken_at < ttl * MILLI]
        assert balance.level(now) <= (slots - len(holding)) * MILLI
        if balance.level(now) >= MILLI:
            after_draw, due = balance.taken(MILLI, now)
            balance.become(after_draw)
            running.append((now, due, dies))
    last = START + sum(later for later, _ in calls)
    assert balance.level(last + int(1.25 * ttl * MILLI) + 1) == balance.bx


def test_a_give_back_that_comes_too_late_gives_nothing() -> None:
    balance = held(1)
    after, due = balance.taken(MILLI, START)
    balance.become(after)
    again, other = balance.taken(MILLI, due * MILLI)  # it was overdue, and is returned
    balance.become(again)
    assert (balance.tk, balance.hb) == (0, due)
    assert balance.given_back(MILLI, due) is None
    assert balance.given_back(MILLI, other) is not None


def test_a_late_give_back_counts_as_long_as_none_needed_it() -> None:
    balance = held(2)
    after, due = balance.taken(MILLI, START)
    balance.become(after)
    late = balance.given_back(MILLI, due)
    assert late is not None
    assert late.tk == balance.bx


def test_the_wait_is_when_enough_is_due() -> None:
    balance = held(2)
    first, due = balance.taken(MILLI, START)
    balance.become(first)
    second, later = balance.taken(MILLI, START + 15_000)
    balance.become(second)
    assert balance.due(MILLI, START + 15_000) == due * MILLI
    assert balance.due(2 * MILLI, START + 15_000) == later * MILLI
    assert balance.level(due * MILLI - 1) == 0
    assert balance.level(due * MILLI) == MILLI
    assert balance.full_at() == later * MILLI


def test_lowered_below_what_is_in_flight_it_refuses_until_enough_have_ended() -> None:
    balance = held(3)
    after, due = balance.taken(3 * MILLI, START)
    balance.become(after)
    lowered = rebase(balance, Limit.concurrent("calls", 1, ttl=40), START)
    assert isinstance(lowered, HeldBalance)
    assert lowered.tk == -2 * MILLI
    ended = lowered.given_back(3 * MILLI, due)
    assert ended is not None
    assert ended.tk == MILLI == lowered.bx


def test_a_clock_that_was_a_year_ahead_holds_nothing_for_a_year() -> None:
    bucket = Bucket("key", "gpt", START)
    bucket.adopt((Limit.concurrent("calls", 1, ttl=40),), START)
    balance = bucket.held("calls")
    assert balance is not None
    year = START + 365 * 86_400_000
    after, _ = balance.taken(MILLI, year)
    balance.become(after)
    bucket.written(year)
    bucket.go_on_from(START + 1)
    assert balance.level(START + 60_000) == balance.bx


def test_a_limit_of_the_same_name_that_is_not_held_is_another_balance() -> None:
    bucket = Bucket("key", "gpt", START)
    bucket.adopt((Limit.concurrent("calls", 2, ttl=40),), START)
    balance = bucket.held("calls")
    assert balance is not None
    after, due = balance.taken(MILLI, START)
    balance.become(after)
    balance.tc = MILLI
    bucket.adopt((Limit.per_minute("calls", 10),), START)
    assert bucket.balances[0].level(START) == 10_000
    retired = bucket.held("calls")
    assert retired is not None
    assert retired.counts == {due: MILLI}
    bucket.settle({"calls": 3_000}, START)
    assert bucket.counters() == {"calls": 4_000}
    bucket.adopt((Limit.concurrent("calls", 2, ttl=40),), START)
    back = bucket.held("calls")
    assert back is not None
    assert back.tk == MILLI
    assert bucket.counters() == {"calls": 4_000}
    bucket.adopt((Limit.concurrent("calls", 3, ttl=40),), due * MILLI + 60_000)
    assert bucket.retired == {}
    assert bucket.counters() == {"calls": 4_000}
