"""Beginning the life of buckets that are not there, as part of a draw.

One bucket alone is put with what was taken already taken. With other legs everything goes into one transaction, so
that nobody else is denied for the sake of a draw that may still fail.
"""

from __future__ import annotations

from typing import Any

from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.adopting import after_taking
from zae_limiter.stores.dynamodb.bookings import Booking
from zae_limiter.stores.dynamodb.items import image_of
from zae_limiter.stores.dynamodb.plans.sharing import THROTTLES_BORNE
from zae_limiter.stores.dynamodb.plans.taking import Taking
from zae_limiter.stores.dynamodb.requests import CONDITION_FAILED, NoAnswer, Refused


def create(taking: Taking) -> Plan[None]:
    """Begin the life of the buckets that are not there; with others, in one transaction."""
    if any(leg.payers for leg in taking.legs):
        yield from _create_untouched(taking)
        return
    if any(leg.done or (leg.doubtful and not leg.inc) for leg in taking.legs):
        yield from taking.undo(taking.whole)
        if any(leg.image is None and leg.key != leg.first for leg in taking.legs):
            return  # the shard is gone: a bucket begins with its first
    space = taking.space
    if len(taking.legs) == 1:
        leg = taking.legs[0]
        call = space.writer.call_to_create(leg, leg.terms, taking.now, taking.until)
        taking.flight = taking.legs
        (answer,) = yield from space.writer.ask_together([call])
        leg.note(answer)
        taking.flight = ()  # not before: an interrupt may come between any two lines
        if not isinstance(answer, (Refused, NoAnswer)):
            answer = {"Attributes": call.params["Item"]}
        taking.hear(leg, (yield from space.writer.verdict(leg.key, answer, taking.now)))
    else:
        yield from _create_in_transaction(taking)
    for leg in taking.legs:
        if leg.done:
            yield from space.propagation.check_terms_of_new(leg.key, leg.terms, taking.now, taking.until)


def _create_untouched(taking: Taking) -> Plan[None]:
    """Begin the life of the buckets that are not there, full: what several shards paid elsewhere stays paid."""
    space = taking.space
    for leg in taking.legs:
        if leg.image is not None:
            continue
        new = Booking(leg.key, leg.leg, {})
        new.nonce = space.marks.nonce(taking.now)
        call = space.writer.call_to_create(new, leg.terms, taking.now, taking.until)
        (answer,) = yield from space.writer.ask_together([call])
        if not isinstance(answer, (Refused, NoAnswer)):
            leg.image = yield from space.writer.see(leg.key, image_of(call.params["Item"]), taking.now)
            yield from space.propagation.check_terms_of_new(leg.key, leg.terms, taking.now, taking.until)
        else:
            taking.hear(leg, (yield from space.writer.verdict(leg.key, answer, taking.now)))


def _create_in_transaction(taking: Taking) -> Plan[None]:
    space = taking.space
    writes: list[dict[str, Any]] = []
    for leg in taking.legs:
        if leg.image is not None:
            writes.append({"Update": dict(taking.params_of(leg))})
        else:
            writes.append({"Put": space.writer.call_to_create(leg, leg.terms, taking.now, taking.until).params})
    taking.flight = taking.legs
    doubts: list[NoAnswer] = []
    try:
        reasons = yield from space.asking.transact(writes, taking.until, doubts)
    except Refused as refusal:
        for leg in taking.legs:
            leg.doubtful = leg.doubtful or bool(doubts)
        if not refusal.by_throttling:
            raise
        for leg in taking.legs:  # a key takes no more writes: load, not an outage
            leg.throttled = THROTTLES_BORNE + 1
        taking.flight = ()
        return
    except NoAnswer as silence:
        for leg in taking.legs:
            leg.doubtful = leg.doubtful or silence.sent
        raise
    if not reasons:
        for leg in taking.legs:
            leg.done = True
    taking.flight = ()
    if not reasons:
        for leg, write in zip(taking.legs, writes, strict=True):
            if "Put" in write:
                leg.image = yield from space.writer.see(leg.key, image_of(write["Put"]["Item"]), taking.now)
            elif leg.image is not None:
                leg.image = after_taking(leg.image, leg.terms, leg.deltas, taking.now, leg.nonce)
                space.images.see(leg.key, leg.image, taking.now)
        return
    for leg, reason in zip(taking.legs, reasons, strict=True):
        leg.doubtful = leg.doubtful or bool(doubts)
        if reason.code is not None:
            failed = Refused(CONDITION_FAILED, item=reason.item)
            taking.hear(leg, (yield from space.writer.verdict(leg.key, failed, taking.now)))
