"""The straight way of most draws: all that decides their first write is remembered, so it goes out at once, and then
they are done.

Nothing is decided here that ``drawing`` would decide otherwise. Where anything is not as it is in most draws there is
no leg at hand, and everything is looked at in turn; where everything is, that comes to the same write. A test holds
the two against each other.
"""

from __future__ import annotations

from zae_limiter.bucket import MILLI
from zae_limiter.stores.dynamodb.bookings import Seen
from zae_limiter.stores.dynamodb.gauge import is_pressed
from zae_limiter.stores.dynamodb.images import is_far_ahead, newest
from zae_limiter.stores.dynamodb.keys import bucket_key
from zae_limiter.stores.dynamodb.legs import LegUnderWay
from zae_limiter.stores.dynamodb.plans.asking import Window
from zae_limiter.stores.dynamodb.plans.base import Namespace
from zae_limiter.stores.dynamodb.plans.booking import Bookings
from zae_limiter.stores.dynamodb.plans.posting import BatchingWriter
from zae_limiter.stores.dynamodb.plans.resolving import ConfigResolver
from zae_limiter.stores.dynamodb.plans.rewriting import Propagation
from zae_limiter.stores.dynamodb.plans.writing import BucketWriter
from zae_limiter.stores.dynamodb.writes import Terms
from zae_limiter.stores.protocol import Draw, Grant


class Acquiring:
    """What an acquire works with, and legs that need no second thought."""

    def __init__(
        self,
        namespace: Namespace,
        resolver: ConfigResolver,
        writer: BucketWriter,
        batching: BatchingWriter,
        propagation: Propagation,
        bookings: Bookings,
    ) -> None:
        self.namespace = namespace
        self.asking = namespace.asking
        self.images = namespace.images
        self.marks = namespace.marks
        self.resolver = resolver
        self.writer = writer
        self.batching = batching
        self.propagation = propagation
        self.bookings = bookings

    def leg_at_hand(self, draw: Draw, now: int, until: Window) -> LegUnderWay | None:
        """The only leg of a draw, if it can be written as it is.

        Its terms and its bucket are remembered and of one version, the bucket is not divided, nothing was refused
        there of late, and no clock that is wrong has written to it.
        """
        ns, entity_id, resource = self.namespace.known_ns, draw.entity_id, draw.resource
        standing = self.resolver.peek(entity_id, resource, until)
        if (
            ns is None
            or standing is None
            or standing.leg is None
            or (standing.cascade and standing.parent_id is not None)
            or draw.limits is not None
            or draw.legs is not None
        ):
            return None
        key, own, images = bucket_key(ns, entity_id, resource), standing.leg, self.images
        memory = images.get(key)
        if memory is None or memory.denied or memory.throttled:
            return None
        image = memory.image
        if is_far_ahead(image, now):
            return None
        if image.cv != standing.cv or image.shards != 1 or (images.any_divided and len(images.shards_of(key)) > 1):
            return None
        if not own.names.issuperset(draw.wanted):
            return None
        leg = LegUnderWay(key, Terms(own, standing.cv, standing.parent_id, standing.cascade), draw)
        for limit in own.limits:
            if leg.needed.get(limit.name, 0) > limit.burst * MILLI:
                return None
        self.resolver.count_hit()
        leg.image = image
        return leg

    def granted_at_hand(self, leg: LegUnderWay, draw: Draw, now: int) -> Grant | None:
        """The grant, if the only leg of a draw was written and there is nothing else to do."""
        image = leg.verdict.image if leg.done and isinstance(leg.verdict, Seen) else None
        if image is None or image.shards != 1 or image.cv != leg.terms.cv:
            return None
        if image.gauge < 0 and is_pressed(image, max(now, newest(image))):
            return None
        own, held = leg.leg, image.balances
        if not held.keys() >= own.names:
            return None
        balances = [held[limit.name] for limit in own.limits]
        return Grant((own,), draw.wanted, balances, [balance.tk for balance in balances], max(now, leg.now))
