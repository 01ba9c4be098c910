"""Settling what a lease owes, and filling buckets again."""

from __future__ import annotations

from collections.abc import Sequence

from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.errors import unavailable, verb
from zae_limiter.stores.dynamodb.items import Image, image_of
from zae_limiter.stores.dynamodb.keys import Key, shard_key
from zae_limiter.stores.dynamodb.plans.asking import Window
from zae_limiter.stores.dynamodb.plans.looking import LookingPlans, by_bucket
from zae_limiter.stores.dynamodb.plans.posting import TRIES_AT_ONCE
from zae_limiter.stores.dynamodb.requests import NoAnswer, Refused
from zae_limiter.stores.dynamodb.writes import Wish, update
from zae_limiter.stores.protocol import Posting


class SettlingPlans(LookingPlans):
    """The verbs that change buckets without asking whether they may."""

    def settle(self, postings: Sequence[Posting], now: int) -> Plan[None]:
        """Book after the fact, on every leg at once.

        When time runs out, the error says whether any of it may have been booked: then a credit must not be
        repeated, and a debit must.
        """
        until = yield from self.asking.window()
        bookings = []
        try:
            bookings = self.bookings((yield from self.ns(until)), postings)
            yield from self.book(bookings, self.images.corrected(now), until)
        except Exception as failure:
            if isinstance(failure, (Refused, NoAnswer)):
                error = unavailable(failure)
            else:
                error = RateLimiterUnavailable(f"could not book: {failure}")
            error.ambiguous = any(booking.done or booking.doubtful for booking in bookings)
            self.unresolved += any(booking.doubtful and not booking.done for booking in bookings)
            if bookings:
                error.remaining = [Posting(booking.leg, left) for booking in bookings if (left := booking.left())]
            raise error from (failure.__cause__ or failure)
        self.images.forget_denials(shard_key(booking.key, 0) for booking in bookings if booking.gives_back)

    @verb
    def reset(self, entity_id: str, resource: str | None, principal: str | None, now: int) -> Plan[int]:
        until = yield from self.asking.window()
        ns = yield from self.checked_ns(until)
        images = yield from self.buckets_of(ns, entity_id, resource, now, until)
        count = len(by_bucket(images.values()))
        for key, image in images.items():
            yield from self._fill(key, image, self.images.corrected(now), until)
        self.images.forget_denials()
        yield from self.note_change(
            ns, entity_id, "buckets_reset", resource, principal, {"buckets": count}, now, until
        )
        return count

    def _fill(self, key: Key, image: Image, now: int, until: Window) -> Plan[None]:
        nonce = self.marks.nonce(now)
        tries = 0
        while True:
            write = update(
                image,
                Wish({}, fill=True),
                now=now,
                nonce=nonce,
                epoch_s=until.epoch_s,
                ttl_margin_s=self.asking.ttl_margin_s,
            )
            call = self.call_to_update(write.params(self.asking.table, key), until)
            (answer,) = yield from self.ask_together([call])
            if not isinstance(answer, (Refused, NoAnswer)):
                yield from self.see(key, image_of(answer["Attributes"]), now)
                return
            if isinstance(answer, Refused):
                if not answer.by_condition and not (answer.by_throttling or answer.by_conflict):
                    raise answer
                if answer.by_condition and answer.item is None:
                    self.images.forget(key)
                    return
                if answer.item is not None:
                    image = image_of(answer.item)
                    if nonce in image.ring:
                        return
            tries += 1
            if tries >= TRIES_AT_ONCE:
                yield from self.asking.pause(tries - 1, until, answer)
