"""One write to a bucket: how it is put, and what its answer says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zae_limiter.running.plan import READ_CLOCK, CutShort, Plan
from zae_limiter.stores.dynamodb.bookings import Booking, Seen, Verdict
from zae_limiter.stores.dynamodb.draws import plain_draw
from zae_limiter.stores.dynamodb.gauge import load_of
from zae_limiter.stores.dynamodb.items import Image, image_in, image_of
from zae_limiter.stores.dynamodb.keys import Key, shard_key
from zae_limiter.stores.dynamodb.plans.asking import Window
from zae_limiter.stores.dynamodb.plans.base import Namespace
from zae_limiter.stores.dynamodb.requests import Answer, Call, NoAnswer, Refused, Reply, Together
from zae_limiter.stores.dynamodb.updates import UpdateParams
from zae_limiter.stores.dynamodb.writes import NOTHING, Terms, Wish, new_item, update

TRIES_AT_ONCE = 2
"""So often a refused write is repeated at once, with the image the refusal brought; later ones wait a little."""


class BucketWriter:
    """From a wish to a write, and from its answer to a verdict."""

    def __init__(self, namespace: Namespace) -> None:
        self.asking = namespace.asking
        self.images = namespace.images
        self.marks = namespace.marks
        self.unresolved = 0

    def params(
        self,
        key: Key,
        image: Image,
        wish: Wish,
        now: int,
        nonce: str,
        until: Window,
        *,
        anchor: str | None = None,
        guess: bool = False,
    ) -> UpdateParams:
        """The write that does ``wish``; with ``guess``, to the bucket as it may be by now."""
        memory = self.images.get(key)
        write = update(
            image,
            wish,
            now=now,
            nonce=nonce,
            epoch_s=until.epoch_s,
            ttl_margin_s=self.asking.ttl_margin_s,
            anchor=anchor,
            guesses={} if memory is None or not guess else memory.guesses(now),
            load=load_of(image, 0 if memory is None else memory.failed(now)),
            age_ms=None if memory is None else now - memory.seen_at,
        )
        return write.params(self.asking.table, key)

    def draw_params(
        self,
        key: Key,
        image: Image,
        taken: Mapping[str, int],
        needed: Mapping[str, int],
        now: int,
        nonce: str,
        until: Window,
        *,
        guess: bool,
    ) -> UpdateParams:
        """The same for a draw that is plain (see ``draws``)."""
        memory = self.images.get(key)
        shape, values = plain_draw(
            image,
            taken,
            needed,
            now=now,
            nonce=nonce,
            epoch_s=until.epoch_s,
            ttl_margin_s=self.asking.ttl_margin_s,
            guesses=NOTHING if memory is None or not guess else memory.guesses(now),
            load=load_of(image, 0 if memory is None else memory.failed(now)),
            age_ms=None if memory is None else now - memory.seen_at,
        )
        return UpdateParams(shape, self.asking.table, key, values)

    def call_to_update(self, params: UpdateParams, until: Window) -> Call:
        """An UpdateItem that answers with the bucket as it is afterwards."""
        return Call("UpdateItem", params.returning_new(), until.give_up_at)

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
            wcu=self.asking.wcu,
        )
        params = {
            "TableName": self.asking.table,
            "Item": item,
            "ConditionExpression": "attribute_not_exists(PK)",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        return Call("PutItem", params, until.give_up_at)

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

    # Hearing

    def verdict(self, key: Key, answer: Answer, now: int) -> Plan[Verdict]:
        """What an answer says, once the image it brings is remembered."""
        if isinstance(answer, NoAnswer):
            return answer
        if not isinstance(answer, Refused):
            return Seen((yield from self.see(key, self.done(key, answer, NOTHING), now)), True)
        memory = self.images.get(key)
        before = None if memory is None else memory.image
        if not answer.by_condition:
            if answer.by_load:
                self.asking.note_load(answer)
            return answer
        if answer.item is None:
            self.images.forget(key)
            return Seen(None, False)
        image = yield from self.see(key, image_of(answer.item, before), now)
        if memory is not None:
            memory.suffered(now)
        return Seen(image, False)

    def done(self, key: Key, reply: Reply, own: Mapping[str, int]) -> Image:
        """A write of ours was done, and ``own`` is what it took: the bucket as it is now."""
        memory = self.images.get(key)
        if memory is None:
            return image_in(reply)
        memory.succeeded(own)
        if memory.throttled:
            memory.throttled -= 1
            self.images.avoid(key, 0)
        return image_in(reply, memory.image)

    def see(self, key: Key, image: Image, now: int) -> Plan[Image]:
        """Remember an image, and learn from it whether our clock is late."""
        if self.images.is_ahead(image, now):
            self.images.compare_clocks(image, (yield from READ_CLOCK))
        self.images.see(key, image, now)
        return image

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
        booking.untold = False
        tries = 0
        while True:
            if booking.image is None:
                yield from self.look_at([booking], now, until)
            image = booking.image
            if image is None:
                booking.untold = True  # a bucket that is not there cannot keep a mark
                break
            if booking.is_in(image):
                return True
            if booking.void_mark in image.ring:
                booking.untold = booking.anchor not in image.ring
                break
            rebased = Wish({}, rebase=True, unmarked=booking.nonce)
            moment = max(now, image.rf + 1)
            params = self.params(booking.key, image, rebased, moment, booking.void_mark, until)
            call = self.call_to_update(params, until)
            (answer,) = yield from self.ask_together([call])
            if not isinstance(answer, (Refused, NoAnswer)):
                booking.image = yield from self.see(booking.key, image_of(answer["Attributes"]), now)
                booking.untold = booking.anchor not in booking.image.ring
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
        self.unresolved += booking.weight * booking.untold
        booking.begin_anew(self.marks.nonce(now))
        return False

    def look_at(self, unseen: Sequence[Booking], now: int, until: Window) -> Plan[None]:
        found = yield from self.asking.get_all([booking.key for booking in unseen], until)
        again: list[Booking] = []
        for booking in unseen:
            item = found.get(booking.key)
            if item is None and booking.key != (first := shard_key(booking.key, 0)):
                booking.key = first  # a shard that is gone: the first speaks for it
                memory = self.images.get(first)
                booking.image = None if memory is None else memory.image
                again.append(booking)
            elif item is not None:
                image = booking.image = yield from self.see(booking.key, image_of(item), now)
                if booking.doubtful and booking.is_in(image):
                    booking.done = True
                elif not booking.doubtful:
                    booking.inc = ""  # somebody else created it: ours was refused
        unseen = [booking for booking in again if booking.image is None]
        if unseen:
            yield from self.look_at(unseen, now, until)
