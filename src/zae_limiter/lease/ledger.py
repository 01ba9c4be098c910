"""What one lease owes, in whole tokens per limit. Pure bookkeeping.

``written`` is what the store has booked for this lease: what was granted, until it flushes or takes more. ``totals``
is what the lease has consumed of the limits it has adjusted or settled since; the difference is what it owes.
``settled`` is what survives a failure of the body, and with ``keep`` everything does.

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
from zae_limiter.lease.lease_holds import slots_told
from zae_limiter.naming import MAX_AMOUNT, check_amount, check_delta, check_limit_name
from zae_limiter.running.plan import assign
from zae_limiter.stores.lease_records import RecordChange
from zae_limiter.stores.limit_statuses import names_known
from zae_limiter.stores.protocol import (
    BucketPlace,
    DeferredGrant,
    Denial,
    Grant,
    Leg,
    NotedGrant,
    Posting,
    Settlement,
)

Amounts = Mapping[str, int]

NOTHING: Amounts = {}
NO_LEGS: Mapping[tuple[BucketPlace, str], int] = {}

new_object = object.__new__

FLUSH_AFTER_MS = 5_000
"""What is pending for longer is written by the next call on the lease."""


class PendingSettlement(Settlement):
    """What a lease is to book by a plan, at its end or by a flush: ``owed`` by every leg, in these postings."""

    __slots__ = ("all_postings", "change", "is_done", "is_told", "owed")

    change: RecordChange | None
    """What changes in the record of the lease, if it has one."""

    def __init__(self, owed: Amounts, postings: Sequence[Posting], change: RecordChange | None = None) -> None:
        self.owed = owed
        self.change = change
        self.postings = self.all_postings = postings
        self.doubtful = self.is_done = self.is_told = False

    @property
    def told(self) -> Amounts:
        """What is owed, and what the postings change in the calls in flight."""
        slots = slots_told(self.all_postings)
        return {**self.owed, **slots} if slots else self.owed


class UnresolvedCounter(Protocol):
    """Counts what could not be done, or not be proven done."""

    unresolved: int


class Ledger(Settlement):
    """The books of one lease. They are also the settlement of its end by a fast path, which notes there what it books.

    ``names`` are the limits that the lease's own leg knows, those that mostly are named, or ``None`` if it was let
    through: then nothing is booked, and any may be named. ``observed`` is the denial that a switch let through.
    ``is_as_granted``: the store has booked what was granted, and was not asked for anything since.

    Until the next step notes what became of it, ``taking`` is what :meth:`Lease.consume` takes, ``flushing`` what a
    flush books, and ``closing`` what is booked at the end.
    """

    __slots__ = (
        "_granted",
        "_written",
        "arrears",
        "closing",
        "counter",
        "flushing",
        "is_as_granted",
        "keep",
        "names",
        "observed",
        "paid_by_leg",
        "pending_since",
        "settled",
        "taking",
        "totals",
    )

    names: frozenset[str] | None
    counter: UnresolvedCounter
    closing: PendingSettlement | None
    flushing: PendingSettlement | None
    taking: NotedGrant | None

    def __init__(self, granted: Grant | DeferredGrant | None, written: Amounts | None = None) -> None:
        self.begin(granted, written)

    def begin(self, granted: Grant | DeferredGrant | None, written: Amounts | None = None) -> None:
        """Nothing is owed yet of what was granted."""
        self._granted = granted
        self._written = written
        if granted is None:
            self.names = None
        else:
            self.names = (granted.legs if isinstance(granted, Grant) else granted[0].legs)[0].known
        self.totals = self.settled = NOTHING
        self.paid_by_leg: Mapping[tuple[BucketPlace, str], int] = NO_LEGS
        self.arrears: Sequence[Posting] = ()
        self.pending_since: int | None = None
        self.closing = self.flushing = self.taking = self.postings = None
        self.observed: Denial | None = None
        self.keep = self.doubtful = False
        self.is_as_granted = True

    @property
    def written(self) -> Amounts:
        """What the store has booked."""
        if self._written is None:
            granted = self._granted
            self._written = NOTHING if granted is None else granted_amounts(granted)
        return self._written

    def consumed(self) -> dict[str, int]:
        """What the lease has consumed so far."""
        return {**self.written, **self.totals}

    def adjust(self, deltas: Amounts, timer: int) -> bool:
        """Add to or take off what was consumed; all of it or, if one is wrong, nothing.

        Returns whether what is pending is old, and to be written now.
        """
        totals = dict(self.totals)
        for name, delta in deltas.items():
            self.check_name(name, delta)
            check_delta(delta, name)
            total = self._total(name)
            if total + delta < 0:
                raise ValidationError(name, delta, f"gives back more than this lease took, which is {total}")
            totals[name] = total + delta
        return self._note(totals, self.settled, timer)

    def settle(self, actual: Amounts, timer: int) -> bool:
        """Replace what was consumed by what was really used; this part survives errors. Returns as :meth:`adjust`."""
        names = self.names
        for name, amount in actual.items():
            if names is None or name not in names:
                self.check_name(name, amount)
            if type(amount) is not int or not 0 <= amount <= MAX_AMOUNT:
                check_amount(amount, name)
        if self.pending_since is None and not self.settled:
            # No signal comes between these: nothing is called.
            self.totals, self.settled, self.pending_since = actual, actual, timer
            return False
        return self._note({**self.totals, **actual}, {**self.settled, **actual}, timer)

    def release(self, amounts: Amounts, timer: int) -> bool:
        """Take off what was consumed. Returns as :meth:`adjust`."""
        for name, amount in amounts.items():
            self.check_name(name, amount)
            check_amount(amount, name)
        return self.adjust({name: -amount for name, amount in amounts.items()}, timer)

    def check_name(self, name: str, value: object) -> None:
        """Refuse a limit that is none of this lease."""
        if self.names is None:
            check_limit_name(name)
        elif name not in self.names:
            names = self.names if self._granted is None else names_known(granted_legs(self._granted))
            if name not in names:
                known = ", ".join(sorted(names))
                raise ValidationError(name, value, f"is no limit that any leg of this lease knows; those are {known}")

    def took(self, more: Amounts) -> None:
        """The store has booked more."""
        totals = self._totals_with(more)
        # No signal comes between these: nothing is called.
        self._written, self.totals = self._written_with(more), totals

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
        paid_by_leg = dict(self.paid_by_leg)
        for leg, known in zip(legs, before, strict=True):
            for name, amount in more.items():
                place = (leg.place, name)
                has, had = name in leg.settled_names, name in known.settled_names
                if has != had or place in paid_by_leg:
                    paid = paid_by_leg.get(place, self.written.get(name, 0) if had else 0)
                    paid_by_leg[place] = paid + (amount if has else 0)
        changes = (
            (self, "paid_by_leg", paid_by_leg),
            (self, "_written", self._written_with(more)),
            (self, "totals", self._totals_with(more)),
            (self, "taking", None),
            *also,
        )
        assign(*zip(*changes))  # noqa: B905 (they have one length)

    def owed(self) -> dict[str, int]:
        """What must still be booked if the work succeeds."""
        return self.owed_if(self.totals)

    def owed_on_failure(self) -> dict[str, int]:
        """What must be booked if the work fails."""
        return self.owed_if(self.totals_on_failure())

    def totals_on_failure(self) -> dict[str, int]:
        """What is consumed if the work fails: everything that was not settled comes back."""
        settled = self.settled
        if not settled:
            return dict.fromkeys(self.consumed() if self.totals else self.written, 0)
        return {name: min(settled.get(name, 0), total) for name, total in self.consumed().items()}

    def owed_if(self, totals: Amounts) -> dict[str, int]:
        """What must be booked if these are consumed in all."""
        written = self.written
        return {name: delta for name, total in totals.items() if (delta := total - written.get(name, 0))}

    def postings_per_leg(self, owed: Amounts, plain: list[Posting], legs: Sequence[Leg]) -> list[Posting]:
        """What each leg is to book of ``owed``: as ``plain`` has it, but for what is kept beside."""
        if not self.paid_by_leg and not self.arrears:
            return plain
        due = {leg.place: dict(deltas) for leg, deltas, *_ in plain}
        for (place, name), paid in self.paid_by_leg.items():
            if name in owed:
                due.setdefault(place, {})[name] = max(owed[name], -paid) * MILLI
        for leg, deltas, *_ in self.arrears:
            sums = due.setdefault(leg.place, {})
            for name, delta in deltas.items():
                sums[name] = sums.get(name, 0) + delta
        return [
            Posting(leg, deltas)
            for leg in legs
            if (deltas := {name: delta for name, delta in due.get(leg.place, {}).items() if delta})
        ]

    def booked(self, deltas: Amounts, remaining: Sequence[Posting] = ()) -> None:
        """The store has booked these, except for what remains to be booked on single legs. Nothing else is pending."""
        written, paid_by_leg = self._written_with(deltas), self.paid_by_leg
        if paid_by_leg:
            paid_by_leg = self._paid_by_leg_with(deltas)
        since = self.pending_since if remaining else None
        # No signal comes between these: nothing is called.
        self._written, self.paid_by_leg, self.arrears, self.flushing = written, paid_by_leg, remaining, None
        self.totals, self.pending_since = NOTHING, since

    def assume_given_back(self) -> bool:
        """The store may have booked what is pending: take every credit for booked. Whether there was one."""
        credits_ = {name: delta for name, delta in self.owed().items() if delta < 0}
        in_arrears = any(delta < 0 for _, deltas, *_ in self.arrears for delta in deltas.values())
        written, paid_by_leg = self._written_with(credits_), self._paid_by_leg_with(credits_)
        arrears = debits_of(self.arrears)
        # No signal comes between these: nothing is called.
        self._written, self.paid_by_leg, self.arrears, self.flushing = written, paid_by_leg, arrears, None
        return bool(credits_) or in_arrears

    def close(self) -> None:
        """The lease is over, and nothing is owing any more."""

    def _note(self, totals: Amounts, settled: Amounts, timer: int) -> bool:
        since = timer if self.pending_since is None else self.pending_since
        # No signal comes between these: nothing is called.
        self.totals, self.settled, self.pending_since = totals, settled, since
        return timer - since >= FLUSH_AFTER_MS

    def _written_with(self, deltas: Amounts) -> dict[str, int]:
        written = dict(self.written)
        for name, amount in deltas.items():
            written[name] = written.get(name, 0) + amount
        return written

    def _totals_with(self, more: Amounts) -> Amounts:
        return {name: total + more.get(name, 0) for name, total in self.totals.items()}

    def _paid_by_leg_with(self, deltas: Amounts) -> Mapping[tuple[BucketPlace, str], int]:
        return {place: paid + max(deltas.get(place[1], 0), -paid) for place, paid in self.paid_by_leg.items()}

    def _total(self, name: str) -> int:
        total = self.totals.get(name)
        return self.written.get(name, 0) if total is None else total


class OpenLedger(Ledger):
    """The books of a lease that has yet to book: if they are dropped before that, it counts as unresolved.

    An interrupt may come at the very first instruction of ``__exit__``, before anything can be done about it.
    """

    __slots__ = ()

    def close(self) -> None:
        """Make it a ledger without ``__del__``: one that runs swallows an interrupt that comes just then."""
        self.__class__ = Ledger  # type: ignore[assignment]

    def __del__(self) -> None:
        with suppress(AttributeError):  # it was interrupted before it stood for anything
            self.counter.unresolved += 1


def open_ledger(granted: Grant | DeferredGrant | None) -> OpenLedger:
    """The books of a lease that begins to owe something. They have no counter before the lease holds them."""
    ledger = new_object(OpenLedger)  # what a call of the type would do, in less time
    ledger.begin(granted)
    return ledger


def granted_legs(granted: Grant | DeferredGrant) -> tuple[Leg, ...]:
    """The legs of what was granted, without making the grant if it was deferred."""
    return granted.legs if isinstance(granted, Grant) else granted[0].legs


def granted_amounts(granted: Grant | DeferredGrant) -> Amounts:
    """What was granted, without making the grant if it was deferred."""
    return granted.wanted if isinstance(granted, Grant) else granted[0].wanted(granted)


def postings(legs: tuple[Leg, ...], deltas: Amounts) -> list[Posting]:
    """The deltas on every leg that has the limit."""
    return [
        Posting(leg, deltas_milli)
        for leg in legs
        if (deltas_milli := {name: delta * MILLI for name, delta in deltas.items() if name in leg.settled_names})
    ]


def debits_of(owed: Sequence[Posting]) -> list[Posting]:
    """Only what is to be taken, and nothing that is to come back."""
    debits = [Posting(leg, {name: delta for name, delta in deltas.items() if delta > 0}) for leg, deltas, *_ in owed]
    return [posting for posting in debits if posting.deltas_milli]


def paid_by_both(before: Sequence[Leg], taken: Amounts, more: Sequence[Leg], taken_more: Amounts) -> tuple[Leg, ...]:
    """The legs of a lease that took twice from divided buckets: what comes back does so where it was paid."""
    legs = []
    for first, second in zip(before, more, strict=True):
        accounts: dict[int, dict[str, int]] = {}
        for leg, amounts in ((first, taken), (second, taken_more)):
            undivided = {name: amount * MILLI for name, amount in amounts.items() if name in leg.settled_names}
            for shard, paid in leg.paid or ((0, undivided),):
                account = accounts.setdefault(shard, {})
                for name, amount in paid.items():
                    account[name] = account.get(name, 0) + amount
        legs.append(replace(first, paid=tuple(accounts.items())))
    return tuple(legs)
