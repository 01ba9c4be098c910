"""What a client remembers of buckets: only ever a guess, checked by the conditions of every write.

A good guess saves a call. Three things make it good: the snapshot that came with the last answer, the rate at which
*others* drained the bucket between the last snapshots, and denials that were just received.

What others take is believed twice. It moves the guess along, on the mean path from the last snapshot to now. And
where it is most of what accrues, the guess stays below the ceiling, however far the mean path would go: a bucket is
full only while no client has taken from it for as long as that takes to come back, so the busier it is the rarer that
is, even if much more accrues than is taken. Between the first two snapshots, the write ids of the recent writers tell
how busy it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from zae_limiter.bucket import FURTHEST_AHEAD_MS, MILLI, accrued_in_a_second
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot, snapshot_in
from zae_limiter.stores.dynamodb.requests import Reply
from zae_limiter.stores.dynamodb.schema import Key, shard_key
from zae_limiter.stores.dynamodb.write_ids import BROUGHT_BACK, write_id_time

MAX_BUCKETS = 50_000

MAX_DIVIDED = 1_000

LONGEST_AVOIDED_MS = 60_000
"""Nothing is left alone for longer; what says so was noted by a clock that was set back since."""

MEASURED_OVER_MS = 100
"""The least time between two snapshots that says something about the rate of others."""

BUSY_TENTHS = 7
"""Others who take so many tenths of what accrues hardly ever leave a bucket full."""

BURSTS_TIMES = 3
"""A few writers that take so many times what accrues cannot have gone on for long, or nothing would be left."""

SHORTEST_DENIAL_MS, LONGEST_DENIAL_MS = 250, 5_000
"""For how long a denial is believed without asking again: a tenth of the wait, within these."""

FASTEST_CLOCK_MS = 4_000
"""How far ahead of ours the clocks of others are followed."""


class Denied(NamedTuple):
    """So much of a limit was refused, and would be until then."""

    needed: int
    at: int
    deadline: int


class CachedBucket:
    """One bucket as this client last saw it."""

    __slots__ = (
        "_base",
        "_base_at",
        "_refused_at",
        "denied",
        "newest",
        "own",
        "rates",
        "refused",
        "seen_at",
        "snapshot",
        "split_again_at",
        "throttled",
    )

    def __init__(self, snapshot: BucketSnapshot, now: int) -> None:
        self.snapshot = snapshot
        self.newest = newest(snapshot)
        self.seen_at = now
        self.own: dict[str, int] = {}
        self.denied: dict[str, Denied] = {}
        self.refused = 0  # writes of ours that were refused since one was done: they are load too
        self._refused_at = now
        self.throttled = 0  # and those that its partition did not even look at
        self.split_again_at = 0  # this process does not try to split it before
        self._base = snapshot
        self._base_at = now
        self.rates = _rates_by_write_ids(snapshot, now)

    def see(self, snapshot: BucketSnapshot, now: int) -> None:
        """A newer snapshot came."""
        elapsed = now - self._base_at
        if snapshot.inc != self._base.inc or elapsed < 0:
            self.rates = {}
            self._rebase(snapshot, now)
        elif elapsed >= MEASURED_OVER_MS:
            self.rates = {
                name: (taken, elapsed)
                for name, balance in snapshot.balances.items()
                if (before := self._base.balances.get(name)) is not None
                and (taken := balance.tc - before.tc - self.own.get(name, 0)) > 0
            }
            self._rebase(snapshot, now)
        self.snapshot = snapshot
        self.newest = newest(snapshot)
        self.seen_at = now

    def _rebase(self, snapshot: BucketSnapshot, now: int) -> None:
        self._base, self._base_at, self.own = snapshot, now, {}

    def took(self, deltas: Mapping[str, int]) -> None:
        """This client itself took (or gave back) so much."""
        for name, delta in deltas.items():
            self.own[name] = self.own.get(name, 0) + delta

    def count_refused(self, now: int) -> None:
        """A write of ours was refused."""
        self.refused, self._refused_at = self.failed(now) + 1, max(now, self._refused_at)

    def failed(self, now: int) -> int:
        """How many refused writes weigh on the bucket still: its partition has borne the others meanwhile."""
        if not self.refused:
            return 0
        borne = accrued_in_a_second(self.snapshot.load_burst, self._refused_at, now) // MILLI
        return max(self.refused - borne, 0)

    def guesses(self, now: int) -> dict[str, int]:
        """What ``tk`` may be by now, where others have been draining it."""
        age = now - self.seen_at
        if age <= 0 or not self.rates:
            return {}
        found: dict[str, int] = {}
        for name, (taken, elapsed) in self.rates.items():
            balance = self.snapshot.balances.get(name)
            if balance is not None:
                guess = balance.tk - taken * age // elapsed
                if 10 * taken * balance.rp * balance.shards >= BUSY_TENTHS * elapsed * balance.ra:
                    guess = min(guess, balance.bx - balance.since_rf(now))
                found[name] = guess
        return found

    def deny(self, needed: Mapping[str, int], due: Mapping[str, int], now: int) -> None:
        """These amounts were refused; each is due at its time."""
        for name, at in due.items():
            patience = min(max((at - now) // 10, SHORTEST_DENIAL_MS), LONGEST_DENIAL_MS)
            self.denied[name] = Denied(needed.get(name, 0), now, min(at, now + patience))

    def still_denies(self, name: str, needed: int, now: int) -> bool:
        """Whether at least so little was refused a moment ago."""
        denied = self.denied.get(name)
        return denied is not None and needed >= denied.needed and denied.at <= now < denied.deadline


class BucketCache:
    """All buckets this client remembers, and how far its clock is behind the others'."""

    __slots__ = (
        "_avoided",
        "_behind",
        "_behind_at",
        "_brought_back",
        "_clock_error_ms",
        "_corrected",
        "_homes",
        "buckets",
        "sharded",
    )

    def __init__(self, *, corrected: bool) -> None:
        """``corrected``: follow the clocks of others that are ahead of ours."""
        self.buckets: dict[Key, CachedBucket] = {}
        self.sharded: dict[Key, tuple[Key, ...]] = {}  # the shards of buckets that have several, by the first
        self._avoided: dict[Key, int] = {}
        self._homes: dict[Key, tuple[Key, int]] = {}
        self._corrected = corrected
        self._clock_error_ms = 0
        self._brought_back: dict[Key, int] = {}
        self._behind = 0
        self._behind_at = 0

    def get(self, key: Key) -> CachedBucket | None:
        """What is remembered of a bucket."""
        return self.buckets.get(key)

    def last_seen(self, key: Key) -> BucketSnapshot | None:
        """A bucket as it was last seen, if it is remembered."""
        cached = self.buckets.get(key)
        return None if cached is None else cached.snapshot

    def see(self, key: Key, snapshot: BucketSnapshot, now: int) -> CachedBucket:
        """Remember a bucket as it is."""
        cached = self.buckets.get(key)
        if cached is None:
            if len(self.buckets) >= MAX_BUCKETS:
                for oldest in list(self.buckets)[: MAX_BUCKETS // 2]:
                    self.buckets.pop(oldest, None)
            cached = self.buckets[key] = CachedBucket(snapshot, now)
        else:
            cached.see(snapshot, now)
        if snapshot.shards > 1:
            self.learn_shards(key, snapshot)
        elif self.sharded:
            self.sharded.pop(key, None)
        return cached

    def see_own(self, key: Key, reply: Reply, taken: Mapping[str, int], now: int) -> CachedBucket:
        """A write of this client was done, and took that: remember the bucket as the reply has it."""
        cached = self.buckets.get(key)
        if cached is None:
            return self.see(key, snapshot_in(reply), now)
        cached.refused = 0  # it was charged for those that were refused
        own = cached.own
        for name, delta in taken.items():
            own[name] = own.get(name, 0) + delta
        if cached.throttled:
            cached.throttled -= 1
            self.avoid(key, 0)
        snapshot = snapshot_in(reply, cached.snapshot)
        if snapshot.shards > 1 or self.sharded:
            return self.see(key, snapshot, now)
        cached.see(snapshot, now)
        return cached

    def forget(self, key: Key) -> None:
        """It is gone, or may be; and if it was one of several shards, then so may they."""
        self.buckets.pop(key, None)
        if self.sharded:
            self.sharded.pop(shard_key(key, 0), None)

    def forget_shard(self, key: Key) -> None:
        """One of several shards is not there (any more), and the others are."""
        self.buckets.pop(key, None)

    def forget_all(self) -> None:
        """Another namespace, or another table."""
        self.buckets.clear()
        self.sharded.clear()
        self._avoided.clear()
        self._homes.clear()

    # Shards

    def shards_of(self, first: Key) -> tuple[Key, ...]:
        """All shards there may be of the bucket whose shard 0 is at ``first``."""
        return self.sharded.get(first) or (first,)

    def family(self, first: Key) -> dict[Key, BucketSnapshot]:
        """The shards of a bucket as they are remembered."""
        keys = self.shards_of(first)
        return {key: cached.snapshot for key in keys if (cached := self.buckets.get(key)) is not None}

    def learn_shards(self, key: Key, snapshot: BucketSnapshot) -> None:
        """Note how many shards there are, by one of them. The first is always divided most."""
        if snapshot.shards > 1:
            first = shard_key(key, 0)
            known = len(self.sharded.get(first, ()))
            if snapshot.shards > known or (snapshot.shard == 0 and snapshot.shards < known):
                if len(self.sharded) >= MAX_DIVIDED:
                    self.sharded.clear()
                self.sharded[first] = tuple(shard_key(first, shard) for shard in range(snapshot.shards))

    def avoid(self, key: Key, deadline: int) -> None:
        """Leave a shard alone for a while: it takes no more, or is lost."""
        if len(self._avoided) >= MAX_DIVIDED:
            self._avoided.clear()
        self._avoided[key] = deadline

    def is_avoided(self, key: Key, now: int) -> bool:
        """Whether it is to be left alone."""
        return bool(self._avoided) and 0 < self._avoided.get(key, 0) - now <= LONGEST_AVOIDED_MS

    def is_shut(self, key: Key, throttles: int, now: int) -> bool:
        """Whether it is to be left alone, and took no write for more than so many tries."""
        cached = self.buckets.get(key)
        return cached is not None and cached.throttled > throttles and self.is_avoided(key, now)

    def preferred_shard(self, first: Key, now: int) -> Key | None:
        """The shard that all callers of this process draw from for a while."""
        home, deadline = self._homes.get(first, (None, 0))
        return home if now < deadline else None

    def prefer_shard(self, first: Key, home: Key, deadline: int) -> None:
        """Draw from that shard for a while."""
        if len(self._homes) >= MAX_DIVIDED:
            self._homes.clear()
        self._homes[first] = (home, deadline)

    def forget_denials(self, keys: Iterable[Key] | None = None) -> None:
        """Something came back to these buckets (or may have, to any)."""
        for key in list(self.buckets) if keys is None else keys:
            cached = self.buckets.get(key)
            if cached is not None and cached.denied:
                cached.denied = {}

    # Clocks

    def may_bring_back(self, key: Key, now: int) -> bool:
        """Whether this client has not brought that bucket back for a while: it may be our clock that is wrong."""
        return self.back_again_in(key, now) is None

    def brought_back(self, key: Key, now: int) -> None:
        """This client brought a bucket back."""
        if len(self._brought_back) >= MAX_DIVIDED:
            self._brought_back.clear()
        self._brought_back[key] = now

    def back_again_in(self, key: Key, now: int) -> int | None:
        """In how many milliseconds this client may bring that bucket back again; ``None`` if it may now."""
        last = self._brought_back.get(key)
        if last is None or abs(now - last) >= FURTHEST_AHEAD_MS:
            return None
        return last + FURTHEST_AHEAD_MS - now

    @property
    def uses_machine_clock(self) -> bool:
        """Whether bucket time is the machine's, and corrected; else it is the caller's."""
        return self._corrected

    def corrected(self, clock: int, error_ms: int | None = None) -> int:
        """Our clock, moved towards the fastest one seen. ``error_ms``: by how much replies now show it to be late."""
        if error_ms is not None and self._corrected:
            self._clock_error_ms = error_ms
        clock += self._clock_error_ms
        return clock + self._lag(clock) if self._behind else clock

    def compare_clocks(self, newest: int, clock: int) -> None:
        """Learn how far ours is behind from the ``newest`` moment a writer noted; ``clock`` is what ours says now."""
        clock += self._clock_error_ms
        ahead = newest - clock
        if ahead > FURTHEST_AHEAD_MS:  # that is no clock to follow
            ahead = 0
        self._behind = min(max(ahead, self._lag(clock), 0), FASTEST_CLOCK_MS)
        self._behind_at = clock

    def _lag(self, clock: int) -> int:
        """What is believed of the lag: a millisecond less every second, so that a mistake is forgotten."""
        return max(self._behind - max(clock - self._behind_at, 0) // 1000, 0) if self._behind else 0


def newest(snapshot: BucketSnapshot) -> int:
    """The latest moment that any of the last writers, or the baseline, stands for."""
    latest = snapshot.rf
    for write_id in snapshot.recent_writers:
        moment = write_id_time(write_id)
        if moment > latest:
            latest = moment
        if write_id[-1:] == BROUGHT_BACK:
            break
    return latest


def is_far_ahead(snapshot: BucketSnapshot, now: int) -> bool:
    """Whether a bucket was written by a clock that is wrong, if ours is right."""
    return newest(snapshot) > now + FURTHEST_AHEAD_MS


def _rates_by_write_ids(snapshot: BucketSnapshot, now: int) -> dict[str, tuple[int, int]]:
    """What is being taken of each limit, and in how many milliseconds, by the write ids in the first snapshot.

    Since the oldest of the last writers the others came, and each took what grants of this bucket took on average. Far
    more than accrues, from a bucket that is more than half full all the same, was a handful at once and is no rate.
    """
    oldest = min(map(write_id_time, snapshot.recent_writers), default=0)
    if not oldest or not snapshot.ev:  # few have written to it yet
        return {}
    draws, elapsed = len(snapshot.recent_writers) - 1, max(now, newest(snapshot)) - oldest
    elapsed = max(elapsed, 1)
    return {
        name: (taken, elapsed)
        for name, balance in snapshot.balances.items()
        if (taken := draws * balance.tc // snapshot.ev) > 0
        and (
            taken * balance.rp * balance.shards <= BURSTS_TIMES * elapsed * balance.ra
            or 2 * balance.level(now) < balance.bx
        )
    }
