"""One logical write to a bucket: how it is put, what its answer says, and how far it is.

A write is tried until it is surely done or surely not. While it is neither it is *doubtful*: an answer was lost.
Then its mark among those of the last writers tells whether it was done, as long as its anchor, a mark that was
there before, is still there too; and a repetition that moves the baseline makes sure that only one of the two is
ever done. :meth:`BucketWriter.void` makes sure of a write that is given up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from zae_limiter.running.plan import READ_CLOCK, Bell, CutShort, Interrupted, Plan
from zae_limiter.stores.dynamodb.expressions import UpdateParams
from zae_limiter.stores.dynamodb.items import Image, image_in, image_of
from zae_limiter.stores.dynamodb.namespace import Namespace
from zae_limiter.stores.dynamodb.plain_draw import plain_draw
from zae_limiter.stores.dynamodb.requests import Answer, Call, NoAnswer, Refused, Reply, Together
from zae_limiter.stores.dynamodb.schema import Key, shard_key
from zae_limiter.stores.dynamodb.table_client import Window
from zae_limiter.stores.dynamodb.write_forms import NOTHING, Terms, Wish, new_item, update
from zae_limiter.stores.dynamodb.write_load import load_of
from zae_limiter.stores.protocol import Leg


class Seen(NamedTuple):
    """The bucket as it is now (``None``: it is not there), and whether the write was done."""

    image: Image | None
    done: bool


Verdict: TypeAlias = Seen | Refused | NoAnswer
"""What became of a write. ``Refused`` is never for a condition: that is ``Seen``, and not done."""


class Booking:
    """Something to book on one bucket, and how far that is."""

    key: Key
    leg: Leg
    deltas: Mapping[str, int]

    # How every booking begins.
    grants = 0
    image: Image | None = None
    nonce = ""
    inc = ""
    void_mark = ""
    done = False
    doubtful = False
    """It may have been done: an answer was lost."""
    joint = False
    """Its mark is that of a write for several callers, or to several shards: it is not written alone by that."""
    untold = False
    """Nobody can tell any more whether a lost try of it was done."""
    maybe_done = False
    """A lost try of it may have been done, and what is tried since is another write."""
    anchor: str | None = None
    """A mark that was in the ring before it can have been done."""
    tries = 0
    needed: Mapping[str, int] | None = None
    """What must be there, if it asks at all."""
    weight = 1
    """How many callers it stands for."""
    now = 0
    """What it was last computed for."""
    desk: object = None
    """The desk it is at, if it writes."""
    give_up_at = 0
    """Until when it waits there, machine time."""
    bell: Bell | None = None
    """Rings when it is its turn, or when somebody wrote for it."""
    verdict: Verdict | None = None

    def __init__(self, key: Key, leg: Leg, deltas: Mapping[str, int], *, grants: int = 0) -> None:
        self.key = key
        self.leg = leg
        self.deltas = deltas
        self.grants = grants

    def may_join(self, image: Image) -> bool:
        """Whether it can be written together with others."""
        return not (self.doubtful or self.done or self.inc)

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

    def is_in(self, image: Image) -> bool:
        """Whether a bucket shows that it was done: by its mark, or by the life it began."""
        return self.nonce in image.ring or image.inc == self.inc

    def can_be_sure(self) -> bool:
        """Whether a try whose answer was lost can be repeated so that only one of the two is ever done.

        The anchor must still be in the ring: then the try was done only if its mark is there too. And the repetition
        must move the baseline: then the try, if it is still under way, is refused when it arrives.
        """
        image = self.image
        return self.doubtful and image is not None and self.anchor in image.ring

    def begin_anew(self, nonce: str) -> None:
        """The next try is another write, with a mark of its own: no mark is ever applied twice."""
        self.doubtful = self.joint = False
        self.nonce, self.inc, self.void_mark = nonce, "", ""

    def let_credits_go(self) -> None:
        """Nobody can tell whether a lost try was done: what could come back twice does not come back at all."""
        self.maybe_done = True
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


def answers_of(stop: Interrupted, count: int) -> Sequence[Answer | None]:
    """What the calls in flight answered when an interrupt came; ``None`` where nobody knows."""
    heard: Any = stop.reply if stop.error is None else stop.error
    if count == 1 and isinstance(heard, (Mapping, Refused, NoAnswer)):
        return [heard]
    if isinstance(heard, (list, tuple)) and len(heard) == count:
        return heard
    return [None] * count


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
        """The same for a draw that is plain (see ``plain_draw``)."""
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
