"""An acquire in progress: what it works with, its legs, and what must be given back if it fails.

Most acquires are a single remembered leg whose first write is granted: :meth:`Acquirer.warm_leg` finds it, and
nothing is decided there that ``acquire`` would decide otherwise. Where anything is not as it is in most acquires
there is no such leg, and everything is looked at in turn; where everything is, that comes to the same write. A test
holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from zae_limiter.bucket import MILLI, Balance, share
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.batching import BatchingWriter
from zae_limiter.stores.dynamodb.bucket_cache import BucketCache, is_far_ahead, newest
from zae_limiter.stores.dynamodb.bucket_writer import BucketWrite, BucketWriter, SeenBucket, WriteResult
from zae_limiter.stores.dynamodb.config_resolver import ConfigResolver
from zae_limiter.stores.dynamodb.config_versions import adopted, lacking, may_follow, needed_of, taken_of
from zae_limiter.stores.dynamodb.expressions import UpdateParams
from zae_limiter.stores.dynamodb.items import BucketSnapshot
from zae_limiter.stores.dynamodb.namespace import Namespace
from zae_limiter.stores.dynamodb.operations.propagate import Propagation
from zae_limiter.stores.dynamodb.operations.settle import SettlementWriter
from zae_limiter.stores.dynamodb.requests import KEY_THROTTLED, Contended, DeadlineOver, NoAnswer, Refused
from zae_limiter.stores.dynamodb.schema import Key, bucket_key, shard_of
from zae_limiter.stores.dynamodb.shards import over_shards
from zae_limiter.stores.dynamodb.table_client import Deadline
from zae_limiter.stores.dynamodb.write_forms import Intent, Terms
from zae_limiter.stores.dynamodb.write_load import is_overloaded
from zae_limiter.stores.protocol import Draw, Grant, Leg

SHARDS_TRIED = 3
"""So many shards are tried one by one before all are looked at."""


class AcquireLeg(BucketWrite):
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

    def may_join(self, snapshot: BucketSnapshot) -> bool:
        """Whether it can be written together with others: only by those who know the same version."""
        return snapshot.cv == self.terms.cv and super().may_join(snapshot)

    def move_to(self, key: Key, snapshot: BucketSnapshot | None, *, fresh: bool) -> None:
        """Draw from another shard."""
        self.key, self.snapshot, self.fresh = key, snapshot, fresh

    @property
    def is_stale(self) -> bool:
        """Whether its shard obeys another version than ours."""
        return self.snapshot is not None and self.snapshot.cv != self.terms.cv

    def is_stale_anywhere(self, cache: BucketCache) -> bool:
        """Whether any shard of its bucket, as they are remembered, does."""
        return self.is_stale or any(snapshot.cv != self.terms.cv for snapshot in cache.family(self.first))

    def lacks(self, now: int) -> bool:
        """Whether, by the image, its shard does not hold what is needed."""
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


class Acquirer:
    """What an acquire works with, and legs that need no second thought."""

    def __init__(
        self,
        namespace: Namespace,
        resolver: ConfigResolver,
        writer: BucketWriter,
        batching: BatchingWriter,
        propagation: Propagation,
        writes: SettlementWriter,
    ) -> None:
        self.namespace = namespace
        self.client = namespace.client
        self.cache = namespace.cache
        self.write_ids = namespace.write_ids
        self.resolver = resolver
        self.writer = writer
        self.batching = batching
        self.propagation = propagation
        self.writes = writes

    def warm_leg(self, draw: Draw, now: int, deadline: Deadline) -> AcquireLeg | None:
        """The only leg of a draw, if it can be written as it is.

        Its terms and its bucket are remembered and of one version, the bucket is not divided, nothing was refused
        there of late, and no clock that is wrong has written to it.
        """
        ns, entity_id, resource = self.namespace.known_ns, draw.entity_id, draw.resource
        resolved = self.resolver.peek(entity_id, resource, deadline)
        if (
            ns is None
            or resolved is None
            or resolved.leg is None
            or (resolved.cascade and resolved.parent_id is not None)
            or draw.limits is not None
            or draw.legs is not None
        ):
            return None
        key, own, cache = bucket_key(ns, entity_id, resource), resolved.leg, self.cache
        cached = cache.get(key)
        if cached is None or cached.denied or cached.throttled:
            return None
        snapshot = cached.snapshot
        if is_far_ahead(snapshot, now):
            return None
        if snapshot.cv != resolved.cv or snapshot.shards != 1 or (cache.any_sharded and len(cache.shards_of(key)) > 1):
            return None
        if not own.names.issuperset(draw.wanted):
            return None
        leg = AcquireLeg(key, Terms(own, resolved.cv, resolved.parent_id, resolved.cascade), draw)
        for limit in own.limits:
            if leg.needed.get(limit.name, 0) > limit.burst * MILLI:
                return None
        self.resolver.count_hit()
        leg.snapshot = snapshot
        return leg

    def warm_grant(self, leg: AcquireLeg, draw: Draw, now: int) -> Grant | None:
        """The grant, if the only leg of a draw was written and there is nothing else to do."""
        snapshot = leg.result.snapshot if leg.done and isinstance(leg.result, SeenBucket) else None
        if snapshot is None or snapshot.shards != 1 or snapshot.cv != leg.terms.cv:
            return None
        if snapshot.load_level < 0 and is_overloaded(snapshot, max(now, newest(snapshot))):
            return None
        own, held = leg.leg, snapshot.balances
        if not held.keys() >= own.names:
            return None
        balances = [held[limit.name] for limit in own.limits]
        return Grant((own,), draw.wanted, balances, [balance.tk for balance in balances], max(now, leg.now))


class AcquireState:
    """One draw in progress."""

    def __init__(self, space: Acquirer, draw: Draw, now: int, deadline: Deadline) -> None:
        self.space = space
        self.draw = draw
        self.now = now
        self.whole = self.deadline = deadline
        self.legs: list[AcquireLeg] = []
        self.flight: Sequence[AcquireLeg] = ()
        self.failure: Refused | NoAnswer | None = None
        self.overtaken = 0
        """So often others were faster."""
        self.seen_before: dict[Key, str] = {}
        self.backs: list[BucketWrite] = []

    def may_follow(self, leg: AcquireLeg, key: Key, theirs: str) -> bool:
        """Whether a bucket that obeys ``theirs`` may obey our terms from now on."""
        seen_before = self.seen_before.get(key) == theirs
        return theirs == leg.terms.cv or may_follow(leg.terms.cv, theirs, seen_before=seen_before)

    def params_of(self, leg: AcquireLeg) -> UpdateParams:
        """The write of a leg whose bucket is there."""
        space, snapshot = self.space, leg.snapshot
        assert snapshot is not None
        leg.set_anchor()
        if not leg.doubtful and not leg.is_stale and snapshot.shards == 1 and not snapshot.retired:
            return space.writer.draw_params(
                leg.key, snapshot, leg.deltas, leg.needed, self.now, leg.write_id, self.deadline, guess=not leg.fresh
            )
        sure = leg.can_be_sure()
        if leg.doubtful and not sure:
            space.writer.unresolved += 1  # nobody can tell whether the lost try was done: it may be charged twice
            leg.begin_anew(space.write_ids.write_id(self.now))
        return space.writer.params(
            leg.key,
            snapshot,
            Intent(leg.deltas, leg.needed, leg.terms if leg.is_stale else None, grants=1, rebase=sure),
            max(self.now, snapshot.rf + 1) if sure else self.now,
            leg.write_id,
            self.deadline,
            anchor=leg.anchor if sure else None,
            guess=not leg.fresh,
        )

    def hear(self, leg: AcquireLeg, result: WriteResult) -> None:
        """Note what became of a leg."""
        if isinstance(result, NoAnswer):
            if isinstance(result, DeadlineOver):
                raise self.failure or result
            if result.final:
                raise result
            self.failure = result
        elif isinstance(result, Refused):
            self.failure = result
            if result.code == KEY_THROTTLED:
                leg.throttled += 1
                leg.is_hot = True
            elif not (result.by_throttling or result.by_conflict):
                raise result
        else:
            if not result.done:
                self.failure = Contended()
                self.overtaken += 1
            leg.fresh, leg.snapshot = leg.fresh or not result.done, result.snapshot
            leg.granted_at = max(leg.now, self.now)
            if leg.snapshot is not None and not leg.done:
                if leg.is_in(leg.snapshot):
                    leg.done = True  # by a try whose answer was lost
                elif leg.inc:
                    leg.doubtful, leg.inc = False, ""  # somebody else created it: ours was not

    def undo(self, deadline: Deadline) -> Plan[None]:
        """Give back what was taken, and make sure that what may have been taken is given back or never will be."""
        self.flight = ()
        for leg in self.legs:
            if leg.doubtful and not leg.done:
                leg.done = yield from self.space.writer.void(leg, self.now, deadline)
        taken = [leg for leg in self.legs if leg.done]
        if taken or self.backs:
            for leg in taken:
                backs = [
                    BucketWrite(key, leg.leg, {name: -delta for name, delta in deltas.items()}, grants=-(not place))
                    for place, (key, deltas) in enumerate(leg.payment())
                ]
                leg.done, leg.payers, self.backs = False, (), [*self.backs, *backs]
                leg.begin_anew(self.space.write_ids.write_id(self.now))
            # Should this be interrupted, it goes on where it was.
            yield from self.space.writes.book(self.backs, self.now, deadline)
            self.backs = []
            for leg in taken:
                cached = self.space.cache.get(leg.key)
                leg.snapshot = None if cached is None else cached.snapshot
