"""Limits that were removed from a bucket: they rest until a change finds them full, and then they end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter import Limit, ValidationError
from zae_limiter.bucket import MILLI, Bucket, refill_bucket, take
from zae_limiter.models.limit import MAX_ENDED, MAX_LIMITS, MAX_RETIRED, check_limits

NOW = 1_767_225_600_000
MINUTE = 60_000


def generation(number: int, count: int = 3, *, rate: int = 100) -> tuple[Limit, ...]:
    return tuple(Limit.per_minute(f"v{number}-{place}", rate) for place in range(count))


def used_bucket(*generations: tuple[Limit, ...], step: int) -> Bucket:
    """A bucket whose limits were replaced, some time after each was used."""
    bucket = Bucket("key", "gpt", NOW)
    for number, limits in enumerate(generations):
        now = NOW + number * step
        bucket.adopt(limits, now)
        assert take(bucket.balances, {limit.name: 1 for limit in limits}, now) is not None
    return bucket


def test_limits_that_are_renamed_again_and_again_end() -> None:
    bucket = used_bucket(*(generation(number) for number in range(20)), step=2 * MINUTE)
    assert not bucket.retired
    assert len(bucket.counters()) == 60  # what they took in this hour is still counted


def test_a_limit_rests_while_it_is_not_full_and_ends_with_the_first_change_after() -> None:
    old, new, newer = generation(0), generation(1), generation(2)
    bucket = used_bucket(old, new, step=0)
    assert set(bucket.retired) == {limit.name for limit in old}
    bucket.adopt(newer, NOW + 599)  # a token takes 600 ms
    assert set(bucket.retired) == {limit.name for limit in (*old, *new)}
    bucket.adopt(new, NOW + 600)
    assert not bucket.retired


@given(st.integers(0, 200_000), st.integers(1, 100), st.integers(0, 300_000))
def test_removing_a_limit_and_adding_it_again_mints_nothing(away: int, taken: int, back: int) -> None:
    """Whether it rested or had ended in between, it holds what it would if it had never been away."""
    limits = generation(0, 2)
    bucket, steady = Bucket("key", "gpt", NOW), Bucket("key", "gpt", NOW)
    for one in (bucket, steady):
        one.adopt(limits, NOW)
        assert take(one.balances, {"v0-1": taken}, NOW) is not None
    bucket.adopt(limits[:1], NOW + away)
    bucket.adopt(limits, NOW + away + back)
    for mine, theirs in zip(bucket.balances, steady.balances, strict=True):
        assert refill_bucket(mine, NOW + away + back) == refill_bucket(theirs, NOW + away + back)
    assert bucket.counters() == steady.counters()


def test_what_a_lease_owes_to_a_limit_that_has_ended_brings_it_back_to_rest() -> None:
    first, second = generation(0, 1), generation(1, 1)
    bucket = used_bucket(first, second, step=2 * MINUTE)
    now = NOW + 2 * MINUTE
    assert not bucket.retired
    bucket.retire_again(first, {"v0-0": 5 * MILLI})
    bucket.settle({"v0-0": 5 * MILLI}, now)
    assert bucket.counters() == {"v0-0": 6 * MILLI, "v1-0": MILLI}
    bucket.adopt(first, now)
    assert refill_bucket(bucket.balances[0], now) == 95 * MILLI


def test_too_many_that_are_not_full_refuse_the_change_and_leave_the_bucket_as_it_is() -> None:
    slow = [
        tuple(Limit.per_day(f"v{number}-{place}", 10) for place in range(MAX_LIMITS // 2))
        for number in range(MAX_RETIRED)
    ]
    fitting = MAX_RETIRED // (MAX_LIMITS // 2) + 1
    bucket = used_bucket(*slow[:fitting], step=1)
    before = bucket.limits, bucket.balances, dict(bucket.retired)
    with pytest.raises(ValidationError, match=f"at most {MAX_RETIRED} limits that were removed"):
        bucket.adopt(slow[fitting], NOW + fitting)
    assert (bucket.limits, bucket.balances, bucket.retired) == before
    assert take(bucket.balances, {bucket.limits[0].name: 1}, NOW + fitting) is not None
    bucket.refill(NOW + fitting)
    assert bucket.adopt(slow[fitting], NOW + fitting)
    assert not bucket.retired


def test_as_many_as_a_level_can_have_can_be_replaced_at_once() -> None:
    assert MAX_RETIRED > MAX_LIMITS
    old, new = generation(0, MAX_LIMITS), generation(1, MAX_LIMITS)
    assert set(used_bucket(old, new, step=0).retired) == {limit.name for limit in old}


def test_counters_of_more_limits_than_end_in_an_hour_keep_them_at_rest() -> None:
    count = MAX_ENDED // 3 + 2
    bucket = used_bucket(*(generation(number) for number in range(count)), step=2 * MINUTE)
    assert len(bucket.carried) == MAX_ENDED
    assert len(bucket.retired) == 3 * (count - 1) - MAX_ENDED


def test_a_level_has_a_largest_number_of_limits() -> None:
    assert len(check_limits(generation(0, MAX_LIMITS))) == MAX_LIMITS
    with pytest.raises(ValidationError, match=f"at most {MAX_LIMITS} limits"):
        check_limits(generation(0, MAX_LIMITS + 1))
