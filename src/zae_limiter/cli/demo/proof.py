"""The proof that every limit held, from two independent counts. Pure.

A bucket starts with its burst, and refill is all that is ever added. Tokens are taken at a grant, which needs
them to be there; afterwards some come back (a call failed, or cost less than estimated) and some are settled on
top (it cost more), which may leave the bucket in debt. Over any stretch of time three things follow, for every
limit of every bucket, the parents' included:

1. ``granted <= burst + refill``: what was taken at grants and not given back is within the limit. Debt cannot
   blur this: what was settled on top only leaves *less* to grant.
2. ``used == granted + over``: the store counted exactly what the callers were told they paid.
3. ``used + left <= burst + refill``: nothing was minted. ``left`` is the level, negative in debt. What is missing
   to equality ran over the brim of a full bucket.

``granted`` and ``over`` come from the callers' own count (``tally``), ``used`` and ``left`` from the store, and
``burst + refill`` from the limit and the time, so neither side vouches for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from zae_limiter import Limit
from zae_limiter.cli.demo.scenario import BucketId, Reading
from zae_limiter.cli.demo.tally import Tally


@dataclass(frozen=True, slots=True)
class Account:
    """One limit of one bucket at the end of the demo, in whole tokens."""

    bucket: BucketId
    limit: Limit
    source: str
    granted: int
    over: int
    used: int
    left: int
    refill: int

    @property
    def allowed(self) -> int:
        """The most that can have been granted."""
        return self.limit.burst + self.refill

    @property
    def broken(self) -> tuple[Claim, ...]:
        """The claims that do not hold here."""
        return tuple(claim for claim in CLAIMS if not claim.holds(self))

    def __str__(self) -> str:
        return f"{self.limit.name} of {self.bucket.entity_id} on {self.bucket.resource}"


class Claim(NamedTuple):
    """Something that must be true of every account."""

    formula: str
    meaning: str
    holds: Callable[[Account], bool]


CLAIMS = (
    Claim(
        "granted ≤ burst + refill",
        "no limit let more through than it allows",
        lambda account: account.granted <= account.allowed,
    ),
    Claim(
        "used = granted + over",
        "store and callers counted the same",
        lambda account: account.used == account.granted + account.over,
    ),
    Claim(
        "used + left ≤ burst + refill",
        "nothing was minted; left below 0 is debt",
        lambda account: account.used + account.left <= account.allowed,
    ),
)


def refill_during(limit: Limit, elapsed_ms: int) -> int:
    """Whole tokens that come back in that time, at most.

    Buckets count in thousandths and round at absolute moments, so one thousandth more than the rate alone
    may fall into the time.
    """
    if limit.refill_period_seconds is None:
        return limit.refill_amount  # a period that begins meanwhile
    milli = elapsed_ms * limit.refill_amount // limit.refill_period_seconds + 1
    return milli // 1000


def prove(readings: Iterable[Reading], tally: Tally, elapsed_ms: int) -> list[Account]:
    """The account of every limit of every bucket; the proof holds if none of them is ``broken``.

    What calls in flight held came back: that is their refill, so what is left must be all of it.
    """
    return [
        Account(
            bucket=place.bucket,
            limit=level.limit,
            source=place.source,
            granted=sum(tally.granted[payer, level.limit_name] for payer in payers),
            over=sum(tally.over[payer, level.limit_name] for payer in payers),
            used=level.total_consumed,
            left=level.available,
            refill=level.total_consumed if level.limit.is_held else refill_during(level.limit, elapsed_ms),
        )
        for place, status in readings
        for payers in [[BucketId(key, place.bucket.resource) for key in place.payers]]
        for level in status.limits
    ]
