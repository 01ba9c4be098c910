"""The legs of an acquire, each with its bucket: which shard it is drawn from, what lacks of it, and what a grant or a
denial says of that.

Most acquires are *warm*: every leg is remembered, and its first write is granted. :func:`warm_legs` finds these legs,
and decides nothing that the rest of an acquire would decide otherwise. Where anything is unusual there are none, and
everything is looked at in turn; where nothing is, that comes to the same writes. A test holds the two against each
other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from zae_limiter.bucket import FURTHEST_AHEAD_MS, MILLI, Balance, balance_of
from zae_limiter.models.holds import Hold
from zae_limiter.models.status import LimitStatus
from zae_limiter.stores.dynamodb.bucket_cache import BucketCache, is_far_ahead, newest
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot
from zae_limiter.stores.dynamodb.bucket_write import BucketWrite, SeenBucket
from zae_limiter.stores.dynamodb.config_resolver import HIGHEST_TREE, ResolvedConfig
from zae_limiter.stores.dynamodb.config_versions import adopted, due_at, judges, lacking, needed_of
from zae_limiter.stores.dynamodb.intents import NOTHING, Terms, cascaded_tallies, denial_tallies
from zae_limiter.stores.dynamodb.schema import Key, shard_of
from zae_limiter.stores.dynamodb.shards import over_shards
from zae_limiter.stores.dynamodb.slot_work import DrawWork, level_by, life_on
from zae_limiter.stores.dynamodb.write_load import is_overloaded
from zae_limiter.stores.limit_statuses import denial, knows, statuses_of
from zae_limiter.stores.protocol import Denial, Draw, Grant, Leg, leg_after

if TYPE_CHECKING:
    from zae_limiter.stores.dynamodb.operations.acquire import Acquire


THROTTLES_BORNE = 2
"""So often a bucket's own throttled key is met before the draw is denied: it is load, not an outage."""

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
    exactly: frozenset[str] = frozenset()
    """The limits of which these shards must hold what they were seen to hold."""
    lives: Mapping[Key, str] = {}
    """Of these shards, if they lend: a hold belongs to one life of one."""
    counted_before: frozenset[str] | None = None
    """What the legs before it count, if limits that only watch have a say in that."""
    work: DrawWork | None = None

    def __init__(self, key: Key, terms: Terms, draw: Draw) -> None:
        """``key`` is that of shard 0."""
        leg = self.leg = terms.leg
        taken: dict[str, int] = {}
        for name, amount in draw.wanted.items():
            if amount and name in leg.names:
                taken[name] = amount * MILLI
        self.deltas = self.needed = taken
        if draw.reserved:
            self.needed = needed_of(terms, draw.wanted, draw.reserved.get(leg.place, {}))
        if not leg.is_plain and any(limit.is_held or not limit.enforce for limit in leg.limits):
            self.work = DrawWork(leg, taken)
            self.deltas = self.work.wanted
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
        return snapshot.cv != self.terms.cv or not (self.leg.limits or not snapshot.limits)

    def is_stale_anywhere(self, cache: BucketCache) -> bool:
        """Whether any shard of its bucket, as they are remembered, does."""
        return self.is_stale or any(snapshot.cv != self.terms.cv for snapshot in cache.family(self.first).values())

    def lacks(self, now: int) -> bool:
        """Whether, by the snapshot, its shard does not hold what is needed."""
        return bool(lacking(adopted(self.snapshot, self.terms, now), self.needed, now))

    def looks_drained(self, cache: BucketCache, now: int) -> bool:
        """Whether it probably lacks by now, as fast as its shard was drawn from of late."""
        cached, guesses = cache.buckets.get(self.key), NOTHING
        if cached is not None and cached.rates and not self.fresh:
            guesses = cached.guesses(now)
        for balance in adopted(self.snapshot, self.terms, now):
            if level_by(balance, guesses, now) < self.needed.get(balance.name, 0) and judges(
                balance.limit, self.needed
            ):
                return True
        return False

    def fits(self) -> bool:
        """Whether a full bucket could ever hold what is needed."""
        return all(
            self.needed.get(limit.name, 0) <= limit.burst * MILLI or not limit.enforce or self._is_lifted(limit.name)
            for limit in self.leg.limits
        )

    def _is_lifted(self, name: str) -> bool:
        """Whether a limit may hold more than its burst in this period."""
        balance = None if self.snapshot is None else self.snapshot.balances.get(name)
        return balance is not None and balance.extra > 0

    def fits_here(self) -> bool:
        """Whether its shard, if it were full, could."""
        snapshot = self.snapshot
        return (
            snapshot is None
            or snapshot.shards == 1
            or all(
                self.needed.get(limit.name, 0) <= balance_of(limit, 0, shard=snapshot.shard, shards=snapshot.shards).bx
                for limit in self.leg.limits
                if limit.enforce and not self._is_lifted(limit.name)
            )
        )

    def whole(self, cache: BucketCache, now: int) -> tuple[Balance, ...]:
        """Every limit over all shards, as they are remembered."""
        if len(cache.shards_of(self.first)) == 1:
            return adopted(self.snapshot, self.terms, now)
        return over_shards(list(cache.family(self.first).values()) or [self.snapshot], self.terms, now)

    # Limits that lend, and those that only watch

    def judge(self, snapshot: BucketSnapshot | None, now: int, guesses: Mapping[str, int] = NOTHING) -> None:
        """Decide until when it lends, and which limits that only watch would have refused; unless it is in doubt."""
        work = self.work
        if work is not None and not self.doubtful and not self.payers:
            moment = now if snapshot is None else max(now, snapshot.rf)
            work.judge(adopted(snapshot, self.terms, now), self.needed, moment, guesses)
            self.deltas = work.taken()

    def is_possible(self, now: int) -> bool:
        """Whether what is in doubt can be repeated as it was."""
        work, snapshot = self.work, self.snapshot
        if work is None or snapshot is None or self.payers:
            return True
        return work.is_possible(snapshot, adopted(snapshot, self.terms, now), now)

    def parts_of(self, deltas: Mapping[str, int]) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """What a shard pays, of limits that refill and of those that lend."""
        held = self.leg.held
        if not held:
            return deltas, NOTHING
        refilled = {name: milli for name, milli in deltas.items() if name not in held}
        return refilled, {name: milli for name, milli in deltas.items() if name in held}

    @property
    def refused(self) -> frozenset[str]:
        """The names of limits that only watch and would have refused."""
        return frozenset() if self.work is None else frozenset(key.rstrip("/") for key in self.work.refused)

    def counting_leg(self) -> Leg:
        """Its leg, of whose limits those have cascaded that a leg before it has counted."""
        leg, before = self.leg, self.counted_before
        if before is None or leg.cascaded is None:
            return leg
        return replace(leg, cascaded=leg.cascaded & before - self.refused)

    def tallies(self) -> Mapping[str, int]:
        """What it counts beside what it takes: of what cascaded only what a leg before it has counted."""
        if self.counted_before is None:
            return super().tallies()
        cascaded = cascaded_tallies(self.counting_leg(), {**self.deltas, **self.counted}, self.grants)
        return {**cascaded, **denial_tallies(self.denials)} if self.denials else cascaded

    def holds(self) -> list[Hold]:
        """What it holds of calls in flight, once it is written; each in the life of the shard that lent it."""
        work, snapshot = self.work, self.snapshot
        if work is None or not work.dues:
            return []
        found: list[Hold] = []
        if not self.payers:
            inc = self.inc or ("" if snapshot is None else snapshot.inc)
            return work.holds(self.leg, life_on(shard_of(self.key), inc), work.lends)
        for key, deltas in self.payers:
            lent = self.parts_of(deltas)[1]
            found += work.holds(self.leg, life_on(shard_of(key), self.lives[key]), lent)
        return found

    def payment(self) -> list[tuple[Key, Mapping[str, int]]]:
        """Which shards pay how much of limits that refill."""
        if not self.payers:
            return [(self.key, self.deltas)]
        return [(key, self.parts_of(deltas)[0]) for key, deltas in self.payers]

    def paid_leg(self) -> Leg:
        """Its leg, with the shards that paid, and the limits that would have refused."""
        leg = self.counting_leg()
        if self.work is not None and self.work.refused:
            leg = replace(leg, refused=self.refused)
        if self.key is self.first and not self.payers and not leg.paid:
            return leg
        paid = tuple((shard_of(key), deltas) for key, deltas in self.payment())
        return leg if not leg.paid and [shard for shard, _ in paid] == [0] else replace(leg, paid=paid)

    def seen(self, result: SeenBucket, now: int) -> None:
        """Its bucket was seen, and with it whether it was written; perhaps by a try whose answer was lost."""
        self.fresh, self.snapshot = self.fresh or not result.done, result.snapshot
        self.granted_at = max(self.now, now)
        if self.snapshot is not None:
            self.recognise(self.snapshot)

    def short(self, cache: BucketCache, now: int) -> list[Balance]:
        """What lacks, over all shards."""
        return lacking(self.whole(cache, now), self.needed, now)

    def is_denied_still(self, cache: BucketCache, now: int) -> bool:
        """Whether what lacks was refused a moment ago, so that it need not be asked for again."""
        cached = cache.get(self.first)
        if cached is None or not cached.denied or self.is_stale_anywhere(cache):
            return False
        return any(
            cached.still_denies(balance.name, self.needed.get(balance.name, 0), now)
            for balance in self.short(cache, now)
        )

    def remember_denial(self, cache: BucketCache, now: int) -> None:
        """What lacks of it is refused until it is due."""
        cached = cache.get(self.first)
        if cached is not None:
            due = {
                balance.name: due_at(balance, self.needed.get(balance.name, 0), now)
                for balance in self.short(cache, now)
            }
            cached.deny(self.needed, due, now)


def versions_seen(legs: Sequence[AcquireLeg], cache: BucketCache) -> dict[Key, str]:
    """What every bucket, with all its shards, is known to obey."""
    seen = {key: snapshot.cv for leg in legs for key, snapshot in cache.family(leg.first).items()}
    return seen | {leg.key: leg.snapshot.cv for leg in legs if leg.snapshot is not None}


def count_before(legs: Sequence[AcquireLeg], leg: AcquireLeg) -> None:
    """Tell a leg what those before it count, where limits that only watch have refused: nothing of those."""
    before: set[str] = set()
    for other in legs:
        if other is leg:
            break
        before |= other.leg.names - other.refused
    watching = any(
        limit for other in legs if other.work is not None for limit in other.leg.limits if not limit.enforce
    )
    leg.counted_before = frozenset(before) if watching and leg.leg.cascaded is not None else None


def statuses(draw: Draw, legs: Sequence[AcquireLeg], cache: BucketCache, now: int) -> tuple[LimitStatus, ...]:
    """Every limit of every leg, as it stands for this draw."""
    balances = [leg.whole(cache, now) for leg in legs]
    found = statuses_of([leg.leg for leg in legs], balances, draw.wanted, draw.reserved, now)
    astray = {
        leg.leg.place: wait
        for leg in legs
        if leg.snapshot is not None and is_far_ahead(leg.snapshot, now)
        if (wait := cache.back_again_in(leg.key, now)) is not None
    }
    if not astray:
        return found
    # Refill goes on when the bucket is brought back, not when that clock's time has come.
    return tuple(
        status._replace(retry_after_seconds=min(status.retry_after_seconds, astray[place] / MILLI))
        if status.retry_after_seconds and (place := (status.entity_id, status.resource)) in astray
        else status
        for status in found
    )


def denial_of(draw: Draw, legs: Sequence[AcquireLeg], cache: BucketCache, now: int) -> Denial:
    """Something lacks."""
    return denial([leg.leg for leg in legs], statuses(draw, legs, cache, now))


def denial_under_load(draw: Draw, legs: Sequence[AcquireLeg], cache: BucketCache, now: int) -> Denial:
    """Not now, whatever the bucket holds. If not even the limits could be read, it has no statuses.

    Where every limit only watches it is let through, uncounted: such a limit refuses nothing.
    """
    if not legs:
        unread = Leg(draw.entity_id, draw.resource, (), "system")
        return Denial((), unread, round(THROTTLED_WAIT_S * MILLI))
    throttled = [leg for leg in legs if leg.throttled > THROTTLES_BORNE and leg.leg.limits] or legs
    hot = {leg.leg.place for leg in throttled}
    found = tuple(
        status._replace(exceeded=True, retry_after_seconds=status.retry_after_seconds or THROTTLED_WAIT_S)
        if status.enforced and (status.entity_id, status.resource) in hot
        else status
        for status in statuses(draw, legs, cache, now)
    )
    if any(status.refuses for status in found):
        denied = denial([leg.leg for leg in legs], found)
    else:
        is_let_through = not any(status.enforced for status in found)
        shown = found if is_let_through else ()  # it is load that refuses, and none of them
        denied = Denial(shown, throttled[0].leg, round(THROTTLED_WAIT_S * MILLI))
        denied.observed = is_let_through
    denied.by_load = True
    return denied


# Warm legs


def warm_legs(acquire: Acquire) -> Sequence[AcquireLeg]:
    """The legs of a draw, if all of them can be written at once as they are.

    Their terms and their buckets are remembered and of one version, no bucket is sharded, nothing was refused
    there of late, no clock that is wrong has written to one, and of several none looks drained.
    """
    parts, draw, legs = acquire.parts, acquire.draw, list[AcquireLeg]()
    if parts.namespace.known_ns is None or draw.limits is not None or draw.legs is not None or draw.record:
        return ()
    configs, entity_id = parts.resolver.configs, draw.entity_id
    counted: frozenset[str] | None = None
    while True:
        resolved = configs.peek((entity_id, draw.resource), acquire.deadline.started)
        if resolved is None or resolved.switches:
            return ()
        for part in (resolved,) if resolved.total is None else (resolved, resolved.total):
            leg = _warm_leg(acquire, part, counted)
            if leg is None:
                return ()
            counted = leg.leg.names if counted is None else counted | leg.leg.names
            legs.append(leg)
        if not resolved.cascade or resolved.parent_id is None:
            break
        if len(legs) >= HIGHEST_TREE:
            return ()
        entity_id = resolved.parent_id
    known = legs[0].leg.known.issuperset(draw.wanted) or knows([leg.leg for leg in legs], draw.wanted)
    if not known or (len(legs) > 1 and (watches(legs) or not look_healthy(acquire, legs))):
        return ()
    configs.hits += len(legs)
    return legs


def _warm_leg(acquire: Acquire, resolved: ResolvedConfig, counted: frozenset[str] | None) -> AcquireLeg | None:
    """One of them, after those that count these limits; ``None`` if something about it is unusual."""
    key, own, cache = resolved.bucket, resolved.leg, acquire.parts.cache
    cached = cache.buckets.get(key)
    if (
        own is None
        or cached is None
        or cached.denied
        or cached.throttled
        or cached.newest > acquire.now + FURTHEST_AHEAD_MS
        or cached.snapshot.cv != resolved.cv
        or cached.snapshot.shards != 1
        or key in cache.sharded
    ):
        return None
    own = own if counted is own.cascaded is None else leg_after(own, counted)
    leg = AcquireLeg(key, Terms(own, resolved.cv, resolved.parent_id, resolved.cascade), acquire.draw)
    for limit in own.limits:
        if leg.needed.get(limit.name, 0) > limit.burst * MILLI and limit.enforce:
            return None
    leg.snapshot = cached.snapshot
    return leg


def look_healthy(acquire: Acquire, legs: Sequence[AcquireLeg]) -> bool:
    """Whether none of several legs looks drained."""
    return not any(leg.looks_drained(acquire.parts.cache, acquire.now) for leg in legs)


def watches(legs: Sequence[AcquireLeg]) -> bool:
    """Whether limits only watch in some of these. Then one leg is written after the other: what a leg counts that
    those before it have counted too depends on what those say."""
    return any(leg.work is not None and not all(limit.enforce for limit in leg.leg.limits) for leg in legs)


def warm_grant(draw: Draw, legs: Sequence[AcquireLeg], now: int) -> Grant | None:
    """The grant, if every leg of a draw was written and there is nothing else to do."""
    granted_at, balances, tokens, granted = now, list[Balance](), list[int](), list[Leg]()
    holds: list[Hold] = []
    for leg in legs:
        snapshot = leg.result.snapshot if leg.done and isinstance(leg.result, SeenBucket) else None
        if snapshot is None or snapshot.shards != 1 or snapshot.cv != leg.terms.cv:
            return None
        if snapshot.load_level < 0 and is_overloaded(snapshot, max(now, newest(snapshot))):
            return None
        for limit in leg.leg.limits:
            balance = snapshot.balances.get(limit.name) if leg.work is None else snapshot.balance_of(limit)
            if balance is None:
                return None
            balances.append(balance)
            tokens.append(balance.tk if leg.work is None else balance.left(now))
        granted_at = max(granted_at, leg.now)
        if leg.work is None:
            granted.append(leg.leg)
        else:
            leg.snapshot = snapshot
            granted.append(leg.paid_leg())
            holds += leg.holds()
    return Grant(tuple(granted), draw.wanted, balances, tokens, granted_at, holds=tuple(holds))
