"""What a client thinks a bucket holds by now. A wrong guess costs a call; these are the ones worth a rule."""

from __future__ import annotations

import pytest

from zae_limiter import Limit
from zae_limiter.bucket import MILLI, Balance
from zae_limiter.stores.dynamodb.bucket_cache import CachedBucket
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot
from zae_limiter.stores.dynamodb.write_ids import WriteIds

T0 = 1_700_000_000_000
RATE = 100
PER_SECOND = RATE * MILLI
GRANTS_BEFORE = 1_000


def snapshot(at: int, below: int, taken: int = 0, *, gaps: int | None = None) -> BucketSnapshot:
    """A bucket that is ``below`` its ceiling, since ``at``; ``gaps`` are the milliseconds between its last writers."""
    ids = WriteIds()
    writers = (
        tuple(ids.write_id(at - place * gaps) for place in range(4)) if gaps is not None else (ids.write_id(at),) * 4
    )
    full = Balance(Limit.per_second("rps", RATE), T0)
    tokens = full.bx - full.since_rf(at) - below * MILLI
    balance = full.with_tokens(tokens, GRANTS_BEFORE * MILLI + taken * MILLI)
    return BucketSnapshot(
        "key",
        "gpt",
        rf=T0,
        cv="1",
        inc="a",
        balances={"rps": balance},
        ev=GRANTS_BEFORE + taken,
        recent_writers=writers,
    )


def seems_full(cached: CachedBucket, now: int) -> bool:
    """Whether the next write takes the form for a full bucket."""
    balance = cached.snapshot.balances["rps"]
    return cached.guesses(now).get("rps", balance.tk) + balance.since_rf(now) > balance.bx


def watched(taken_by_others: int) -> CachedBucket:
    """A bucket that was seen twice, a second apart."""
    cached = CachedBucket(snapshot(T0, 3, gaps=100_000), T0)
    cached.see(snapshot(T0 + 1_000, 3, taken_by_others), T0 + 1_000)
    return cached


@pytest.mark.parametrize("age", [50, 1_000, 60_000])
@pytest.mark.parametrize("percent", [75, 90, 100, 150])
def test_a_bucket_that_others_keep_busy_is_never_thought_full(percent: int, age: int) -> None:
    assert not seems_full(watched(RATE * percent // 100), T0 + 1_000 + age)


@pytest.mark.parametrize("percent", [0, 5, 30, 60])
def test_a_bucket_that_others_leave_time_to_fill_is_thought_full_once_it_may_be(percent: int) -> None:
    cached = watched(RATE * percent // 100)
    free = RATE * (100 - percent) // 100
    due = 3 * MILLI // free
    assert not seems_full(cached, T0 + 1_000 + due - 1)
    assert seems_full(cached, T0 + 1_000 + due + 2)


def test_what_this_client_takes_itself_keeps_nothing_busy() -> None:
    cached = CachedBucket(snapshot(T0, 3, gaps=100_000), T0)
    cached.own = {"rps": RATE * MILLI}
    cached.see(snapshot(T0 + 1_000, 3, RATE), T0 + 1_000)
    assert seems_full(cached, T0 + 2_000)


def test_a_guess_is_never_above_the_ceiling_of_a_busy_bucket_and_follows_its_drain_below() -> None:
    cached = watched(RATE * 3)
    drained = cached.guesses(T0 + 1_100)["rps"]
    assert drained == cached.snapshot.balances["rps"].tk - 3 * PER_SECOND // 10


# The first snapshot


def test_the_write_ids_of_the_recent_writers_tell_that_a_bucket_is_busy() -> None:
    cached = CachedBucket(snapshot(T0 + 5_000, 3, gaps=10), T0 + 5_000)
    assert not seems_full(cached, T0 + 6_000)


@pytest.mark.parametrize("gaps", [100, 60_000])
def test_the_write_ids_of_the_recent_writers_tell_that_a_bucket_is_not_busy(gaps: int) -> None:
    cached = CachedBucket(snapshot(T0 + 5_000, 3, gaps=gaps), T0 + 5_000)
    assert seems_full(cached, T0 + 6_000)


def test_a_handful_of_writers_at_once_is_no_rate_while_much_is_left() -> None:
    assert seems_full(CachedBucket(snapshot(T0 + 5_000, 8, gaps=0), T0 + 5_000), T0 + 6_000)
    assert not seems_full(CachedBucket(snapshot(T0 + 5_000, 60, gaps=0), T0 + 5_000), T0 + 7_000)


def test_write_ids_of_long_ago_tell_nothing_of_now() -> None:
    cached = CachedBucket(snapshot(T0, 3, gaps=10), T0 + 60_000)
    assert seems_full(cached, T0 + 61_000)


def test_a_bucket_that_few_have_written_to_yet_is_taken_as_it_was_seen() -> None:
    few = snapshot(T0, 3, gaps=10)
    few.recent_writers = (few.recent_writers[0], "-", "-", "-")
    assert CachedBucket(few, T0).guesses(T0 + 1_000) == {}


def test_what_is_seen_twice_is_believed_rather_than_write_ids() -> None:
    cached = CachedBucket(snapshot(T0, 3, gaps=10), T0)
    cached.see(snapshot(T0 + 1_000, 3), T0 + 1_000)
    assert seems_full(cached, T0 + 2_000)
