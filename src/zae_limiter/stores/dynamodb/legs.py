"""One bucket of a draw, and how far it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from zae_limiter.bucket import MILLI, Balance, share
from zae_limiter.stores.dynamodb.adopting import adopted, lacking, needed_of, taken_of
from zae_limiter.stores.dynamodb.bookings import Booking
from zae_limiter.stores.dynamodb.images import Images
from zae_limiter.stores.dynamodb.items import Image
from zae_limiter.stores.dynamodb.keys import Key, shard_of
from zae_limiter.stores.dynamodb.payments import over_shards
from zae_limiter.stores.dynamodb.writes import Terms
from zae_limiter.stores.protocol import Draw, Leg

SHARDS_TRIED = 3
"""So many shards are tried one by one before all are looked at."""


class LegUnderWay(Booking):
    """One bucket of a draw. ``key`` is that of the shard it is drawn from, ``first`` that of shard 0."""

    grants = 1
    needed: Mapping[str, int]
    fresh = False
    """The image came during this draw."""
    granted_at = 0
    """What it was computed for, perhaps together with others."""
    throttled = 0
    """So often its shard took no more writes."""
    is_hot = False
    """It did not take the last one."""
    all_seen = False
    """Every shard was looked at during this draw."""
    payers: Sequence[tuple[Key, Mapping[str, int]]] = ()
    """If several shards pay together."""

    def __init__(self, key: Key, terms: Terms, draw: Draw) -> None:
        """``key`` is that of shard 0."""
        leg = self.leg = terms.leg
        self.deltas = self.needed = taken_of(terms, draw.wanted)
        if draw.reserved:
            self.needed = needed_of(terms, draw.wanted, draw.reserved.get(leg.entity_id, {}))
        self.terms = terms
        self.key = self.first = key
        self.tried: set[Key] = set()

    def may_join(self, image: Image) -> bool:
        """Whether it can be written together with others: only by those who know the same version."""
        return image.cv == self.terms.cv and super().may_join(image)

    def move_to(self, key: Key, image: Image | None, *, fresh: bool) -> None:
        """Draw from another shard."""
        self.key, self.image, self.fresh = key, image, fresh

    @property
    def is_stale(self) -> bool:
        """Whether its shard obeys another version than ours."""
        return self.image is not None and self.image.cv != self.terms.cv

    def is_stale_anywhere(self, images: Images) -> bool:
        """Whether any shard of its bucket, as they are remembered, does."""
        return self.is_stale or any(image.cv != self.terms.cv for image in images.family(self.first))

    def lacks(self, now: int) -> bool:
        """Whether, by the image, its shard does not hold what is needed."""
        return bool(lacking(adopted(self.image, self.terms, now), self.needed, now))

    def fits(self) -> bool:
        """Whether a full bucket could ever hold what is needed."""
        return all(self.needed.get(limit.name, 0) <= limit.burst * MILLI for limit in self.leg.limits)

    def fits_here(self) -> bool:
        """Whether its shard, if it were full, could."""
        image = self.image
        return (
            image is None
            or image.shards == 1
            or all(
                self.needed.get(limit.name, 0) <= share(limit.burst * MILLI, image.shard, image.shards)
                for limit in self.leg.limits
            )
        )

    def whole(self, images: Images, now: int) -> tuple[Balance, ...]:
        """Every limit over all shards, as they are remembered."""
        if len(images.shards_of(self.first)) == 1:
            return adopted(self.image, self.terms, now)
        return over_shards(images.family(self.first) or [self.image], self.terms, now)

    def payment(self) -> list[tuple[Key, Mapping[str, int]]]:
        """Which shards pay how much."""
        return list(self.payers) or [(self.key, self.deltas)]

    def paid_leg(self) -> Leg:
        """Its leg, with the shards that paid."""
        if self.key is self.first and not self.payers and not self.leg.paid:
            return self.leg
        paid = tuple((shard_of(key), deltas) for key, deltas in self.payment())
        return self.leg if not self.leg.paid and [shard for shard, _ in paid] == [0] else replace(self.leg, paid=paid)
