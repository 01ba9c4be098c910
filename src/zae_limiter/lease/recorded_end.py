"""Booking for a lease that has a record: one step for the bookings and the record, repeated until it is known.

Repeating is exact: a change of a record that was made is recognised, and what goes with it is not booked again
(``stores.lease_records``). So nothing is left out here after an answer was lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from zae_limiter.lease.lease_holds import postings_with_end_of_holds
from zae_limiter.lease.ledger import PendingSettlement
from zae_limiter.lease.recorded_ledger import RecordedLedger
from zae_limiter.lease.settle_tries import PAUSES_MS, may_try
from zae_limiter.running.plan import READ_CLOCK, READ_TIMER, Plan
from zae_limiter.stores.lease_records import RecordMoved, RecordState

if TYPE_CHECKING:
    from zae_limiter.lease.lease_base import LeaseBase

logger = logging.getLogger("zae_limiter")

MOST_MOVES = 16
"""So often a record may be moved by others between our reading and our writing it, before we give up."""


def write_record(lease: LeaseBase, ledger: RecordedLedger, lifetime_ms: int | None = None) -> Plan[None]:
    """Book what is pending, and note it in the record, which stays open. Raises if that cannot be known to be done."""

    def pending(now: int) -> PendingSettlement:
        owed = ledger.owed()
        expires_at = None if lifetime_ms is None else now + lifetime_ms
        postings = lease._postings_of_flush(ledger, owed)
        change = ledger.change_for(owed, RecordState.OPEN, lease.holds, expires_at)
        return PendingSettlement(owed, postings, change)

    yield from _move(lease, ledger, pending)


def close_recorded(lease: LeaseBase, ledger: RecordedLedger, failed: bool) -> Plan[None]:
    """Write what the lease owes, and close its record. Raises if that cannot be known to be done."""
    if not ledger.is_over:
        # A caller that says so ends the lease, also one that repeated the request of another.
        ledger.is_repeated, ledger.must_close = False, True
        yield from _move(lease, ledger, lambda now: _closing(lease, ledger, failed))
        ledger.is_closed = True


def end_recorded(lease: LeaseBase, ledger: RecordedLedger, failed: bool) -> Plan[None]:
    """The same at the end of a block. Never raises."""
    if ledger.is_over:
        return
    failure = yield from _with_retries(lease, ledger, lambda now: _closing(lease, ledger, failed))
    if failure is not None:
        lease._core.unresolved += 1
        logger.error("could not settle lease %s of %s: %s", ledger.record.token, lease._entity_id, failure)


def _closing(lease: LeaseBase, ledger: RecordedLedger, failed: bool) -> PendingSettlement | None:
    """What is to be booked when a lease ends; ``None``: nothing, and its record stays as it is."""
    keeps = ledger.is_repeated or lease._keeps(ledger)
    totals = ledger.totals_on_failure() if failed and not keeps else ledger.totals
    owed = ledger.owed_if(totals)
    postings, grant = lease._postings_of(ledger, owed), lease._granted
    if grant is not None and grant.holds and not ledger.is_repeated:
        postings = postings_with_end_of_holds(grant, postings)
    if not postings and not ledger.arrears and not ledger.must_close:
        return None
    state = ledger.state_at_end(totals, failed and not keeps)
    return PendingSettlement(owed, postings, ledger.change_for(owed, state, ()))


def _with_retries(
    lease: LeaseBase, ledger: RecordedLedger, make: Callable[[int], PendingSettlement | None]
) -> Plan[Exception | None]:
    failure: Exception | None = None
    started = yield from READ_TIMER
    for pause in PAUSES_MS:
        if pause and not (yield from may_try(pause, started)):
            break
        try:
            yield from _move(lease, ledger, make)
        except Exception as error:
            failure = error
        else:
            return None
    return failure


def _move(lease: LeaseBase, ledger: RecordedLedger, make: Callable[[int], PendingSettlement | None]) -> Plan[None]:
    """Book, and move the record; anew from what is recorded if another process has moved it meanwhile."""
    moved: RecordMoved | None = None
    for _ in range(MOST_MOVES):
        pending = ledger.closing
        if pending is None:  # else an earlier try of the same was interrupted, or not answered
            now = yield from READ_CLOCK
            pending = ledger.closing = make(now)
        if pending is None or pending.change is None:
            return
        try:
            yield from lease._book(pending)
        except RecordMoved as error:
            moved, ledger.closing = error, None
            ledger.follow(error.found)
            lease._follow(ledger.record)
            if ledger.is_settled_elsewhere:
                return
            continue
        ledger.moved(pending.change)
        ledger.closing = None
        lease._announce(pending)
        return
    assert moved is not None
    raise moved
