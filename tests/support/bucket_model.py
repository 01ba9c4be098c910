"""What the bucket arithmetic is compared with: the same ideas in exact fractions, and worlds to try them in.

Two views of the truth:

- :func:`exact_accrual` is the accrual of the theory before it is rounded down to whole millitokens;
- :class:`NaiveBucket` is the bucket as textbooks have it: it adds refill as time passes and stops at the
  ceiling. It knows nothing of baselines, of whole numbers, or of ``bucket.py``.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from zae_limiter.bucket import Balance
from zae_limiter.models.limit import Limit

SECOND = 1000
DAY = 86_400 * SECOND
YEAR = 366 * DAY
NOW = 1_750_000_000_000
"""Some day in June 2025."""

FASTEST_PER_SECOND = 10_000_000
LARGEST_BURST = 10**12


def rate_of(limit: Limit) -> Fraction:
    """Millitokens per millisecond (which is tokens per second)."""
    return Fraction(limit.refill_amount, limit.refill_period_seconds)


def exact_accrual(limit: Limit, t: int, shard: int = 0, shards: int = 1) -> Fraction:
    """All that a shard has accrued up to ``t``, in millitokens, before rounding down."""
    return (rate_of(limit) * t + shards - 1 - shard) / shards


class NaiveBucket:
    """A token bucket in fractions of millitokens; time only moves forward."""

    def __init__(self, limit: Limit, now: int, *, ceiling: int, level: int, shards: int = 1) -> None:
        self.rate = rate_of(limit) / shards
        self.ceiling = ceiling
        self.level = Fraction(level)
        self.now = now

    def pass_time_until(self, now: int) -> None:
        self.level = min(self.level + self.rate * (now - self.now), Fraction(self.ceiling))
        self.now = now

    def take(self, amount: int) -> None:
        self.level -= amount

    def give_back(self, amount: int) -> None:
        self.level = min(self.level + amount, Fraction(self.ceiling))


def spread(low: int, high: int) -> st.SearchStrategy[int]:
    """Integers of every magnitude between the two, not mostly those near the top."""
    return st.integers(0, (high - low).bit_length()).flatmap(
        lambda bits: st.integers(low, min(high, low + 2**bits - 1))
    )


periods = st.sampled_from([1, 60, 3600, 86_400, 366 * 86_400]) | spread(1, 366 * 86_400)
bursts = spread(1, LARGEST_BURST)
moments = spread(NOW, NOW + YEAR) | st.integers(0, 2 * NOW)
steps = spread(0, YEAR)
"""How far time moves on, in milliseconds."""

shards_of_buckets = st.integers(1, 64).flatmap(lambda n: st.tuples(st.integers(0, n - 1), st.just(n)))


@st.composite
def limits(draw: st.DrawFn, name: str = "rpm") -> Limit:
    """From one token in 366 days to ten million in a second, with any burst."""
    period = draw(periods)
    refill = draw(spread(1, FASTEST_PER_SECOND * period))
    return Limit(name, draw(bursts), refill, period)


@st.composite
def balances(draw: st.DrawFn, *, name: str = "rpm", sharded: bool = True, rf: int | None = None) -> Balance:
    """A balance somewhere between a deep debt and its ceiling; perhaps one share of a sharded bucket."""
    shard, shards = draw(shards_of_buckets) if sharded else (0, 1)
    baseline = draw(moments) if rf is None else rf
    balance = Balance(draw(limits(name)), baseline, shard=shard, shards=shards)
    below_the_ceiling = draw(spread(0, 3 * balance.bx))
    balance.tk = balance.bx - below_the_ceiling
    return balance


@st.composite
def balances_and_moments(draw: st.DrawFn, /, **how: Any) -> tuple[Balance, int, int]:
    """A balance, its baseline, and a moment at or after it."""
    rf = draw(moments)
    return draw(balances(rf=rf, **how)), rf, rf + draw(steps)
