"""What a process grants by itself while the store is away, until that is booked. The decisions; it waits for nothing.

While the store answers, the process notes how every limit that it draws from stands (``known_limits.py``). When the
store does not answer, it grants from its shares: a :class:`LocalBucket` per bucket. When the store is back, a
:class:`Booking` takes along what was granted. It has a record of its own, so that it is booked once however often it
is tried, and it stays as it is until it is known to be booked: what is granted meanwhile is of the next one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from weakref import WeakSet

from zae_limiter.bucket import MILLI, Balance, HeldBalance, book, key_of
from zae_limiter.local_share import LimitShare
from zae_limiter.mixed_limits import Taken, would_take_mixed
from zae_limiter.models.holds import Hold
from zae_limiter.models.status import LimitStatus
from zae_limiter.repository.known_limits import KnownLimits
from zae_limiter.running.plan import assign
from zae_limiter.stores.lease_records import LeaseRecord, RecordChange, RecordedSettlement, RecordState
from zae_limiter.stores.limit_statuses import check_names, denial, statuses_of
from zae_limiter.stores.protocol import (
    BucketPlace,
    Denial,
    Draw,
    Grant,
    Leg,
    Outcome,
    Posting,
    with_refusals,
)

BUCKETS_AT_ONCE = 10
"""So many buckets are booked in one step."""

RECORDED_FOR_MS = 86_400_000
"""For so long a booking is recognised when it is repeated."""

LOCAL_RECORD = "_local:"
LOCAL_LIFE = "local"
"""The life of the bucket that a slot belongs to which no store has lent."""

LOST_LIFE = "lost"
"""That of one which no store would lend afterwards."""

LOOK_AGAIN_S = 1.0
"""When to ask again for more than a share can ever hold: the store may be back."""


class LocalBucket:
    """The shares of one bucket while the store is away. ``since`` tells its bookings apart."""

    __slots__ = ("holds", "is_told", "leg", "shares", "since")

    def __init__(self, leg: Leg, since: int) -> None:
        self.leg = leg
        self.is_told = False
        self.since = since
        self.shares: dict[str, LimitShare] = {}
        self.holds: WeakSet[Hold] = WeakSet()

    @property
    def is_owed(self) -> bool:
        """Whether something was granted that is not booked yet."""
        return any(share.is_owed for share in self.shares.values()) or any(_is_local(hold) for hold in self.holds)

    def share_of(self, name: str) -> LimitShare | None:
        """The share of a limit that is not of calls in flight."""
        return self.shares.get(name)

    def posting(self, now: int) -> Posting:
        """What is to be booked. Slots are not: those that are still held are taken again."""
        owed, usage = {}, {}
        for share in self.shares.values():
            if share.is_owed:
                owed[share.balance.name], usage[share.balance.name] = share.owed(now), share.counted
        return Posting(self.leg, owed, usage_milli=usage)

    def go_on(self, since: int) -> None:
        """What was granted so far is being booked: from now on only what is granted later is owed."""
        self.since = since
        for share in self.shares.values():
            share.go_on()


@dataclass(slots=True, eq=False)
class Booking:
    """What is to be booked in one step, under its own record. ``holds`` are taken again if their leases still run.

    ``is_busy``: a caller is at it. ``is_doubtful``: it may have been booked, and only its record can tell.
    """

    postings: Sequence[Posting]
    change: RecordChange
    holds: Sequence[Hold] = ()
    is_busy: bool = False
    is_doubtful: bool = False
    places: frozenset[BucketPlace] = field(init=False)

    def __post_init__(self) -> None:
        self.places = frozenset(posting.leg.place for posting in self.postings)

    def settlement(self, now: int) -> RecordedSettlement | None:
        """How a store is asked for it; each try has one. ``None``: it may have been booked, and no record can tell."""
        change = self.change
        if change.record.expires_at <= now:
            if self.is_doubtful:
                return None
            self.change = replace(change, record=replace(change.record, expires_at=now + RECORDED_FOR_MS))
        return RecordedSettlement(self.postings, self.change)


class LocalBuckets:
    """What one process knows of the buckets of a namespace, and what it grants of them by itself."""

    def __init__(self, share: int | None = None) -> None:
        self._given_share = share
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._name = os.urandom(9).hex()
        self._known = KnownLimits(self._given_share)
        self._away: dict[BucketPlace, LocalBucket] = {}
        self._bookings: list[Booking] = []
        self._serial = 1
        self.is_measuring = False
        """An acquire has asked for local grants: it is noted what is taken."""
        self.is_sweeping = False
        self._pid = os.getpid()  # last: who finds it finds everything else

    def _here(self) -> threading.Lock:
        """The lock. In a forked child there is nothing: what was granted is the parent's to book."""
        if self._pid != os.getpid():
            self._begin()
        return self._lock

    # While the store answers

    def note(self, draw: Draw, outcome: Outcome, now: int) -> None:
        """How the limits stand that a draw met, by the clock of this process.

        Shares of which nothing is owed are measured anew when the store goes away again.
        """
        with self._here():
            self.is_measuring = True
            heard: list[BucketPlace] = []
            if isinstance(outcome, Denial):
                heard = self._known.note_denial(outcome, now)
            elif outcome.balances:
                heard = self._known.note_grant(draw, outcome, now)
            for place in heard:
                if self._is_idle(place):
                    del self._away[place]

    def note_settled(self, postings: Iterable[Posting]) -> None:
        """Leases that the store granted have settled."""
        with self._here():
            for posting in postings:
                self._known.note_settled(posting)

    def _is_idle(self, place: BucketPlace) -> bool:
        """Whether there are shares of a bucket of which nothing is owed."""
        bucket = self._away.get(place)
        return bucket is not None and not bucket.is_owed and not self._is_being_booked(place)

    def forget_idle(self, now: int) -> None:
        """The store has answered, and of many buckets nothing is owed. What is left of their shares is what is known
        of their limits from now on: the next outage goes on with it, unless a draw tells more before."""
        with self._here():
            for place in [place for place in self._away if self._is_idle(place)]:
                for share in self._away.pop(place).shares.values():
                    self._known.of(place, share.balance.limit).heard = share.heard(now)

    # While it does not

    def decide(self, draw: Draw, now: int) -> Outcome | None:
        """Grant a draw from the shares of this process, or deny it; ``None``: it does not know the limits."""
        with self._here():
            legs = self._known.legs_of(draw)
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

    def _bucket(self, leg: Leg, now: int) -> LocalBucket | None:
        bucket = self._away.get(leg.place) or LocalBucket(leg, self._serial)
        for limit in leg.limits:
            share = bucket.shares.get(key_of(limit)) or self._known.share_of(leg.place, limit, now)
            if share is None:
                return None
            bucket.shares[key_of(limit)] = share
            share.follow(limit, now)
            if isinstance(share.balance, HeldBalance):
                self._known.lend(leg.place, share.balance, now)
        self._away[leg.place] = bucket
        return bucket

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
            self._away[leg.place].holds.add(hold)
        self._known.note_holds(holds, legs)
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
                rest = self._settle_slots(posting, bucket, now)
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
            if share is None:
                continue
            if delta > 0 or is_same:
                share.balance.tk, share.balance.tc = book(share.balance, delta, now), share.balance.tc + delta
            else:
                share.given_back += delta

    def _settle_slots(self, posting: Posting, bucket: LocalBucket | None, now: int) -> Posting:
        """Take slots of a share, or give them back to it. Those of the store are left, and so is what it must lend."""
        left = []
        for change in posting.holds:
            hold, slots = change
            share = None if bucket is None else bucket.shares.get(f"{hold.limit_name}/")
            if slots < 0 and hold.life == LOCAL_LIFE:
                hold.amount = max(hold.amount + slots, 0)
            elif slots > 0 and bucket is not None and share is not None and isinstance(share.balance, HeldBalance):
                hold.amount, hold.life = hold.amount + slots, LOCAL_LIFE
                hold.due, hold.ttl = share.balance.due_time(now), share.balance.ttl
                bucket.holds.add(hold)
                self._known.note_holds([hold], [posting.leg])
            else:
                left.append(change)
        return posting._replace(deltas_milli={}, holds=tuple(left))

    # Booking

    @property
    def is_owed(self) -> bool:
        """Whether anything is to be booked."""
        return bool(self._bookings or self._away) and self._pid == os.getpid()

    def places_of(self, draw: Draw) -> list[BucketPlace]:
        """The buckets that a draw will come to, as far as they are known."""
        with self._here():
            legs = self._known.legs_of(draw)
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
            return any(bucket.is_owed for bucket in self._among(wanted))

    def _among(self, places: Iterable[BucketPlace] | None) -> Iterable[LocalBucket]:
        if places is None:
            return self._away.values()
        return [self._away[place] for place in places if place in self._away]

    def next_booking(
        self, places: Iterable[BucketPlace] | None, now: int, tried: Collection[Booking] | None = None
    ) -> Booking | None:
        """What is to be booked next, of these buckets or of any; :meth:`finished` must follow.

        With ``tried``, everything but that, also what another caller is at: to book it twice is to book it once.
        """
        with self._here():
            wanted = None if places is None else frozenset(places)
            for booking in self._bookings:
                is_open = not booking.is_busy if tried is None else booking not in tried
                if is_open and (wanted is None or wanted & booking.places):
                    booking.is_busy = True
                    return booking
            due = (one for one in self._among(wanted) if one.is_owed and not self._is_being_booked(one.leg.place))
            owed = list(islice(due, BUCKETS_AT_ONCE))
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

    def finished(self, booking: Booking, *, is_booked: bool, is_over: bool, is_doubtful: bool = False) -> None:
        """A try to book has ended. It is over if it is known to be booked, or never can be."""
        with self._here():
            booking.is_busy = False
            booking.is_doubtful = booking.is_doubtful or is_doubtful
            if is_over and booking in self._bookings:
                self._bookings.remove(booking)
                for posting in booking.postings if is_booked else ():
                    self._known.note_counted(posting)

    def unbooked(self) -> Mapping[str, int]:
        """What was granted and is not known to be booked, by limit, in whole tokens."""
        total: dict[str, int] = {}
        with self._here():
            granted = [
                (share.balance.name, share.counted)
                for bucket in self._away.values()
                for share in bucket.shares.values()
                if share.is_owed
            ]
            granted += [item for one in self._bookings for posting in one.postings for item in posting.named.items()]
        for name, milli in granted:
            total[name] = total.get(name, 0) + milli // MILLI
        return {name: tokens for name, tokens in total.items() if tokens}


def _is_local(hold: Hold) -> bool:
    """Whether a lease holds it, and no store has lent it."""
    return hold.amount > 0 and hold.life == LOCAL_LIFE


def _as_bound(status: LimitStatus) -> LimitStatus:
    """The wait of a share is only a bound: it is over when the store answers."""
    if not status.exceeded:
        return status
    wait = status.retry_after_seconds
    if not wait and status.requested <= status.limit.burst:
        wait = LOOK_AGAIN_S
    return status._replace(retry_after_seconds=wait, at_latest=wait is not None)
