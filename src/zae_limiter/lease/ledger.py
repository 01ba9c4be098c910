"""What one lease owes, in whole tokens per limit. Pure bookkeeping.

``written`` is what the store has booked for this lease, ``pending`` what it is yet to book; together they are
what the lease has consumed, never below zero. ``settled`` is what survives a failure of the body, and with
``keep`` everything does.
"""

from __future__ import annotations

from collections.abc import Mapping

from zae_limiter.bucket import MILLI
from zae_limiter.exceptions import ValidationError
from zae_limiter.stores.protocol import Leg, Posting

Amounts = Mapping[str, int]


class Ledger:
    """The books of one lease."""

    __slots__ = ("keep", "pending", "pending_since", "settled", "written")

    def __init__(self, taken: Amounts) -> None:
        self.written = dict(taken)
        self.pending: dict[str, int] = {}
        self.pending_since: int | None = None
        self.settled: dict[str, int] = {}
        self.keep = False

    def consumed(self) -> dict[str, int]:
        """What the lease has consumed so far."""
        return {name: self._total(name) for name in self.written | self.pending}

    def adjust(self, deltas: Amounts, timer: int) -> None:
        """Add to or take off what was consumed; all of it or, if one is wrong, nothing."""
        for name, delta in deltas.items():
            if self._total(name) + delta < 0:
                raise ValidationError(
                    name, delta, f"gives back more than this lease took, which is {self._total(name)}"
                )
        for name, delta in deltas.items():
            self.pending[name] = self.pending.get(name, 0) + delta
        if self.pending_since is None:
            self.pending_since = timer

    def settle(self, actual: Amounts, timer: int) -> None:
        """Replace what was consumed by what was really used; this part survives errors."""
        self.adjust({name: amount - self._total(name) for name, amount in actual.items()}, timer)
        self.settled.update(actual)

    def took(self, more: Amounts) -> None:
        """The store has booked more."""
        for name, amount in more.items():
            self.written[name] = self.written.get(name, 0) + amount

    def owed(self) -> dict[str, int]:
        """What must still be booked if the work succeeds."""
        return {name: delta for name, delta in self.pending.items() if delta}

    def owed_on_failure(self) -> dict[str, int]:
        """What must be booked if the work fails: everything that was not settled comes back."""
        return {
            name: delta
            for name in self.written | self.pending
            if (delta := min(self.settled.get(name, 0), self._total(name)) - self.written.get(name, 0))
        }

    def booked(self, deltas: Amounts) -> None:
        """The store has booked these, and nothing is pending any more."""
        self.took(deltas)
        self.pending.clear()
        self.pending_since = None

    def assume_given_back(self) -> bool:
        """The store may have booked what is pending: take every credit for booked. Whether there was one."""
        returned = {name: delta for name, delta in self.pending.items() if delta < 0}
        self.took(returned)
        for name in returned:
            del self.pending[name]
        return bool(returned)

    def _total(self, name: str) -> int:
        return self.written.get(name, 0) + self.pending.get(name, 0)


def postings(legs: tuple[Leg, ...], deltas: Amounts) -> list[Posting]:
    """The deltas on every leg that has the limit."""
    return [
        Posting(leg, deltas_milli)
        for leg in legs
        if (deltas_milli := {name: delta * MILLI for name, delta in deltas.items() if name in leg.names})
    ]
