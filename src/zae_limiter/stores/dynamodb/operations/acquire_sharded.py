"""Drawing from a bucket that is divided over shards.

A draw tries the better of two shards, by what is remembered of them. Where writes of one process are joined, the
process stays with that shard for a moment: spread over all shards at once, its writes would hardly ever meet, and
every division would undo what joining saves. If that shard turns out to be drained the draw tries two others, and then
looks at all: the request is refused only if all shards together lack, and if they do not, but no single one has
enough, several pay in one transaction. A client that sees a shard under real pressure splits shard 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING
from zlib import crc32

from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.bucket_cache import is_far_ahead
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot, snapshot_of
from zae_limiter.stores.dynamodb.bucket_write import WriteEvent
from zae_limiter.stores.dynamodb.config_resolver import Prefetched
from zae_limiter.stores.dynamodb.config_versions import adopted, judges, lacking
from zae_limiter.stores.dynamodb.operations.acquire_payers import THROTTLES_BORNE as THROTTLES_BORNE
from zae_limiter.stores.dynamodb.operations.acquire_payers import draw_from_several
from zae_limiter.stores.dynamodb.operations.shard_life import make_shard, split_first
from zae_limiter.stores.dynamodb.operations.slots import even_out, is_uneven
from zae_limiter.stores.dynamodb.requests import Contended, NoAnswer, Refused
from zae_limiter.stores.dynamodb.schema import Key, shard_key
from zae_limiter.stores.dynamodb.write_load import may_split

if TYPE_CHECKING:
    from zae_limiter.stores.dynamodb.operations.acquire import Acquire
    from zae_limiter.stores.dynamodb.operations.acquire_legs import AcquireLeg

SHARDS_TRIED = 3
"""So many shards are tried one by one before all are looked at."""

AVOIDED_MS = 20, 100
"""For how long a shard that takes no more writes is left alone."""

LONGEST_AVOIDED_MS = 2_000
"""It is left alone twice as long each time, up to this: else those who ask would leave nothing for a division."""

SPLIT_PATIENCE_MS = 100
"""How long a draw tries to divide a bucket, and how soon another one of this process may try again."""

HOME_MS = 100
"""For how long those of one process whose writes can be joined draw from the same shard."""

LOST_MS = 60_000
"""For how long this client does not look for a shard that is lost."""


def choose_shard(acquire: Acquire, leg: AcquireLeg) -> Plan[None]:
    """Draw from the better of two shards that were not tried yet."""
    cache = acquire.parts.cache
    keys = cache.shards_of(leg.first)
    if len(keys) == 1:
        return
    if leg.leg.held and is_uneven(cache.family(leg.first)):
        yield from even_out(acquire.parts.settling, leg.first, acquire.now, acquire.deadline)
    may_stay = acquire.parts.batching.coalesce and not leg.tried and not leg.leg.paid
    if may_stay and _stay(acquire, leg):
        return
    one, two = _two_of(acquire, leg, keys)
    if any(cache.get(key) is None for key in (one, two)):
        yield from look_at_all(acquire, leg)
        there = cache.shards_of(leg.first)
        if len(there) == 1:  # it is gone, or another one by now
            cached = cache.get(leg.first)
            leg.move_to(leg.first, None if cached is None else cached.snapshot, fresh=True)
            return
        if len(there) < len(keys):
            one, two = _two_of(acquire, leg, there)
    best = yield from _better_of(acquire, leg, (one, two))
    if best is not None:
        leg.move_to(*best, fresh=False)
        if acquire.parts.batching.coalesce:
            cache.prefer_shard(leg.first, best[0], acquire.now + HOME_MS)
    else:  # both are lost: shard 0 never is
        leg.tried.update((one, two))
        cached = cache.get(leg.first)
        leg.move_to(leg.first, None if cached is None else cached.snapshot, fresh=leg.all_seen)


def _better_of(acquire: Acquire, leg: AcquireLeg, keys: tuple[Key, Key]) -> Plan[tuple[Key, BucketSnapshot] | None]:
    """The shard that holds more than is needed, or least too little; ``None`` if both are lost."""
    best: tuple[int, Key, BucketSnapshot] | None = None
    for key in dict.fromkeys(keys):
        cached = acquire.parts.cache.get(key)
        snapshot = cached.snapshot if cached is not None else (yield from _make(acquire, leg, key))
        if snapshot is not None:
            room = _room(acquire, leg, snapshot)
            if best is None or room > best[0]:
                best = (room, key, snapshot)
    return None if best is None else best[1:]


def _stay(acquire: Acquire, leg: AcquireLeg) -> bool:
    """Draw from where others of this process do, if there seems to be enough."""
    cache = acquire.parts.cache
    home = cache.preferred_shard(leg.first, acquire.now)
    cached = None if home is None or cache.is_avoided(home, acquire.now) else cache.get(home)
    if home is None or cached is None or _room(acquire, leg, cached.snapshot) < 0:
        return False
    leg.move_to(home, cached.snapshot, fresh=False)
    return True


def _two_of(acquire: Acquire, leg: AcquireLeg, keys: Sequence[Key]) -> tuple[Key, Key]:
    """Two shards to choose from."""
    cache = acquire.parts.cache
    choice = [key for key in keys if key not in leg.tried and not cache.is_avoided(key, acquire.now)]
    if leg.leg.paid and not leg.tried and (paid := shard_key(leg.first, leg.leg.paid[0][0])) in keys:
        choice = [paid]
    if not choice:
        choice = [key for key in keys if key not in leg.tried] or [leg.first]
    draw = crc32(f"{leg.write_id}{len(leg.tried)}".encode())
    return (
        choice[draw % len(choice)],
        choice[(draw + 1 + draw // len(choice) % max(len(choice) - 1, 1)) % len(choice)],
    )


def _room(acquire: Acquire, leg: AcquireLeg, snapshot: BucketSnapshot) -> int:
    """How much more than needed a shard holds, of the limit that is shortest."""
    rooms = [
        balance.level(acquire.now) - leg.needed.get(balance.name, 0)
        for balance in adopted(snapshot, leg.terms, acquire.now)
        if judges(balance.limit, leg.needed)
    ]
    return min(rooms, default=0)


def _make(acquire: Acquire, leg: AcquireLeg, key: Key) -> Plan[BucketSnapshot | None]:
    """A shard that is not made yet, or nothing."""
    parts = acquire.parts
    try:
        snapshot = yield from make_shard(parts.client, key, acquire.now, acquire.deadline)
    except (Refused, NoAnswer):
        snapshot = None
    if snapshot is None:
        parts.cache.avoid(key, acquire.now + LOST_MS)
        return None
    yield from look_at_all(acquire, leg)
    return snapshot


def look_at(acquire: Acquire, legs: Iterable[AcquireLeg], prefetched: Prefetched | None = None) -> Plan[None]:
    """See how the buckets of these legs are; those that were read a moment ago are not read again."""
    unseen = list(legs)
    if not unseen:
        return
    parts = acquire.parts
    for leg in unseen:
        if len(parts.cache.shards_of(leg.first)) > 1:
            yield from look_at_all(acquire, leg)
    found = prefetched or {}
    unread = [leg.key for leg in unseen if leg.key not in found]
    found = {**found, **(yield from parts.client.get_few(unread, acquire.deadline))}
    for leg in unseen:
        leg.fresh = True
        here = found.get(leg.key)
        leg.snapshot = None if here is None else (yield from parts.writer.see(leg.key, snapshot_of(here), acquire.now))
        if leg.doubtful and leg.snapshot is not None and leg.is_in(leg.snapshot):
            leg.advance(WriteEvent.SEEN)


def look_at_all(acquire: Acquire, leg: AcquireLeg) -> Plan[None]:
    """Read every shard there is."""
    parts = acquire.parts
    seen: set[Key] = set()
    while unseen := [key for key in parts.cache.shards_of(leg.first) if key not in seen]:
        found = yield from parts.client.get_all(unseen, acquire.deadline)
        seen.update(unseen)
        for key in unseen:
            if key in found:
                cached = parts.cache.get(key)
                snapshot = snapshot_of(found[key], None if cached is None else cached.snapshot)
                yield from parts.writer.see(key, snapshot, acquire.now)
            elif key == leg.first:
                parts.cache.forget(key)
            else:
                parts.cache.forget_shard(key)
    leg.all_seen = True
    key = leg.key if parts.cache.get(leg.key) is not None else leg.first
    cached = parts.cache.get(key)
    if cached is not None:
        leg.move_to(key, cached.snapshot, fresh=True)


def look_elsewhere(acquire: Acquire, leg: AcquireLeg) -> Plan[bool]:
    """Its shard is drained: find another way. False: all of them together lack."""
    parts = acquire.parts
    if len(parts.cache.shards_of(leg.first)) == 1:
        return False
    if leg.doubtful and (yield from parts.writer.void(leg, acquire.now, acquire.deadline)):
        return True
    leg.tried.add(leg.key)
    if leg.fits() and not leg.all_seen:
        while len(leg.tried) < SHARDS_TRIED:
            yield from choose_shard(acquire, leg)
            if leg.key in leg.tried:
                break
            if not leg.lacks(acquire.now):
                return True
            leg.tried.add(leg.key)
        yield from look_at_all(acquire, leg)
    return (yield from _draw_from_all(acquire, leg))


def _draw_from_all(acquire: Acquire, leg: AcquireLeg) -> Plan[bool]:
    """Draw from the shard that has enough, or from several; until the deadline, if others are faster every time."""
    parts = acquire.parts
    for tries in count(1):
        if leg.all_seen and parts.cache.get(leg.first) is None:
            leg.move_to(leg.first, None, fresh=True)  # it is gone, with all its shards
            return True
        if meets_newer_terms(acquire, leg):
            return True
        yield from _bring_back_all(acquire, leg)
        if lacking(leg.whole(parts.cache, acquire.now), leg.needed, acquire.now):
            return False
        rooms = [
            (_room(acquire, leg, cached.snapshot), key, cached.snapshot)
            for key in parts.cache.shards_of(leg.first)
            if (cached := parts.cache.get(key)) is not None
        ]
        shunned = leg.tried | {key for _, key, _ in rooms if parts.cache.is_avoided(key, acquire.now)}
        roomy = [one for one in rooms if one[0] >= 0 and one[1] not in shunned]
        if roomy:
            _, key, snapshot = max(roomy, key=lambda one: one[0])
            leg.move_to(key, snapshot, fresh=True)
            return True
        if any(snapshot.cv != leg.terms.cv for _, _, snapshot in rooms):
            yield from adopt_all(acquire, leg)
        elif (yield from draw_from_several(acquire, leg, [(key, snapshot) for _, key, snapshot in rooms])):
            return True
        acquire.overtaken += 1
        yield from parts.writer.pause(tries, acquire.deadline, Contended())
        yield from look_at_all(acquire, leg)
        leg.tried.clear()
    raise AssertionError("counting has no end")


def meets_newer_terms(acquire: Acquire, leg: AcquireLeg) -> bool:
    """Whether some shard obeys what may be newer than ours; it is moved there, to be noticed."""
    cache = acquire.parts.cache
    for key in cache.shards_of(leg.first):
        cached = cache.get(key)
        if cached is not None and not acquire.may_follow(leg, key, cached.snapshot.cv):
            leg.move_to(key, cached.snapshot, fresh=True)
            return True
    return False


def look_again(acquire: Acquire, pending: Sequence[AcquireLeg]) -> Plan[bool]:
    """Bring back buckets that a wrong clock has written to, and read those that seem never to hold enough."""
    astray = [leg for leg in pending if leg.snapshot is not None and is_far_ahead(leg.snapshot, acquire.now)]
    if (yield from _bring_back(acquire, astray)):
        return True
    hopeless = [leg for leg in pending if not (leg.fresh or (leg.fits() and leg.fits_here()))]
    if hopeless:
        yield from look_at(acquire, hopeless)
    return bool(hopeless)


def _bring_back(acquire: Acquire, astray: Sequence[AcquireLeg]) -> Plan[bool]:
    """Let the buckets of these legs, which a wrong clock has written to, go on from now. False: none was moved."""
    parts, moved = acquire.parts, False
    for leg in astray:
        if leg.snapshot is not None and parts.cache.may_bring_back(leg.key, acquire.now):
            snapshot = yield from parts.propagation.bring_back(leg.key, leg.snapshot, acquire.now, acquire.deadline)
            if snapshot is not leg.snapshot:
                leg.snapshot, leg.fresh, moved = snapshot, True, True
    return moved


def _bring_back_all(acquire: Acquire, leg: AcquireLeg) -> Plan[None]:
    """The same for every shard of one bucket."""
    parts = acquire.parts
    for key in parts.cache.shards_of(leg.first):
        cached = parts.cache.get(key)
        if cached is not None and is_far_ahead(cached.snapshot, acquire.now):
            snapshot = yield from parts.propagation.bring_back(key, cached.snapshot, acquire.now, acquire.deadline)
            if key == leg.key:
                leg.snapshot = snapshot


def adopt_all(acquire: Acquire, leg: AcquireLeg) -> Plan[None]:
    """Let every shard follow the terms that hold."""
    parts = acquire.parts
    for key in parts.cache.shards_of(leg.first):
        cached = parts.cache.get(key)
        if (
            cached is not None
            and cached.snapshot.cv != leg.terms.cv
            and acquire.may_follow(leg, key, cached.snapshot.cv)
        ):
            snapshot = yield from parts.propagation.adopt(
                key, cached.snapshot, leg.terms, acquire.now, acquire.deadline
            )
            if key == leg.key:
                leg.snapshot = snapshot


def change_shards(acquire: Acquire, pending: Sequence[AcquireLeg]) -> Plan[bool]:
    """Leave shards that take no more writes, or that are gone. False: none was."""
    moving = [leg for leg in pending if leg.is_hot or (leg.snapshot is None and leg.key != leg.first)]
    for leg in moving:
        if leg.is_hot:
            yield from _relieve_hot(acquire, leg)
        else:  # the shard is gone, and perhaps all of them
            leg.move_to(leg.first, None, fresh=False)
            yield from look_at(acquire, [leg])
    return bool(moving)


def _relieve_hot(acquire: Acquire, leg: AcquireLeg) -> Plan[None]:
    """Its shard takes no more writes: divide the bucket, and try another shard."""
    parts = acquire.parts
    leg.is_hot = False
    shortest, longest = AVOIDED_MS
    pause = shortest + crc32(leg.write_id.encode()) % (longest - shortest)
    cached = parts.cache.get(leg.key)
    if cached is not None:
        cached.throttled += 1
        pause = min(pause << max(cached.throttled - THROTTLES_BORNE, 0), LONGEST_AVOIDED_MS)
    parts.cache.avoid(leg.key, acquire.now + pause)
    yield from divide(acquire, leg)
    if not leg.doubtful and len(parts.cache.shards_of(leg.first)) > 1:
        leg.tried.add(leg.key)
        yield from choose_shard(acquire, leg)


def divide(acquire: Acquire, leg: AcquireLeg) -> Plan[None]:
    """Divide a bucket that is under pressure; whatever comes of it, the draw goes on."""
    client = acquire.parts.client
    cached = acquire.parts.cache.get(leg.first)
    if cached is not None:
        if 0 < cached.split_again_at - acquire.now <= SPLIT_PATIENCE_MS or not may_split(cached.snapshot, acquire.now):
            return
        cached.split_again_at = acquire.now + SPLIT_PATIENCE_MS
    deadline = yield from client.new_deadline()
    deadline = deadline._replace(give_up_at=min(acquire.deadline.give_up_at, deadline.started + SPLIT_PATIENCE_MS))
    with suppress(Refused, NoAnswer):
        if (yield from split_first(client, leg.first, acquire.now, deadline)):
            yield from look_at_all(acquire, leg)
