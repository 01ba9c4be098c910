"""Beginning the life of buckets that are not there, as part of a draw.

One bucket alone is put with what was taken already taken. With other legs everything goes into one transaction, so
that nobody else is denied for the sake of a draw that may still fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.adopting import after_taking
from zae_limiter.stores.dynamodb.bookings import Booking, Verdict
from zae_limiter.stores.dynamodb.items import image_of
from zae_limiter.stores.dynamodb.legs import LegUnderWay
from zae_limiter.stores.dynamodb.plans.asking import Window
from zae_limiter.stores.dynamodb.plans.sharing import THROTTLES_BORNE
from zae_limiter.stores.dynamodb.requests import CONDITION_FAILED, NoAnswer, Refused
from zae_limiter.stores.dynamodb.updates import UpdateParams

if TYPE_CHECKING:
    from zae_limiter.stores.dynamodb.plans.drawing import DrawingPlans


class DrawOfNewBuckets:
    """The part of a draw that creates buckets."""

    space: DrawingPlans
    now: int
    until: Window
    whole: Window
    legs: list[LegUnderWay]
    flight: Sequence[LegUnderWay]

    def hear(self, leg: LegUnderWay, verdict: Verdict) -> None:
        """Note what became of a leg (see ``drawing``)."""
        raise NotImplementedError

    def undo(self, until: Window) -> Plan[None]:
        """Give back what was taken (see ``drawing``)."""
        raise NotImplementedError

    def params_of(self, leg: LegUnderWay) -> UpdateParams:
        """The write of a leg whose bucket is there (see ``drawing``)."""
        raise NotImplementedError

    def create(self) -> Plan[None]:
        """Begin the life of the buckets that are not there; with others, in one transaction."""
        if any(leg.payers for leg in self.legs):
            yield from self._create_untouched()
            return
        if any(leg.done or (leg.doubtful and not leg.inc) for leg in self.legs):
            yield from self.undo(self.whole)
            if any(leg.image is None and leg.key != leg.first for leg in self.legs):
                return  # the shard is gone: a bucket begins with its first
        space = self.space
        if len(self.legs) == 1:
            leg = self.legs[0]
            call = space.call_to_create(leg, leg.terms, self.now, self.until)
            self.flight = self.legs
            (answer,) = yield from space.ask_together([call])
            leg.note(answer)
            self.flight = ()  # not before: an interrupt may come between any two lines
            if not isinstance(answer, (Refused, NoAnswer)):
                answer = {"Attributes": call.params["Item"]}
            self.hear(leg, (yield from space.verdict(leg.key, answer, self.now)))
        else:
            yield from self._create_in_transaction()
        for leg in self.legs:
            if leg.done:
                yield from space.check_terms_of_new(leg.key, leg.terms, self.now, self.until)

    def _create_untouched(self) -> Plan[None]:
        """Begin the life of the buckets that are not there, full: what several shards paid elsewhere stays paid."""
        space = self.space
        for leg in self.legs:
            if leg.image is not None:
                continue
            new = Booking(leg.key, leg.leg, {})
            new.nonce = space.marks.nonce(self.now)
            call = space.call_to_create(new, leg.terms, self.now, self.until)
            (answer,) = yield from space.ask_together([call])
            if not isinstance(answer, (Refused, NoAnswer)):
                leg.image = yield from space.see(leg.key, image_of(call.params["Item"]), self.now)
                yield from space.check_terms_of_new(leg.key, leg.terms, self.now, self.until)
            else:
                self.hear(leg, (yield from space.verdict(leg.key, answer, self.now)))

    def _create_in_transaction(self) -> Plan[None]:
        space = self.space
        writes: list[dict[str, Any]] = []
        for leg in self.legs:
            if leg.image is not None:
                writes.append({"Update": dict(self.params_of(leg))})
            else:
                writes.append({"Put": space.call_to_create(leg, leg.terms, self.now, self.until).params})
        self.flight = self.legs
        doubts: list[NoAnswer] = []
        try:
            reasons = yield from space.asking.transact(writes, self.until, doubts)
        except Refused as refusal:
            for leg in self.legs:
                leg.doubtful = leg.doubtful or bool(doubts)
            if not refusal.by_throttling:
                raise
            for leg in self.legs:  # a key takes no more writes: load, not an outage
                leg.throttled = THROTTLES_BORNE + 1
            self.flight = ()
            return
        except NoAnswer as silence:
            for leg in self.legs:
                leg.doubtful = leg.doubtful or silence.sent
            raise
        if not reasons:
            for leg in self.legs:
                leg.done = True
        self.flight = ()
        if not reasons:
            for leg, write in zip(self.legs, writes, strict=True):
                if "Put" in write:
                    leg.image = yield from space.see(leg.key, image_of(write["Put"]["Item"]), self.now)
                elif leg.image is not None:
                    leg.image = after_taking(leg.image, leg.terms, leg.deltas, self.now, leg.nonce)
                    space.images.see(leg.key, leg.image, self.now)
            return
        for leg, reason in zip(self.legs, reasons, strict=True):
            leg.doubtful = leg.doubtful or bool(doubts)
            if reason.code is not None:
                failed = Refused(CONDITION_FAILED, item=reason.item)
                self.hear(leg, (yield from space.verdict(leg.key, failed, self.now)))
