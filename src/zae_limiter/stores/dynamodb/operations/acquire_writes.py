"""How the legs of an acquire are written: to a bucket that is there, in short where nothing is unusual, else in full;
and to one that is not, whose life begins.

A bucket that is not there alone is put with what was taken already taken. With other legs everything goes into one
transaction, so that no other caller is denied for the sake of an acquire that may still fail.

An acquire that is recorded writes every leg, and the record of the lease, in one transaction. So there is nothing to
give back when a leg lacks, and no leg is ever in doubt. When an answer was lost the record says whether it was done.
While the record is not there the transaction may still arrive; before a caller hears that it was denied, a void record
is written in its place, and the transaction is refused when it comes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot, snapshot_of
from zae_limiter.stores.dynamodb.bucket_write import BucketWrite, WriteEvent
from zae_limiter.stores.dynamodb.config_versions import after_write
from zae_limiter.stores.dynamodb.expressions import UpdateParams, Write
from zae_limiter.stores.dynamodb.intents import NOTHING, Intent
from zae_limiter.stores.dynamodb.operations.acquire_legs import THROTTLES_BORNE, AcquireLeg, count_before
from zae_limiter.stores.dynamodb.operations.acquire_sharded import intents_of_payers
from zae_limiter.stores.dynamodb.operations.leases import bookings_of, put_record, record_of
from zae_limiter.stores.dynamodb.requests import CHECK_FAILED, CONDITION_FAILED, NoAnswer, Reason, Refused
from zae_limiter.stores.dynamodb.schema import Key
from zae_limiter.stores.dynamodb.table_client import Deadline
from zae_limiter.stores.dynamodb.write_forms import plain_draw
from zae_limiter.stores.dynamodb.write_load import WRITE
from zae_limiter.stores.lease_records import (
    DrawRecord,
    LeaseRecord,
    RecordMoved,
    RecordRequest,
)
from zae_limiter.stores.protocol import Grant

if TYPE_CHECKING:
    from zae_limiter.stores.dynamodb.operations.acquire import Acquire
    from zae_limiter.stores.dynamodb.operations.acquire_legs import AcquireLeg


def params_of(acquire: Acquire, leg: AcquireLeg) -> UpdateParams:
    """The write of a leg whose bucket is there."""
    parts, snapshot, now = acquire.parts, leg.snapshot, acquire.now
    assert snapshot is not None
    if (
        leg.doubtful
        or snapshot.cv != leg.terms.cv
        or snapshot.shards != 1
        or snapshot.retired
        or not snapshot.is_plain
    ):
        return _unusual_params(acquire, leg, snapshot)
    if not leg.leg.limits:
        return _unusual_params(acquire, leg, snapshot)  # it may have had some before
    leg.anchor = snapshot.recent_writers[0]
    cached, guesses, refused, age_ms = parts.cache.buckets.get(leg.key), NOTHING, 0, None
    if cached is not None:
        age_ms = now - cached.seen_at
        if cached.rates and not leg.fresh:
            guesses = cached.guesses(now)
        if cached.refused:
            refused = cached.failed(now)
    shape, values = plain_draw(
        snapshot,
        leg.deltas,
        leg.needed,
        now=now,
        write_id=leg.write_id,
        epoch_s=acquire.deadline.epoch_s,
        ttl_margin_s=parts.client.ttl_margin_s,
        guesses=guesses,
        load=WRITE * (snapshot.kilobytes + refused),
        age_ms=age_ms,
        tallies=leg.tallies() if leg.denials or leg.leg.cascaded is not None else NOTHING,
    )
    return UpdateParams(shape, parts.client.table, leg.key, values)


def _unusual_params(acquire: Acquire, leg: AcquireLeg, snapshot: BucketSnapshot) -> UpdateParams:
    """The same where something is unusual (see ``write_forms``)."""
    parts = acquire.parts
    leg.set_anchor()
    sure = leg.can_be_sure()
    if leg.doubtful and not sure:
        parts.writer.unresolved += 1  # no client can tell whether the lost try was done: it may be charged twice
        leg.denials = NOTHING
        leg.begin_anew(parts.write_ids.write_id(acquire.now))
    if leg.work is not None:
        cached = parts.cache.get(leg.key)
        guesses = NOTHING if cached is None or leg.fresh else cached.guesses(acquire.now)
        leg.judge(snapshot, acquire.now, guesses)
    return parts.writer.params(
        leg.key,
        snapshot,
        Intent(
            leg.deltas,
            leg.needed,
            leg.terms if leg.is_stale else None,
            grants=1,
            rebase=sure,
            tallies=leg.tallies(),
            slots=leg.slots,
            watched=leg.watched,
        ),
        max(acquire.now, snapshot.rf + 1) if sure else acquire.now,
        leg.write_id,
        acquire.deadline,
        anchor=leg.anchor if sure else None,
        guess=not leg.fresh,
    )


def create(acquire: Acquire) -> Plan[None]:
    """Begin the life of the buckets that are not there; with others, in one transaction."""
    if any(leg.payers for leg in acquire.legs):
        yield from _create_untouched(acquire)
        return
    if any(leg.done or (leg.doubtful and not leg.inc) for leg in acquire.legs):
        yield from acquire.undo(acquire.whole)
        if any(leg.snapshot is None and leg.key != leg.first for leg in acquire.legs):
            return  # the shard is gone: a bucket begins with its first
        if not all(acquire.may_write(leg) for leg in acquire.legs):
            return  # a change of limits came first: what was undone must not bring our older terms back
    if len(acquire.legs) == 1:
        yield from _create_alone(acquire, acquire.legs[0])
    else:
        yield from _create_in_transaction(acquire)
    for leg in acquire.legs:
        if leg.done:
            propagation = acquire.parts.propagation
            yield from propagation.check_terms_of_new(leg.key, leg.terms, acquire.now, acquire.deadline)


def _create_alone(acquire: Acquire, leg: AcquireLeg) -> Plan[None]:
    writer = acquire.parts.writer
    leg.judge(None, acquire.now)
    call = writer.call_to_create(leg, leg.terms, acquire.now, acquire.deadline)
    acquire.flight = acquire.legs
    (answer,) = yield from writer.ask_together([call])
    leg.note(answer)
    acquire.flight = ()  # not before: an interrupt may come between any two lines
    if not isinstance(answer, (Refused, NoAnswer)):
        answer = {"Attributes": call.params["Item"]}
    acquire.hear(leg, (yield from writer.result(leg.key, answer, acquire.now)))


def _create_untouched(acquire: Acquire) -> Plan[None]:
    """Begin the life of the buckets that are not there, full: what several shards paid elsewhere stays paid."""
    parts = acquire.parts
    for leg in acquire.legs:
        if leg.snapshot is not None:
            continue
        new = BucketWrite(leg.key, leg.leg, {})
        new.write_id = parts.write_ids.write_id(acquire.now)
        call = parts.writer.call_to_create(new, leg.terms, acquire.now, acquire.deadline)
        (answer,) = yield from parts.writer.ask_together([call])
        if not isinstance(answer, (Refused, NoAnswer)):
            leg.snapshot = yield from parts.writer.see(leg.key, snapshot_of(call.params["Item"]), acquire.now)
            yield from parts.propagation.check_terms_of_new(leg.key, leg.terms, acquire.now, acquire.deadline)
        else:
            acquire.hear(leg, (yield from parts.writer.result(leg.key, answer, acquire.now)))


def _create_in_transaction(acquire: Acquire) -> Plan[None]:
    parts, legs = acquire.parts, acquire.legs
    writes: list[Mapping[str, Any]] = []
    for leg in legs:
        count_before(legs, leg)
        if leg.snapshot is not None:
            writes.append({"Update": dict(params_of(acquire, leg))})
        else:
            leg.judge(None, acquire.now)
            call = parts.writer.call_to_create(leg, leg.terms, acquire.now, acquire.deadline)
            writes.append({"Put": call.params})
    acquire.flight = legs
    doubts: list[NoAnswer] = []
    try:
        reasons = yield from parts.client.transact(writes, acquire.deadline, doubts)
    except Refused as refusal:
        _doubt(legs, bool(doubts))
        if not refusal.by_throttling:
            raise
        for leg in legs:  # a key takes no more writes: load, not an outage
            leg.throttled = THROTTLES_BORNE + 1
        acquire.flight = ()
        return
    except NoAnswer as silence:
        _doubt(legs, silence.sent)
        raise
    if not reasons:
        for leg in legs:
            leg.advance(WriteEvent.ANSWERED)
    acquire.flight = ()
    if reasons:
        _doubt(legs, bool(doubts))
        yield from _hear_reasons(acquire, reasons)
    else:
        yield from _see_created(acquire, writes)


def _doubt(legs: Sequence[AcquireLeg], lost: bool) -> None:
    """An answer was lost: each of them may have been done."""
    if lost:
        for leg in legs:
            leg.advance(WriteEvent.LOST)


def _see_created(acquire: Acquire, writes: Sequence[Mapping[str, Any]]) -> Plan[None]:
    """Remember every bucket as the transaction left it."""
    parts = acquire.parts
    for leg, write in zip(acquire.legs, writes, strict=True):
        if "Put" in write:
            leg.snapshot = yield from parts.writer.see(leg.key, snapshot_of(write["Put"]["Item"]), acquire.now)
        elif leg.snapshot is not None:
            intent = Intent(leg.deltas, grants=1, slots=leg.slots, watched=leg.watched)
            leg.snapshot = after_write(leg.snapshot, intent, acquire.now, leg.write_id, leg.terms)
            parts.cache.see(leg.key, leg.snapshot, acquire.now)


def _hear_reasons(acquire: Acquire, reasons: Sequence[Reason]) -> Plan[None]:
    """Learn from a transaction that was cancelled how the buckets are."""
    for leg, reason in zip(acquire.legs, reasons, strict=True):
        if reason.code is not None:
            failed = Refused(CONDITION_FAILED, item=reason.item)
            acquire.hear(leg, (yield from acquire.parts.writer.result(leg.key, failed, acquire.now)))


class RecordedAcquire:
    """The writes of one draw and of its record, as far as they are known."""

    def __init__(self, acquire: Acquire, request: RecordRequest) -> None:
        self.acquire = acquire
        self.record = DrawRecord(request, acquire.draw)
        self.written: LeaseRecord | None = None
        """What this draw has written."""
        self.in_doubt = False
        """A try of it was sent, and its answer was lost."""
        self._intents: dict[Key, Intent] = {}
        """What several shards were last to do together."""

    def write(self) -> Plan[Grant | None]:
        """Try to write every leg and the record. A grant, if the request was granted before."""
        acquire, parts = self.acquire, self.acquire.parts
        writes, spans = self._writes()
        legs = tuple(leg.paid_leg() for leg in acquire.legs)
        grant = Grant(legs, acquire.draw.wanted, (), (), acquire.now, holds=tuple(acquire.holds()))
        record = self.record.granting(grant, acquire.now)
        ns = yield from parts.namespace.ns(acquire.deadline)
        put = put_record(parts.client, ns, record, self.record.expected_version, acquire.now, acquire.deadline)
        doubts: list[NoAnswer] = []
        try:
            reasons = yield from parts.client.transact([*writes, put], acquire.deadline, doubts)
        except BaseException as failure:
            self.in_doubt = self.in_doubt or bool(doubts) or not isinstance(failure, Refused)
            if not isinstance(failure, Refused) or not failure.by_throttling:
                raise
            for leg in acquire.legs:  # a key takes no more writes: load, not an outage
                leg.throttled = THROTTLES_BORNE + 1
            return None
        if not reasons:
            self.written = record
            yield from self._see(writes, spans)
            return None
        self.in_doubt = self.in_doubt or bool(doubts)
        if reasons[-1].code == CHECK_FAILED:
            return self._heard(reasons[-1])
        yield from self._hear(spans, reasons)
        return None

    def _heard(self, reason: Reason) -> Grant | None:
        """The grant that is recorded. ``None``: what is there is void, or has expired, or is gone."""
        return self.record.heard(None if reason.item is None else record_of(reason.item), self.acquire.now)

    def _writes(self) -> tuple[list[Write], list[tuple[AcquireLeg, Sequence[tuple[Key, Mapping[str, int]]]]]]:
        """The writes of all legs, and which of them are whose."""
        acquire, parts = self.acquire, self.acquire.parts
        writes: list[Write] = []
        spans: list[tuple[AcquireLeg, Sequence[tuple[Key, Mapping[str, int]]]]] = []
        self._intents = {}
        for leg in acquire.legs:
            if leg.work is not None:
                count_before(acquire.legs, leg)
            payers = leg.payers or [(leg.key, leg.deltas)]
            spans.append((leg, payers))
            if leg.payers:
                writes += self._updates_of_payers(leg)
            elif leg.snapshot is None:
                leg.judge(None, acquire.now)
                call = parts.writer.call_to_create(leg, leg.terms, acquire.now, acquire.deadline)
                writes.append({"Put": dict(call.params)})
            else:
                writes.append({"Update": dict(params_of(acquire, leg))})
        return writes, spans

    def _updates_of_payers(self, leg: AcquireLeg) -> list[Write]:
        """What several shards pay together."""
        acquire, parts = self.acquire, self.acquire.parts
        updates: list[Write] = []
        shards = {key: cached.snapshot for key, _ in leg.payers if (cached := parts.cache.get(key)) is not None}
        for key, intent in intents_of_payers(leg, dict(leg.payers)).items():
            self._intents[key] = intent
            params = parts.writer.params(key, shards[key], intent, acquire.now, leg.write_id, acquire.deadline)
            updates.append({"Update": dict(params)})
        return updates

    def _see(
        self, writes: Sequence[Write], spans: Sequence[tuple[AcquireLeg, Sequence[tuple[Key, Mapping[str, int]]]]]
    ) -> Plan[None]:
        """Every leg is written: remember the buckets as the transaction left them."""
        acquire, parts = self.acquire, self.acquire.parts
        for leg, _ in spans:
            leg.advance(WriteEvent.ANSWERED)
            leg.granted_at = acquire.now
        left = iter(writes)
        for leg, payers in spans:
            for key, _ in payers:
                write, before = next(left), parts.cache.last_seen(key)
                if "Put" in write:
                    snapshot = snapshot_of(write["Put"]["Item"])
                    yield from parts.writer.see(key, snapshot, acquire.now)
                    yield from parts.propagation.check_terms_of_new(key, leg.terms, acquire.now, acquire.deadline)
                elif before is not None:
                    alone = Intent(leg.deltas, grants=1, slots=leg.slots, watched=leg.watched)
                    intent = self._intents.get(key, alone)
                    after = after_write(before, intent, acquire.now, leg.write_id, leg.terms)
                    parts.cache.see(key, after, acquire.now)
            leg.snapshot = parts.cache.last_seen(leg.key)

    def _hear(
        self,
        spans: Sequence[tuple[AcquireLeg, Sequence[tuple[Key, Mapping[str, int]]]]],
        reasons: Sequence[Reason],
    ) -> Plan[None]:
        """Learn how the buckets are. What several shards were to pay is shared out anew."""
        acquire, parts = self.acquire, self.acquire.parts
        left = iter(reasons)
        for leg, payers in spans:
            for key, _ in payers:
                reason = next(left)
                if reason.code is None:
                    continue
                failed = Refused(CONDITION_FAILED, item=reason.item)
                result = yield from parts.writer.result(key, failed, acquire.now)
                if key == leg.key:
                    leg.inc = ""
                    acquire.hear(leg, result)
            if leg.payers:
                leg.payers, leg.all_seen = (), False
            leg.begin_anew(parts.write_ids.write_id(acquire.now))

    # Doubts

    def fence(self, deadline: Deadline) -> Plan[Grant | None]:
        """Make sure that a try whose answer was lost is never done; the grant, if it was."""
        if not self.in_doubt:
            return None
        parts, now = self.acquire.parts, self.acquire.now
        ns = yield from parts.namespace.ns(deadline)
        while True:
            void = self.record.fencing(now)
            put = put_record(parts.client, ns, void, self.record.expected_version, now, deadline)
            reasons = yield from parts.client.transact([put], deadline)
            if not reasons:
                self.record.seen, self.in_doubt = void, False
                return None
            found = self._heard(reasons[0])
            if found is not None or self.record.is_own_fence():  # written by an earlier try, whose answer was lost
                self.in_doubt = False
                return found

    def undo(self, deadline: Deadline) -> Plan[None]:
        """The caller was interrupted: what was taken comes back, and the record is void."""
        record = self.written
        if record is None:
            found = yield from self.fence(deadline)
            record = None if found is None else found.record
        change = self.record.undoing(record)
        if record is None or change is None:
            return
        parts = self.acquire.parts
        ns = yield from parts.namespace.ns(deadline)
        back = parts.settling.writes_of(ns, record.grant().give_back(), grants=-1)
        with suppress(RecordMoved):  # a repetition of the request was answered by it: the lease goes on there
            yield from parts.leases.book(ns, bookings_of(back), change, self.acquire.now, deadline)
        self.written = None
