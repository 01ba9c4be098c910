"""Settling what a lease owes, giving back what an acquire took in vain, and filling buckets again for operators.

Each booking is one logical write with one mark. It is tried until it is surely done. When an answer was lost, the
marks of the last writers tell whether it was done. If they have moved on, nothing can tell: then a debit is booked
again (at worst it is charged twice) and a credit is not (it must never be given twice).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from zae_limiter.exceptions import NamespaceNotFoundError, RateLimiterUnavailable
from zae_limiter.running.plan import Interrupted, Plan
from zae_limiter.stores.dynamodb.batching import BatchingWriter
from zae_limiter.stores.dynamodb.bucket_cache import is_far_ahead
from zae_limiter.stores.dynamodb.bucket_writer import TRIES_AT_ONCE, Booking, BucketWriter, Seen, answers_of
from zae_limiter.stores.dynamodb.config_resolver import ConfigResolver
from zae_limiter.stores.dynamodb.config_versions import after_settling
from zae_limiter.stores.dynamodb.errors import unavailable, verb
from zae_limiter.stores.dynamodb.expressions import UpdateParams
from zae_limiter.stores.dynamodb.items import Image, image_of
from zae_limiter.stores.dynamodb.namespace import Namespace
from zae_limiter.stores.dynamodb.operations.audit import Trace, traced
from zae_limiter.stores.dynamodb.operations.paging import AT_ONCE, side_by_side
from zae_limiter.stores.dynamodb.operations.propagate import Propagation
from zae_limiter.stores.dynamodb.operations.status import Looks, by_bucket
from zae_limiter.stores.dynamodb.requests import Contended, NoAnswer, Refused
from zae_limiter.stores.dynamodb.schema import Key, bucket_key, shard_key
from zae_limiter.stores.dynamodb.shards import fits, placed, shared_out
from zae_limiter.stores.dynamodb.table_client import Window, commit
from zae_limiter.stores.dynamodb.write_forms import Terms, Wish, coming_back
from zae_limiter.stores.protocol import Leg, Posting, Settlement


class Bookings:
    """Writes that are not refused for lack of tokens."""

    def __init__(
        self,
        namespace: Namespace,
        resolver: ConfigResolver,
        writer: BucketWriter,
        batching: BatchingWriter,
        propagation: Propagation,
    ) -> None:
        self.asking = namespace.asking
        self.images = namespace.images
        self.marks = namespace.marks
        self.resolver = resolver
        self.writer = writer
        self.batching = batching
        self.propagation = propagation

    def bookings(self, ns: str, owed: Sequence[tuple[Leg, Mapping[str, int]]], *, grants: int = 0) -> list[Booking]:
        """One booking per bucket; on a divided one, per shard that paid."""
        return [
            Booking(bucket_key(ns, part.entity_id, part.resource, shard), part, deltas, grants=grants)
            for leg, owes in owed
            for shard, part, deltas in shared_out(leg, owes)
        ]

    def book(self, bookings: list[Booking], now: int, until: Window) -> Plan[None]:
        """Do all of them. Raises when time runs out; those that are ``done`` are done.

        What does not fit into its shard becomes further bookings, on other shards.
        """
        rebuilt: dict[Key, Terms] = {}
        yield from self._book(bookings, rebuilt, now, until)
        for booking in bookings:
            if booking.inc and booking.key in rebuilt:
                with suppress(NamespaceNotFoundError):  # deleted meanwhile; what was booked is booked
                    yield from self.propagation.check_terms_of_new(booking.key, rebuilt[booking.key], now, until)

    def _book(self, bookings: list[Booking], rebuilt: dict[Key, Terms], now: int, until: Window) -> Plan[None]:
        """Do all of them, and note by which terms buckets that were gone are rebuilt."""
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
                yield from self.writer.look_at(unseen, now, until)
            for booking in [booking for booking in pending if not booking.done]:
                if booking.doubtful and booking.joint:
                    yield from self._make_sure(booking, now, until)
                    continue
                booking.drop_anchor()
                creating = booking.inc and booking.image is None  # its repetition is recognised by what it creates
                if booking.doubtful and not creating and not booking.can_be_sure():
                    self._forget_doubt(booking, now)
            pending = [booking for booking in pending if not booking.done]
            for booking in [booking for booking in pending if booking.image is None]:
                terms = rebuilt[booking.key] = yield from self._terms_to_rebuild(booking.leg, until)
                failure = (yield from self._rebuild(booking, terms, now, until)) or failure
            for booking in pending:
                if booking.image is not None and is_far_ahead(booking.image, now):
                    booking.image = yield from self.propagation.bring_back(booking.key, booking.image, now, until)
            alone = [booking for booking in pending if booking.image is not None and not booking.inc]
            for booking in list(alone):
                if booking.image is not None and booking.image.shards > 1:
                    others = yield from self._share_out(booking, booking.image, now, until)
                    if others is None:
                        alone.remove(booking)
                    elif others:
                        bookings.extend(others)
                        pending.extend(others)
                        alone.extend(others)
            written = [booking for booking in alone if not booking.done]
            if written:
                yield from self.batching.post(written, lambda booking: self._params(booking, now, until), now, until)
            for booking in written:
                failure = self._hear(booking) or failure
            pending = [booking for booking in pending if not booking.done]
            tries = max((booking.tries for booking in pending), default=0)
            if pending and tries >= TRIES_AT_ONCE:
                yield from self.asking.pause(tries - 1, until, failure or Contended())

    def _share_out(self, booking: Booking, image: Image, now: int, until: Window) -> Plan[list[Booking] | None]:
        """Let other shards bear what its own cannot: by bookings of their own, or, if it is a debt, with it at once.

        Nothing (``None``): it was written, or is to be looked at again. A shard that a wrong clock has written, and
        that cannot be brought back yet, bears alone what is booked there: what it seems to owe is no debt of the
        others.
        """
        owed = booking.leg.limits
        if fits(image, booking.deltas, owed, now) or is_far_ahead(image, now):
            return []
        if booking.doubtful:
            yield from self._make_sure(booking, now, until)
            return None
        family, placed_by = {}, self.images.shards_of(shard_key(booking.key, 0))
        if not booking.tries:
            family = {key: memory.image for key in placed_by if (memory := self.images.get(key)) is not None}
        known = booking.key in family and len(family) == len(placed_by)
        if not known or placed(booking.key, booking.deltas, owed, family, now).in_debt:
            found = yield from self._look_at_family(booking.key, now, until)
            booking.image = found.get(booking.key)
            if booking.image is None or is_far_ahead(booking.image, now):
                return None  # it is gone, and the first speaks for it; or it is looked at again
            family = {key: one for key, one in found.items() if not is_far_ahead(one, now)}
        parts, in_debt = placed(booking.key, booking.deltas, owed, family, now)
        if in_debt:
            yield from self._write_together(booking, family, now, until)
            return None
        others = []
        for key, deltas in parts.items():
            if key != booking.key:
                other = Booking(key, booking.leg, deltas)
                other.nonce, other.image = self.marks.nonce(now), family[key]
                others.append(other)
        booking.deltas, booking.image = parts[booking.key], family[booking.key]
        booking.done = not booking.deltas and not booking.grants
        return others

    def _look_at_family(self, key: Key, now: int, until: Window) -> Plan[dict[Key, Image]]:
        """All shards of a bucket that are there, as they are; those that a wrong clock has written go on from now."""
        first = shard_key(key, 0)
        family: dict[Key, Image] = {}
        seen: set[Key] = set()
        while unseen := [shard for shard in self.images.shards_of(first) if shard not in seen]:
            found = yield from self.asking.get_all(unseen, until)
            seen.update(unseen)
            for shard, item in found.items():
                image = yield from self.writer.see(shard, image_of(item), now)
                there = yield from self.propagation.bring_back(shard, image, now, until)
                if there is not None:
                    family[shard] = there
        return family

    def _write_together(self, booking: Booking, family: Mapping[Key, Image], now: int, until: Window) -> Plan[None]:
        """Write to all shards at once what makes a debt of the whole bucket, or changes it.

        All are computed for one moment, and each must be as it was seen: so each owes its share, and all are out of
        debt at the same time.
        """
        owed = booking.leg.limits
        # The baseline of a shard that a limit comes back to must move.
        moment = max(now, *(image.rf + bool(coming_back(image, booking.deltas, owed)) for image in family.values()))
        parts, in_debt = placed(booking.key, booking.deltas, owed, family, moment)
        booking.image = family[booking.key]
        booking.begin_anew(self.marks.nonce(moment))
        booking.drop_anchor()
        writes = []
        for key, deltas in parts.items():
            grants = booking.grants if key == booking.key else 0
            wish = Wish(deltas, grants=grants, held=True, exactly=in_debt, owed=owed)
            writes.append({"Update": dict(self.writer.params(key, family[key], wish, moment, booking.nonce, until))})
        doubts: list[NoAnswer] = []
        try:
            reasons = yield from self.asking.transact(writes, until, doubts)
        except (Refused, NoAnswer):
            booking.doubtful = booking.joint = bool(doubts)
            raise
        except BaseException:
            booking.doubtful = booking.joint = True
            raise
        booking.tries += 1
        if reasons:
            booking.image = None
            if doubts:
                booking.doubtful = booking.joint = True
            else:
                booking.begin_anew(self.marks.nonce(now))
            return
        booking.done = True
        for key, deltas in parts.items():
            grants = booking.grants if key == booking.key else 0
            self.images.see(key, after_settling(family[key], deltas, moment, booking.nonce, grants=grants), now)
            if (memory := self.images.get(key)) is not None:
                memory.took(deltas)

    def _make_sure(self, booking: Booking, now: int, until: Window) -> Plan[None]:
        """A lost try of it may have been done, together with others or by a shard that cannot bear it any more: find
        out before it is written in another way."""
        booking.done = yield from self.writer.void(booking, now, until)
        if not booking.done and booking.untold:
            booking.let_credits_go()

    def _params(self, booking: Booking, now: int, until: Window) -> UpdateParams:
        image = booking.image
        assert image is not None
        booking.drop_anchor()
        sure = booking.can_be_sure()
        if booking.doubtful and not sure:
            self._forget_doubt(booking, now)
        return self.writer.params(
            booking.key,
            image,
            Wish(
                booking.deltas,
                grants=booking.grants,
                rebase=sure,
                held=image.shards > 1 and not is_far_ahead(image, now),
                owed=booking.leg.limits,
            ),
            max(now, image.rf + 1) if sure else now,
            booking.nonce,
            until,
            anchor=booking.anchor if sure else None,
        )

    def _forget_doubt(self, booking: Booking, now: int) -> None:
        """Nobody can tell whether the lost try was done: what is taken may be charged twice."""
        self.writer.unresolved += 1
        booking.let_credits_go()
        booking.begin_anew(self.marks.nonce(now))

    def _terms_to_rebuild(self, leg: Leg, until: Window) -> Plan[Terms]:
        """What a bucket that is gone obeys when it comes back."""
        standing = yield from self.resolver.whole_standing(leg.entity_id, leg.resource, until, fresh=True)
        terms = standing.terms()
        return terms if terms is not None and leg.source != "call" else standing.terms_of(leg)

    def _rebuild(self, booking: Booking, terms: Terms, now: int, until: Window) -> Plan[Refused | NoAnswer | None]:
        """Try to rebuild its bucket. Returns what went wrong, if somebody else was not just faster."""
        call = self.writer.call_to_create(booking, terms, now, until)
        try:
            (answer,) = yield from self.writer.ask_together([call])
        except Interrupted as stop:
            booking.note(answers_of(stop, 1)[0])
            raise
        booking.note(answer)
        booking.tries += 1
        if not isinstance(answer, (Refused, NoAnswer)):
            yield from self.writer.see(booking.key, image_of(call.params["Item"]), now)
            return None
        if isinstance(answer, Refused) and answer.by_condition:
            if answer.item is not None:
                booking.image = yield from self.writer.see(booking.key, image_of(answer.item), now)
                self._recognise(booking)
            return None
        return self._or_raise(answer)

    def _hear(self, booking: Booking) -> Refused | NoAnswer | None:
        """What became of one try. Returns what went wrong, if it was not just a wrong guess."""
        booking.tries += 1
        verdict = booking.verdict
        if isinstance(verdict, Seen):
            booking.image = verdict.image
            self._recognise(booking)
            return None
        assert verdict is not None
        return self._or_raise(verdict)

    def _recognise(self, booking: Booking) -> None:
        """Whether the bucket as it is now shows that a try whose answer was lost was done."""
        image = booking.image
        if image is None or booking.done:
            return
        if booking.is_in(image):
            booking.done = True
            self.writer.remember_own(booking)
        elif booking.inc:
            booking.doubtful, booking.inc = False, ""  # somebody else created it: ours was not

    def _or_raise(self, failure: Refused | NoAnswer) -> Refused | NoAnswer:
        """A failure after which the same may be tried again; any other is raised."""
        if isinstance(failure, NoAnswer):
            if failure.final:
                raise failure
        elif not (failure.by_throttling or failure.by_conflict):
            raise failure
        return failure


def left_of(bookings: Sequence[Booking]) -> list[Posting]:
    """What is to be booked again."""
    return [Posting(booking.leg, left) for booking in bookings if (left := booking.left())]


class Settlements:
    """The verbs that change buckets without asking whether they may."""

    def __init__(self, namespace: Namespace, bookings: Bookings, looks: Looks, propagation: Propagation) -> None:
        self.namespace = namespace
        self.asking = namespace.asking
        self.images = namespace.images
        self.bookings = bookings
        self.looks = looks
        self.propagation = propagation

    def settle(self, postings: Sequence[Posting], now: int, settlement: Settlement | None = None) -> Plan[None]:
        """Book after the fact, on every leg at once.

        When time runs out, the error says whether any of it may have been booked: then a credit must not be
        repeated, and a debit must.
        """
        until = yield from self.asking.window()
        bookings = []
        try:
            bookings = self.bookings.bookings((yield from self.namespace.ns(until)), postings)
            now, until = yield from self.namespace.checked_time(now, until)
            yield from self.bookings.book(bookings, now, until)
        except Exception as failure:
            if isinstance(failure, (Refused, NoAnswer)):
                error = unavailable(failure)
            else:
                error = RateLimiterUnavailable(f"could not book: {failure}")
            error.ambiguous = any(booking.done or booking.doubtful or booking.maybe_done for booking in bookings)
            self.bookings.writer.unresolved += any(booking.doubtful and not booking.done for booking in bookings)
            if bookings:
                error.remaining = left_of(bookings)
            raise error from (failure.__cause__ or failure)
        except BaseException:  # an interrupt between two calls, or in one
            if settlement is not None and bookings:
                self.bookings.writer.unresolved += any(booking.doubtful and not booking.done for booking in bookings)
                settlement.postings = left_of(bookings)
            raise
        self.images.forget_denials(shard_key(booking.key, 0) for booking in bookings if booking.gives_back)

    @verb
    def reset(self, entity_id: str, resource: str | None, principal: str | None, now: int) -> Plan[int]:
        until = yield from self.asking.window()
        ns = yield from self.namespace.checked_ns(until)
        now, until = yield from self.namespace.checked_time(now, until)
        images = yield from self.looks.buckets_of(ns, entity_id, resource, now, until)
        count = len(by_bucket(images.values()))
        found = list(images.items())
        for start in range(0, len(found), AT_ONCE):
            until = yield from self.asking.window()
            some = found[start : start + AT_ONCE]
            yield from side_by_side([self.propagation.fill(*one, now, until) for one in some])
        self.images.forget_denials()
        until = yield from self.asking.window()
        trace = Trace(entity_id, "buckets_reset", resource, principal, {"buckets": count})
        yield from commit(self.asking, [traced(self.asking, ns, trace, now, until)], until)
        return count
