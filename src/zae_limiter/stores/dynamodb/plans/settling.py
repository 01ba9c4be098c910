"""Settling what a lease owes, and filling buckets again."""

from __future__ import annotations

from collections.abc import Sequence

from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.bookings import Booking
from zae_limiter.stores.dynamodb.errors import unavailable, verb
from zae_limiter.stores.dynamodb.keys import shard_key
from zae_limiter.stores.dynamodb.plans.audit import Trace, traced
from zae_limiter.stores.dynamodb.plans.base import Namespace
from zae_limiter.stores.dynamodb.plans.booking import Bookings
from zae_limiter.stores.dynamodb.plans.changes import commit
from zae_limiter.stores.dynamodb.plans.listing import AT_ONCE, side_by_side
from zae_limiter.stores.dynamodb.plans.looking import Looks, by_bucket
from zae_limiter.stores.dynamodb.plans.rewriting import Propagation
from zae_limiter.stores.dynamodb.requests import NoAnswer, Refused
from zae_limiter.stores.protocol import Posting, Settlement


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
            error.ambiguous = any(booking.done or booking.doubtful for booking in bookings)
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
