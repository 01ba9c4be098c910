"""Booking after the fact: settlements, and giving back what a draw took in vain.

Each booking is one logical write with one mark. It is tried until it is surely done. When an answer was lost, the
ring of the last writers tells whether it was done. If the ring has moved on, nobody can tell: then a debit is booked
again (at worst it is charged twice) and a credit is not (it must never be given twice).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zae_limiter.running.plan import READ_CLOCK, CutShort, Interrupted, Plan
from zae_limiter.stores.dynamodb.items import Image, image_of
from zae_limiter.stores.dynamodb.keys import Key, bucket_key
from zae_limiter.stores.dynamodb.plans.asking import Window
from zae_limiter.stores.dynamodb.plans.resolving import ResolvingPlans
from zae_limiter.stores.dynamodb.requests import Answer, Call, NoAnswer, Refused, Together
from zae_limiter.stores.dynamodb.versions import of_call
from zae_limiter.stores.dynamodb.writes import Terms, Wish, new_item, update
from zae_limiter.stores.protocol import Leg

TRIES_AT_ONCE = 2
"""So often a refused write is repeated at once, with the image the refusal brought; later ones wait a little."""


class Booking:
    """Something to book on one bucket, and how far that is."""

    __slots__ = (
        "anchor",
        "deltas",
        "done",
        "doubtful",
        "grants",
        "image",
        "inc",
        "key",
        "leg",
        "nonce",
        "tries",
        "void_mark",
    )

    def __init__(self, key: Key, leg: Leg, deltas: Mapping[str, int], *, grants: int = 0) -> None:
        self.key = key
        self.leg = leg
        self.deltas = deltas
        self.grants = grants
        self.image: Image | None = None
        self.nonce = ""
        self.inc = ""
        self.void_mark = ""
        self.done = False
        self.doubtful = False  # it may have been done: an answer was lost
        self.anchor: str | None = None  # a mark that was in the ring before it can have been done
        self.tries = 0

    def drop_anchor(self) -> None:
        """Note a mark that is in the ring before the next try: while it is there, the ring has not moved on."""
        if not self.doubtful and self.image is not None:
            self.anchor = self.image.ring[0]

    def note(self, answer: Answer | None) -> None:
        """What must be known of an answer before anything else can go wrong; ``None``: it was never heard."""
        if answer is None:
            self.doubtful = True
        elif isinstance(answer, NoAnswer):
            self.doubtful = self.doubtful or answer.sent
        elif not isinstance(answer, Refused):
            self.done = True

    def can_be_sure(self) -> bool:
        """Whether a try whose answer was lost can be repeated so that only one of the two is ever done.

        The anchor must still be in the ring: then the try was done only if its mark is there too. And the repetition
        must move the baseline: then the try, if it is still under way, is refused when it arrives.
        """
        image = self.image
        return self.doubtful and image is not None and self.anchor in image.ring

    def begin_anew(self, nonce: str) -> None:
        """The next try is another write, with a mark of its own: no mark is ever applied twice."""
        self.doubtful = False
        self.nonce, self.inc, self.void_mark = nonce, "", ""

    def let_credits_go(self) -> None:
        """What could come back twice does not come back at all."""
        self.deltas = {name: delta for name, delta in self.deltas.items() if delta > 0}
        self.grants = max(self.grants, 0)
        self.done = not self.deltas and not self.grants

    def left(self) -> Mapping[str, int]:
        """What is to be booked again: of what may have been done, only what may be done twice."""
        if self.done:
            return {}
        return {name: delta for name, delta in self.deltas.items() if delta > 0 or not self.doubtful}

    @property
    def gives_back(self) -> bool:
        return any(delta < 0 for delta in self.deltas.values())


class BookingPlans(ResolvingPlans):
    """Writes that are not refused for lack of tokens."""

    unresolved = 0

    def bookings(self, ns: str, owed: Sequence[tuple[Leg, Mapping[str, int]]], *, grants: int = 0) -> list[Booking]:
        """One booking per bucket."""
        return [
            Booking(bucket_key(ns, leg.entity_id, leg.resource), leg, deltas, grants=grants) for leg, deltas in owed
        ]

    def book(self, bookings: Sequence[Booking], now: int, until: Window) -> Plan[None]:
        """Do all of them. Raises when time runs out; those that are ``done`` are done."""
        for booking in bookings:
            if not booking.nonce:
                booking.nonce = self.marks.nonce(now)
                memory = self.images.get(booking.key)
                booking.image = None if memory is None else memory.image
        pending = [booking for booking in bookings if not booking.done]
        failure: Refused | NoAnswer | None = None
        while pending:
            unseen = [booking for booking in pending if booking.image is None]
            if unseen:
                yield from self._look_at(unseen, now, until)
            for booking in [booking for booking in pending if not booking.done]:
                booking.drop_anchor()
                creating = booking.inc and booking.image is None  # its repetition is recognised by what it creates
                if booking.doubtful and not creating and not booking.can_be_sure():
                    self.unresolved += 1  # nobody can tell whether the lost try was done: it may be charged twice
                    booking.let_credits_go()
                    booking.begin_anew(self.marks.nonce(now))
            pending = [booking for booking in pending if not booking.done]
            if not pending:
                return
            calls = []
            for booking in pending:
                calls.append((yield from self._call_for(booking, now, until)))
            try:
                answers = yield from self.ask_together(calls)
            except Interrupted as stop:
                for booking, heard in zip(pending, answers_of(stop, len(pending)), strict=True):
                    booking.note(heard)
                raise
            for booking, answer in zip(pending, answers, strict=True):
                booking.note(answer)
            for booking, answer in zip(pending, answers, strict=True):
                failure = (yield from self._hear(booking, answer, now)) or failure
            pending = [booking for booking in pending if not booking.done]
            tries = max((booking.tries for booking in pending), default=0)
            if pending and tries >= TRIES_AT_ONCE:
                yield from self.asking.pause(tries - 1, until, failure or NoAnswer("too many others", sent=False))

    def ask_together(self, calls: Sequence[Call]) -> Plan[Sequence[Answer]]:
        """The answers to several calls, errors as values."""
        if len(calls) > 1:
            try:
                return (yield from Together(calls))
            except CutShort as cut:
                return [NoAnswer(str(cut))] * len(calls)
        try:
            return [(yield from calls[0])]
        except (Refused, NoAnswer) as failure:
            return [failure]
        except CutShort as cut:
            return [NoAnswer(str(cut))]

    def see(self, key: Key, image: Image, now: int) -> Plan[Image]:
        """Remember an image, and learn from it whether our clock is late."""
        if self.images.is_ahead(image, now):
            self.images.compare_clocks(image, (yield from READ_CLOCK))
        self.images.see(key, image, now)
        return image

    def _look_at(self, unseen: Sequence[Booking], now: int, until: Window) -> Plan[None]:
        found = yield from self.asking.get_all([booking.key for booking in unseen], until)
        for booking in unseen:
            item = found.get(booking.key)
            if item is not None:
                image = booking.image = yield from self.see(booking.key, image_of(item), now)
                if booking.doubtful and (booking.nonce in image.ring or image.inc == booking.inc):
                    booking.done = True

    def _call_for(self, booking: Booking, now: int, until: Window) -> Plan[Call]:
        image = booking.image
        if image is None:
            terms = yield from self._terms_to_rebuild(booking.leg, until)
            return self.call_to_create(booking, terms, now, until)
        sure = booking.can_be_sure()
        write = update(
            image,
            Wish(booking.deltas, grants=booking.grants, rebase=sure),
            now=max(now, image.rf + 1) if sure else now,
            nonce=booking.nonce,
            epoch_s=until.epoch_s,
            anchor=booking.anchor if sure else None,
            ttl_margin_s=self.asking.ttl_margin_s,
        )
        return self.call_to_update(write.params(self.asking.table, booking.key), until)

    def call_to_update(self, params: dict[str, object], until: Window) -> Call:
        """An UpdateItem that answers with the bucket as it is afterwards."""
        return Call("UpdateItem", {**params, "ReturnValues": "ALL_NEW"}, until.give_up_at)

    def call_to_create(self, booking: Booking, terms: Terms, now: int, until: Window) -> Call:
        """A PutItem that begins the life of a bucket, unless there is one."""
        booking.inc = booking.inc or self.marks.incarnation()
        item = new_item(
            booking.key,
            terms,
            booking.deltas,
            now=now,
            nonce=booking.nonce,
            inc=booking.inc,
            grants=booking.grants,
            epoch_s=until.epoch_s,
            ttl_margin_s=self.asking.ttl_margin_s,
        )
        params = {
            "TableName": self.asking.table,
            "Item": item,
            "ConditionExpression": "attribute_not_exists(PK)",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        return Call("PutItem", params, until.give_up_at)

    def _terms_to_rebuild(self, leg: Leg, until: Window) -> Plan[Terms]:
        """What a bucket that is gone obeys when it comes back."""
        standing = yield from self.standing(leg.entity_id, leg.resource, until, fresh=True)
        terms = standing.terms()
        if terms is not None and leg.source != "call":
            return terms
        return Terms(leg, of_call(leg.limits, standing.meta), standing.parent_id, standing.cascade)

    def _hear(self, booking: Booking, answer: Answer, now: int) -> Plan[Refused | NoAnswer | None]:
        """What became of one try. Returns what went wrong, if it was not just a wrong guess."""
        booking.tries += 1
        if isinstance(answer, NoAnswer):
            if answer.final:
                raise answer
            return answer
        if isinstance(answer, Refused):
            if answer.by_condition:
                yield from self._hear_refusal(booking, answer, now)
                return None
            if not (answer.by_throttling or answer.by_conflict):
                raise answer
            return answer
        if "Attributes" in answer:
            yield from self.see(booking.key, image_of(answer["Attributes"]), now)
            self.remember_own(booking)
        else:
            self.images.forget(booking.key)
        return None

    def _hear_refusal(self, booking: Booking, refusal: Refused, now: int) -> Plan[None]:
        if refusal.item is None:
            booking.image = None
            self.images.forget(booking.key)
            return
        image = yield from self.see(booking.key, image_of(refusal.item), now)
        booking.image = image
        if booking.nonce in image.ring or image.inc == booking.inc:
            booking.done = True
            self.remember_own(booking)
        elif booking.inc:
            booking.doubtful, booking.inc = False, ""  # somebody else created it: ours was not

    def remember_own(self, booking: Booking) -> None:
        """This client did it: what else happened to the bucket was done by others."""
        memory = self.images.get(booking.key)
        if memory is not None:
            memory.took(booking.deltas)

    def void(self, booking: Booking, now: int, until: Window) -> Plan[bool]:
        """Make sure of a write whose answer was lost: was it done? If not, it never will be.

        A write that does nothing demands that its mark is absent, and moves the baseline. If the mark is there, it was
        done; if the ring has moved on since, nobody can tell.
        """
        booking.void_mark = booking.void_mark or self.marks.nonce(now)
        tries = 0
        while True:
            if booking.image is None:
                yield from self._look_at([booking], now, until)
            image = booking.image
            if image is None:
                self.unresolved += 1  # a bucket that is not there cannot keep a mark
                break
            if booking.nonce in image.ring or image.inc == booking.inc:
                return True
            if booking.void_mark in image.ring:
                self.unresolved += booking.anchor not in image.ring
                break
            write = update(
                image,
                Wish({}, rebase=True),
                now=max(now, image.rf + 1),
                nonce=booking.void_mark,
                epoch_s=until.epoch_s,
                ttl_margin_s=self.asking.ttl_margin_s,
            )
            write.demand_unmarked(booking.nonce)
            call = self.call_to_update(write.params(self.asking.table, booking.key), until)
            (answer,) = yield from self.ask_together([call])
            if not isinstance(answer, (Refused, NoAnswer)):
                booking.image = yield from self.see(booking.key, image_of(answer["Attributes"]), now)
                self.unresolved += booking.anchor not in booking.image.ring
                break
            if isinstance(answer, NoAnswer) and answer.final:
                raise answer
            if isinstance(answer, Refused) and answer.by_condition:
                item = answer.item
                booking.image = None if item is None else (yield from self.see(booking.key, image_of(item), now))
            elif isinstance(answer, Refused) and not (answer.by_throttling or answer.by_conflict):
                raise answer
            tries += 1
            if tries >= TRIES_AT_ONCE:
                yield from self.asking.pause(tries - 1, until, answer)
        booking.begin_anew(self.marks.nonce(now))
        return False


def answers_of(stop: Interrupted, count: int) -> Sequence[Answer | None]:
    """What the calls in flight answered when an interrupt came; ``None`` where nobody knows."""
    heard: Any = stop.reply if stop.error is None else stop.error
    if count == 1 and isinstance(heard, (Mapping, Refused, NoAnswer)):
        return [heard]
    if isinstance(heard, (list, tuple)) and len(heard) == count:
        return heard
    return [None] * count
