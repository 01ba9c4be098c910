"""Taking from limits of every kind at once: even and calendar ones, calls in flight, and those that only watch.

``bucket.would_take`` is the same for limits that refill evenly and refuse, which most are, and is faster.

What is to change is said in three lists of one length (which balance, which attribute, which value), so that a store
can change all of it in one step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from zae_limiter.balances import MILLI, Balance, HeldBalance


class Lent(NamedTuple):
    """Slots that a balance lends: where it stands among all, how many, when they are due."""

    place: int
    slots: int
    due: int


class Taken:
    """What a draw changes. ``left`` is what every balance has then, ``refused`` which of them would have refused."""

    __slots__ = ("changed", "left", "lent", "names", "refused", "values")

    def __init__(self) -> None:
        self.changed: list[Balance] = []
        self.names: list[str] = []
        self.values: list[Any] = []
        self.left: list[int] = []
        self.lent: list[Lent] = []
        self.refused: list[int] = []

    def set(self, balance: Balance, **values: Any) -> None:
        """Note what a balance is to have."""
        for name, value in values.items():
            self.changed.append(balance)
            self.names.append(name)
            self.values.append(value)


def would_take_mixed(balances: Sequence[Balance], wanted: Mapping[str, int], now: int) -> Taken | None:
    """What taking whole tokens from all of ``balances`` changes; ``None``: one that refuses lacks.

    Calendar limits stand in their period of ``now``. A limit that only watches behaves as if it refused, for itself
    alone: where it has enough it is taken from, where it lacks nothing is taken and that is counted.
    """
    taken = Taken()
    for place, balance in enumerate(balances):
        amount = wanted.get(balance.name, 0)
        if amount.__class__ is not int or amount < 0:
            return None
        if lacks(balance, amount * MILLI, now):
            if balance.limit.enforce:
                return None
            taken.refused.append(place)
            taken.left.append(balance.left(now))
            taken.set(balance, sn=balance.sn + 1)
        elif isinstance(balance, HeldBalance):
            _lend(taken, place, balance, amount, now)
        else:
            _take(taken, balance, amount * MILLI, now)
    return taken


def lacks(balance: Balance, needed: int, now: int) -> bool:
    """Whether a limit has less than is needed. One of calls in flight judges only who wants a slot."""
    if not needed and isinstance(balance, HeldBalance):
        return False
    return balance.level(now) < needed


def _take(taken: Taken, balance: Balance, milli: int, now: int) -> None:
    tk = balance.tk
    if milli:
        tk = balance.level(now) - milli - balance.since_rf(now)
        taken.set(balance, tk=tk, tc=balance.tc + milli)
    taken.left.append(tk)


def _lend(taken: Taken, place: int, balance: HeldBalance, slots: int, now: int) -> None:
    if not slots:
        taken.left.append(balance.left(now))
        return
    after, due = balance.taken(slots * MILLI, now)
    taken.lent.append(Lent(place, slots, due))
    taken.left.append(balance.left(now) - slots * MILLI)
    taken.set(balance, tk=after.tk, counts=after.counts, hb=after.hb, tc=balance.tc + slots * MILLI)
