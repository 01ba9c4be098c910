"""What one process may grant of a limit while the store is away: its share of what it last knew. Pure.

**The share.** While the store answers, a process notes what it took of a limit, and what all took, which the limit's
counter says (``tc``). Over the last minute of this, the one divided by the other is its share ``f``::

    level0 = f * max(level when it last heard, grown since - what others take meanwhile, 0)
    from then on: rate f*ra/rp, step f*amount, ceiling f*bx, slots f*bx less those that it holds

So a process admits at most ``f * (level + accrual)``, and a fleet whose shares add up to 1 no more than the limit
allows. A limit of which it heard only once was hardly used: of that it has ``HARDLY_USED``.

**The return.** Everything that was granted is usage, and is counted. But what is taken from the bucket is only how
much lower the share is than it would be if nothing had been taken from it::

    f * (level0 grown and clamped) - what is left of the share

The share filled up again meanwhile, as the bucket would have. Taking everything that was granted would charge a fleet
that stayed within its limit for what refill had paid already, and leave the bucket deep in debt.

Shares are whole millionths, and everything is rounded down but what is taken on return: nothing is minted.
"""

from __future__ import annotations

from math import gcd
from typing import NamedTuple

from zae_limiter.balance_terms import balance_of
from zae_limiter.balances import MILLI, Balance, HeldBalance, SteppedBalance
from zae_limiter.models.limit import Limit

WHOLE_SHARE = 1_000_000
"""Shares are counted in millionths."""

HARDLY_USED = WHOLE_SHARE // 50
"""The share of a limit that was hardly used."""

MEASURED_OVER_MS = 60_000
MEASURED_FOR_MS = 1_000
"""What was measured for less says no share: in one moment a process meets itself alone."""

SAMPLED_EVERY_MS = 5_000


class Heard(NamedTuple):
    """How a limit stood when the process last heard of it: its level in millitokens, when, and what of it is extra."""

    level: int
    at: int
    extra: int = 0

    def balance(self, limit: Limit) -> Balance:
        """The limit as it stood."""
        balance = balance_of(limit, self.at)
        if self.extra and isinstance(balance, SteppedBalance):
            balance.lift(self.extra)
        balance.tk = self.level
        return balance


class Sample(NamedTuple):
    """What this process had taken of a limit at one moment, and what all had."""

    at: int
    own: int
    all: int


class ShareMeter:
    """What this process takes of one limit, against what all take."""

    __slots__ = ("_samples", "own")

    def __init__(self) -> None:
        self.own = 0
        """What it ever took, net, in millitokens."""
        self._samples: list[Sample] = []

    def took(self, milli: int) -> None:
        """Something was taken, or given back if it is negative."""
        self.own += milli

    def heard(self, counter: int, at: int) -> None:
        """What all have taken by now. A counter that fell is of another bucket: it is measured anew."""
        samples, sample = self._samples, Sample(at, self.own, counter)
        if samples and counter < samples[-1].all:
            samples.clear()
        if len(samples) > 1 and samples[-1].at - samples[-2].at < SAMPLED_EVERY_MS:
            samples[-1] = sample
        else:
            samples.append(sample)
        while len(samples) > 2 and at - samples[1].at >= MEASURED_OVER_MS:
            del samples[0]

    def share(self) -> int:
        """Its share of what was taken over the last minute, in millionths; at most the whole."""
        own, all_, lasted_ms = self._measured()
        if own <= 0 or all_ <= 0 or lasted_ms < MEASURED_FOR_MS:
            return HARDLY_USED
        return max(min(own * WHOLE_SHARE // all_, WHOLE_SHARE), 1)

    def taken_by_others(self, during_ms: int) -> int:
        """What others take in so many milliseconds, if they go on as over the last minute.

        What was measured for less than some seconds may be one burst: it says no rate.
        """
        own, all_, lasted_ms = self._measured()
        return -(-max(all_ - own, 0) * max(during_ms, 0) // max(lasted_ms, SAMPLED_EVERY_MS))

    def _measured(self) -> tuple[int, int, int]:
        """What it took, what all took, and in how many milliseconds."""
        if not self._samples:
            return 0, 0, 0
        first, last = self._samples[0], self._samples[-1]
        return last.own - first.own, last.all - first.all, last.at - first.at


def parts_of(milli: int, share: int) -> int:
    """So much of an amount, rounded down."""
    return milli * share // WHOLE_SHARE


def first_level(limit: Limit, heard: Heard, share: int, by_others: int, now: int) -> int:
    """What a share begins with: of the level as it was heard, grown since, less what others took meanwhile.

    A debt is a debt of the share, too: otherwise it would grant what the bucket would refuse.
    """
    level = heard.balance(limit).level(max(now, heard.at))
    return parts_of(min(level, max(level - by_others, 0)), share)


def share_of(limit: Limit, share: int, tk: int, now: int, extra: int = 0) -> Balance:
    """The balance of a share that holds ``tk`` at ``now``: a limit of the same kind, of which everything is less.

    ``extra``: so much more it may hold in this period.
    """
    balance = balance_of(limit, now)
    balance.bx = parts_of(balance.bx, share)
    if isinstance(balance, HeldBalance):
        balance.bx -= balance.bx % MILLI  # slots are whole
    elif isinstance(balance, SteppedBalance):
        number = balance.pn
        balance.step = max(parts_of(balance.step, share), 1)
        balance.at_rf = balance.step * number
        balance.lift(extra)
    else:
        amount, period = balance.ra * share, balance.rp * WHOLE_SHARE
        common = gcd(amount, period)
        balance.ra, balance.rp = amount // common, period // common
        balance.at_rf = balance.accrued(now)
    balance.tk = min(tk, balance.bx)
    return balance


class LimitShare:
    """A process's share of one limit while the store is away.

    ``balance`` is what it grants from, and ``idle`` what that would be if nothing were taken. ``given_back`` is what
    leases gave back that were booked before: it is counted, and comes back to no caller.
    """

    __slots__ = ("_granted_before", "_owed_before", "balance", "given_back", "idle", "share")

    def __init__(self, limit: Limit, share: int, level: int, now: int, extra: int = 0) -> None:
        self.share = share
        self.balance = share_of(limit, share, level, now, extra)
        self.idle = self.balance.copy()
        self.given_back = self._granted_before = self._owed_before = 0

    @property
    def granted(self) -> int:
        """What was taken of it, net, in millitokens."""
        return self._granted_before + self.balance.tc

    @property
    def counted(self) -> int:
        """What is to be counted as usage."""
        return self.granted + self.given_back

    @property
    def is_owed(self) -> bool:
        """Whether there is something to book. Slots are not booked: those that are still held are taken again."""
        return not self.balance.limit.is_held and bool(self.granted or self.given_back)

    def owed(self, now: int) -> int:
        """What is to be taken from the bucket on return, in whole tokens, rounded up, but never more than was granted:
        as much as the share is lower than it would be."""
        if isinstance(self.balance, HeldBalance):
            return 0  # slots come back by themselves
        lower = self.idle.level(now) - self.balance.level(now)
        owed = -(-min(max(lower, 0), max(self.balance.tc, 0)) // MILLI) * MILLI
        return self._owed_before + owed

    def follow(self, limit: Limit, now: int) -> None:
        """Go on under other terms. A lower burst clamps, and a higher one mints nothing."""
        if self.balance.limit == limit:
            return
        self._owed_before, self._granted_before = self.owed(now), self.granted
        balance = self.balance
        self.balance = share_of(limit, self.share, balance.level(now), now, balance.extra_at(now))
        self.idle = self.balance.copy()

    def go_on(self) -> None:
        """What was granted so far is booked elsewhere: what is owed is counted from here on."""
        self.balance.tc = self.given_back = self._granted_before = self._owed_before = 0
        self.idle = self.balance.copy()

    def heard(self, now: int) -> Heard:
        """How the limit stands, as far as its share tells: so that a share of it is what is left of this one."""
        level, extra = self.balance.level(now), self.balance.extra_at(now)
        return Heard(level * WHOLE_SHARE // self.share, now, extra * WHOLE_SHARE // self.share)
