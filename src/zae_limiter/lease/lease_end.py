"""The end of a lease without a record: what it owes is booked, with some tries; nothing in doubt comes back twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.lease.lease_holds import postings_with_end_of_holds
from zae_limiter.lease.ledger import Ledger, PendingSettlement, debits_of
from zae_limiter.lease.settle_tries import PAUSES_MS, may_try
from zae_limiter.running.plan import READ_TIMER, Plan

if TYPE_CHECKING:
    from zae_limiter.lease.lease_base import LeaseBase


def book_until_done(lease: LeaseBase, closing: PendingSettlement) -> Plan[Exception | None]:
    """Book what is left, with some tries. The error of the last one, if it failed."""
    if not closing.postings:
        return None
    if closing.doubtful:  # this was interrupted, and even the store cannot know how far it got
        lease._core.unresolved += 1
        closing.postings, closing.doubtful = debits_of(closing.postings), False
    failure: Exception | None = None
    started = yield READ_TIMER
    for pause in PAUSES_MS:
        if not closing.postings or (pause and not (yield from may_try(pause, started))):
            break
        try:
            yield from lease._book(closing)
            failure = None
        except Exception as error:
            failure = error if closing.postings else None  # it may be booked all the same
            _leave_to_repeat(lease, closing, error)
    return failure


def note_end(lease: LeaseBase, ledger: Ledger, closing: PendingSettlement, failure: Exception | None) -> None:
    """Note that what could be booked is, and tell of it; count and log what could not."""
    core = lease._limiter._core
    if closing.postings:
        core.unresolved += 1
    elif failure is None and (core.waiters or core.observer is not None):
        lease._announce(closing)
    closing.is_done = True
    if core.keeper is not None and (grant := lease._granted) is not None and grant.holds:
        core.keeper.let_go(grant.holds)
    log = core.health.settlements
    if failure is None:
        ledger.booked(closing.owed)
        if log.is_failing:
            log.answered(core.timer())
    else:
        about = f"{closing.owed} of {lease._entity_id} on {lease._resource}"
        log.failed(failure, "settlements not written", about, core.timer())


def begin_to_close(lease: LeaseBase, ledger: Ledger, failed: bool) -> PendingSettlement:
    """What is owed at the end, from what is known of earlier bookings."""
    if ledger.taking is not None:
        lease._note_taken(ledger, ledger.taking)
    if ledger.flushing is not None:
        note_flushed(lease, ledger, None)
    totals = ledger.totals_on_failure() if failed and not lease._keeps(ledger) else ledger.totals
    owed = ledger.owed_if(totals)
    postings = lease._postings_of(ledger, owed)
    grant = lease._granted
    if grant is not None and grant.holds:
        postings = postings_with_end_of_holds(grant, postings)
    closing = PendingSettlement(owed, postings)
    closing.doubtful = ledger.doubtful
    if ledger.postings is not None:  # the fast path was interrupted after it had booked all of it
        closing.postings = ()
    ledger.closing = closing
    return closing


def _leave_to_repeat(lease: LeaseBase, closing: PendingSettlement, error: Exception) -> None:
    """Leave what is to be booked again: never a credit that may have been booked, for that would mint."""
    if isinstance(error, RateLimiterUnavailable) and error.remaining is not None:
        closing.postings = list(error.remaining)
    elif is_ambiguous(error, closing):
        left = closing.postings or ()
        lease._core.unresolved += any(delta < 0 for _, deltas, *_ in left for delta in deltas.values())
        closing.postings = debits_of(left)
    closing.doubtful = False


def note_flushed(lease: LeaseBase, ledger: Ledger, error: BaseException | None) -> None:
    """Note what is known to be booked of what was being flushed when an error or an interrupt came."""
    flushing = ledger.flushing
    if flushing is None:
        return
    remaining = flushing.postings or ()
    if isinstance(error, RateLimiterUnavailable) and error.remaining is not None:
        remaining = error.remaining
    if is_ambiguous(error, flushing) and remaining is flushing.all_postings:
        # What may have come back must not come back again: that would mint.
        lease._core.unresolved += ledger.assume_given_back()
    elif remaining is flushing.all_postings and remaining:
        ledger.flushing = None
    else:
        ledger.booked(flushing.owed, list(remaining))


def is_ambiguous(error: BaseException | None, closing: PendingSettlement) -> bool:
    """Whether what is left may have been booked."""
    return error.ambiguous if isinstance(error, RateLimiterUnavailable) else closing.doubtful
