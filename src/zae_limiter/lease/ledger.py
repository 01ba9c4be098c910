"""What one lease owes, in whole tokens per limit. Pure bookkeeping.

``written`` is what the store has booked for this lease, ``pending`` what it is yet to book; together they are
what the lease has consumed, never below zero. ``settled`` is what survives a failure of the body, and with
``keep`` everything does.

All legs pay the same, with two exceptions that are kept beside: ``apart`` has what single legs paid of a limit that
they got or lost while the lease was open, and ``arrears`` what single legs are yet to book of what the others have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from zae_limiter.bucket import MILLI
from zae_limiter.exceptions import ValidationError
from zae_limiter.stores.protocol import Leg, Posting

Amounts = Mapping[str, int]


class Ledger:
    """The books of one lease."""

    __slots__ = ("apart", "arrears", "keep", "pending", "pending_since", "settled", "written")

    def __init__(self, taken: Amounts) -> None:
        self.written = dict(taken)
        self.pending: dict[str, int] = {}
        self.pending_since: int | None = None
        self.settled: dict[str, int] = {}
        self.apart: dict[tuple[str, str], int] = {}
        self.arrears: list[Posting] = []
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

    def took_by(self, legs: Sequence[Leg], more: Amounts, before: Sequence[Leg]) -> None:
        """The store has booked more, by the limits that ``legs`` have now; ``before`` is how the lease knows them."""
        for leg, known in zip(legs, before, strict=True):
            for name, amount in more.items():
                place, has, had = (leg.entity_id, name), name in leg.names, name in known.names
                if has != had or place in self.apart:
                    paid = self.apart.get(place, self.written.get(name, 0) if had else 0)
                    self.apart[place] = paid + (amount if has else 0)
        self.took(more)

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

    def shared_out(self, owed: Amounts, plain: list[Posting], legs: Sequence[Leg]) -> list[Posting]:
        """What each leg is to book of ``owed``: as ``plain`` has it, but for what is kept beside."""
        if not self.apart and not self.arrears:
            return plain
        due = {leg.entity_id: dict(deltas) for leg, deltas in plain}
        for (entity_id, name), paid in self.apart.items():
            if name in owed:
                due.setdefault(entity_id, {})[name] = max(owed[name], -paid) * MILLI
        for leg, deltas in self.arrears:
            sums = due.setdefault(leg.entity_id, {})
            for name, delta in deltas.items():
                sums[name] = sums.get(name, 0) + delta
        return [
            Posting(leg, deltas)
            for leg in legs
            if (deltas := {name: delta for name, delta in due.get(leg.entity_id, {}).items() if delta})
        ]

    def booked(self, deltas: Amounts) -> None:
        """The store has booked these, and nothing is pending any more."""
        self._note(deltas)
        self.pending.clear()
        self.pending_since = None
        self.arrears = []

    def booked_but(self, deltas: Amounts, remaining: Sequence[Posting]) -> None:
        """The store has booked these, except for what remains to be booked on single legs."""
        since = self.pending_since
        self.booked(deltas)
        if remaining:
            self.arrears, self.pending_since = list(remaining), since

    def assume_given_back(self) -> bool:
        """The store may have booked what is pending: take every credit for booked. Whether there was one."""
        returned = {name: delta for name, delta in self.pending.items() if delta < 0}
        self._note(returned)
        for name in returned:
            del self.pending[name]
        in_arrears = any(delta < 0 for _, deltas in self.arrears for delta in deltas.values())
        self.arrears = debits_of(self.arrears)
        return bool(returned) or in_arrears

    def _note(self, deltas: Amounts) -> None:
        self.took(deltas)
        for place, paid in self.apart.items():
            self.apart[place] = paid + max(deltas.get(place[1], 0), -paid)

    def _total(self, name: str) -> int:
        return self.written.get(name, 0) + self.pending.get(name, 0)


def postings(legs: tuple[Leg, ...], deltas: Amounts) -> list[Posting]:
    """The deltas on every leg that has the limit."""
    return [
        Posting(leg, deltas_milli)
        for leg in legs
        if (deltas_milli := {name: delta * MILLI for name, delta in deltas.items() if name in leg.names})
    ]


def debits_of(owed: Sequence[Posting]) -> list[Posting]:
    """Only what is to be taken, and nothing that is to come back."""
    debits = [Posting(leg, {name: delta for name, delta in deltas.items() if delta > 0}) for leg, deltas in owed]
    return [posting for posting in debits if posting.deltas_milli]


def paid_by_both(before: Sequence[Leg], taken: Amounts, more: Sequence[Leg], taken_more: Amounts) -> tuple[Leg, ...]:
    """The legs of a lease that took twice from divided buckets: what comes back does so where it was paid."""
    legs = []
    for first, second in zip(before, more, strict=True):
        accounts: dict[int, dict[str, int]] = {}
        for leg, amounts in ((first, taken), (second, taken_more)):
            whole = {name: amount * MILLI for name, amount in amounts.items() if name in leg.names}
            for shard, paid in leg.paid or ((0, whole),):
                account = accounts.setdefault(shard, {})
                for name, amount in paid.items():
                    account[name] = account.get(name, 0) + amount
        legs.append(replace(first, paid=tuple(accounts.items())))
    return tuple(legs)
