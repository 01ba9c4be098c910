"""Acquire: one conditional write per bucket, all of them or none.

The path of one acquire: resolve the terms (remembered), guess from the buckets as they were last seen (remembered),
write every leg. A refused write brings the bucket as it is, and with it either the right guess or the denial. Legs
are written independently, together when all look healthy and the child first otherwise, and given back when another
leg lacks.

Most acquires are *warm* (``acquire_legs``): every leg is remembered, and its first write is granted.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from zae_limiter.exceptions import AccessBlocked
from zae_limiter.models.access import Access, strictest
from zae_limiter.models.choices import AccessMode
from zae_limiter.models.holds import Hold
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.batching import BatchingWriter, Beside, note_interrupt
from zae_limiter.stores.dynamodb.bucket_cache import BucketCache, newest
from zae_limiter.stores.dynamodb.bucket_write import (
    TRIES_AT_ONCE,
    BucketWrite,
    BucketWriter,
    SeenBucket,
    WriteResult,
)
from zae_limiter.stores.dynamodb.config_resolver import ConfigResolver, Prefetched
from zae_limiter.stores.dynamodb.config_versions import is_fence, may_follow
from zae_limiter.stores.dynamodb.intents import NOTHING
from zae_limiter.stores.dynamodb.namespace import LOOK_EVERY_MS, OLDEST_MS, Namespace
from zae_limiter.stores.dynamodb.operations.acquire_legs import (
    THROTTLES_BORNE,
    AcquireLeg,
    count_before,
    denial_of,
    denial_under_load,
    look_healthy,
    versions_seen,
    warm_grant,
    warm_legs,
    watches,
)
from zae_limiter.stores.dynamodb.operations.acquire_sharded import (
    adopt_all,
    change_shards,
    choose_shard,
    divide,
    look_again,
    look_at,
    look_elsewhere,
    meets_newer_terms,
)
from zae_limiter.stores.dynamodb.operations.acquire_writes import RecordedAcquire, create, params_of
from zae_limiter.stores.dynamodb.operations.denials import keep_denial, write_due_denials
from zae_limiter.stores.dynamodb.operations.leases import LeaseRecords
from zae_limiter.stores.dynamodb.operations.propagate import Propagation
from zae_limiter.stores.dynamodb.operations.settle import SettlementWriter
from zae_limiter.stores.dynamodb.requests import (
    KEY_THROTTLED,
    READ_MACHINE_TIME,
    Contended,
    DeadlineOver,
    NoAnswer,
    Refused,
)
from zae_limiter.stores.dynamodb.schema import Key, bucket_key, shard_of
from zae_limiter.stores.dynamodb.slot_work import SettleWork, shard_and_inc
from zae_limiter.stores.dynamodb.table_client import Deadline, TableClient, error_of, verb
from zae_limiter.stores.dynamodb.write_ids import WriteIds
from zae_limiter.stores.dynamodb.write_load import is_overloaded
from zae_limiter.stores.protocol import Denial, Draw, Grant, HoldChange, Outcome

SHARE_FOR_TAKING = 3 / 4
"""The part of the deadline in which several legs are written; the rest is for giving back."""


@dataclass(slots=True)
class AcquireParts:
    """The parts of a namespace that an acquire works with."""

    namespace: Namespace
    client: TableClient
    cache: BucketCache
    write_ids: WriteIds
    resolver: ConfigResolver
    writer: BucketWriter
    batching: BatchingWriter
    propagation: Propagation
    settling: SettlementWriter
    leases: LeaseRecords


@dataclass(slots=True, eq=False)
class Acquire:
    """One draw, from its first guess to its outcome."""

    parts: AcquireParts
    draw: Draw
    now: int
    deadline: Deadline = field(init=False)
    whole: Deadline = field(init=False)
    """The deadline, with the time for giving back."""
    legs: Sequence[AcquireLeg] = ()
    flight: Sequence[AcquireLeg] = ()
    failure: Refused | NoAnswer | None = None
    overtaken: int = 0
    """So often others were faster."""
    seen_before: dict[Key, str] = field(default_factory=dict)
    backs: list[BucketWrite] = field(default_factory=list)
    record: RecordedAcquire | None = None
    switches: tuple[Access, ...] = ()
    looked_beside: bool = False
    """The wide switches were looked at with the first write, and say whether it may stay."""
    observing: bool = False
    """A switch says that what is refused is let through."""

    @classmethod
    def run(cls, parts: AcquireParts, draw: Draw, now: int) -> Plan[Outcome]:
        """The verb of every acquire: a grant or a denial. Whatever goes wrong, nothing stays taken that can be given
        back."""
        self = cls(parts, draw, now)
        try:
            started, epoch_s, error_ms, checked = yield READ_MACHINE_TIME
            give_up_at, moment = started + parts.client.deadline_ms, next(parts.client.moments)
            self.deadline = self.whole = Deadline(started, give_up_at, epoch_s, moment, error_ms, checked)
            if checked:
                self.now = parts.cache.corrected(self.now, error_ms)
            elif parts.namespace.known_ns is not None:  # the clock was set
                self.now, self.whole = yield from parts.namespace.checked_time(self.now, self.deadline)
                self.deadline = self.whole
            if parts.resolver.watch.switches:
                yield from self._check_access()
            legs = warm_legs(self)
            granted = (yield from self._write_warm(legs)) if legs else None
            if granted is not None:
                return granted
            outcome = yield from self._outcome(begun=bool(legs))
            if self.observing and isinstance(outcome, Denial):
                outcome.observed = True
            keep_denial(self, outcome)
            return outcome
        except (Refused, NoAnswer) as failure:
            raise error_of(failure) from (failure.__cause__ or failure)
        except GeneratorExit:
            raise
        except BaseException as stop:
            # An interrupt, at a request or anywhere else, or an unforeseen error.
            yield from self._give_up(stop)
            raise

    @verb
    def _give_up(self, stop: BaseException) -> Plan[None]:
        """Give back what was taken, and raise again what stopped the draw."""
        note_interrupt(stop, self.flight)
        self.flight = ()
        try:
            if self.record is not None:
                yield from self.record.undo((yield from self.parts.client.new_deadline()))
                raise stop
            yield from self.undo((yield from self.parts.client.new_deadline()))
        except (Refused, NoAnswer):
            self.parts.writer.unresolved += 1
        raise stop

    def _look_beside(self) -> Beside | None:
        """The look at the wide switches that goes out with a write: it is time for one."""
        found = self.parts.resolver.watch.look_beside(self.deadline)
        return None if found is None else Beside(*found)

    def _check_access(self, switches: tuple[Access, ...] = ()) -> Plan[None]:
        """Raise ``AccessBlocked`` if a switch says so, by these of its entities or by a wide one.

        What blocks is looked at again when that is due: a blocked client writes nothing, and would learn nothing else.
        """
        watch, resource, timer = self.parts.resolver.watch, self.draw.resource, self.deadline.started
        access = strictest((*switches, *watch.concerning(resource)), self.now)
        if watch.age_ms(timer) >= OLDEST_MS or (_blocks(access) and watch.is_due(timer)):
            yield from watch.look(self.deadline)
            access = strictest((*switches, *watch.concerning(resource)), self.now)
        if access is not None and _blocks(access):
            raise AccessBlocked(self.draw.entity_id, resource, access)
        self.observing = access is not None

    def _write_warm(self, legs: Sequence[AcquireLeg]) -> Plan[Grant | None]:
        """Write the legs of a warm draw at once. The grant, if that was all there is to do."""
        parts, self.legs = self.parts, legs
        for leg in legs:
            leg.write_id = parts.write_ids.write_id(self.now)
        if len(legs) > 1:
            self._keep_time_to_give_back()
        is_due = self.deadline.started - parts.resolver.watch.looked_at >= LOOK_EVERY_MS
        beside = self._look_beside() if is_due else None
        yield from parts.batching.post(legs, partial(params_of, self), self.now, self.deadline, beside)
        if beside is not None:
            self.looked_beside = True
            return None
        return warm_grant(self.draw, legs, self.now)

    def _keep_time_to_give_back(self) -> None:
        """There are several legs: a part of the time is for giving back what some of them take."""
        time = int(self.parts.client.deadline_ms * SHARE_FOR_TAKING)
        self.deadline = self.whole._replace(give_up_at=self.whole.started + time)

    def _outcome(self, *, begun: bool) -> Plan[Outcome]:
        """The outcome; ``begun``: there is a leg, and its first write has a result."""
        if self.draw.record is not None:
            self.record = RecordedAcquire(self, self.draw.record)
        try:
            fresh = False
            while True:
                outcome = yield from (self._go_on() if begun else self._attempt(fresh))
                begun = False
                if outcome is not None:
                    return (yield from self._surely(outcome))
                yield from self.undo(self.whole)
                self.seen_before = versions_seen(self.legs, self.parts.cache)
                fresh = True
        except (Refused, NoAnswer) as failure:
            undone = True
            try:
                if self.record is not None and (granted := (yield from self.record.fence(self.whole))) is not None:
                    return granted
                yield from self.undo(self.whole)
            except (Refused, NoAnswer):
                undone = False
            if self._is_load(failure):
                self.parts.writer.unresolved += not undone
                return denial_under_load(self.draw, self.legs, self.parts.cache, self.now)
            if not undone:
                raise NoAnswer(str(failure)) from failure
            if isinstance(failure, NoAnswer):
                raise NoAnswer(str(failure), sent=False, misconfigured=failure.misconfigured) from failure
            raise

    def _go_on(self) -> Plan[Outcome | None]:
        """Go on from the first write, if the switches that were looked at beside it let it stay."""
        self._hear_all(self.legs)
        if self.looked_beside:
            yield from self._check_access()
        return (yield from self._follow(terms_are_fresh=False, tries=1))

    def _surely(self, outcome: Outcome) -> Plan[Outcome]:
        """A denial, once it is sure that no try whose answer was lost is done after it."""
        if self.record is None or isinstance(outcome, Grant):
            return outcome
        return (yield from self.record.fence(self.whole)) or outcome

    def _is_load(self, failure: Refused | NoAnswer) -> bool:
        """Whether a draw failed because of others, who write to the same bucket or use up what the table can take.

        Then DynamoDB is there, and the draw is not let through, even if in the end an answer was missing, or if it
        only waited for another draw of this client, which met load.
        """
        if isinstance(failure, Refused):
            return failure.by_load
        loaded = self.parts.client.loaded_at > self.whole.moment
        return loaded or isinstance(failure, Contended) or self.overtaken > TRIES_AT_ONCE

    def _attempt(self, fresh: bool) -> Plan[Outcome | None]:
        """One set of terms. ``None``: they are too old, and were not obeyed."""
        parts = self.parts
        prefetched: Prefetched = {}
        route = yield from parts.resolver.terms_for(self.draw, self.deadline, fresh=fresh, prefetched=prefetched)
        ns = yield from parts.namespace.ns(self.deadline)
        if route.switches and not route.fresh and self.deadline.started - route.read_ms >= LOOK_EVERY_MS:
            return None  # what blocks must be recent: a blocked client writes nothing, and would learn nothing else
        if not self.deadline.checked:  # the first draw of its process: what it has just read tells the time
            self.now, self.whole = yield from parts.namespace.checked_time(self.now, self.deadline)
            self.deadline = self.whole
        self.switches = route.switches
        yield from self._check_access(route.switches)
        self.legs = [
            AcquireLeg(bucket_key(ns, terms.leg.entity_id, terms.leg.resource), terms, self.draw)
            for terms in route.terms
        ]
        if len(self.legs) > 1 or self.record is not None:
            self._keep_time_to_give_back()
        for leg in self.legs:
            leg.write_id = parts.write_ids.write_id(self.now)
            leg.snapshot = parts.cache.last_seen(leg.key)
        are_known = all(leg.snapshot is not None for leg in self.legs)
        if are_known and any(leg.is_denied_still(parts.cache, self.now) for leg in self.legs):
            return denial_of(self.draw, self.legs, parts.cache, self.now)
        yield from look_at(self, [leg for leg in self.legs if leg.snapshot is None], prefetched)
        if parts.cache.sharded:
            for leg in self.legs:
                yield from choose_shard(self, leg)
        shut = [leg for leg in self.legs if parts.cache.is_shut(leg.key, THROTTLES_BORNE, self.now)]
        for leg in shut:
            leg.throttled = THROTTLES_BORNE + 1
        if shut:
            return (yield from self._deny_under_load())
        return (yield from self._follow(terms_are_fresh=route.fresh))

    def _follow(self, *, terms_are_fresh: bool, tries: int = 0) -> Plan[Outcome | None]:
        """Try until every leg is written, or one lacks. ``None``: its terms are too old."""
        while pending := [leg for leg in self.legs if not leg.done]:
            if not all(self.may_write(leg) for leg in pending):
                return None
            denied = yield from self._make_way(pending)
            if isinstance(denied, Denial):
                return denied
            if denied is None:
                continue
            is_new = any(leg.snapshot is None for leg in pending)
            if is_new and not terms_are_fresh:
                return None  # a new bucket obeys what holds now, not what was remembered
            repeated = yield from self._write(pending, is_new)
            if repeated is not None:
                return repeated
            tries += 1
            if any(not leg.done for leg in self.legs):
                yield from self.parts.writer.pause(tries, self.deadline, self.failure or Contended())
        for leg in self.legs:
            if leg.snapshot is not None and is_overloaded(leg.snapshot, max(self.now, newest(leg.snapshot))):
                yield from divide(self, leg)
        return self._grant()

    def _make_way(self, pending: Sequence[AcquireLeg]) -> Plan[Denial | bool | None]:
        """What must be done before these legs are written: the denial, if one lacks; ``None`` if something changed,
        and they are to be looked at again; True if they can be written."""
        if (yield from look_again(self, pending)):
            return None
        for leg in pending:
            if leg.doubtful and not leg.is_possible(self.now):
                yield from self.parts.writer.void(leg, self.now, self.deadline)
                return None
        if any(leg.throttled > THROTTLES_BORNE for leg in pending):
            return (yield from self._deny_under_load())
        if self.parts.namespace.denials.unwritten and (yield from write_due_denials(self, pending)):
            return None
        drained = next((leg for leg in pending if leg.fresh and not leg.payers and leg.lacks(self.now)), None)
        if drained is not None:
            return None if (yield from look_elsewhere(self, drained)) else (yield from self._deny())
        changed = yield from change_shards(self, pending)  # where it is now may obey other terms, or lack
        return None if changed else True

    def may_follow(self, leg: AcquireLeg, key: Key, theirs: str) -> bool:
        """Whether a bucket that obeys ``theirs`` may obey our terms from now on."""
        seen_before = self.seen_before.get(key) == theirs
        return theirs == leg.terms.cv or may_follow(leg.terms.cv, theirs, seen_before=seen_before)

    def may_write(self, leg: AcquireLeg) -> bool:
        """Whether the bucket of a leg, as it was seen, may obey our terms."""
        return leg.snapshot is None or self.may_follow(leg, leg.key, leg.snapshot.cv)

    # Writing

    def _write(self, pending: Sequence[AcquireLeg], is_new: bool) -> Plan[Grant | None]:
        """Write all of them at once if they look healthy, else the first alone; in one transaction if some are new.

        A draw that is recorded is one transaction, or finds that the same request was granted before.
        """
        if self.record is not None:
            return (yield from self.record.write())
        if is_new:
            yield from create(self)
            return None
        legs = pending if not watches(pending) and look_healthy(self, pending) else pending[:1]
        if watches(self.legs):
            for leg in legs:
                count_before(self.legs, leg)
        beside = self._look_beside() if self.parts.resolver.watch.is_due(self.deadline.started) else None
        yield from self.parts.batching.post(legs, partial(params_of, self), self.now, self.deadline, beside)
        self._hear_all(legs)
        if beside is not None and self.parts.resolver.watch.switches:
            yield from self._check_access(self.switches)
        return None

    # Hearing

    def _hear_all(self, legs: Sequence[AcquireLeg]) -> None:
        for leg in legs:
            assert leg.result is not None
            self.hear(leg, leg.result)

    def hear(self, leg: AcquireLeg, result: WriteResult) -> None:
        """Note what became of a leg."""
        if isinstance(result, SeenBucket):
            if not result.done:
                self.failure = Contended()
                self.overtaken += 1
            leg.seen(result, self.now)
            return
        if isinstance(result, DeadlineOver):
            raise self.failure or result
        if isinstance(result, NoAnswer):
            if result.final:
                raise result
        elif result.code == KEY_THROTTLED:
            leg.throttled += 1
            leg.is_hot = True
        elif not (result.by_throttling or result.by_conflict):
            raise result
        self.failure = result

    def undo(self, deadline: Deadline) -> Plan[None]:
        """Give back what was taken, and make sure that what may have been taken is given back or never will be."""
        self.flight = ()
        for leg in self.legs:
            if leg.doubtful and not leg.done:
                yield from self.parts.writer.void(leg, self.now, deadline)
        taken = [leg for leg in self.legs if leg.done]
        if taken or self.backs:
            for leg in taken:
                backs = [
                    BucketWrite(key, leg.leg, {name: -delta for name, delta in deltas.items()}, grants=-(not place))
                    for place, (key, deltas) in enumerate(leg.payment())
                ]
                if leg.work is not None:
                    _give_slots_back(leg, backs)
                # GIVEN_BACK. No signal comes between these: nothing is called.
                backs = [*self.backs, *backs]
                leg.done, leg.payers, leg.denials, self.backs = False, (), NOTHING, backs
                leg.begin_anew(self.parts.write_ids.write_id(self.now))
            # Should this be interrupted, it goes on where it was.
            yield from self.parts.settling.write_all(self.backs, self.now, deadline)
            self.backs = []
            for leg in taken:
                leg.snapshot = self.parts.cache.last_seen(leg.key)

    # Outcomes

    def _grant(self) -> Grant:
        now = max(self.now, *[leg.granted_at for leg in self.legs])
        balances = [balance for leg in self.legs for balance in leg.whole(self.parts.cache, now)]
        legs = tuple(leg.paid_leg() for leg in self.legs)
        record = None if self.record is None else self.record.written
        left, holds = [balance.left(now) for balance in balances], tuple(self.holds())
        return Grant(legs, self.draw.wanted, balances, left, now, holds=holds, record=record)

    def holds(self) -> list[Hold]:
        """What all legs hold of calls in flight."""
        return [hold for leg in self.legs for hold in leg.holds()]

    def _deny(self) -> Plan[Denial | None]:
        """Give back, look at every leg, and say what lacks. ``None``: by now nothing does, or other terms hold."""
        yield from self.undo(self.whole)
        with suppress(Refused, NoAnswer):  # it lacks all the same; the others are told as they were last seen
            yield from look_at(self, [leg for leg in self.legs if not leg.fresh])
        for leg in self.legs:
            if leg.short(self.parts.cache, self.now) and meets_newer_terms(self, leg):
                assert leg.snapshot is not None
                if not is_fence(leg.snapshot.cv):  # which is being removed
                    return None  # what lacks by our terms may be there by those: they are resolved again
        for leg in self.legs:
            if leg.is_stale_anywhere(self.parts.cache) and leg.short(self.parts.cache, self.now):
                # New terms reach every shard even if the draw is denied: a raised burst must not stay refused, and
                # the wait that is told is that of shards which all obey them.
                with suppress(Refused, NoAnswer):  # it lacks all the same; the next draw writes them
                    yield from adopt_all(self, leg)
        if not any(leg.short(self.parts.cache, self.now) for leg in self.legs):
            return None
        found = denial_of(self.draw, self.legs, self.parts.cache, self.now)
        for leg in self.legs:
            leg.remember_denial(self.parts.cache, self.now)
        return found

    def _deny_under_load(self) -> Plan[Denial]:
        """The bucket's own key takes no more writes for now."""
        yield from self.undo(self.whole)
        return denial_under_load(self.draw, self.legs, self.parts.cache, self.now)


def _give_slots_back(leg: AcquireLeg, backs: Sequence[BucketWrite]) -> None:
    """Let these writes, one for each shard that paid, end the holds of a leg that is undone."""
    assert leg.work is not None
    for place, write in enumerate(backs):
        ends = [
            HoldChange(hold, -hold.amount) for hold in leg.holds() if shard_and_inc(hold)[0] == shard_of(write.key)
        ]
        write.work = SettleWork(ends, undo=True, unrefused=frozenset() if place else leg.work.refused)
        write.leg = leg.paid_leg()


def _blocks(access: Access | None) -> bool:
    return access is not None and access.mode is AccessMode.BLOCK
