"""A budget as a book-keeper would keep it, in exact fractions of tokens: what every store must agree with."""

from __future__ import annotations

from fractions import Fraction

from zae_limiter.bucket import MILLI
from zae_limiter.models.limit import Limit


class Account:
    """One calendar limit: its level, what is extra in the period, and a boundary at a time."""

    def __init__(self, limit: Limit, now: int) -> None:
        assert limit.periods is not None
        self.limit, self.number = limit, limit.periods.ordinal(now)
        self.level, self.extra = Fraction(limit.burst), Fraction(0)

    def go_to(self, now: int) -> None:
        assert self.limit.periods is not None
        for _ in range(self.number, self.limit.periods.ordinal(now)):
            self.number += 1
            unspent = min(max(self.level, Fraction(0)), self.extra)
            self.level = min(self.level - unspent + self.limit.refill_amount, Fraction(self.limit.burst))
            if not self.limit.periods.carry_debt:
                self.level = Fraction(self.limit.burst)
            self.extra = Fraction(0)

    def lift(self, amount: int) -> None:
        self.level, self.extra = self.level + amount, self.extra + amount

    def give_back(self, milli: int) -> None:
        self.level = min(self.level + Fraction(milli, MILLI), self.limit.burst + self.extra)

    def take(self, milli: int) -> None:
        self.level -= Fraction(milli, MILLI)

    def lower(self, milli: int) -> None:
        self.level = min(self.level, Fraction(milli, MILLI))

    def fill(self) -> None:
        self.level = self.limit.burst + self.extra

    def change(self, limit: Limit) -> None:
        """Another amount by the same calendar."""
        more = limit.refill_amount - self.limit.refill_amount
        self.level = min(self.level + more, limit.burst + self.extra)
        self.limit = limit

    @property
    def period_ends(self) -> int:
        assert self.limit.periods is not None
        return self.limit.periods.start(self.number + 1)
