"""One limit: the whole-number arithmetic against exact fractions and against a naive bucket."""

from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import assume, example, given
from hypothesis import strategies as st

from support.bucket_model import (
    NOW,
    YEAR,
    NaiveBucket,
    balances_and_moments,
    bursts,
    exact_accrual,
    limits,
    moments,
    rate_of,
    shards_of_buckets,
    spread,
    steps,
)
from zae_limiter.bucket import (
    MILLI,
    Balance,
    book,
    build_limit_status,
    calculate_available,
    calculate_retry_after,
    force_consume,
    give_back,
    rebase,
    refill_bucket,
    try_consume,
    would_refill_satisfy,
)
from zae_limiter.models.limit import Limit

backward_and_forward_steps = steps | spread(1, YEAR).map(lambda step: -step)


def after_taking(balance: Balance, tk: int, limit: Limit, rf: int) -> Balance:
    """The balance with another ``tk``."""
    return Balance(limit, rf, tk=tk, shard=balance.shard, shards=balance.shards)


# The level


@given(balances_and_moments())
def test_the_level_is_the_exact_balance_rounded_down_to_a_millitoken(world: tuple[Balance, int, int]) -> None:
    balance, rf, now = world
    place = (balance.shard, balance.shards)
    at_rf = math.floor(exact_accrual(balance.limit, rf, *place))
    exact = min(balance.tk + exact_accrual(balance.limit, now, *place) - at_rf, Fraction(balance.bx))
    level = refill_bucket(balance, now)
    assert exact - 1 < level <= exact
    assert type(level) is int


@given(balances_and_moments(), st.lists(backward_and_forward_steps, max_size=5))
def test_looking_changes_nothing(world: tuple[Balance, int, int], glances: list[int]) -> None:
    balance, _, now = world
    undisturbed = refill_bucket(balance, now)
    for step in glances:
        refill_bucket(balance, now + step)
    assert refill_bucket(balance, now) == undisturbed


@given(balances_and_moments(), st.lists(steps, max_size=8))
def test_rebasing_at_any_moments_gives_the_level_of_never_rebasing(
    world: tuple[Balance, int, int], backoff: list[int]
) -> None:
    untouched, rf, _ = world
    touched, now = untouched, rf
    for pause in backoff:
        now += pause
        touched = rebase(touched, touched.limit, now)
        assert refill_bucket(touched, now) == refill_bucket(untouched, now)


@given(balances_and_moments(), st.lists(st.integers(0, 50), min_size=1, max_size=40))
def test_rebasing_every_few_milliseconds_loses_nothing_at_any_rate(
    world: tuple[Balance, int, int], backoff: list[int]
) -> None:
    untouched, rf, _ = world
    touched, now = untouched, rf
    for pause in backoff:
        now += pause
        touched = rebase(touched, touched.limit, now)
    assert refill_bucket(touched, now + 1) == refill_bucket(untouched, now + 1)


@given(balances_and_moments(), spread(0, YEAR))
def test_before_its_baseline_a_bucket_is_as_it_was_at_the_baseline(world: tuple[Balance, int, int], back: int) -> None:
    balance, rf, _ = world
    assert refill_bucket(balance, rf - back) == refill_bucket(balance, rf)


@given(balances_and_moments(), steps)
def test_a_clock_that_steps_back_never_shows_more_than_it_showed(world: tuple[Balance, int, int], back: int) -> None:
    balance, _, now = world
    assert refill_bucket(balance, now - back) <= refill_bucket(balance, now)


@given(balances_and_moments())
def test_available_is_the_level_in_whole_tokens_rounded_down_also_in_debt(
    world: tuple[Balance, int, int],
) -> None:
    balance, _, now = world
    available = calculate_available(balance, now)
    assert available * MILLI <= refill_bucket(balance, now) < (available + 1) * MILLI


# Taking and giving back


@given(balances_and_moments(), spread(0, 10**15))
def test_a_try_takes_exactly_the_amount_or_nothing(world: tuple[Balance, int, int], amount: int) -> None:
    balance, rf, now = world
    level, stored = refill_bucket(balance, now), balance.tk
    tk = try_consume(balance, amount, now)
    assert balance.tk == stored
    assert (tk is None) == (level < amount)
    if tk is not None:
        assert refill_bucket(after_taking(balance, tk, balance.limit, rf), now) == level - amount


@given(balances_and_moments(), spread(0, 10**15), steps)
def test_a_forced_debit_is_never_forgotten(world: tuple[Balance, int, int], amount: int, later: int) -> None:
    """Neither at once nor after a quiet while, whichever side of the ceiling the bucket was on (C1)."""
    balance, rf, now = world
    level = refill_bucket(balance, now)
    debited = after_taking(balance, force_consume(balance, amount, now), balance.limit, rf)
    assert refill_bucket(debited, now) == level - amount
    refill = balance.accrued(now + later) - balance.accrued(now)
    assert refill_bucket(debited, now + later) == min(level - amount + refill, balance.bx)


@given(balances_and_moments(), spread(0, 10**15), steps)
def test_giving_back_stops_at_the_ceiling_and_stays_there(
    world: tuple[Balance, int, int], amount: int, later: int
) -> None:
    balance, rf, now = world
    level = refill_bucket(balance, now)
    richer = after_taking(balance, give_back(balance, amount, now), balance.limit, rf)
    assert refill_bucket(richer, now) == min(level + amount, balance.bx)
    emptied = after_taking(balance, force_consume(richer, balance.bx, now + later), balance.limit, rf)
    assert refill_bucket(emptied, now + later) <= 0


@given(balances_and_moments(), spread(0, 10**15), steps)
def test_taking_and_giving_back_leaves_the_level_as_it_was(
    world: tuple[Balance, int, int], amount: int, later: int
) -> None:
    balance, rf, now = world
    taken = after_taking(balance, force_consume(balance, amount, now), balance.limit, rf)
    returned = after_taking(balance, give_back(taken, amount, now), balance.limit, rf)
    assert refill_bucket(returned, now + later) == refill_bucket(balance, now + later)


@given(balances_and_moments(), spread(0, 10**15))
def test_booking_takes_what_is_positive_and_gives_back_what_is_negative(
    world: tuple[Balance, int, int], amount: int
) -> None:
    balance, _, now = world
    assert book(balance, amount, now) == force_consume(balance, amount, now)
    assert book(balance, -amount, now) == (give_back if amount else force_consume)(balance, amount, now)


@given(limits(), moments, spread(0, YEAR))
@example(Limit.per_minute("rpm", 100), NOW, 30_000)
def test_a_full_idle_bucket_admits_its_burst_only_once(limit: Limit, rf: int, idle: int) -> None:
    """C1: the refill of an idle time above the ceiling does not wait behind it."""
    full, now = Balance(limit, rf), rf + idle
    tk = try_consume(full, full.bx, now)
    assert tk is not None
    assert try_consume(after_taking(full, tk, limit, rf), 1, now) is None


@given(balances_and_moments(), spread(0, 10**15), limits())
def test_after_every_write_no_more_is_stored_than_the_ceiling_of_that_moment(
    world: tuple[Balance, int, int], amount: int, terms: Limit
) -> None:
    """A surplus above the ceiling is not kept for a clock that steps back either (C9)."""
    balance, _, now = world
    room = balance.bx - balance.since_rf(now)
    assert force_consume(balance, amount, now) <= room - amount
    assert give_back(balance, amount, now) <= room
    rebased = rebase(balance, terms, now)
    assert rebased.tk <= rebased.bx


# Admission over time


@given(
    limits(),
    moments,
    shards_of_buckets,
    st.lists(st.tuples(backward_and_forward_steps, spread(0, 10**15)), max_size=30),
)
def test_no_schedule_admits_more_than_the_burst_plus_the_rate_and_a_millitoken(
    limit: Limit, rf: int, place: tuple[int, int], requests: list[tuple[int, int]]
) -> None:
    """Whatever the clock does: time counts from the baseline to the latest moment that was seen."""
    full = Balance(limit, rf, shard=place[0], shards=place[1])
    balance, now, latest, admitted = full, rf, rf, 0
    for step, amount in requests:
        now = max(now + step, 0)
        latest = max(latest, now)
        wanted = amount % (full.bx + 1)
        tk = try_consume(balance, wanted, now)
        if tk is not None:
            balance, admitted = after_taking(balance, tk, full.limit, rf), admitted + wanted
        assert admitted < full.bx + rate_of(full.limit) / full.shards * (latest - rf) + 1


@given(limits(), moments, st.lists(st.integers(0, 3), min_size=10, max_size=60))
def test_greedy_callers_get_the_whole_rate_and_no_more(limit: Limit, rf: int, backoff: list[int]) -> None:
    """Taking all there is, every few milliseconds, adds up to the accrual to the last millitoken."""
    full = Balance(limit, rf)
    tk = force_consume(full, full.bx, rf)
    now, admitted = rf, 0
    for pause in backoff:
        now += pause
        balance = Balance(limit, rf, tk=tk)
        level = refill_bucket(balance, now)
        assume(level < balance.bx)
        taken = try_consume(balance, level, now)
        assert taken is not None
        tk, admitted = taken, admitted + level
    assert admitted == full.accrued(now) - full.accrued(rf)


operations = st.lists(
    st.tuples(st.sampled_from(["try", "force", "give back", "rebase"]), steps, spread(0, 10**15)), max_size=25
)


@given(balances_and_moments(), operations)
def test_whatever_happens_the_level_stays_within_a_millitoken_of_a_naive_exact_bucket(
    world: tuple[Balance, int, int], happenings: list[tuple[str, int, int]]
) -> None:
    balance, now, _ = world
    baseline = now
    naive = NaiveBucket(
        balance.limit, now, ceiling=balance.bx, level=refill_bucket(balance, now), shards=balance.shards
    )
    for operation, pause, amount in happenings:
        now += pause
        naive.pass_time_until(now)
        if operation == "try" and (tk := try_consume(balance, amount, now)) is not None:
            balance = after_taking(balance, tk, balance.limit, baseline)
            naive.take(amount)
        elif operation == "force":
            balance = after_taking(balance, force_consume(balance, amount, now), balance.limit, baseline)
            naive.take(amount)
        elif operation == "give back":
            balance = after_taking(balance, give_back(balance, amount, now), balance.limit, baseline)
            naive.give_back(amount)
        elif operation == "rebase":
            balance, baseline = rebase(balance, balance.limit, now), now
        assert abs(refill_bucket(balance, now) - naive.level) < 1


# Waiting


@given(balances_and_moments(), backward_and_forward_steps, spread(0, 10**15))
def test_the_wait_is_exact_to_the_millisecond(world: tuple[Balance, int, int], step: int, amount: int) -> None:
    balance, rf, _ = world
    now, wanted = max(rf + step, 0), amount % (balance.bx + 1)
    wait = calculate_retry_after(balance, wanted, now)
    assert wait is not None
    assert try_consume(balance, wanted, now + wait) is not None
    if wait:
        assert try_consume(balance, wanted, now + wait - 1) is None


@given(balances_and_moments(), spread(1, 10**15))
def test_more_than_the_ceiling_is_never_worth_a_wait(world: tuple[Balance, int, int], more: int) -> None:
    balance, _, now = world
    assert calculate_retry_after(balance, balance.bx + more, now) is None
    assert not would_refill_satisfy(balance, balance.bx + more, now + YEAR)


@given(balances_and_moments())
def test_nothing_is_refused_only_while_in_debt(world: tuple[Balance, int, int]) -> None:
    balance, _, now = world
    in_debt = refill_bucket(balance, now) < 0
    assert (try_consume(balance, 0, now) is None) == in_debt
    assert bool(calculate_retry_after(balance, 0, now)) == in_debt


# New terms


@given(balances_and_moments(), limits(), steps)
def test_a_lower_burst_clamps_and_a_higher_one_mints_nothing(
    world: tuple[Balance, int, int], terms: Limit, later: int
) -> None:
    balance, _, now = world
    level, taken_so_far = refill_bucket(balance, now), balance.tc
    rebased = rebase(balance, terms, now)
    assert refill_bucket(rebased, now) == min(level, rebased.bx)
    assert rebased.tc == taken_so_far
    refill = rebased.accrued(now + later) - rebased.accrued(now)
    assert refill_bucket(rebased, now + later) == min(level + refill, rebased.bx)


@given(balances_and_moments(sharded=False), bursts)
def test_raising_and_lowering_a_burst_at_one_moment_never_leaves_more_than_there_was(
    world: tuple[Balance, int, int], burst: int
) -> None:
    balance, _, now = world
    was = balance.limit
    other = Limit("rpm", burst, was.refill_amount, was.refill_period_seconds)
    there_and_back = rebase(rebase(balance, other, now), was, now)
    assert refill_bucket(there_and_back, now) == min(refill_bucket(balance, now), other.burst * MILLI)


# The status


@given(balances_and_moments(sharded=False), spread(0, 2 * 10**12), spread(0, 10**12))
def test_a_status_says_whether_it_lacks_counting_what_others_wait_for(
    world: tuple[Balance, int, int], requested: int, reserved: int
) -> None:
    balance, _, now = world
    status = build_limit_status(
        balance,
        entity_id="key-1",
        resource="gpt-4",
        source="system",
        requested=requested,
        reserved=reserved * MILLI,
        now=now,
    )
    needed = (requested + reserved) * MILLI if requested else 0
    level = refill_bucket(balance, now)
    assert status.exceeded == (level < needed)
    to_be_had = min(level, max(level - reserved * MILLI, 0)) if requested else level
    assert status.available == to_be_had // MILLI
    assert (status.entity_id, status.resource, status.limit_name) == ("key-1", "gpt-4", "rpm")
    assert (status.limit, status.requested, status.source) == (balance.limit, requested, "system")
    if not status.exceeded:
        assert status.retry_after_seconds == 0
    elif requested > balance.limit.burst:
        assert status.retry_after_seconds is None
    else:
        assert status.retry_after_seconds is not None
        assert status.retry_after_seconds > 0


@given(balances_and_moments(sharded=False), spread(0, 10**12))
def test_the_wait_in_a_status_is_the_exact_wait(world: tuple[Balance, int, int], requested: int) -> None:
    balance, _, now = world
    assume(requested <= balance.limit.burst)
    wait = calculate_retry_after(balance, requested * MILLI, now)
    assert wait is not None
    assume(wait < 2**50)
    status = build_limit_status(
        balance, entity_id="k", resource="r", source="call", requested=requested, reserved=0, now=now
    )
    assert status.retry_after_seconds is not None
    assert round(status.retry_after_seconds * MILLI) == wait
