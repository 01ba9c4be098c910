"""Balances by their terms: the kind that a limit has, and what becomes of one when its terms change.

``balances.py`` has the kinds, ``bucket.py`` the theory.
"""

from __future__ import annotations

from zae_limiter.balances import Balance, HeldBalance, SteppedBalance, without_extra
from zae_limiter.models.limit import Limit


def balance_of(
    limit: Limit, rf: int, *, tk: int | None = None, tc: int = 0, shard: int = 0, shards: int = 1
) -> Balance:
    """A balance of the limit's kind since ``rf``; full unless ``tk`` says otherwise."""
    if limit.is_even:
        return Balance(limit, rf, tk=tk, tc=tc, shard=shard, shards=shards)
    if limit.is_held:
        return HeldBalance(limit, rf, tk=tk, tc=tc, shard=shard, shards=shards)
    return SteppedBalance(limit, rf, tk=tk, tc=tc, shard=shard, shards=shards)


def rebase(balance: Balance, limit: Limit, now: int) -> Balance:
    """The same tokens under new terms from ``now`` on.

    - An even limit, or one that gets another kind or calendar: a lower burst clamps, a higher one mints nothing, and
      an extra ends.
    - The same calendar: the difference of the amounts counts at once, either way. What was spent stays spent. An extra
      lasts for its period.
    - Held: likewise the difference of the ceilings. What is lent stays lent.

    A difference is exact both ways, so going back and forth between two sets of terms mints nothing; there is no floor
    for what was spent above a lowered amount: it is debt. ``now`` must not be before the baseline: that would credit
    the time in between twice.
    """
    if isinstance(balance, HeldBalance):
        counts, hb = balance.counts, balance.hb
        fresh: Balance = HeldBalance(
            limit, now, tc=balance.tc, shard=balance.shard, shards=balance.shards, counts=counts, hb=hb
        )
        fresh.tk = balance.tk + fresh.bx - balance.bx
    else:
        fresh = balance_of(limit, now, tc=balance.tc, shard=balance.shard, shards=balance.shards)
        begun = balance
        if balance.extra:
            begun = balance.copy()
            begun.advance(now)
        fresh.tk = min(without_extra(begun.level(now), begun.extra), fresh.bx)
        if _have_the_same_periods(begun, fresh):
            assert isinstance(begun, SteppedBalance)
            assert isinstance(fresh, SteppedBalance)
            more = fresh.step - begun.step
            fresh.lift(begun.extra)
            fresh.tk = min(begun.level(now), fresh.bx - more) + more
            fresh.at_rf = fresh.step * max(begun.pn, fresh.pn)
    fresh.sn = balance.sn
    return fresh


def _have_the_same_periods(one: Balance, other: Balance) -> bool:
    return (
        isinstance(one, SteppedBalance)
        and isinstance(other, SteppedBalance)
        and one.calendar.boundaries == other.calendar.boundaries
    )
