"""What a process knows of the limits it draws from, for the time when the store is away. It waits for nothing.

While the store answers it is noted how every limit stands, what the process took of it against what all took, and
which slots of calls in flight its leases hold. From this a :class:`LimitShare` begins.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from weakref import WeakSet

from zae_limiter.bucket import MILLI, HeldBalance, key_of
from zae_limiter.local_share import Heard, LimitShare, ShareMeter, first_level, parts_of
from zae_limiter.models.holds import Hold
from zae_limiter.models.limit import Limit
from zae_limiter.stores.embedded.bounded_dict import BoundedDict
from zae_limiter.stores.protocol import NO_NAMES, BucketPlace, Denial, Draw, Grant, Leg, Posting

MOST_PLACES = 20_000
"""Of so many buckets the process remembers how they stood; those used longest ago are forgotten."""


class KnownLimit:
    """How one limit of a bucket stood when the process last heard of it, and what it takes of it."""

    __slots__ = ("heard", "holds", "meter")

    def __init__(self) -> None:
        self.heard: Heard | None = None
        self.meter = ShareMeter()
        self.holds: WeakSet[Hold] = WeakSet()
        """The slots that leases of this process hold, while they live, lent by the store or from a share."""

    def held_by_due(self) -> dict[int, int]:
        """How many slots its leases hold, in millitokens, by when these are due."""
        counts: dict[int, int] = {}
        for hold in self.holds:
            if hold.amount:
                counts[hold.due] = counts.get(hold.due, 0) + hold.amount * MILLI
        return counts


class KnownLimits:
    """What one process knows of the limits of a namespace. Its owner has the lock."""

    def __init__(self, given_share: int | None) -> None:
        self._given_share = given_share
        self._routes: BoundedDict[tuple[str, str, tuple[Limit, ...] | None], tuple[Leg, ...]]
        self._routes = BoundedDict(MOST_PLACES)
        self._limits: BoundedDict[BucketPlace, dict[str, KnownLimit]] = BoundedDict(MOST_PLACES)

    def of(self, place: BucketPlace, limit: Limit) -> KnownLimit:
        """What is known of a limit, and is to be known from now on."""
        try:
            limits = self._limits[place]
        except KeyError:
            limits = self._limits[place] = {}
        known = limits.get(key_of(limit))
        if known is None:
            known = limits[key_of(limit)] = KnownLimit()
        return known

    def legs_of(self, draw: Draw) -> tuple[Leg, ...] | None:
        """The legs that a draw has, if they are known."""
        if draw.legs is not None:
            return tuple(_as_route(leg) for leg in draw.legs)
        try:
            return self._routes[draw.entity_id, draw.resource, draw.limits]
        except KeyError:
            return None

    def note_denial(self, denial: Denial, now: int) -> list[BucketPlace]:
        """How the limits stand that a draw met; and which buckets these are of."""
        for status in denial.statuses:
            known = self.of((status.entity_id, status.resource), status.limit)
            known.heard = Heard(status.available * MILLI, now, status.extra * MILLI)
        return [(status.entity_id, status.resource) for status in denial.statuses]

    def note_grant(self, draw: Draw, grant: Grant, now: int) -> list[BucketPlace]:
        """The same, and what was taken."""
        legs = grant.legs
        if draw.legs is None:
            self._routes[draw.entity_id, draw.resource, draw.limits] = tuple(_as_route(leg) for leg in legs)
        taken = zip(((leg, limit) for leg in legs for limit in leg.limits), grant.balances, grant.left, strict=True)
        for (leg, limit), balance, tk in taken:
            known = self.of(leg.place, limit)
            level = balance.level_with(tk, grant.now)  # a divided limit is read by this: before its counter
            known.heard = Heard(level, now, balance.extra_at(grant.now))
            if limit.name not in leg.refused:
                known.meter.took(grant.wanted.get(limit.name, 0) * MILLI)
            known.meter.heard(balance.tc, now)
        self.note_holds(grant.holds, legs)
        return [leg.place for leg in legs]

    def note_holds(self, holds: Iterable[Hold], legs: Iterable[Leg]) -> None:
        """Leases of this process hold these slots, of limits that the legs have."""
        limits = {(leg.place, limit.name): limit for leg in legs for limit in leg.limits if limit.is_held}
        for hold in holds:
            place = hold.entity_id, hold.resource
            limit = limits.get((place, hold.limit_name))
            if limit is not None:
                self.of(place, limit).holds.add(hold)

    def note_settled(self, posting: Posting) -> None:
        """A lease that the store granted has settled: it counts what that took or gave back."""
        self.note_holds([change.hold for change in posting.holds], [posting.leg])
        self.note_counted(posting)

    def note_counted(self, posting: Posting) -> None:
        """The store counts this, and this process took it."""
        for limit in posting.leg.limits:
            if not limit.is_held:
                self.of(posting.leg.place, limit).meter.took(posting.counted_milli.get(limit.name, 0))

    def share_of(self, place: BucketPlace, limit: Limit, now: int) -> LimitShare | None:
        """The share that the process has of a limit. ``None``: it never heard of it."""
        known = self._limits.get(place, {}).get(key_of(limit))
        if known is None or known.heard is None:
            return None
        heard, share = known.heard, self._given_share or known.meter.share()
        if limit.is_held:
            return LimitShare(limit, share, 0, now)
        by_others = known.meter.taken_by_others(now - heard.at)
        extra = parts_of(heard.balance(limit).extra_at(now), share)
        return LimitShare(limit, share, first_level(limit, heard, share, by_others, now), now, extra)

    def lend(self, place: BucketPlace, balance: HeldBalance, now: int) -> None:
        """Let a share have the slots that no lease of this process holds. A lease that runs holds its slots, however
        long the store is away."""
        counts = self.of(place, balance.limit).held_by_due()
        balance.tk = balance.bx - sum(counts.values())
        balance.counts = {due: count for due, count in counts.items() if due * MILLI > now}


def _as_route(leg: Leg) -> Leg:
    """A leg without what a single draw left there."""
    return replace(leg, paid=(), refused=NO_NAMES) if leg.paid or leg.refused else leg
