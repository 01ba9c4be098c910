"""What a lease does, written once as plans; ``lease.py`` and ``sync_lease.py`` run them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from zae_limiter.exceptions import LeaseExpiredError, RateLimiterUnavailable, ValidationError
from zae_limiter.lease.admission import AcquireArguments, admit
from zae_limiter.lease.ledger import Ledger, PendingSettlement, UnsettledGuard, debits_of, paid_by_both, postings
from zae_limiter.models.choices import OnError, OnUnavailable, check_choice
from zae_limiter.models.events import Settled
from zae_limiter.models.limit import Limit, check_limits
from zae_limiter.models.status import LimitStatus
from zae_limiter.naming import check_amount, check_delta, check_entity_id, check_limit_name, check_resource
from zae_limiter.repository.arguments import check_consume, check_seconds
from zae_limiter.repository.core import Core
from zae_limiter.running.plan import READ_CLOCK, READ_TIMER, Pause, Plan
from zae_limiter.stores.protocol import DeferredGrant, Grant, NotedGrant, Posting

logger = logging.getLogger("zae_limiter")

FLUSH_AFTER_MS = 5_000
"""A pending adjustment older than this is written by the next call on the lease."""

SETTLE_PAUSES_MS = (20, 100)
"""Between the tries to write what a finished lease owes."""

PAUSES_MS = (0, *SETTLE_PAUSES_MS)

SETTLE_RETRIES_MS = 1_000
"""No further try after this long: the caller's work is done, and it wants to go on."""


class LeaseOptions:
    """The options of an acquire. Few callers give any."""

    __slots__ = ("limits", "on_error", "on_unavailable", "timeout_ms")

    def __init__(
        self,
        limits: tuple[Limit, ...] | None,
        timeout_ms: int,
        on_unavailable: OnUnavailable | None,
        on_error: OnError,
    ) -> None:
        self.limits = limits
        self.timeout_ms = timeout_ms
        self.on_unavailable = on_unavailable
        self.on_error = on_error


DEFAULT_OPTIONS = LeaseOptions(None, 0, None, OnError.REFUND)


class LeaseOwner(Protocol):
    """The limiter that a lease belongs to."""

    _core: Core
    _driver: Any


class LeaseBase:
    """The state of a lease, and its methods as plans."""

    __slots__ = (
        "_consume",
        "_entity_id",
        "_grant",
        "_ledger",
        "_limiter",
        "_open",
        "_options",
        "_resource",
    )

    _limiter: LeaseOwner
    _entity_id: str
    _resource: str
    _consume: Mapping[str, int]
    _options: LeaseOptions
    _grant: Grant | DeferredGrant | None
    _ledger: Ledger | None
    _open: bool

    @property
    def _core(self) -> Core:
        return self._limiter._core

    @property
    def _driver(self) -> Any:
        return self._limiter._driver

    @property
    def _granted(self) -> Grant | None:
        grant = self._grant
        if grant is not None and not isinstance(grant, Grant):
            fast_path, wanted, now, *numbers = grant
            grant = self._grant = fast_path.grant(wanted, now, numbers)
        return grant

    # What a caller reads

    @property
    def consumed(self) -> dict[str, int]:
        """What this entity paid so far, per limit, adjustments included."""
        if self._ledger is None:
            return {} if (grant := self._granted) is None else dict(grant.wanted)
        return {} if self._grant is None else self._ledger.consumed()

    @property
    def degraded(self) -> bool:
        """Whether the store was unavailable and the caller was let through uncounted."""
        return self._grant is None and self._ledger is not None

    @property
    def statuses(self) -> tuple[LimitStatus, ...]:
        """Every limit of every leg, with what the grant left in it."""
        return () if (grant := self._granted) is None else grant.statuses

    # What a caller does

    def _adjust(self, /, **deltas: int) -> Plan[None]:
        """Correct what was consumed: ``adjust(tpm=used - estimated)``.

        Never raises for lack of tokens; may go into debt, which refill repays. Written at the end of the
        ``with`` block (or by :meth:`flush`). Raises ``ValidationError`` for a limit the bucket does not have,
        and for giving back more than the lease took.
        """
        ledger = self._open_ledger(deltas)
        for name, delta in deltas.items():
            check_delta(delta, name)
        timer = yield READ_TIMER
        ledger.adjust(deltas, timer)
        yield from self._flush_if_old(ledger, timer)

    def _settle(self, /, **actual: int) -> Plan[None]:
        """Say what was really used in all: ``settle(tpm=used)``. What is settled survives errors."""
        ledger = self._open_ledger(actual)
        for name, amount in actual.items():
            check_amount(amount, name)
        timer = yield READ_TIMER
        ledger.settle(actual, timer)
        yield from self._flush_if_old(ledger, timer)

    def _release(self, /, **amounts: int) -> Plan[None]:
        """Give back part of what was taken: ``release(tpm=200)``."""
        ledger = self._open_ledger(amounts)
        for name, amount in amounts.items():
            check_amount(amount, name)
        timer = yield READ_TIMER
        ledger.adjust({name: -amount for name, amount in amounts.items()}, timer)
        yield from self._flush_if_old(ledger, timer)

    def _consume_more(self, /, **more: int) -> Plan[None]:
        """Take more, now, from the same buckets: all of it, or ``RateLimitExceeded`` and nothing."""
        ledger = self._open_ledger(more)
        wanted = check_consume(more)
        grant = self._granted
        if grant is None:
            return
        asked = AcquireArguments(
            self._entity_id,
            self._resource,
            wanted,
            self._options.limits,
            0,
            self._options.on_unavailable,
            grant.legs,
        )
        taking = ledger.taking = NotedGrant()
        try:
            yield from admit(self._core, asked, taking)
        finally:
            self._note_taken(ledger, taking)

    def _flush(self) -> Plan[None]:
        """Write pending adjustments now. Raises ``RateLimiterUnavailable`` and keeps them if it cannot."""
        ledger = self._open_ledger({})
        owed = ledger.owed()
        flushing = ledger.flushing = PendingSettlement(owed, self._postings_of(ledger, owed))
        try:
            if flushing.postings:
                yield from self._book(flushing)
                self._announce(flushing)
            ledger.booked(owed)
        except BaseException as error:
            self._note_flushed(ledger, error)
            raise

    def _commit(self) -> Plan[None]:
        """Keep everything taken and adjusted so far, whatever happens to the body."""
        self._open_ledger({}).keep = True
        yield from self._flush()

    # Beginning and end

    def _begin(self) -> Plan[None]:
        """Take the tokens."""
        options = self._options
        asked = AcquireArguments(
            check_entity_id(self._entity_id),
            check_resource(self._resource),
            check_consume(self._consume),
            options.limits,
            options.timeout_ms,
            options.on_unavailable,
        )
        self._grant = yield from admit(self._limiter._core, asked, self)
        if self._grant is None:
            self._ledger = Ledger(asked.wanted)
        self._open = True

    def _end(self, failed: bool) -> Plan[None]:
        """Write what the lease owes. Never raises: the work is done, or its own error matters more."""
        grant = self._granted
        if grant is None:
            self._open = False
            return
        ledger = self._ledger
        if ledger is None:
            ledger = self._ledger = Ledger(grant.wanted)
        closing = ledger.closing or self._begin_to_close(ledger, failed)
        self._open = False
        if closing.is_done or not closing.all_postings:
            closing.is_done = True
            ledger.is_closed()
            return
        if closing.doubtful:  # this was interrupted, and even the store cannot know how far it got
            self._core.unresolved += 1
            closing.postings, closing.doubtful = debits_of(closing.postings), False
        failure: Exception | None = None
        started = yield READ_TIMER
        for pause in PAUSES_MS:
            if not closing.postings or (pause and (yield from READ_TIMER) - started > SETTLE_RETRIES_MS):
                break
            if pause:
                yield from Pause(pause)
            try:
                yield from self._book(closing)
                failure = None
            except Exception as error:
                failure = error if closing.postings else None  # it may be booked all the same
                self._leave_to_repeat(closing, error)
        self._close(ledger, closing, failure)

    def _close(self, ledger: Ledger, closing: PendingSettlement, failure: Exception | None) -> None:
        """Note that what could be booked is, and tell of it; count and log what could not."""
        core = self._core
        if closing.postings:
            core.unresolved += 1
        elif failure is None and (core.waiters or core.observer is not None):
            self._announce(closing)
        closing.is_done = True
        ledger.is_closed()
        if failure is None:
            ledger.booked(closing.owed)
        else:
            logger.error("could not settle %s of %s on %s: %s", closing.owed, self._entity_id, self._resource, failure)

    def _begin_to_close(self, ledger: Ledger, failed: bool) -> PendingSettlement:
        if ledger.taking is not None:
            self._note_taken(ledger, ledger.taking)
        if ledger.flushing is not None:
            self._note_flushed(ledger, None)
        keep = ledger.keep or self._options.on_error is OnError.KEEP
        owed = ledger.owed_on_failure() if failed and not keep else ledger.owed()
        closing = ledger.closing = PendingSettlement(owed, self._postings_of(ledger, owed))
        return closing

    def _leave_to_repeat(self, closing: PendingSettlement, error: Exception) -> None:
        """Leave what is to be booked again: never a credit that may have been booked, for that would mint."""
        if isinstance(error, RateLimiterUnavailable) and error.remaining is not None:
            closing.postings = list(error.remaining)
        elif is_ambiguous(error, closing):
            gives_back = any(delta < 0 for _, deltas in closing.postings for delta in deltas.values())
            self._core.unresolved += gives_back
            closing.postings = debits_of(closing.postings)
        closing.doubtful = False

    # Within

    def _open_ledger(self, named: Mapping[str, int]) -> Ledger:
        """The ledger of an open lease, once every name is one of its limits."""
        if not self._open:
            raise LeaseExpiredError("this lease is not open; use it inside its with block")
        grant = self._granted
        if grant is None:
            for name in named:
                check_limit_name(name)
            return self._ledger or Ledger({})
        own = grant.legs[0]
        for name in named:
            if name not in own.names:
                known = ", ".join(sorted(own.names))
                raise ValidationError(name, named[name], f"is not a limit of this lease; those are {known}")
        if self._ledger is None:
            self._ledger = Ledger(grant.wanted)
            guard = self._ledger.guard = UnsettledGuard()
            guard.counter = self._core
        return self._ledger

    def _flush_if_old(self, ledger: Ledger, timer: int) -> Plan[None]:
        if ledger.pending_since is None or self._grant is None or timer - ledger.pending_since < FLUSH_AFTER_MS:
            return
        try:
            yield from self._flush()
        except RateLimiterUnavailable as error:
            logger.warning("will write pending adjustments later: %s", error)

    def _postings_of(self, ledger: Ledger, owed: Mapping[str, int]) -> list[Posting]:
        """What the store is to book, on every leg."""
        grant = self._granted
        return [] if grant is None else ledger.postings_per_leg(owed, postings(grant.legs, owed), grant.legs)

    def _book(self, closing: PendingSettlement) -> Plan[None]:
        core = self._core
        now = yield READ_CLOCK
        try:
            yield from core.call("settle", core.space.settle(closing.postings, now, closing))
        except Exception as error:
            if closing.postings and core.observer is not None:
                core.tell(Settled(self._entity_id, self._resource, closing.owed, error))
            raise
        closing.postings = ()

    def _announce(self, closing: PendingSettlement) -> None:
        """Tell the observer, and wake the callers that wait for what came back; once."""
        core = self._core
        if closing.is_told:
            return
        closing.is_told = True
        if core.wait_queue and any(delta < 0 for delta in closing.owed.values()):
            core.wait_queue.wake((leg.entity_id, leg.resource) for leg, _ in closing.all_postings)
        if closing.all_postings and core.observer is not None:
            core.tell(Settled(self._entity_id, self._resource, closing.owed, None))

    def _note_flushed(self, ledger: Ledger, error: BaseException | None) -> None:
        """Note what is known to be booked of what was being flushed when an error or an interrupt came."""
        flushing = ledger.flushing
        if flushing is None:
            return
        remaining = flushing.postings
        if isinstance(error, RateLimiterUnavailable) and error.remaining is not None:
            remaining = error.remaining
        if is_ambiguous(error, flushing) and remaining is flushing.all_postings:
            # What may have come back must not come back again: that would mint.
            self._core.unresolved += ledger.assume_given_back()
        elif remaining is flushing.all_postings and remaining:
            ledger.flushing = None
        else:
            ledger.booked_except(flushing.owed, remaining)

    def _note_taken(self, ledger: Ledger, taking: NotedGrant) -> None:
        """Note what was taken while the lease was open, once."""
        before, more = self._granted, taking._grant
        if not isinstance(more, Grant) or before is None or ledger.taking is not taking:
            ledger.taking = None
            return
        also = []
        if any(leg.paid for leg in (*before.legs, *more.legs)):
            legs = paid_by_both(before.legs, before.wanted, more.legs, more.wanted)
            also.append((self, "_grant", before._replace(legs=legs)))
        ledger.took_on_legs(more.legs, more.wanted, before.legs, also)

    def __repr__(self) -> str:
        state = "open" if self._open else "degraded" if self.degraded else "closed"
        return f"<{type(self).__name__} {self._entity_id!r} on {self._resource!r}: {state}>"


def is_ambiguous(error: BaseException | None, closing: PendingSettlement) -> bool:
    """Whether what is left may have been booked."""
    return error.ambiguous if isinstance(error, RateLimiterUnavailable) else closing.doubtful


def lease_options(
    limits: Iterable[Limit] | None,
    timeout: float,
    on_unavailable: OnUnavailable | str | None,
    on_error: OnError | str,
) -> LeaseOptions:
    """The checked options of an acquire."""
    policy = None
    if on_unavailable is not None:
        policy = check_choice(OnUnavailable, on_unavailable, "on_unavailable")
    return LeaseOptions(
        None if limits is None else check_limits(limits),
        round(check_seconds(timeout, "timeout") * 1000),
        policy,
        check_choice(OnError, on_error, "on_error"),
    )
