"""What a lease does, written once as plans; ``lease.py`` and ``sync_lease.py`` run them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from zae_limiter.exceptions import ConfigurationError, LeaseExpiredError, LeaseNotFoundError, RateLimiterUnavailable
from zae_limiter.lease.admission import AcquireArguments, admit
from zae_limiter.lease.hold_renewal import renew_holds
from zae_limiter.lease.lease_end import begin_to_close, book_until_done, note_end, note_flushed
from zae_limiter.lease.lease_holds import postings_with_changed_holds
from zae_limiter.lease.lease_options import KEEP, LeaseIdentity, LeaseOptions
from zae_limiter.lease.ledger import Ledger, PendingSettlement, open_ledger, paid_by_both, postings
from zae_limiter.lease.local_admission import settle_local
from zae_limiter.lease.recorded_end import close_recorded, end_recorded, write_record
from zae_limiter.lease.recorded_ledger import RecordedLedger, ledger_to_detach, unwritten_record
from zae_limiter.models.choices import OnUnavailable
from zae_limiter.models.events import Decided, Settled, StoreCalled
from zae_limiter.models.holds import Hold
from zae_limiter.models.status import LimitStatus
from zae_limiter.naming import check_consume, check_entity_id, check_resource
from zae_limiter.repository.core import Core
from zae_limiter.running.plan import READ_CLOCK, Plan
from zae_limiter.stores.lease_records import (
    TOKEN_PREFIX,
    LeaseRecord,
    RecordRequest,
    RecordState,
    fingerprint_of,
)
from zae_limiter.stores.protocol import DeferredGrant, Denial, FastPath, Grant, NotedGrant, Posting


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
    _open: object  # while it is open the mark by which its buckets are known to have open leases, then False

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
            grant = self._grant = grant[0].grant(grant)
        return grant

    # What a caller reads

    @property
    def consumed(self) -> dict[str, int]:
        """What this lease consumed so far, per limit, adjustments included. Every leg that has the limit paid it."""
        if self._ledger is None:
            return {} if (grant := self._granted) is None else dict(grant.wanted)
        return {} if self._grant is None else self._ledger.consumed()

    @property
    def id(self) -> str | None:
        """The id of a lease that has a record: the request id it was acquired with, or one of its own."""
        ledger = self._ledger
        return ledger.record.id if isinstance(ledger, RecordedLedger) else None

    @property
    def token(self) -> str | None:
        """What ``limiter.resume()`` goes on with a lease that has a record; ``None`` for one that has none."""
        ledger = self._ledger
        return ledger.record.token if isinstance(ledger, RecordedLedger) else None

    @property
    def already_settled(self) -> bool:
        """Whether the lease was ended elsewhere, under the same request id or token: then nothing is booked here."""
        ledger = self._ledger
        return isinstance(ledger, RecordedLedger) and ledger.is_settled_elsewhere

    @property
    def degraded(self) -> bool:
        """Whether the store was unavailable: the caller was let through uncounted, or granted locally."""
        if self._grant is None:
            return self._ledger is not None and self._ledger.observed is None
        return self.local

    @property
    def local(self) -> bool:
        """Whether the store was unavailable and this process granted it from its own share, to be booked on return."""
        return isinstance(self._grant, Grant) and self._grant.local > 0

    @property
    def refused_by(self) -> tuple[LimitStatus, ...]:
        """The limits that would have refused this lease and only watch, by themselves or by an access switch."""
        if (grant := self._granted) is not None:
            return grant.would_refuse
        denial = None if self._ledger is None else self._ledger.observed
        return () if denial is None else tuple(status for status in denial.statuses if status.exceeded)

    @property
    def statuses(self) -> tuple[LimitStatus, ...]:
        """Every limit of every leg, with what the grant left in it."""
        if (grant := self._granted) is not None:
            return grant.statuses
        denial = None if self._ledger is None else self._ledger.observed
        return () if denial is None else denial.statuses

    @property
    def remaining(self) -> dict[str, int]:
        """What is left in the entity's own bucket, per limit, in whole tokens, negative in debt.

        That is what the grant left, less what this lease has settled, adjusted, taken and given back since: what to
        show a caller, without asking the store again. Refill and other callers are not in it. Empty when degraded.
        """
        grant = self._granted
        if grant is None:
            return {}
        consumed, own = self.consumed, grant.legs[0]
        return {
            status.limit_name: status.available
            + grant.wanted.get(status.limit_name, 0)
            - consumed.get(status.limit_name, 0)
            for status in grant.statuses[: len(own.limits)]
        }

    @property
    def holds(self) -> tuple[Hold, ...]:
        """The slots that this lease holds of limits of calls in flight."""
        return () if (grant := self._granted) is None else tuple(hold for hold in grant.holds if hold.amount)

    def _keep_holds(self, path: FastPath) -> object:
        """Let the slots of a deferred grant be renewed, if the call lasts long. The mark of the open lease."""
        keeper, grant = self._limiter._core.keeper, self._grant
        if keeper is not None and grant is not None:
            holds: Any = grant[-1]
            keeper.keep(holds)
        return path.shared_mark.mark

    def _must_give_back(self) -> bool:
        """Whether a lease that owes nothing else has yet to give slots back. Those of a fast path come back here."""
        grant: Any = self._grant
        if grant.__class__ is not tuple:
            return isinstance(grant, Grant) and bool(grant.holds)
        core = self._limiter._core
        if core.waiters or core.observer is not None or not grant[0].end(grant):
            return True
        if core.keeper is not None:
            core.keeper.let_go(grant[-1])
        return False

    # What a caller does

    def _consume_more(self, amounts: Mapping[str, int] | None = None, /, **named: int) -> Plan[None]:
        """Take more, now, from the same buckets: all of it, or ``RateLimitExceeded`` and nothing."""
        more = named if amounts is None else {**amounts, **named}
        ledger = self._open_ledger()
        if self.already_settled:
            raise LeaseExpiredError("this lease was settled elsewhere, and can take no more")
        for name, amount in more.items():
            ledger.check_name(name, amount)
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
        ledger.is_as_granted = False
        taking = ledger.taking = NotedGrant()
        try:
            outcome = yield from admit(self._core, asked, taking)
            if isinstance(outcome, Denial):
                ledger.observed = outcome
        finally:
            self._note_taken(ledger, taking)
        if isinstance(ledger, RecordedLedger):
            yield from write_record(self, ledger)

    def _flush(self) -> Plan[None]:
        """Write pending adjustments now. Raises ``RateLimiterUnavailable`` and keeps them if it cannot."""
        ledger = self._open_ledger()
        if isinstance(ledger, RecordedLedger):
            if ledger.owed() and not ledger.is_settled_elsewhere:
                yield from write_record(self, ledger)
            return
        owed = ledger.owed_if(ledger.totals)
        ledger.is_as_granted = False
        flushing = ledger.flushing = PendingSettlement(owed, self._postings_of_flush(ledger, owed))
        try:
            if flushing.postings:
                yield from self._book(flushing)
                self._announce(flushing)
            ledger.booked(owed)
        except BaseException as error:
            note_flushed(self, ledger, error)
            raise

    def _renew(self) -> Plan[None]:
        """Hold the slots of calls in flight as if they were taken now: for as long again as their limit says.

        Calls that last long are renewed by themselves while their limiter is open. This is for a process that does
        not run in between, or a limiter that was opened with ``keep_holds=False``.
        """
        self._open_ledger()
        holds = self.holds
        if holds:
            yield from renew_holds(self._core, holds)

    def _commit(self) -> Plan[None]:
        """Keep everything taken and adjusted so far, whatever happens to the body."""
        self._open_ledger().keep = True
        yield from self._flush()

    def _close(self, *, refund: bool = False) -> Plan[None]:
        """End the lease now. Raises ``RateLimiterUnavailable``, and leaves it open, if what it owes cannot be written.

        The end of the block does the same, and only logs what it cannot write. With ``refund`` what was taken and not
        settled comes back, as if the body had raised.
        """
        ledger = self._open_ledger()
        if isinstance(ledger, RecordedLedger):
            yield from close_recorded(self, ledger, refund)
        else:
            if refund and not ledger.keep:
                ledger.totals = ledger.totals_on_failure()
            yield from self._flush()
        yield from self._end(failed=False)

    def _detach(self, record_id: str, writer: str, lifetime_ms: int) -> Plan[str]:
        """Write what is pending, and end the block without ending the lease. Repeated, it does the same."""
        ledger, grant = self._open_ledger(), self._granted
        if grant is None:
            raise RateLimiterUnavailable("this lease was let through uncounted: there is nothing to resume")
        if grant.local:
            raise RateLimiterUnavailable("this lease was granted by this process alone: it has no record to resume")
        if not isinstance(ledger, RecordedLedger):
            now = yield from READ_CLOCK
            unwritten = unwritten_record(*(record_id, self._entity_id, self._resource), grant, ledger.written, now)
            ledger = self._ledger = ledger_to_detach(ledger, grant, unwritten, writer)
        if not ledger.is_settled_elsewhere:
            yield from write_record(self, ledger, lifetime_ms)
        # No signal comes between these: nothing is called.
        ledger.is_detached, self._open = True, False
        self._let_go()
        return ledger.record.token

    # Beginning and end

    def _begin(self) -> Plan[None]:
        """Take the tokens, or go on with the lease that took them."""
        options = self._options
        identity = options.identity
        if identity is not None and identity.is_resumed:
            yield from self._resume(identity)
            return
        asked = AcquireArguments(
            check_entity_id(self._entity_id),
            check_resource(self._resource),
            check_consume(self._consume),
            options.limits,
            options.timeout_ms,
            options.on_unavailable,
            record=None if identity is None else self._record_request(identity),
        )
        outcome = yield from admit(self._limiter._core, asked, self)
        grant = self._grant = outcome if isinstance(outcome, Grant) else None
        if grant is None:
            ledger = Ledger(None, asked.wanted)
            ledger.observed = outcome if isinstance(outcome, Denial) else None
            self._ledger = ledger
        else:
            if grant.holds:
                self._keep(grant)
            if grant.record is not None and identity is not None:
                self._ledger = RecordedLedger(grant, grant.record, identity.writer)
        self._open = self._limiter._core.open_leases.mark(() if grant is None else grant.legs)

    def _keep(self, grant: Grant) -> None:
        """Let the slots that it holds be renewed for as long as the lease is open."""
        if grant.holds and self._core.keeper is not None:
            self._core.keeper.keep(grant.holds)

    def _let_go(self) -> None:
        """Renew them no longer."""
        grant, keeper = self._granted, self._core.keeper
        if keeper is not None and grant is not None and grant.holds:
            keeper.let_go(grant.holds)

    def _record_request(self, identity: LeaseIdentity) -> RecordRequest:
        digest = fingerprint_of(self._entity_id, self._resource, self._consume, self._options.limits)
        return RecordRequest(identity.record_id, digest, identity.lifetime_ms, identity.writer)

    def _resume(self, identity: LeaseIdentity) -> Plan[None]:
        """Go on with a lease that was detached, or whose request id is known."""
        core = self._core
        now = yield from READ_CLOCK
        record = yield from core.call("lease_record", core.space.lease_record(identity.record_id, now))
        if record is None or record.state is RecordState.VOID:
            raise LeaseNotFoundError(TOKEN_PREFIX + identity.record_id)
        self._entity_id, self._resource = record.entity_id, record.resource
        grant = record.grant()
        ledger = RecordedLedger(grant, record, identity.writer)
        ledger.is_repeated, ledger.must_close = False, True
        mark = core.open_leases.mark(grant.legs)
        self._ledger, self._grant, self._open = ledger, grant, mark
        if not ledger.is_settled_elsewhere:
            self._keep(grant)

    def _follow(self, record: LeaseRecord) -> None:
        """Settle where the record says that was paid: another process may have taken more."""
        grant = self._granted
        if grant is not None:
            self._grant = grant._replace(legs=record.legs, holds=grant.holds or record.grant().holds)

    def _drawn_observed(self, core: Core, path: FastPath) -> bool | Denial:
        """Draw by the fast path, and tell the observer. Where that cannot decide, the plan does, and tells."""
        started = core.stopwatch()
        drawn: bool | Denial = False
        failure: BaseException | None = None
        try:
            drawn = path.draw(self._consume, core.clock(), self)
        except BaseException as error:
            failure = error
            raise
        finally:
            if drawn or failure is not None:
                namespace, moment = core.when()
                core.tell(StoreCalled("draw", core.stopwatch() - started, failure, namespace, moment))
        if drawn:
            decision = drawn if isinstance(drawn, Denial) else self
            wanted, granted = dict(self._consume), drawn is True
            core.tell(Decided(self._entity_id, self._resource, wanted, granted, decision, 0.0, namespace, moment))
        return drawn

    def _end_at_once(self, failed: bool) -> bool:
        """End without a plan, if the fast path that granted can book what is owed. Returns whether it has ended."""
        grant, core = self._grant, self._limiter._core
        if grant is None or core.observer is not None:
            return False
        path = grant.path if isinstance(grant, Grant) else grant[0]
        ledger = self._ledger or self._open_ledger(at_end=True)
        if path is None or path.lends or not ledger.is_as_granted:
            return False
        totals = ledger.totals
        if failed and not self._keeps(ledger):
            totals = ledger.totals_on_failure()
        if totals:
            try:
                now = core.clock()
            except Exception:
                return False  # the plan asks it again, and logs what it cannot book
            if not path.settle(grant, totals, now, ledger):
                return False
        self._open = False
        if core.waiters:
            self._wake_waiters(ledger.owed_if(totals))
        if failed:
            ledger.totals = totals
        ledger.close()
        return True

    def _end(self, failed: bool) -> Plan[None]:
        """Write what the lease owes. Never raises: the work is done, or its own error matters more."""
        if self._grant is None:
            self._open = False
            return
        ledger = self._ledger or self._open_ledger(at_end=True)
        if isinstance(ledger, RecordedLedger):
            yield from end_recorded(self, ledger, failed)
            self._open = False
            self._let_go()
            return
        closing = ledger.closing or begin_to_close(self, ledger, failed)
        self._open = False
        if not closing.is_done:
            failure = yield from book_until_done(self, closing)
            note_end(self, ledger, closing, failure)
        ledger.close()

    def _keeps(self, ledger: Ledger) -> bool:
        """Whether what was taken is kept if the work fails."""
        return ledger.keep or self._options.on_error is KEEP

    # Within

    def _open_ledger(self, *, at_end: bool = False) -> Ledger:
        """The ledger of a lease that is open, or that comes to its end."""
        if not self._open and not at_end:
            raise LeaseExpiredError("this lease is not open; use it inside its with block")
        ledger = self._ledger
        if ledger is None:
            ledger = self._ledger = open_ledger(self._grant)
            ledger.counter = self._limiter._core
        return ledger

    def _flush_old(self) -> Plan[None]:
        """Write adjustments that have been pending for long; if that fails, later."""
        try:
            yield from self._flush()
        except RateLimiterUnavailable as error:
            core, about = self._core, f"{self._entity_id} on {self._resource}"
            core.health.settlements.failed(error, "adjustments put off", about, core.timer())

    def _postings_of(self, ledger: Ledger, owed: Mapping[str, int]) -> list[Posting]:
        """What the store is to book, on every leg."""
        grant = self._granted
        return [] if grant is None else ledger.postings_per_leg(owed, postings(grant.legs, owed), grant.legs)

    def _postings_of_flush(self, ledger: Ledger, owed: Mapping[str, int]) -> list[Posting]:
        """What the store is to book while the lease is open: it may hold more or fewer slots from then on."""
        grant, postings = self._granted, self._postings_of(ledger, owed)
        if grant is None or not any(leg.held for leg in grant.legs):
            return postings
        postings, new = postings_with_changed_holds(grant, postings, owed)
        if new:
            self._grant = grant._replace(holds=(*grant.holds, *new))
            if self._core.keeper is not None:
                self._core.keeper.keep(new)
        return postings

    def _book(self, closing: PendingSettlement) -> Plan[None]:
        core = self._limiter._core
        now = yield READ_CLOCK
        try:
            if isinstance(grant := self._grant, Grant) and grant.local:
                yield from settle_local(core, closing, grant.local)
                return
            yield from core.call("settle", core.space.settle(closing.postings or (), now, closing))
        except Exception as error:
            failure = core.as_outage(error) if isinstance(error, ConfigurationError) else error
            if closing.postings and core.observer is not None:
                core.tell(Settled(self._entity_id, self._resource, closing.owed, failure, *core.when()))
            if failure is not error:
                raise failure from error
            raise
        if core.local.is_measuring and core.policy(self._options.on_unavailable) is OnUnavailable.LOCAL:
            core.local.note_settled(closing.all_postings)
        closing.postings = ()

    def _announce(self, closing: PendingSettlement) -> None:
        """Tell the observer, and wake the callers that wait for what came back; once."""
        core = self._core
        if closing.is_told:
            return
        closing.is_told = True
        told = closing.told
        self._wake_waiters(told)
        if closing.all_postings and core.observer is not None:
            core.tell(Settled(self._entity_id, self._resource, told, None, *core.when()))

    def _wake_waiters(self, owed: Mapping[str, int]) -> None:
        """Wake the callers that wait for what came back."""
        grant, wait_queue = self._granted, self._core.wait_queue
        if wait_queue and grant is not None and any(delta < 0 for delta in owed.values()):
            wait_queue.wake(leg.place for leg in grant.legs)

    def _note_taken(self, ledger: Ledger, taking: NotedGrant) -> None:
        """Note what was taken while the lease was open, once."""
        before, more = self._granted, taking._grant
        if not isinstance(more, Grant) or before is None or ledger.taking is not taking:
            ledger.taking = None
            return
        also = []
        if more.holds or more.local:
            before = before._replace(holds=(*before.holds, *more.holds), local=before.local or more.local)
            also.append((self, "_grant", before))
            if self._core.keeper is not None:
                self._core.keeper.keep(more.holds)
        if any(leg.paid for leg in (*before.legs, *more.legs)):
            legs = paid_by_both(before.legs, before.wanted, more.legs, more.wanted)
            also.append((self, "_grant", before._replace(legs=legs)))
        ledger.took_on_legs(more.legs, more.wanted, before.legs, also)

    def __repr__(self) -> str:
        state = "open" if self._open else "degraded" if self.degraded else "closed"
        return f"<{type(self).__name__} {self._entity_id!r} on {self._resource!r}: {state}>"
