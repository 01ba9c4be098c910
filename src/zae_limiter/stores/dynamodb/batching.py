"""Batching: one write for all callers of this process who write to the same bucket.

A write to a bucket that has none in flight goes out at once. Otherwise it waits in the bucket's queue, and one of
those who wait writes for all of them. Either way each gets a result of its own: done, or not done and how the
bucket is, or why that is not known. A lost answer to a joint write is resolved by its leader for all before it is
told.

In a batch, what comes back and what is taken at the same moment is taken from each other first, so that nothing of
it is lost at the ceiling. Draws are served first come first served, and may use what comes back; what is taken
without asking is booked after them, and refuses none. A draw that does not fit behind those before it is left out,
and learns from the write how the bucket is. A shard of a divided bucket settles only what it holds, and gets
nothing back while it is in debt. So what is settled is booked before the draws there, and left out likewise if it
does not fit: then it concerns all shards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from zae_limiter.bucket import MILLI, share
from zae_limiter.models.limit import Limit
from zae_limiter.running.plan import READ_CLOCK, CutShort, Interrupted, Plan
from zae_limiter.stores.dynamodb.bucket_cache import is_far_ahead
from zae_limiter.stores.dynamodb.bucket_writer import TRIES_AT_ONCE, Booking, BucketWriter, Seen, Verdict, answers_of
from zae_limiter.stores.dynamodb.expressions import UpdateParams
from zae_limiter.stores.dynamodb.items import Image
from zae_limiter.stores.dynamodb.requests import Answer, AwaitNews, Call, DeadlineOver, NoAnswer, Refused
from zae_limiter.stores.dynamodb.table_client import Window
from zae_limiter.stores.dynamodb.write_forms import Wish, coming_back
from zae_limiter.stores.dynamodb.write_queue import GRACE_MS, Desks


class Lot(NamedTuple):
    """Bookings that are written together, and the wish that is all of them."""

    bookings: Sequence[Booking]
    wish: Wish


def joined(image: Image, bookings: Sequence[Booking], now: int, guesses: Mapping[str, int]) -> Lot:
    """Those of ``bookings`` that the bucket seems to hold together; if none, the first alone: it will be told."""
    settled = [booking for booking in bookings if booking.needed is None]
    draws = [booking for booking in bookings if booking.needed is not None]
    if image.shards > 1 and not is_far_ahead(image, now):
        return _joined_on_shard(image, settled, draws, now, guesses)
    deltas: dict[str, int] = {}
    back: dict[str, int] = {}
    for booking in settled:
        for name, delta in booking.deltas.items():
            deltas[name] = deltas.get(name, 0) + delta
            if delta < 0:
                back[name] = back.get(name, 0) - delta
    left = {
        name: min(guesses.get(name, balance.tk) + balance.since_rf(now), balance.bx) + back.get(name, 0)
        for name, balance in image.balances.items()
        if name not in image.resting
    }
    drawn = dict.fromkeys(left, 0)
    granted = [booking for booking in draws if _fits(booking, left, drawn)]
    if not granted and not settled:
        granted = draws[:1]
    needed = {name: -back.get(name, 0) for name in left}
    drawn = dict.fromkeys(left, 0)
    for booking in granted:
        wanted = booking.needed or {}
        for name, before in drawn.items():
            needed[name] = max(needed[name], before + wanted.get(name, 0) - back.get(name, 0))
        for name, delta in booking.deltas.items():
            drawn[name] += delta
            deltas[name] = deltas.get(name, 0) + delta
    written = [*settled, *granted]
    grants = sum(booking.grants for booking in written)
    owed = _owed(image, deltas, settled)
    return Lot(written, Wish(deltas, needed if granted else None, grants=grants, owed=owed))


def _joined_on_shard(
    image: Image, settled: Sequence[Booking], draws: Sequence[Booking], now: int, guesses: Mapping[str, int]
) -> Lot:
    left = {
        name: min(guesses.get(name, balance.tk) + balance.since_rf(now), balance.bx)
        for name, balance in image.balances.items()
    }
    deltas: dict[str, int] = {}
    held = [booking for booking in settled if _is_held(booking, image, left, deltas)]
    active = {name: left[name] for name in image.balances if name not in image.resting}
    drawn = dict.fromkeys(active, 0)
    granted = [booking for booking in draws if _fits(booking, active, drawn)]
    if not granted and not held:
        granted, held = list(draws[:1]), list(() if draws else settled[:1])
        deltas = dict(held[0].deltas) if held else {}
    needed = {name: max(deltas.get(name, 0), 0) for name in active}
    drawn = {name: deltas.get(name, 0) for name in active}
    for booking in granted:
        wanted = booking.needed or {}
        for name, before in drawn.items():
            needed[name] = max(needed[name], before + wanted.get(name, 0))
        for name, delta in booking.deltas.items():
            drawn[name] += delta
            deltas[name] = deltas.get(name, 0) + delta
    written = [*held, *granted]
    grants = sum(booking.grants for booking in written)
    owed = _owed(image, deltas, held)
    return Lot(written, Wish(deltas, needed if granted else None, grants=grants, held=True, owed=owed))


def _is_held(booking: Booking, image: Image, left: dict[str, int], deltas: dict[str, int]) -> bool:
    """Whether a shard that has so much ``left`` holds what is settled; if so it is settled."""
    for limit in coming_back(image, booking.deltas, booking.leg.limits):
        left.setdefault(limit.name, share(limit.burst * MILLI, image.shard, image.shards))  # it is full
    if any(name in left and left[name] < max(delta, 0) for name, delta in booking.deltas.items()):
        return False
    for name, delta in booking.deltas.items():
        if name in left:
            left[name] -= delta
        deltas[name] = deltas.get(name, 0) + delta
    return True


def _owed(image: Image, deltas: Mapping[str, int], settled: Sequence[Booking]) -> tuple[Limit, ...]:
    """The limits of those who settle, if some of what they settle the bucket has no longer."""
    if deltas.keys() <= image.balances.keys():
        return ()
    return tuple({limit.name: limit for booking in settled for limit in booking.leg.limits}.values())


def _fits(booking: Booking, left: Mapping[str, int], drawn: dict[str, int]) -> bool:
    """Whether a draw fits behind what was ``drawn`` before; if so it is drawn too."""
    wanted = booking.needed or {}
    if any(amount - drawn[name] < wanted.get(name, 0) for name, amount in left.items()):
        return False
    for name, delta in booking.deltas.items():
        drawn[name] += delta
    return True


LONGEST_WRITE_ROUNDS = 3
"""So many times the grace is waited for whoever writes for all, once it has begun."""

Booked = TypeVar("Booked", bound=Booking)


class NeverTold(NoAnswer):
    """Whoever wrote for all did not come back in time. It may have been done."""

    final = True


class BatchingWriter:
    """Writes to buckets, one verdict each."""

    def __init__(self, writer: BucketWriter, *, coalesce: bool) -> None:
        self.writer = writer
        self.images = writer.images
        self.marks = writer.marks
        self.coalesce = coalesce
        self.desks = Desks()

    def post(
        self, bookings: Sequence[Booked], write: Callable[[Booked], UpdateParams], now: int, until: Window
    ) -> Plan[None]:
        """Write all of them, each to a bucket that exists. Each has its verdict then.

        ``write`` makes the write of a booking that is written alone.
        """
        if not self.coalesce:
            yield from self._write_alone(bookings, write, now, until)
            return
        if len(bookings) == 1:
            if self.desks.enter_if_free(bookings[0], until.started, until.give_up_at):
                yield from self._write_one(bookings[0], write, now, until)
            else:
                yield from self._post_in_turn(bookings[0], write, now, until)
            return
        free = [booking for booking in bookings if self.desks.enter_if_free(booking, until.started, until.give_up_at)]
        if free:
            yield from self._write_alone(free, write, now, until)
        # One after the other: whoever leads at one desk must not be waiting at another.
        for booking in bookings:
            if booking not in free:
                yield from self._post_in_turn(booking, write, now, until)

    def _post_in_turn(
        self, booking: Booked, write: Callable[[Booked], UpdateParams], now: int, until: Window
    ) -> Plan[None]:
        booking.now = now
        leads = self.desks.enter(booking, until.started, until.give_up_at)
        if not leads:
            leads = yield from self._wait_in_line(booking, until)
        if not leads:
            return
        try:
            memory = self.images.get(booking.key)
            image = booking.image if memory is None else memory.image
            if image is None or booking.nonce in image.ring or not _is_like(image, booking):
                # The bucket changed while it waited: whoever asked decides again.
                booking.done = image is not None and booking.nonce in image.ring
                booking.verdict = Seen(image, booking.done)
                return
            booking.image = image
            company: list[Booking] = []
            if booking.desk is not None and booking.may_join(image):
                company = self.desks.company(booking, lambda other: other.may_join(image))
            if company:
                yield from self._write_for_all([booking, *company], image, until)
            else:
                yield from self._write_one(booking, write, now, until)
        finally:
            self.desks.leave(booking)

    def _wait_in_line(self, booking: Booking, until: Window) -> Plan[bool]:
        """Until it is its turn (then it leads) or another caller has written for it.

        The event loop of a leader may have been stopped. So when a quarter of its time is left it waits no longer, and
        writes alone without a desk: its write is as conditional as any.
        """
        bell, stop = booking.bell, None
        assert bell is not None
        rounds = -1
        patient_until = until.give_up_at - (until.give_up_at - until.started) // 4
        while booking.desk is None and booking.verdict is None:
            try:
                yield from AwaitNews(bell, patient_until if rounds < 0 else until.give_up_at + rounds * GRACE_MS)
                rounds += 1
            except Interrupted as interrupt:
                stop = interrupt
            except CutShort:
                continue
            except BaseException:  # the caller is gone
                self._leave_line(booking)
                raise
            if bell.rung:
                continue
            if self.desks.withdraw(booking):
                if rounds == 0 and stop is None:
                    return True
                booking.verdict = DeadlineOver()
            elif rounds > LONGEST_WRITE_ROUNDS and booking.desk is None and booking.verdict is None:
                booking.verdict, booking.doubtful = NeverTold("whoever wrote for all never came back"), True
        if stop is not None:
            self._leave_line(booking)
            raise stop
        return booking.desk is not None

    def _leave_line(self, booking: Booking) -> None:
        if not self.desks.withdraw(booking) and booking.desk is not None:
            self.desks.leave(booking)

    # Writing

    def _write_alone(
        self, bookings: Sequence[Booked], write: Callable[[Booked], UpdateParams], now: int, until: Window
    ) -> Plan[None]:
        try:
            calls = [self.writer.call_to_update(write(booking), until) for booking in bookings]
            try:
                answers = yield from self.writer.ask_together(calls)
                for booking, answer in zip(bookings, answers, strict=True):
                    booking.note(answer)
            except Interrupted as stop:
                for booking, heard in zip(bookings, answers_of(stop, len(bookings)), strict=True):
                    booking.note(heard)
                raise
            except BaseException:
                for booking in bookings:  # an interrupt between any two lines: the answers may not have been noted
                    booking.note(None)
                raise
            for booking, answer in zip(bookings, answers, strict=True):
                booking.now = now
                if booking.done:  # before its image is seen, which has it
                    self.writer.remember_own(booking)
                booking.verdict = yield from self.writer.verdict(booking.key, answer, now)
        finally:
            for booking in bookings:
                if booking.desk is not None:
                    self.desks.leave(booking)

    def _write_one(
        self, booking: Booked, write: Callable[[Booked], UpdateParams], now: int, until: Window
    ) -> Plan[None]:
        """The same for one booking, as most are."""
        answer: Answer
        try:
            call = Call("UpdateItem", write(booking).returning_new(), until.give_up_at)
            try:
                try:
                    answer = yield call
                except (Refused, NoAnswer) as failure:
                    answer = failure
                except CutShort as cut:
                    answer = NoAnswer(str(cut))
                booking.note(answer)
            except Interrupted as stop:
                booking.note(answers_of(stop, 1)[0])
                raise
            except BaseException:
                booking.note(None)  # an interrupt between any two lines: the answer may not have been noted
                raise
            booking.now = now
            if isinstance(answer, (Refused, NoAnswer)):
                booking.verdict = yield from self.writer.verdict(booking.key, answer, now)
            else:
                images, key = self.images, booking.key
                image = self.writer.done(key, answer, booking.deltas)
                if images.is_ahead(image, now):
                    images.compare_clocks(image, (yield READ_CLOCK))
                images.see(key, image, now)
                booking.verdict = Seen(image, True)
        finally:
            if booking.desk is not None:
                self.desks.leave(booking)

    def _write_for_all(self, bookings: Sequence[Booking], image: Image, until: Window) -> Plan[None]:
        """One write for all of them, whose leader is the first."""
        in_flight: list[Booking] = []
        try:
            yield from self._write_lots(list(bookings), image, in_flight, until)
        finally:
            for booking in bookings:
                if booking.verdict is None and booking is not bookings[0]:  # an error nobody foresaw
                    booking.doubtful = any(booking is one for one in in_flight)
                    booking.verdict = NeverTold("whoever wrote for all is gone")
                if booking.bell is not None:
                    booking.bell.ring()

    def _write_lots(self, pending: list[Booking], image: Image, in_flight: list[Booking], until: Window) -> Plan[None]:
        key = pending[0].key
        now = max(booking.now for booking in pending)
        for booking in pending:
            booking.verdict = None
        stop: Interrupted | None = None
        tries = 0
        while pending:
            memory = self.images.get(key)
            guesses = {} if tries or memory is None else memory.guesses(now)
            lot, nonce = joined(image, pending, now, guesses), self.marks.nonce(now)
            params = self.writer.params(key, image, lot.wish, now, nonce, until, guess=not tries)
            in_flight[:] = lot.bookings
            for booking in in_flight:  # should the answer be lost, this is what to look for
                booking.nonce, booking.anchor, booking.joint = nonce, image.ring[0], True
            try:
                (answer,) = yield from self.writer.ask_together([self.writer.call_to_update(params, until)])
            except Interrupted as interrupt:
                stop = interrupt
                answer = answers_of(stop, 1)[0] or NoAnswer("interrupted")
            answered = not isinstance(answer, (Refused, NoAnswer))
            if answered:
                for booking in lot.bookings:
                    self.writer.remember_own(booking)
            verdict = yield from self.writer.verdict(key, answer, now)
            if isinstance(verdict, NoAnswer) and verdict.sent:
                verdict = yield from self._resolve(lot, image, nonce, now, until, verdict)
            in_flight.clear()
            tries += 1
            if not isinstance(verdict, Seen):
                self._tell(pending, verdict, now)
                break
            if verdict.done:
                for booking in lot.bookings:
                    booking.done = True
                    if not answered:
                        self.writer.remember_own(booking)
                self._tell(lot.bookings, verdict, now)
            again = []
            if not verdict.done and verdict.image is not None and stop is None and tries <= TRIES_AT_ONCE:
                image = verdict.image
                again = list(joined(image, [one for one in pending if one.may_join(image)], now, {}).bookings)
            told = {id(booking) for booking in (*again, *(lot.bookings if verdict.done else ()))}
            self._tell([one for one in pending if id(one) not in told], verdict._replace(done=False), now)
            pending = again
        if stop is not None:
            raise stop

    def _tell(self, bookings: Sequence[Booking], verdict: Verdict, now: int) -> None:
        for booking in bookings:
            if not booking.done and not booking.doubtful:
                booking.begin_anew(self.marks.nonce(booking.now))  # by its own now, not by that of all
            booking.now = now
            booking.verdict = verdict
            if isinstance(verdict, NoAnswer) and verdict.final and not verdict.sent and booking.desk is None:
                booking.verdict = NoAnswer(str(verdict), sent=False)  # the leader's time is over, perhaps not theirs

    def _resolve(
        self, lot: Lot, image: Image, nonce: str, now: int, until: Window, silence: NoAnswer
    ) -> Plan[Verdict]:
        """Make sure of a joint write whose answer was lost, for everybody who is in it.

        If the ring has moved on nobody can tell: what is taken may be charged twice, and nothing comes back twice.
        """
        first = lot.bookings[0]
        whole = Booking(first.key, first.leg, {})
        whole.nonce, whole.image, whole.anchor, whole.doubtful = nonce, image, image.ring[0], True
        whole.weight = len(lot.bookings)
        for booking in lot.bookings:
            booking.doubtful = True
        try:
            done = yield from self.writer.void(whole, now, until)
        except (Refused, NoAnswer):
            return NeverTold(str(silence))
        for booking in lot.bookings:
            booking.begin_anew(self.marks.nonce(booking.now))
            if whole.untold:
                booking.let_credits_go()
        return Seen(whole.image, done)


def _is_like(image: Image, booking: Booking) -> bool:
    """Whether the bucket still is what the booking was decided for."""
    before = booking.image
    return before is None or (image.cv, image.shards) == (before.cv, before.shards)
