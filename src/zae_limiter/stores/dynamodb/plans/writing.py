"""One write to a bucket: how it is put, and what its answer says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zae_limiter.running.plan import READ_CLOCK, CutShort, Plan
from zae_limiter.stores.dynamodb.bookings import Booking, Seen, Verdict
from zae_limiter.stores.dynamodb.draws import plain_draw
from zae_limiter.stores.dynamodb.gauge import load_of
from zae_limiter.stores.dynamodb.items import Image, image_in, image_of
from zae_limiter.stores.dynamodb.keys import Key
from zae_limiter.stores.dynamodb.plans.asking import Window
from zae_limiter.stores.dynamodb.plans.resolving import ResolvingPlans
from zae_limiter.stores.dynamodb.requests import Answer, Call, NoAnswer, Refused, Reply, Together
from zae_limiter.stores.dynamodb.updates import UpdateParams
from zae_limiter.stores.dynamodb.writes import NOTHING, Wish, update


class WritingPlans(ResolvingPlans):
    """From a wish to a write, and from its answer to a verdict."""

    unresolved = 0

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
        """Make sure of a write whose answer was lost (see ``booking``)."""
        raise NotImplementedError
