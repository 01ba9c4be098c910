"""One bucket of an acquire: which shard it is drawn from, what lacks of it, and what is said of it in a denial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from zae_limiter.bucket import MILLI, Balance, share
from zae_limiter.models.status import LimitStatus
from zae_limiter.stores.dynamodb.bucket_cache import BucketCache, is_far_ahead
from zae_limiter.stores.dynamodb.bucket_writer import BucketWrite, SeenBucket
from zae_limiter.stores.dynamodb.config_versions import adopted, lacking, needed_of
from zae_limiter.stores.dynamodb.items import BucketSnapshot
from zae_limiter.stores.dynamodb.operations.acquire_sharded import THROTTLES_BORNE
from zae_limiter.stores.dynamodb.schema import Key, shard_of
from zae_limiter.stores.dynamodb.shards import over_shards
from zae_limiter.stores.dynamodb.write_forms import Terms
from zae_limiter.stores.limit_statuses import denial, statuses_of
from zae_limiter.stores.protocol import Denial, Draw, Leg

THROTTLED_WAIT_S = 0.1


class AcquireLeg(BucketWrite):
    """One bucket of a draw. ``key`` is that of the shard it is drawn from, ``first`` that of shard 0."""

    grants = 1
    needed: Mapping[str, int]
    fresh = False
    """The snapshot came during this draw."""
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
        taken: dict[str, int] = {}
        for name, amount in draw.wanted.items():
            if amount and name in leg.names:
                taken[name] = amount * MILLI
        self.deltas = self.needed = taken
        if draw.reserved:
            self.needed = needed_of(terms, draw.wanted, draw.reserved.get(leg.entity_id, {}))
        self.terms = terms
        self.key = self.first = key
        self.tried: set[Key] = set()

    def may_join(self, snapshot: BucketSnapshot) -> bool:
        """Whether it can be written together with others: only by those who know the same version."""
        return snapshot.cv == self.terms.cv and super().may_join(snapshot)

    def move_to(self, key: Key, snapshot: BucketSnapshot | None, *, fresh: bool) -> None:
        """Draw from another shard."""
        self.key, self.snapshot, self.fresh = key, snapshot, fresh

    @property
    def is_stale(self) -> bool:
        """Whether its shard obeys another version than ours, or has limits where there are to be none any more."""
        snapshot = self.snapshot
        if snapshot is None:
            return False
        return snapshot.cv != self.terms.cv or not (self.leg.limits or snapshot.balances.keys() <= snapshot.retired)

    def is_stale_anywhere(self, cache: BucketCache) -> bool:
        """Whether any shard of its bucket, as they are remembered, does."""
        return self.is_stale or any(snapshot.cv != self.terms.cv for snapshot in cache.family(self.first))

    def lacks(self, now: int) -> bool:
        """Whether, by the snapshot, its shard does not hold what is needed."""
        return bool(lacking(adopted(self.snapshot, self.terms, now), self.needed, now))

    def fits(self) -> bool:
        """Whether a full bucket could ever hold what is needed."""
        return all(self.needed.get(limit.name, 0) <= limit.burst * MILLI for limit in self.leg.limits)

    def fits_here(self) -> bool:
        """Whether its shard, if it were full, could."""
        snapshot = self.snapshot
        return (
            snapshot is None
            or snapshot.shards == 1
            or all(
                self.needed.get(limit.name, 0) <= share(limit.burst * MILLI, snapshot.shard, snapshot.shards)
                for limit in self.leg.limits
            )
        )

    def whole(self, cache: BucketCache, now: int) -> tuple[Balance, ...]:
        """Every limit over all shards, as they are remembered."""
        if len(cache.shards_of(self.first)) == 1:
            return adopted(self.snapshot, self.terms, now)
        return over_shards(cache.family(self.first) or [self.snapshot], self.terms, now)

    def payment(self) -> list[tuple[Key, Mapping[str, int]]]:
        """Which shards pay how much."""
        return list(self.payers) or [(self.key, self.deltas)]

    def paid_leg(self) -> Leg:
        """Its leg, with the shards that paid."""
        if self.key is self.first and not self.payers and not self.leg.paid:
            return self.leg
        paid = tuple((shard_of(key), deltas) for key, deltas in self.payment())
        return self.leg if not self.leg.paid and [shard for shard, _ in paid] == [0] else replace(self.leg, paid=paid)

    def seen(self, result: SeenBucket, now: int) -> None:
        """Its bucket was seen, and with it whether it was written; perhaps by a try whose answer was lost."""
        self.fresh, self.snapshot = self.fresh or not result.done, result.snapshot
        self.granted_at = max(self.now, now)
        if self.snapshot is not None:
            self.recognise(self.snapshot)

    def short(self, cache: BucketCache, now: int) -> list[Balance]:
        """What lacks, over all shards."""
        return lacking(self.whole(cache, now), self.needed, now)


def statuses(draw: Draw, legs: Sequence[AcquireLeg], cache: BucketCache, now: int) -> tuple[LimitStatus, ...]:
    """Every limit of every leg, as it stands for this draw."""
    balances = [leg.whole(cache, now) for leg in legs]
    found = statuses_of([leg.leg for leg in legs], balances, draw.wanted, draw.reserved, now)
    astray = {
        leg.leg.entity_id: wait
        for leg in legs
        if leg.snapshot is not None and is_far_ahead(leg.snapshot, now)
        if (wait := cache.back_again_in(leg.key, now)) is not None
    }
    if not astray:
        return found
    # Refill goes on when the bucket is brought back, not when that clock's time has come.
    return tuple(
        replace(status, retry_after_seconds=min(status.retry_after_seconds, astray[status.entity_id] / MILLI))
        if status.retry_after_seconds and status.entity_id in astray
        else status
        for status in found
    )


def denial_of(draw: Draw, legs: Sequence[AcquireLeg], cache: BucketCache, now: int) -> Denial:
    """Something lacks."""
    return denial([leg.leg for leg in legs], statuses(draw, legs, cache, now))


def denial_under_load(draw: Draw, legs: Sequence[AcquireLeg], cache: BucketCache, now: int) -> Denial:
    """Not now, whatever the bucket holds. If not even the limits could be read, it has no statuses."""
    if not legs:
        unread = Leg(draw.entity_id, draw.resource, (), "system")
        return Denial((), unread, round(THROTTLED_WAIT_S * MILLI))
    throttled = [leg for leg in legs if leg.throttled > THROTTLES_BORNE] or legs
    hot = {leg.leg.entity_id for leg in throttled}
    return denial(
        [leg.leg for leg in legs],
        tuple(
            replace(status, exceeded=True, retry_after_seconds=status.retry_after_seconds or THROTTLED_WAIT_S)
            if status.entity_id in hot
            else status
            for status in statuses(draw, legs, cache, now)
        ),
    )
