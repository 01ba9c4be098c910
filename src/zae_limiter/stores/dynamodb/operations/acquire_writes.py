"""How the legs of an acquire are written: to a bucket that is there, in short where nothing is unusual, else in full;
and to one that is not, whose life begins.

A bucket that is not there alone is put with what was taken already taken. With other legs everything goes into one
transaction, so that no other caller is denied for the sake of an acquire that may still fail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot, snapshot_of
from zae_limiter.stores.dynamodb.bucket_write import BucketWrite, WriteEvent
from zae_limiter.stores.dynamodb.config_versions import after_taking
from zae_limiter.stores.dynamodb.expressions import UpdateParams
from zae_limiter.stores.dynamodb.intents import NOTHING, Intent
from zae_limiter.stores.dynamodb.operations.acquire_legs import AcquireLeg, count_before
from zae_limiter.stores.dynamodb.operations.acquire_payers import THROTTLES_BORNE
from zae_limiter.stores.dynamodb.plain_writes import plain_draw
from zae_limiter.stores.dynamodb.requests import CONDITION_FAILED, NoAnswer, Reason, Refused
from zae_limiter.stores.dynamodb.write_load import WRITE

if TYPE_CHECKING:
    from zae_limiter.stores.dynamodb.operations.acquire import Acquire


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
    """The same where something is unusual (see ``plain_writes``)."""
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
            leg.snapshot = after_taking(
                *(leg.snapshot, leg.terms, leg.deltas, acquire.now, leg.write_id),
                slots=leg.slots,
                watched=leg.watched,
            )
            parts.cache.see(leg.key, leg.snapshot, acquire.now)


def _hear_reasons(acquire: Acquire, reasons: Sequence[Reason]) -> Plan[None]:
    """Learn from a transaction that was cancelled how the buckets are."""
    for leg, reason in zip(acquire.legs, reasons, strict=True):
        if reason.code is not None:
            failed = Refused(CONDITION_FAILED, item=reason.item)
            acquire.hear(leg, (yield from acquire.parts.writer.result(leg.key, failed, acquire.now)))
