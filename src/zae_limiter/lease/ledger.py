"""What one lease owes, in whole tokens per limit. Pure bookkeeping.

``written`` is what the store has booked for this lease, ``pending`` what it is yet to book; together they are
what the lease has consumed, never below zero. ``settled`` is what survives a failure of the body, and with
``keep`` everything does.

All legs pay the same, with two exceptions that are kept beside: ``paid_by_leg`` has what single legs paid of a limit
that they got or lost while the lease was open, and ``arrears`` what single legs are yet to book of what the others
have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from zae_limiter.bucket import MILLI
from zae_limiter.exceptions import ValidationError
from zae_limiter.running.plan import assign
from zae_limiter.stores.protocol import Leg, NotedGrant, Posting, Settlement

Amounts = Mapping[str, int]


class PendingSettlement(Settlement):
    """What a lease is to book at its end or by a flush: ``owed`` by every leg, of which the ``postings`` are left."""

    __slots__ = ("all_postings", "is_done", "is_told", "owed")

    def __init__(self, owed: Amounts, postings: Sequence[Posting]) -> None:
        self.owed = owed
        self.postings = self.all_postings = postings
        self.doubtful = self.is_told = self.is_done = False


class UnresolvedCounter(Protocol):
    """Counts what could not be done, or not be proven done."""

    unresolved: int


class UnsettledGuard:
    """Counts as unresolved what a lease has yet to book, if it is dropped before that.

    An interrupt may come at the very first instruction of ``__exit__``, before anything can be done about it.
    """

    __slots__ = ("counter",)

    counter: UnresolvedCounter

    def disarm(self) -> None:
        """Make it an object without ``__del__``: one that runs swallows an interrupt that comes just then."""
        self.__class__ = SettledGuard  # type: ignore[assignment]

    def __del__(self) -> None:
        with suppress(AttributeError):  # it was interrupted before it stood for anything
            self.counter.unresolved += 1


class SettledGuard:
    """A guard that is disarmed."""

    __slots__ = ("counter",)

    def disarm(self) -> None:
        """It is disarmed."""


class Ledger:
    """The books of one lease."""

    __slots__ = (
        "arrears",
        "closing",
        "flushing",
        "guard",
        "keep",
        "paid_by_leg",
        "pending",
        "pending_since",
        "settled",
        "taking",
        "written",
    )

    closing: PendingSettlement | None
    """The end of the lease, once it has begun."""

    flushing: PendingSettlement | None
    """What a flush is booking; until it is noted here."""

    taking: NotedGrant | None
    """What :meth:`Lease.consume` is taking; until it is noted here."""

    def __init__(self, taken: Amounts) -> None:
        self.guard: UnsettledGuard | None = None
        self.closing = self.flushing = self.taking = None
        self.written = dict(taken)
        self.pending: dict[str, int] = {}
        self.pending_since: int | None = None
        self.settled: dict[str, int] = {}
        self.paid_by_leg: dict[tuple[str, str], int] = {}
        self.arrears: list[Posting] = []
        self.keep = False

    def consumed(self) -> dict[str, int]:
        """What the lease has consumed so far."""
        return {name: self._total(name) for name in self.written | self.pending}

    def adjust(self, deltas: Amounts, timer: int) -> None:
        """Add to or take off what was consumed; all of it or, if one is wrong, nothing."""
        self._adjust(deltas, timer, self.settled)

    def settle(self, actual: Amounts, timer: int) -> None:
        """Replace what was consumed by what was really used; this part survives errors."""
        deltas = {name: amount - self._total(name) for name, amount in actual.items()}
        self._adjust(deltas, timer, {**self.settled, **actual})

    def took(self, more: Amounts) -> None:
        """The store has booked more."""
        self.written = self._written_with(more)

    def took_on_legs(
        self,
        legs: Sequence[Leg],
        more: Amounts,
        before: Sequence[Leg],
        also: Iterable[tuple[Any, str, Any]] = (),
    ) -> None:
        """The store has booked more, by the limits that ``legs`` have now; ``before`` is how the lease knows them.

        From then on nothing is being taken. What changes ``also`` does so in the same step.
        """
        paid_by_leg = self.paid_by_leg.copy()
        for leg, known in zip(legs, before, strict=True):
            for name, amount in more.items():
                place, has, had = (leg.entity_id, name), name in leg.names, name in known.names
                if has != had or place in paid_by_leg:
                    paid = paid_by_leg.get(place, self.written.get(name, 0) if had else 0)
                    paid_by_leg[place] = paid + (amount if has else 0)
        changes = (
            (self, "paid_by_leg", paid_by_leg),
            (self, "written", self._written_with(more)),
            (self, "taking", None),
            *also,
        )
        assign(*zip(*changes))  # noqa: B905 (they have one length)

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

    def postings_per_leg(self, owed: Amounts, plain: list[Posting], legs: Sequence[Leg]) -> list[Posting]:
        """What each leg is to book of ``owed``: as ``plain`` has it, but for what is kept beside."""
        if not self.paid_by_leg and not self.arrears:
            return plain
        due = {leg.entity_id: dict(deltas) for leg, deltas in plain}
        for (entity_id, name), paid in self.paid_by_leg.items():
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
        if self.paid_by_leg or self.arrears:
            self.booked_except(deltas, ())
        else:
            pending: dict[str, int] = {}
            written = self._written_with(deltas)
            # No signal comes between these: nothing is called.
            self.written, self.pending, self.pending_since, self.flushing = written, pending, None, None

    def is_closed(self) -> None:
        """What could be booked is, and the rest is counted: nothing is owing any more."""
        if self.guard is not None:
            self.guard.disarm()

    def booked_except(self, deltas: Amounts, remaining: Sequence[Posting]) -> None:
        """The store has booked these, except for what remains to be booked on single legs."""
        written, paid_by_leg = self._written_with(deltas), self._paid_by_leg_with(deltas)
        since, arrears = self.pending_since if remaining else None, list(remaining)
        pending: dict[str, int] = {}
        # No signal comes between these: nothing is called.
        self.written, self.paid_by_leg, self.arrears, self.flushing = written, paid_by_leg, arrears, None
        self.pending, self.pending_since = pending, since

    def assume_given_back(self) -> bool:
        """The store may have booked what is pending: take every credit for booked. Whether there was one."""
        credits_ = {name: delta for name, delta in self.pending.items() if delta < 0}
        in_arrears = any(delta < 0 for _, deltas in self.arrears for delta in deltas.values())
        pending = {name: delta for name, delta in self.pending.items() if delta >= 0}
        written, paid_by_leg = self._written_with(credits_), self._paid_by_leg_with(credits_)
        arrears = debits_of(self.arrears)
        # No signal comes between these: nothing is called.
        self.written, self.paid_by_leg, self.arrears, self.flushing = written, paid_by_leg, arrears, None
        self.pending = pending
        return bool(credits_) or in_arrears

    def _adjust(self, deltas: Amounts, timer: int, settled: dict[str, int]) -> None:
        for name, delta in deltas.items():
            if self._total(name) + delta < 0:
                raise ValidationError(
                    name, delta, f"gives back more than this lease took, which is {self._total(name)}"
                )
        pending = self.pending.copy()
        for name, delta in deltas.items():
            pending[name] = pending.get(name, 0) + delta
        since = timer if self.pending_since is None else self.pending_since
        # No signal comes between these: nothing is called.
        self.pending, self.pending_since, self.settled = pending, since, settled

    def _written_with(self, deltas: Amounts) -> dict[str, int]:
        written = self.written.copy()
        for name, amount in deltas.items():
            written[name] = written.get(name, 0) + amount
        return written

    def _paid_by_leg_with(self, deltas: Amounts) -> dict[tuple[str, str], int]:
        if not self.paid_by_leg:
            return self.paid_by_leg
        return {place: paid + max(deltas.get(place[1], 0), -paid) for place, paid in self.paid_by_leg.items()}

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
            undivided = {name: amount * MILLI for name, amount in amounts.items() if name in leg.names}
            for shard, paid in leg.paid or ((0, undivided),):
                account = accounts.setdefault(shard, {})
                for name, amount in paid.items():
                    account[name] = account.get(name, 0) + amount
        legs.append(replace(first, paid=tuple(accounts.items())))
    return tuple(legs)
