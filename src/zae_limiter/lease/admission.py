"""Admission: try, wait in the queue if the caller may, and decide what an unavailable store means."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from zae_limiter.bucket import MILLI
from zae_limiter.exceptions import (
    AccessBlocked,
    ConfigurationError,
    RateLimiterUnavailable,
    RateLimitExceeded,
    RequestExceedsBurst,
)
from zae_limiter.lease.local_admission import draw_or_grant_locally
from zae_limiter.models.choices import AccessMode, OnUnavailable
from zae_limiter.models.events import Decided, Degraded
from zae_limiter.models.limit import Limit
from zae_limiter.models.status import LimitStatus
from zae_limiter.repository.core import NO_FAST_PATHS, Core
from zae_limiter.repository.wait_queue import WaitDeadline, Waiter
from zae_limiter.running.plan import READ_CLOCK, READ_TIMER, AwaitWakeUp, Plan
from zae_limiter.stores.lease_records import RecordRequest
from zae_limiter.stores.protocol import Denial, Draw, Grant, Leg, Outcome, Receipt, Ticket

logger = logging.getLogger("zae_limiter")


LEASES_LOOKED_FOR_MS = 100
"""So often a caller that waits only for what open leases may give back looks whether there still are any."""


class AcquireArguments(NamedTuple):
    """The arguments of an acquire, checked."""

    entity_id: str
    resource: str
    wanted: Mapping[str, int]
    limits: tuple[Limit, ...] | None = None
    timeout_ms: int = 0
    on_unavailable: OnUnavailable | None = None
    legs: tuple[Leg, ...] | None = None
    record: RecordRequest | None = None


def admit(core: Core, asked: AcquireArguments, receipt: Receipt) -> Plan[Grant | Denial | None]:
    """The grant; ``None`` when the store is unavailable and the policy is to allow; a denial that is only observed.

    Raises ``RateLimitExceeded`` when something lacks (after waiting, if the caller may wait), and ``AccessBlocked``.
    The grant is noted on the receipt before anything else happens, so that no interrupt loses track of it.
    """
    waited = 0.0
    now: int = yield READ_CLOCK
    try:
        if asked.timeout_ms:
            outcome, waited = yield from _attempt_or_wait(core, asked, now, receipt)
        else:
            outcome = yield from _attempt(core, asked, None, now, receipt)
    except AccessBlocked as blocked:
        about = (asked.entity_id, asked.resource, asked.wanted, False, blocked, waited, *core.when())
        core.tell(Decided(*about, blocked=True))
        raise
    except (RateLimiterUnavailable, ConfigurationError) as error:
        _let_through_or_raise(core, asked, error, now)
        return None
    if core.fast_paths is NO_FAST_PATHS and not outcome.local:
        core.note_answer()
    let_through = isinstance(outcome, Grant) or outcome.observed
    if core.observer is not None:
        core.tell(Decided(asked.entity_id, asked.resource, asked.wanted, let_through, outcome, waited, *core.when()))
    if let_through:
        return outcome
    assert isinstance(outcome, Denial)
    raise refusal(outcome)


def _ticket(core: Core, asked: AcquireArguments) -> Ticket | None:
    """A place in the line of all processes for a caller that may wait, if the store keeps claims."""
    return None if core.space.claims_for_ms is None else core.wait_queue.ticket(asked.timeout_ms)


def _attempt_or_wait(core: Core, asked: AcquireArguments, now: int, receipt: Receipt) -> Plan[tuple[Outcome, float]]:
    """What became of a caller that may wait, and how many seconds it waited. Its claim does not outlast it."""
    ticket = _ticket(core, asked)
    try:
        outcome = yield from _attempt(core, asked, None, now, receipt, None if core.waiters else ticket)
        if isinstance(outcome, Denial):
            return (yield from _after_waiting(core, asked, outcome, now, receipt, ticket))
        return outcome, 0.0
    except (RateLimiterUnavailable, ConfigurationError, GeneratorExit):
        raise  # a claim that cannot be withdrawn ends by itself
    except BaseException as stop:
        if not isinstance(getattr(stop, "error", None), Exception):
            yield from _withdraw(core, ticket)
        raise


def _withdraw(core: Core, ticket: Ticket | None) -> Plan[None]:
    """Take back the claim of a caller that waits no longer: others waited for it. If that fails it ends soon."""
    if ticket is None or ticket.withdraw is None:
        return
    withdraw, ticket.withdraw = ticket.withdraw, None
    try:
        yield from withdraw((yield from READ_CLOCK))
    except (RateLimiterUnavailable, ConfigurationError) as error:
        logger.debug("a claim was not withdrawn: %s", error)


def _after_waiting(
    core: Core, asked: AcquireArguments, denial: Denial, now: int, receipt: Receipt, ticket: Ticket | None
) -> Plan[tuple[Outcome, float]]:
    """What became of a denial whose caller may wait, and how many seconds it waited."""
    outcome: Outcome = denial
    waited = 0.0
    started = yield from READ_TIMER
    if _may_wait(denial) and not _is_hopeless(core, denial.lacking_beyond(asked.timeout_ms), started):
        outcome = yield from _wait_in_queue(core, asked, denial, now, started + asked.timeout_ms, receipt, ticket)
        if core.observer is not None:
            waited = ((yield from READ_TIMER) - started) / MILLI
    if isinstance(outcome, Denial) and not outcome.local:
        yield from _withdraw(core, ticket)
        yield from _count_denial(core, outcome)
    return outcome, waited


def _let_through_or_raise(
    core: Core, asked: AcquireArguments, error: RateLimiterUnavailable | ConfigurationError, now: int
) -> None:
    """Let the caller through although the store failed, or raise: as ``on_unavailable`` says. A known block holds."""
    outage = core.as_outage(error) if isinstance(error, ConfigurationError) else error
    core.unresolved += outage.ambiguous
    about = f"{asked.entity_id} on {asked.resource}"
    access = core.space.remembered_access(asked.entity_id, asked.resource, now)
    if access is not None and access.mode is AccessMode.BLOCK:
        raise AccessBlocked(asked.entity_id, asked.resource, access) from outage
    if core.policy(asked.on_unavailable) is not OnUnavailable.ALLOW:  # locally, nothing is known of its limits
        core.note_failure(outage, "callers refused", about)
        raise outage
    core.note_failure(outage, "callers let through uncounted", about)
    core.tell(Degraded(asked.entity_id, asked.resource, asked.wanted, outage, *core.when()))


def _may_wait(denial: Denial) -> bool:
    """Whether waiting may turn it into a grant. What is only observed is let through at once."""
    return not denial.observed and denial.wait_ms is not None


def _is_hopeless(core: Core, beyond: Iterable[LimitStatus], timer: int) -> bool:
    """Whether limits that lack for longer than the caller may wait include one that no lease of this process can give
    back to. What leases of other processes give back is not waited for."""
    return any(not core.may_come_back((status.entity_id, status.resource), timer) for status in beyond)


def _count_denial(core: Core, denial: Denial) -> Plan[None]:
    """Count a denial that is told at the end of a wait. If that fails it is a denial all the same."""
    try:
        yield from core.space.count_denial(denial, (yield from READ_CLOCK))
    except (RateLimiterUnavailable, ConfigurationError) as error:
        logger.debug("a denial was not counted: %s", error)


def refusal(denial: Denial) -> RateLimitExceeded:
    """The error a denial becomes."""
    if denial.unread_wait_ms:
        return RateLimitExceeded((), unread_wait_seconds=denial.unread_wait_ms / MILLI)
    retry_ms = denial.retry_ms
    kind = RequestExceedsBurst if retry_ms is None else RateLimitExceeded
    return kind._because(denial, retry_ms)


def _attempt(
    core: Core,
    asked: AcquireArguments,
    waiter: Waiter | None,
    now: int,
    receipt: Receipt,
    ticket: Ticket | None = None,
) -> Plan[Outcome]:
    """One try, at one moment, leaving to the waiters ahead what they wait for."""
    ahead: Mapping[tuple[str, str], Mapping[str, int]] = {}
    if core.waiters:
        core.wait_queue.drop_abandoned(core.timer, (yield READ_TIMER))
        ahead = core.wait_queue.waited_for(asked.resource, waiter)
    draw = Draw(
        asked.entity_id,
        asked.resource,
        asked.wanted,
        asked.limits,
        ahead,
        asked.legs,
        is_final=not asked.timeout_ms,
        record=asked.record,
        ticket=ticket,
    )
    policy = asked.on_unavailable or core.on_unavailable or core.space.remembered_on_unavailable()
    if policy is OnUnavailable.LOCAL:
        plan = draw_or_grant_locally(core, draw, now, receipt)
    else:
        plan = core.space.draw(draw, now) if core.limits is None else core.draw_by_own(draw, now)
    if core.observer is not None:
        return (yield from core.call("draw", _noted(plan, receipt)))
    outcome = yield from plan
    if outcome.__class__ is Grant:
        receipt._grant = outcome
    return outcome


def _noted(draw: Plan[Outcome], receipt: Receipt) -> Plan[Outcome]:
    """The same draw; its grant is noted on the receipt before the observer hears of it."""
    outcome = yield from draw
    if outcome.__class__ is Grant:
        receipt._grant = outcome
    return outcome


def _look_again_in(core: Core, denial: Denial, due: int, wait: int, looks: int) -> tuple[int, int]:
    """How long to wait if a call of another process may end before, which does not wake this one; and how often it
    has looked."""
    known, pauses = denial.known_wait_ms, core.space.slot_pauses_ms
    if known is None or pauses is None:
        return due, looks
    first, longest = pauses
    return min(due, max(due - wait + known, min(first << looks, longest))), min(looks + 1, 16)


def _due_in(core: Core, denial: Denial, elapsed: int, looks: int) -> tuple[int, int]:
    """In how many milliseconds the head of a queue is to try again; and how often it has looked for calls that end."""
    wait = max(denial.wait_ms or 1, 1)
    due, looks = _look_again_in(core, denial, wait - elapsed, wait, looks)
    claimed = core.space.claims_for_ms
    return due if claimed is None else min(due, claimed // 3), looks  # a claim is to be renewed before it is over


def _claim(core: Core, ticket: Ticket | None, waiter: Waiter, remaining: int) -> Ticket | None:
    """The ticket with which the head of a queue tries; the others have none."""
    if ticket is None or not core.wait_queue.is_head(waiter):
        return None
    ticket.patience_ms = max(remaining, 1)
    return ticket


def _wait_in_queue(
    core: Core,
    asked: AcquireArguments,
    denial: Denial,
    denied_at: int,
    give_up_at: int,
    receipt: Receipt,
    ticket: Ticket | None,
) -> Plan[Outcome]:
    """Stand in the queue of the first bucket that lacks, until the caller's turn comes and its tokens are due.

    They are due so long after the moment the denial was computed for, however long the denial took to arrive. If they
    are due too late, the caller waits only while open leases may give some back.
    """
    wait_queue = core.wait_queue
    looks = heard = 0
    waiter = wait_queue.join(denial.lacking.place, asked.wanted, WaitDeadline(give_up_at, core.timer))
    try:
        while True:
            lacking = [(status.entity_id, status.resource) for status in denial.statuses if status.refuses]
            wait_queue.note_lacking(waiter, lacking)
            timer = yield from READ_TIMER
            remaining = give_up_at - timer
            elapsed = max((yield from READ_CLOCK) - denied_at, 0)  # the clock may have been set back
            beyond = denial.lacking_beyond(elapsed + remaining)
            if remaining <= 0 or _is_hopeless(core, beyond, timer):
                return denial
            # All but the head wait to be woken, or until the head should have left; it knows when its tokens are due.
            head = wait_queue.head_before(waiter)
            due = remaining
            if head is None:
                due, looks = _due_in(core, denial, elapsed, looks)
            elif (gone_at := head.surely_gone_at(core.timer)) is not None:
                due = gone_at + 1 - timer
            pause = min(due, remaining, LEASES_LOOKED_FOR_MS if beyond else due)
            if pause > 0:
                yield from AwaitWakeUp(waiter.wake_up, pause)
            if beyond and pause < due and waiter.wake_up.calls == heard:
                continue  # nothing came back yet: there is no reason to ask the store
            heard = waiter.wake_up.calls
            denied_at = yield from READ_CLOCK
            outcome = yield from _attempt(
                core, asked, waiter, denied_at, receipt, _claim(core, ticket, waiter, remaining - pause)
            )
            if isinstance(outcome, Grant) or not _may_wait(outcome):
                return outcome
            denial = outcome
            if denial.lacking.place != waiter.key:
                wait_queue.move(waiter, denial.lacking.place)
    finally:
        wait_queue.leave(waiter)
