"""One limit of one bucket: its terms, its tokens and its counter, for each kind of limit.

``bucket.py`` has the theory. What differs between the kinds is how much a limit has accrued until a moment:

======== ================================ ==================================================
kind     accrued until ``t``              share of shard ``s`` of ``n``
======== ================================ ==================================================
even     ``t * ra // rp``                 ``share(t * ra // rp, s, n)``
calendar ``amount * ordinal(t)``          ``ordinal(t) * share(amount, s, n)``: per step
held     nothing: what is taken is lent   whole slots: ``share(amount, s, n)`` of the ceiling
======== ================================ ==================================================

**Steps are shared per step**, not as a sum: otherwise a period may begin a millitoken short on a shard, and a caller
that asks for the whole amount is refused until the next one.

**Held** limits lend. A slot that is taken counts under the moment it is *due*, at which it comes back if no lease has
given it back by then. Due times lie on a grid, so that all holds of a bucket are a few counts, and ``tk`` plus all
counts is the ceiling, always. ``hb`` is the latest due time whose holds were returned: who gives back later than that
gives back nothing. Of a bucket that is divided the sum over all shards is the ceiling: slots move between them.

**Extra.** An operator may lift a calendar limit above its burst for the period it stands in. The extra is part of the
ceiling ``bx`` and of the level then, and ends with the period, whatever is left of it. What is spent is spent from the
limit itself first: the next period holds what it would hold without the extra, but for debts, which the extra pays::

    kept  = level - min(max(level, 0), extra)     # at the boundary
    level = min(kept + amount, burst)             # in the next period
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd
from typing import NamedTuple

from zae_limiter.calendars import UTC, Calendar
from zae_limiter.models.limit import Limit, even_rate

MILLI = 1000
"""Millitokens per token, and milliseconds per second."""

ZONE_CHANGES_MS = 2 * 86_400_000
"""By so much two time zone databases may disagree about the start of a period."""


def share(x: int, shard: int, shards: int) -> int:
    """What shard number ``shard`` of ``shards`` has of ``x``. Over all shards this adds up to ``x``."""
    return (x + shards - 1 - shard) // shards


@lru_cache(4096)
def _rate_of(limit: Limit) -> tuple[int, int]:
    """``ra`` and ``rp`` of a limit: the same fraction in the smallest numbers, cheaper on every look."""
    tokens, seconds = even_rate(limit)
    amount, period = tokens * MILLI, seconds * MILLI
    common = gcd(amount, period)
    return amount // common, period // common


class Balance:
    """An even limit of one bucket (or of one shard of it), and what every kind of balance can be asked.

    ``sn`` counts what a limit that only watches would have refused. ``extra`` is the part of the ceiling ``bx`` that
    ends with the period: only a calendar limit has any.
    """

    extra: int = 0

    __slots__ = ("at_rf", "bx", "limit", "name", "ra", "rp", "shard", "shards", "sn", "tc", "tk")

    def __init__(
        self, limit: Limit, rf: int, *, tk: int | None = None, tc: int = 0, shard: int = 0, shards: int = 1
    ) -> None:
        """A balance with the terms of ``limit`` since ``rf``; full unless ``tk`` says otherwise."""
        self.limit = limit
        self.name = limit.name
        self.bx = limit.burst * MILLI if shards == 1 else share(limit.burst * MILLI, shard, shards)
        self.ra, self.rp = _rate_of(limit)
        self.shard = shard
        self.shards = shards
        self.tk = self.bx if tk is None else tk
        self.tc = tc
        self.sn = 0
        self.at_rf = self.accrued(rf)

    def with_tokens(self, tk: int, tc: int) -> Balance:
        """The same limit since the same moment, with other tokens and another counter."""
        same: Balance = Balance.__new__(Balance)
        same.limit, same.name, same.bx, same.ra, same.rp = self.limit, self.name, self.bx, self.ra, self.rp
        same.shard, same.shards, same.at_rf, same.sn = self.shard, self.shards, self.at_rf, self.sn
        same.tk, same.tc = tk, tc
        return same

    def copy(self) -> Balance:
        """Another balance that is the same."""
        return self.with_tokens(self.tk, self.tc)

    def accrued(self, t: int) -> int:
        """All that this limit has accrued from the epoch to ``t``."""
        whole = t * self.ra // self.rp
        return whole if self.shards == 1 else share(whole, self.shard, self.shards)

    def since_rf(self, now: int) -> int:
        """What accrued since the baseline; nothing when ``now`` is before it."""
        whole = now * self.ra // self.rp
        accrual = (whole if self.shards == 1 else share(whole, self.shard, self.shards)) - self.at_rf
        return accrual if accrual > 0 else 0

    def level(self, now: int) -> int:
        """What is stored plus what accrued, up to the ceiling."""
        return min(self.tk + self.since_rf(now), self.bx)

    def level_with(self, tk: int, now: int) -> int:
        """The level if ``tk`` were stored."""
        level = tk + self.since_rf(now)
        return level if level < self.bx else self.bx

    def left(self, now: int) -> int:
        """What :meth:`level_with` is to be asked with later, for the level of this moment."""
        return self.tk

    def full_in(self, tk: int, now: int) -> int:
        """In how many milliseconds it would be full, if ``tk`` were stored and nothing is taken."""
        if self.level_with(tk, now) >= self.bx:
            return 0
        return self._when(tk, self.bx) - now

    def least_full_by(self, t: int) -> int:
        """The least ``tk`` that is full again by ``t``, if nothing is taken."""
        return self.at_rf + self.bx - self.accrued(t)

    def when(self, amount: int) -> int:
        """The first millisecond at which ``amount`` has accrued, if nothing is taken or given back in between."""
        return self._when(self.tk, amount)

    def _when(self, tk: int, amount: int) -> int:
        undivided = self.shards * (self.at_rf + amount - tk - 1) + self.shard + 1
        return -(-undivided * self.rp // self.ra)

    def due(self, amount: int, now: int) -> int:
        """When ``amount`` has accrued, if nothing is taken or given back in between.

        It may lie above the ceiling, for a caller that waits behind others: they will have taken theirs by then. What
        is above the ceiling at ``now`` does not count.
        """
        surplus = self.tk + self.since_rf(now) - self.level(now)
        return self.when(amount + surplus)

    def full_at(self) -> int:
        """When it is full if nothing more is taken: from then on it may be forgotten."""
        return self.when(self.bx)

    def advance(self, now: int) -> None:
        """Make ``now`` the baseline, if it is later: what accrued becomes tokens, and the level stays."""
        at_now = self.accrued(now)
        if at_now >= self.at_rf:
            level = min(self.tk + at_now - self.at_rf, self.bx)
            self.tk, self.at_rf = level, at_now  # nothing can come between the two

    def go_back(self, now: int) -> None:
        """Make ``now`` the baseline, although it is earlier."""
        at_now = self.accrued(now)
        if at_now < self.at_rf:
            self.at_rf = at_now

    def refill(self, now: int) -> None:
        """Full again."""
        self.tk = self.bx

    def resets_at(self, now: int) -> int | None:
        """When its next period begins, if it has any."""
        return None

    def extra_at(self, now: int) -> int:
        """What is extra at a moment: nothing, once the period is over that it is of."""
        return 0


def without_extra(level: int, extra: int) -> int:
    """What is left of a level when an extra ends: that goes first, and pays the debts it has paid."""
    return level - min(max(level, 0), extra)


class SteppedBalance(Balance):
    """A calendar limit: its whole amount at the start of each period.

    ``pn`` is the number of the period at the baseline. It is stored, and not computed from the baseline: see
    ``calendars.py``. ``ends`` is when that period ends, once :meth:`advance` was asked; before, a time long ago.
    ``extra`` is of the period ``pn``: the first write that sees a later one ends it.
    """

    __slots__ = ("calendar", "ends", "extra", "step")

    def __init__(
        self,
        limit: Limit,
        rf: int,
        *,
        tk: int | None = None,
        tc: int = 0,
        shard: int = 0,
        shards: int = 1,
        pn: int | None = None,
        extra: int = 0,
    ) -> None:
        """The same; with so much ``extra`` in the period ``pn``."""
        assert limit.periods is not None
        self.limit = limit
        self.name = limit.name
        self.calendar: Calendar = limit.periods
        whole, rest = divmod(limit.burst, limit.refill_amount)
        self.step = share(limit.refill_amount * MILLI, shard, shards)
        self.bx = whole * self.step + share(rest * MILLI, shard, shards) + extra
        self.extra = extra
        self.ra, self.rp = 0, 1  # within a period it refills nothing
        self.shard = shard
        self.shards = shards
        self.tk = self.bx if tk is None else tk
        self.tc = tc
        self.sn = 0
        self.at_rf = self.step * (self.calendar.ordinal(rf) if pn is None else pn)
        self.ends = 0

    @property
    def pn(self) -> int:
        """The number of the period at the baseline."""
        return self.at_rf // self.step

    def with_tokens(self, tk: int, tc: int) -> SteppedBalance:
        """The same limit since the same moment, with other tokens and another counter."""
        same: SteppedBalance = SteppedBalance.__new__(SteppedBalance)
        for name in (*Balance.__slots__, *SteppedBalance.__slots__):
            setattr(same, name, getattr(self, name))
        same.tk, same.tc = tk, tc
        return same

    def accrued(self, t: int) -> int:
        return self.step * self.calendar.ordinal(t)

    def since_rf(self, now: int) -> int:
        accrual = self.step * self.calendar.ordinal(now) - self.at_rf
        if accrual <= 0:
            return 0
        if self.extra:
            return self.level_with(self.tk, now) - self.tk  # less than nothing, if more of the extra ends
        return accrual if self.calendar.carry_debt else max(self.bx - self.tk, 0)

    def level_with(self, tk: int, now: int) -> int:
        accrual = self.step * self.calendar.ordinal(now) - self.at_rf
        if accrual <= 0:
            return min(tk, self.bx)
        if not self.calendar.carry_debt:
            return self.bx - self.extra
        return min(without_extra(tk, self.extra) + accrual, self.bx - self.extra)

    def lift(self, amount: int) -> None:
        """Give so much more, for the period it stands in."""
        self.tk, self.bx, self.extra = self.tk + amount, self.bx + amount, self.extra + amount

    def extra_at(self, now: int) -> int:
        return self.extra if self.extra and self.calendar.ordinal(now) <= self.pn else 0

    def full_in(self, tk: int, now: int) -> int:
        if self.level_with(tk, now) >= self.bx - self.extra:
            return 0
        return self.with_tokens(tk, 0).due(self.bx - self.extra, now) - now

    def due(self, amount: int, now: int) -> int:
        if self.extra and self.calendar.ordinal(now) > self.pn:
            begun = self.copy()
            begun.advance(now)
            return begun.due(amount, now)
        return super().due(amount, now)

    def _when(self, tk: int, amount: int) -> int:
        """The start of the period by which ``amount`` has come, if nothing is taken or given back in between."""
        if self.extra and tk < amount:
            tk = without_extra(tk, self.extra)
        periods = max(-(-(amount - tk) // self.step), 0)
        if periods > 1 and not self.calendar.carry_debt and amount <= self.bx - self.extra:
            periods = 1
        return self.calendar.start(self.pn + periods)

    def least_full_by(self, t: int) -> int:
        if self.accrued(t) <= self.at_rf and self.extra:
            return self.bx + 1  # it is not what one that was never there is, before its period is over
        least = super().least_full_by(t)
        return least if self.calendar.carry_debt or self.accrued(t) <= self.at_rf else min(least, -(1 << 128))

    def full_at(self) -> int:
        if self.tk >= self.bx and not self.extra:
            return 0
        margin = 0 if self.calendar.tz == UTC else ZONE_CHANGES_MS
        return max(self.when(self.bx - self.extra), self.calendar.start(self.pn + 1)) + margin

    def advance(self, now: int) -> None:
        if now < self.ends:
            return
        at_now = self.step * self.calendar.ordinal(now)
        ends = self.calendar.start(max(at_now, self.at_rf) // self.step + 1)
        if at_now > self.at_rf:
            level, burst = self.level(now), self.bx - self.extra
            # Nothing can come between these.
            self.tk, self.at_rf, self.ends, self.bx, self.extra = level, at_now, ends, burst, 0
        else:
            self.ends = ends

    def go_back(self, now: int) -> None:
        self.ends = 0
        super().go_back(now)

    def resets_at(self, now: int) -> int | None:
        return self.calendar.start(max(self.pn, self.calendar.ordinal(now)) + 1)


class HoldsAfter(NamedTuple):
    """A held balance after a change: what is free, the counts by due time, the latest that was returned."""

    tk: int
    counts: dict[int, int]
    hb: int


class HeldBalance(Balance):
    """A limit of calls in flight. ``tk`` is what is free, ``counts`` has what is lent, by due time in seconds.

    ``counts`` is replaced as a whole, never edited. Its methods say what a change leads to; :meth:`become` makes it.
    """

    __slots__ = ("counts", "grid", "grid_ms", "hb", "ttl", "ttl_ms")

    def __init__(
        self,
        limit: Limit,
        rf: int,
        *,
        tk: int | None = None,
        tc: int = 0,
        shard: int = 0,
        shards: int = 1,
        counts: dict[int, int] | None = None,
        hb: int | None = None,
    ) -> None:
        """Its share of the slots, unless ``tk`` says what is free: slots move between shards."""
        assert limit.hold_seconds is not None
        self.limit = limit
        self.name = limit.name
        self.ttl: int = limit.hold_seconds
        self.grid = max(self.ttl // 4, 1)
        self.ttl_ms, self.grid_ms = self.ttl * MILLI, self.grid * MILLI
        self.bx = share(limit.burst, shard, shards) * MILLI
        self.ra, self.rp, self.at_rf = 0, 1, 0
        self.shard = shard
        self.shards = shards
        self.tk = self.bx if tk is None else tk
        self.tc = tc
        self.sn = 0
        self.counts = {} if counts is None else counts
        self.hb = max(rf // MILLI, 0) if hb is None else hb

    def with_tokens(self, tk: int, tc: int) -> HeldBalance:
        """The same limit with the same holds, with other tokens and another counter."""
        same: HeldBalance = HeldBalance.__new__(HeldBalance)
        for name in (*Balance.__slots__, *HeldBalance.__slots__):
            setattr(same, name, getattr(self, name))
        same.tk, same.tc = tk, tc
        return same

    def accrued(self, t: int) -> int:
        return 0

    def since_rf(self, now: int) -> int:
        return 0

    def overdue(self, now: int) -> int:
        """What is lent and should have come back by ``now``."""
        return sum(count for due, count in self.counts.items() if due * MILLI <= now)

    def level(self, now: int) -> int:
        """What is free, with what is overdue: a draw that needs it takes it."""
        return self.tk + self.overdue(now)

    def level_with(self, tk: int, now: int) -> int:
        return tk

    def left(self, now: int) -> int:
        return self.level(now)

    def least_full_by(self, t: int) -> int:
        return self.tk  # every change of it moves the expiry

    def due(self, amount: int, now: int) -> int:
        """The first due time by which so much is free, if no lease gives back or renews before: a bound."""
        free = self.tk
        last = now
        for due in sorted(self.counts):
            free, last = free + self.counts[due], max(due * MILLI, last)
            if free >= amount:
                break
        return last

    def when(self, amount: int) -> int:
        return self.due(amount, 0)

    def full_in(self, tk: int, now: int) -> int:
        return max(self.full_at() - now, 0)

    def full_at(self) -> int:
        return max(self.counts, default=0) * MILLI

    def advance(self, now: int) -> None:
        """Nothing accrues, and nothing is returned before a caller needs it."""

    def go_back(self, now: int) -> None:
        """Let no hold last longer than one that is taken now: a clock that was wrong has set its due time."""
        self.hb = min(self.hb, now // MILLI)
        latest = self.due_time(now)
        counts: dict[int, int] = {}
        for due, count in self.counts.items():
            due = min(due, latest)
            counts[due] = counts.get(due, 0) + count
        self.counts = counts

    def refill(self, now: int) -> None:
        """Every slot is free; what is given back later is none of them."""
        self.become(HoldsAfter(self.bx, {}, max(self.hb, max(self.counts, default=0))))

    def become(self, after: HoldsAfter) -> None:
        """Make a change."""
        self.tk, self.counts, self.hb = after  # nothing can come between them

    def due_time(self, now: int) -> int:
        """When a hold that is taken now is due, in seconds: after the time it is held for, and less than 1.25 of it.

        It is always after what was returned already, whatever the clock says.
        """
        grid = self.grid
        due = -(-(now + self.ttl * MILLI) // (grid * MILLI)) * grid
        return due if due > self.hb else (self.hb // grid + 1) * grid

    def rolled(self, now: int) -> HoldsAfter:
        """After everything that is overdue was returned."""
        late = [due for due in self.counts if due * MILLI <= now]
        if not late:
            return HoldsAfter(self.tk, self.counts, self.hb)
        counts = {due: count for due, count in self.counts.items() if due * MILLI > now}
        return HoldsAfter(self.tk + self.overdue(now), counts, max(self.hb, *late))

    def taken(self, amount: int, now: int) -> tuple[HoldsAfter, int]:
        """After ``amount`` is lent, enough or not; and when that is due.

        What is overdue is returned first if it is needed, or if this opens a due time, which keeps the counts few.
        """
        due = self.due_time(now)
        tk, counts, hb = self.tk, self.counts, self.hb
        if tk < amount or due not in counts:
            tk, counts, hb = self.rolled(now)
        return HoldsAfter(tk - amount, {**counts, due: counts.get(due, 0) + amount}, hb), due

    def given_back(self, amount: int, due: int) -> HoldsAfter | None:
        """After a lease has ended. ``None``: that was returned already."""
        lent = self.counts.get(due, 0)
        if self.hb >= due or lent < amount:
            return None
        counts = {**self.counts, due: lent - amount}
        if lent == amount:
            del counts[due]
        return HoldsAfter(self.tk + amount, counts, self.hb)

    def renewed(self, amount: int, due: int, now: int) -> tuple[HoldsAfter, int] | None:
        """After a hold goes on as if it were taken now, and when it is due then. ``None``: it was returned already."""
        without = self.given_back(amount, due)
        if without is None:
            return None
        later = max(self.due_time(now), due)
        counts = {**without.counts, later: without.counts.get(later, 0) + amount}
        return HoldsAfter(without.tk - amount, counts, self.hb), later
