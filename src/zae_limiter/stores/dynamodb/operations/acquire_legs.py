"""An acquire in progress: what it works with, its legs, and what must be given back if it fails.

Most acquires are a single remembered leg whose first write is granted: :meth:`Acquiring.leg_at_hand` finds it, and
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
from zae_limiter.stores.dynamodb.bucket_cache import Images, is_far_ahead, newest
from zae_limiter.stores.dynamodb.bucket_writer import Booking, BucketWriter, Seen, Verdict
from zae_limiter.stores.dynamodb.config_resolver import ConfigResolver
from zae_limiter.stores.dynamodb.config_versions import adopted, lacking, may_follow, needed_of, taken_of
from zae_limiter.stores.dynamodb.expressions import UpdateParams
from zae_limiter.stores.dynamodb.items import Image
from zae_limiter.stores.dynamodb.namespace import Namespace
from zae_limiter.stores.dynamodb.operations.propagate import Propagation
from zae_limiter.stores.dynamodb.operations.settle import Bookings
from zae_limiter.stores.dynamodb.requests import KEY_THROTTLED, Contended, DeadlineOver, NoAnswer, Refused
from zae_limiter.stores.dynamodb.schema import Key, bucket_key, shard_of
from zae_limiter.stores.dynamodb.shards import over_shards
from zae_limiter.stores.dynamodb.table_client import Window
from zae_limiter.stores.dynamodb.write_forms import Terms, Wish
from zae_limiter.stores.dynamodb.write_load import is_pressed
from zae_limiter.stores.protocol import Draw, Grant, Leg

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


class Taking:
    """One draw in progress."""

    def __init__(self, space: Acquiring, draw: Draw, now: int, until: Window) -> None:
        self.space = space
        self.draw = draw
        self.now = now
        self.whole = self.until = until
        self.legs: list[LegUnderWay] = []
        self.flight: Sequence[LegUnderWay] = ()
        self.failure: Refused | NoAnswer | None = None
        self.overtaken = 0
        """So often others were faster."""
        self.seen_before: dict[Key, str] = {}
        self.backs: list[Booking] = []

    def may_follow(self, leg: LegUnderWay, key: Key, theirs: str) -> bool:
        """Whether a bucket that obeys ``theirs`` may obey our terms from now on."""
        seen_before = self.seen_before.get(key) == theirs
        return theirs == leg.terms.cv or may_follow(leg.terms.cv, theirs, seen_before=seen_before)

    def params_of(self, leg: LegUnderWay) -> UpdateParams:
        """The write of a leg whose bucket is there."""
        space, image = self.space, leg.image
        assert image is not None
        leg.drop_anchor()
        if not leg.doubtful and not leg.is_stale and image.shards == 1 and not image.resting:
            return space.writer.draw_params(
                leg.key, image, leg.deltas, leg.needed, self.now, leg.nonce, self.until, guess=not leg.fresh
            )
        sure = leg.can_be_sure()
        if leg.doubtful and not sure:
            space.writer.unresolved += 1  # nobody can tell whether the lost try was done: it may be charged twice
            leg.begin_anew(space.marks.nonce(self.now))
        return space.writer.params(
            leg.key,
            image,
            Wish(leg.deltas, leg.needed, leg.terms if leg.is_stale else None, grants=1, rebase=sure),
            max(self.now, image.rf + 1) if sure else self.now,
            leg.nonce,
            self.until,
            anchor=leg.anchor if sure else None,
            guess=not leg.fresh,
        )

    def hear(self, leg: LegUnderWay, verdict: Verdict) -> None:
        """Note what became of a leg."""
        if isinstance(verdict, NoAnswer):
            if isinstance(verdict, DeadlineOver):
                raise self.failure or verdict
            if verdict.final:
                raise verdict
            self.failure = verdict
        elif isinstance(verdict, Refused):
            self.failure = verdict
            if verdict.code == KEY_THROTTLED:
                leg.throttled += 1
                leg.is_hot = True
            elif not (verdict.by_throttling or verdict.by_conflict):
                raise verdict
        else:
            if not verdict.done:
                self.failure = Contended()
                self.overtaken += 1
            leg.fresh, leg.image = leg.fresh or not verdict.done, verdict.image
            leg.granted_at = max(leg.now, self.now)
            if leg.image is not None and not leg.done:
                if leg.is_in(leg.image):
                    leg.done = True  # by a try whose answer was lost
                elif leg.inc:
                    leg.doubtful, leg.inc = False, ""  # somebody else created it: ours was not

    def undo(self, until: Window) -> Plan[None]:
        """Give back what was taken, and make sure that what may have been taken is given back or never will be."""
        self.flight = ()
        for leg in self.legs:
            if leg.doubtful and not leg.done:
                leg.done = yield from self.space.writer.void(leg, self.now, until)
        taken = [leg for leg in self.legs if leg.done]
        if taken or self.backs:
            for leg in taken:
                backs = [
                    Booking(key, leg.leg, {name: -delta for name, delta in deltas.items()}, grants=-(not place))
                    for place, (key, deltas) in enumerate(leg.payment())
                ]
                leg.done, leg.payers, self.backs = False, (), [*self.backs, *backs]
                leg.begin_anew(self.space.marks.nonce(self.now))
            # Should this be interrupted, it goes on where it was.
            yield from self.space.bookings.book(self.backs, self.now, until)
            self.backs = []
            for leg in taken:
                memory = self.space.images.get(leg.key)
                leg.image = None if memory is None else memory.image
