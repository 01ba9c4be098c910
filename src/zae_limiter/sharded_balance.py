"""A limit that is split over shards, seen as one.

Each shard is a bucket of its own with a share of the ceiling and of the accrual, and shares add up. What callers are
told about a split limit is therefore the sum over its shards: the level, the counter, and the first moment at which
the sum covers an amount.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zae_limiter.bucket import MILLI, Balance, HeldBalance, balance_of
from zae_limiter.models.limit import Limit


class ShardedBalance(Balance):
    """One limit over all shards of its bucket."""

    __slots__ = ("_find", "_parts", "extra")

    def __init__(self, limit: Limit, parts: Callable[[], Sequence[Balance]]) -> None:
        """``parts`` finds the limit's balance on every shard, when it is asked for."""
        whole = balance_of(limit, 0)
        self.limit, self.name, self.bx, self.tk = limit, limit.name, whole.bx, whole.tk
        self.ra, self.rp, self.shard, self.shards = whole.ra, whole.rp, 0, 1
        self.tc = self.sn = self.at_rf = self.extra = 0
        self._find = parts
        self._parts: Sequence[Balance] | None = None

    @property
    def parts(self) -> Sequence[Balance]:
        """The limit's balance on every shard. Nothing is counted (``tc``) before they were read."""
        if self._parts is None:
            self._parts = self._find()
            self.tc = sum(part.tc for part in self._parts)
            self.sn = sum(part.sn for part in self._parts)
            lifted = sum(part.extra for part in self._parts)
            self.bx, self.extra = self.bx + lifted, lifted
        return self._parts

    def level(self, now: int) -> int:
        """What all shards hold together, those in debt included."""
        return sum(part.level(now) for part in self.parts)

    def with_tokens(self, tk: int, tc: int) -> ShardedBalance:
        """The same: what one shard has left (``tk``) says nothing of the others."""
        return self

    def level_with(self, tk: int, now: int) -> int:
        """The level: what one shard has left (``tk``) says nothing of the others."""
        return self.level(now)

    def full_in(self, tk: int, now: int) -> int:
        """In how many milliseconds all shards are full; ``tk``, what one has left, says nothing of the others."""
        if self.limit.is_held:
            return max((part.full_in(part.tk, now) for part in self.parts), default=0)
        return max(self.due(sum(part.bx - part.extra for part in self.parts), now) - now, 0)

    def due(self, amount: int, now: int) -> int:
        """The first millisecond at which all shards together hold ``amount``.

        What lies above the ceiling of all is due when the rest has accrued after everything is full.
        """
        if self.limit.is_held:
            return self._lent_until(amount, now)
        if self.level(now) >= amount:
            return now
        within = min(amount, sum(part.bx - part.extra for part in self.parts))  # what is extra does not come again
        early = late = now
        step = 1
        while self.level(late) < within:  # most waits are short
            early, late, step = late + 1, late + step, step * 2
        while early < late:
            middle = (early + late) // 2
            if self.level(middle) >= within:
                late = middle
            else:
                early = middle + 1
        beyond = amount - within
        if not beyond:
            return early
        if self.limit.periods is not None:
            calendar, step = self.limit.periods, self.limit.refill_amount * MILLI
            return calendar.start(calendar.ordinal(early) - (-beyond // step))
        return -(-(self.accrued(early) + beyond) * self.rp // self.ra)

    def _lent_until(self, amount: int, now: int) -> int:
        """The first due time by which all shards together have so much, if no lease gives back or renews before."""
        counts: dict[int, int] = {}
        for part in self.parts:
            assert isinstance(part, HeldBalance)
            for due, count in part.counts.items():
                counts[due] = counts.get(due, 0) + count
        free = sum(part.tk for part in self.parts)
        return HeldBalance(self.limit, 0, tk=free, counts=counts).due(amount, now)

    def extra_at(self, now: int) -> int:
        """What is extra on all shards."""
        return sum(part.extra_at(now) for part in self.parts)

    def resets_at(self, now: int) -> int | None:
        """When the next period of any shard begins."""
        found = [moment for part in self.parts if (moment := part.resets_at(now)) is not None]
        return min(found, default=None)
