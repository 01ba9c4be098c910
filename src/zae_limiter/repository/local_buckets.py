"""What a process grants by itself while the store is away, until that is booked. The decisions; it waits for nothing.

While the store answers, the process notes how every limit that it draws from stands, and what it took of it against
what all took (``local_share``). When the store does not answer, it grants from its shares: a :class:`LocalBucket` per
bucket. When the store is back, a :class:`Booking` takes along what was granted. It has a record of its own, so that it
is booked once however often it is tried, and it stays as it is until it is known to be booked: what is granted
meanwhile is of the next one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from zae_limiter.bucket import MILLI, Balance, HeldBalance, book, key_of
from zae_limiter.local_share import Heard, LimitShare, ShareMeter, first_level, parts_of
from zae_limiter.mixed_limits import Taken, would_take_mixed
from zae_limiter.models.holds import Hold
from zae_limiter.models.limit import Limit
from zae_limiter.models.status import LimitStatus
from zae_limiter.running.plan import assign
from zae_limiter.stores.embedded.bounded_dict import BoundedDict
from zae_limiter.stores.lease_records import LeaseRecord, RecordChange, RecordedSettlement, RecordState
from zae_limiter.stores.limit_statuses import check_names, denial, statuses_of
from zae_limiter.stores.protocol import (
    NO_NAMES,
    BucketPlace,
    Denial,
    Draw,
    Grant,
    Leg,
    Outcome,
    Posting,
    with_refusals,
)

MOST_PLACES = 20_000
"""Of so many buckets the process remembers how they stood; those used longest ago are forgotten."""

BUCKETS_AT_ONCE = 10
"""So many buckets are booked in one step."""

RECORDED_FOR_MS = 86_400_000
"""For so long a booking is recognised when it is repeated."""

LOCAL_RECORD = "_local:"
LOCAL_LIFE = "local"
"""The life of the bucket that a slot belongs to which no store has lent."""

LOOK_AGAIN_S = 1.0
"""When to ask again for more than a share can ever hold: the store may be back."""


class KnownLimit:
    """How one limit of a bucket stood when the process last heard of it, and what it takes of it."""

    __slots__ = ("heard", "meter", "slots")

    def __init__(self) -> None:
        self.heard: Heard | None = None
        self.meter = ShareMeter()
        self.slots = 0
        """How many slots its open leases hold, if it is a limit of calls in flight."""


class LocalBucket:
    """The shares of one bucket while the store is away. ``since`` tells its bookings apart."""

    __slots__ = ("holds", "is_told", "leg", "shares", "since")

    def __init__(self, leg: Leg, since: int) -> None:
        self.leg = leg
        self.is_told = False
        self.since = since
        self.shares: dict[str, LimitShare] = {}
        self.holds: list[Hold] = []

    @property
    def is_owed(self) -> bool:
        """Whether something was granted that is not booked yet."""
        granted = (share.granted for share in self.shares.values() if not share.balance.limit.is_held)
        return any(granted) or any(_is_local(hold) for hold in self.holds)

    def share_of(self, name: str) -> LimitShare | None:
        """The share of a limit that is not of calls in flight."""
        return self.shares.get(name)

    def posting(self, now: int) -> Posting:
        """What is to be booked. Slots are not: those that are still held are taken again."""
        owed, usage = {}, {}
        for share in self.shares.values():
            name, is_held = share.balance.name, share.balance.limit.is_held
            if share.granted and not is_held:
                owed[name], usage[name] = share.owed(now), share.granted
        return Posting(self.leg, owed, usage_milli=usage)

    def go_on(self, since: int) -> None:
        """What was granted so far is being booked: from now on only what is granted later is owed."""
        self.since = since
        for share in self.shares.values():
            share.go_on()


@dataclass(slots=True, eq=False)
class Booking:
    """What is to be booked in one step, under its own record. ``holds`` are taken again if their leases still run."""

    postings: Sequence[Posting]
    change: RecordChange
    holds: Sequence[Hold] = ()
    is_busy: bool = False
    places: frozenset[BucketPlace] = field(init=False)

    def __post_init__(self) -> None:
        self.places = frozenset(posting.leg.place for posting in self.postings)

    def settlement(self) -> RecordedSettlement:
        """How a store is asked for it; each try has one."""
        return RecordedSettlement(self.postings, self.change)


class LocalBuckets:
    """What one process knows of the buckets of a namespace, and what it grants of them by itself."""

    def __init__(self, share: int | None = None) -> None:
        self._given_share = share
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._name = os.urandom(9).hex()
        self._routes: BoundedDict[tuple[str, str, tuple[Limit, ...] | None], tuple[Leg, ...]]
        self._routes = BoundedDict(MOST_PLACES)
        self._known: BoundedDict[BucketPlace, dict[str, KnownLimit]] = BoundedDict(MOST_PLACES)
        self._away: dict[BucketPlace, LocalBucket] = {}
        self._bookings: list[Booking] = []
        self._serial = 1
        self.is_measuring = False
        """An acquire has asked for local grants: it is noted what is taken."""
        self.is_sweeping = False

    def _here(self) -> threading.Lock:
        """The lock. In a forked child there is nothing: what was granted is the parent's to book."""
        if self._pid != os.getpid():
            self._begin()
        return self._lock

    # While the store answers

    def note(self, draw: Draw, outcome: Outcome, now: int) -> None:
        """How the limits stand that a draw met, by the clock of this process."""
        with self._here():
            self.is_measuring = True
            if isinstance(outcome, Denial):
                self._note_denial(outcome, now)
            elif outcome.balances:
                self._note_grant(draw, outcome, now)

    def _note_denial(self, denial: Denial, now: int) -> None:
        for status in denial.statuses:
            known = self._limit((status.entity_id, status.resource), status.limit)
            known.heard = Heard(status.available * MILLI, now)
            self._forget_idle((status.entity_id, status.resource))

    def _note_grant(self, draw: Draw, grant: Grant, now: int) -> None:
        legs = grant.legs
        if draw.legs is None:
            self._routes[draw.entity_id, draw.resource, draw.limits] = tuple(_as_route(leg) for leg in legs)
        taken = zip(((leg, limit) for leg in legs for limit in leg.limits), grant.balances, grant.left, strict=True)
        for (leg, limit), balance, tk in taken:
            known = self._limit(leg.place, limit)
            known.heard = Heard(balance.level_with(tk, grant.now), now)
            amount = grant.wanted.get(limit.name, 0)
            if limit.is_held:
                known.slots += amount
            if limit.name not in leg.refused:
                known.meter.took(amount * MILLI)
            known.meter.heard(balance.tc, now)
        for leg in legs:
            self._forget_idle(leg.place)

    def note_settled(self, postings: Iterable[Posting]) -> None:
        """Leases that the store granted have settled: it counts what they took or gave back."""
        with self._here():
            for posting in postings:
                for limit in posting.leg.limits:
                    known = self._limit(posting.leg.place, limit)
                    known.meter.took(posting.deltas_milli.get(limit.name, 0))
                    changes = [slots for hold, slots in posting.holds if hold.limit_name == limit.name]
                    known.slots = max(known.slots + sum(changes), 0)

    def _limit(self, place: BucketPlace, limit: Limit) -> KnownLimit:
        try:
            limits = self._known[place]
        except KeyError:
            limits = self._known[place] = {}
        known = limits.get(key_of(limit))
        if known is None:
            known = limits[key_of(limit)] = KnownLimit()
        return known

    def _forget_idle(self, place: BucketPlace) -> None:
        """The store has answered: shares of which nothing is owed are measured anew when it goes away again."""
        bucket = self._away.get(place)
        if bucket is not None and not bucket.is_owed and not self._is_being_booked(place):
            del self._away[place]

    # While it does not

    def decide(self, draw: Draw, now: int) -> Outcome | None:
        """Grant a draw from the shares of this process, or deny it; ``None``: it does not know the limits."""
        with self._here():
            legs = self._legs(draw)
            if legs is None:
                return None
            check_names(legs, draw.wanted)
            buckets = [self._bucket(leg, now) for leg in legs]
            if None in buckets:
                return None
            by_leg = [
                [bucket.shares[key_of(limit)].balance for limit in leg.limits]
                for leg, bucket in zip(legs, buckets, strict=True)
                if bucket is not None
            ]
            balances = list(chain.from_iterable(by_leg))
            for balance in balances:
                balance.advance(now)
            statuses = statuses_of(legs, by_leg, draw.wanted, draw.reserved, now)
            taken = would_take_mixed(balances, draw.wanted, now)
            if taken is None or any(status.refuses for status in statuses):
                denied = denial(legs, tuple(_as_bound(status) for status in statuses))
                denied.local = True
                return denied
            assign(taken.changed, taken.names, taken.values)
            return self._grant(draw, legs, balances, taken, now)

    def _legs(self, draw: Draw) -> tuple[Leg, ...] | None:
        if draw.legs is not None:
            return tuple(_as_route(leg) for leg in draw.legs)
        try:
            return self._routes[draw.entity_id, draw.resource, draw.limits]
        except KeyError:
            return None

    def _bucket(self, leg: Leg, now: int) -> LocalBucket | None:
        bucket = self._away.get(leg.place) or LocalBucket(leg, self._serial)
        for limit in leg.limits:
            if key_of(limit) not in bucket.shares:
                known = self._known.get(leg.place, {}).get(key_of(limit))
                if known is None or known.heard is None:
                    return None
                bucket.shares[key_of(limit)] = self._share(limit, known, known.heard, now)
        self._away[leg.place] = bucket
        return bucket

    def _share(self, limit: Limit, known: KnownLimit, heard: Heard, now: int) -> LimitShare:
        share = self._given_share or known.meter.share()
        if limit.is_held:
            ceiling = parts_of(limit.burst * MILLI, share)
            return LimitShare(limit, share, ceiling - ceiling % MILLI - known.slots * MILLI, now)
        by_others = known.meter.taken_by_others(now - heard.at)
        return LimitShare(limit, share, first_level(limit, heard, share, by_others, now), now)

    def _grant(self, draw: Draw, legs: tuple[Leg, ...], balances: Sequence[Balance], taken: Taken, now: int) -> Grant:
        places = [place for place, leg in enumerate(legs) for _ in leg.limits]
        refused: dict[int, set[str]] = {}
        for place in taken.refused:
            refused.setdefault(places[place], set()).add(balances[place].name)
        holds = []
        for lent in taken.lent:
            leg, balance = legs[places[lent.place]], balances[lent.place]
            assert isinstance(balance, HeldBalance)
            hold = Hold(leg.entity_id, leg.resource, balance.name, lent.slots, lent.due, balance.ttl, LOCAL_LIFE)
            holds.append(hold)
            self._away[leg.place].holds.append(hold)
        copies = [balance.copy() for balance in balances]
        marked = with_refusals(legs, refused)
        return Grant(marked, draw.wanted, copies, taken.left, now, holds=tuple(holds), local=self._serial)

    def new_shares(self) -> list[tuple[BucketPlace, dict[str, int]]]:
        """What the process has of every limit, in millionths, of buckets that this was not asked of before."""
        with self._here():
            new = [bucket for bucket in self._away.values() if not bucket.is_told]
            for bucket in new:
                bucket.is_told = True
            return [
                (bucket.leg.place, {one.balance.name: one.share for one in bucket.shares.values()}) for bucket in new
            ]

    # Settling what was granted so

    def settle(self, postings: Iterable[Posting], granted: int, now: int) -> list[Posting]:
        """Book on the shares what a lease owes that was granted from them. What is left is the store's to book.

        ``granted``: of which moment the grant is. What was booked since comes back to no share and no bucket, because
        only a part of it may have been taken there; it is not counted as usage.
        """
        left = []
        with self._here():
            for posting in postings:
                bucket = self._away.get(posting.leg.place)
                rest = self._settle_slots(posting, bucket)
                if bucket is None:
                    moved = {name: delta for name, delta in posting.deltas_milli.items() if delta > 0}
                    rest = rest._replace(deltas_milli=moved, usage_milli=posting.deltas_milli)
                else:
                    self._settle_share(bucket, posting, granted >= bucket.since, now)
                left.append(rest)
        return [posting for posting in left if posting.named or posting.holds]

    def _settle_share(self, bucket: LocalBucket, posting: Posting, is_same: bool, now: int) -> None:
        for name, delta in posting.deltas_milli.items():
            share = bucket.share_of(name)
            if share is not None:
                balance = share.balance
                tk = book(balance, delta, now) if delta > 0 or is_same else balance.tk
                balance.tk, balance.tc = tk, balance.tc + delta

    def _settle_slots(self, posting: Posting, bucket: LocalBucket | None) -> Posting:
        """Give slots back to the share they are of; those of the store are left."""
        left = []
        for change in posting.holds:
            hold, slots = change
            if hold.life != LOCAL_LIFE and slots < 0:
                left.append(change)
                continue
            share = None if bucket is None else bucket.shares.get(f"{hold.limit_name}/")
            if share is not None and isinstance(share.balance, HeldBalance) and slots < 0:
                after = share.balance.given_back(-slots * MILLI, hold.due)
                if after is not None:
                    share.balance.become(after)
            hold.amount = max(hold.amount + slots, 0)
        return posting._replace(deltas_milli={}, holds=tuple(left))

    # Booking

    @property
    def is_owed(self) -> bool:
        """Whether anything is to be booked."""
        return bool(self._bookings or self._away) and self._pid == os.getpid()

    def places_of(self, draw: Draw) -> list[BucketPlace]:
        """The buckets that a draw will come to, as far as they are known."""
        with self._here():
            legs = self._legs(draw)
            return [(draw.entity_id, draw.resource)] if legs is None else [leg.place for leg in legs]

    def _is_being_booked(self, place: BucketPlace) -> bool:
        return any(place in booking.places for booking in self._bookings)

    def put_off(self, postings: Sequence[Posting], now: int) -> None:
        """Let this be booked with the rest."""
        with self._here():
            self._bookings.append(self._booking(postings, (), now))

    def owes(self, places: Iterable[BucketPlace] | None) -> bool:
        """Whether something is to be booked, of these buckets or of any."""
        with self._here():
            wanted = None if places is None else frozenset(places)
            if any(wanted is None or wanted & booking.places for booking in self._bookings):
                return True
            return any(bucket.is_owed for place, bucket in self._away.items() if wanted is None or place in wanted)

    def next_booking(self, places: Iterable[BucketPlace] | None, now: int) -> Booking | None:
        """What is to be booked next, of these buckets or of any; :meth:`finished` must follow."""
        with self._here():
            wanted = None if places is None else frozenset(places)
            for booking in self._bookings:
                if not booking.is_busy and (wanted is None or wanted & booking.places):
                    booking.is_busy = True
                    return booking
            owed = [
                bucket
                for place, bucket in self._away.items()
                if (wanted is None or place in wanted) and bucket.is_owed and not self._is_being_booked(place)
            ][:BUCKETS_AT_ONCE]
            if not owed:
                return None
            self._serial += 1
            holds = [hold for bucket in owed for hold in bucket.holds if _is_local(hold)]
            booking = self._booking([bucket.posting(now) for bucket in owed], holds, now)
            booking.is_busy = True
            for bucket in owed:
                bucket.go_on(self._serial)
            self._bookings.append(booking)
            return booking

    def _booking(self, postings: Sequence[Posting], holds: Sequence[Hold], now: int) -> Booking:
        self._serial += 1
        leg = postings[0].leg
        record_id, until = f"{LOCAL_RECORD}{self._name}.{self._serial}", now + RECORDED_FOR_MS
        record = LeaseRecord(
            *(record_id, leg.entity_id, leg.resource, ""), (), {}, {}, now, until, state=RecordState.DONE
        )
        return Booking(postings, RecordChange(0, record), holds)

    def finished(self, booking: Booking, *, is_over: bool) -> None:
        """A try to book has ended. It is over if it is known to be booked, or never can be."""
        with self._here():
            booking.is_busy = False
            if is_over and booking in self._bookings:
                self._bookings.remove(booking)
                for posting in booking.postings:
                    self._note_booked(posting)

    def _note_booked(self, posting: Posting) -> None:
        bucket = self._away.get(posting.leg.place)
        if bucket is not None:
            bucket.holds = [hold for hold in bucket.holds if _is_local(hold)]
        for limit in posting.leg.limits:
            if not limit.is_held:
                self._limit(posting.leg.place, limit).meter.took(posting.counted_milli.get(limit.name, 0))

    def unbooked(self) -> Mapping[str, int]:
        """What was granted and is not known to be booked, by limit, in whole tokens."""
        total: dict[str, int] = {}
        with self._here():
            granted = [
                (share.balance.name, share.granted)
                for bucket in self._away.values()
                for share in bucket.shares.values()
                if not share.balance.limit.is_held
            ]
            granted += [item for one in self._bookings for posting in one.postings for item in posting.named.items()]
        for name, milli in granted:
            total[name] = total.get(name, 0) + milli // MILLI
        return {name: tokens for name, tokens in total.items() if tokens}


def _is_local(hold: Hold) -> bool:
    """Whether a lease holds it, and no store has lent it."""
    return hold.amount > 0 and hold.life == LOCAL_LIFE


def _as_route(leg: Leg) -> Leg:
    """A leg without what a single draw left there."""
    return replace(leg, paid=(), refused=NO_NAMES) if leg.paid or leg.refused else leg


def _as_bound(status: LimitStatus) -> LimitStatus:
    """The wait of a share is only a bound: it is over when the store answers."""
    if not status.exceeded:
        return status
    wait = status.retry_after_seconds
    if wait is None and status.requested <= status.limit.burst:
        wait = LOOK_AGAIN_S
    return status._replace(retry_after_seconds=wait, at_latest=wait is not None)
