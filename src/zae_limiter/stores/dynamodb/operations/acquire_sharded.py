"""Drawing from a bucket that is divided over shards.

A draw tries the better of two shards, by what is remembered of them. Where writes of one process are joined, the
process stays with that shard for a moment: spread over all shards at once, its writes would hardly ever meet, and
every division would undo what joining saves. If that shard turns out to be drained the draw tries two others, and then
looks at all: the request is refused only if all shards together lack, and if they do not, but no single one has
enough, several pay in one transaction: as few as possible, the fullest first. (Limits that only watch are judged by
the first of them alone, so they may report too many refusals, never too few.) A client that sees a shard under real
pressure splits shard 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING
from zlib import crc32

from zae_limiter.bucket import key_of
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.bucket_cache import is_far_ahead
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot, snapshot_of
from zae_limiter.stores.dynamodb.bucket_write import WriteEvent
from zae_limiter.stores.dynamodb.config_resolver import Prefetched
from zae_limiter.stores.dynamodb.config_versions import adopted, after_write, judges, lacking
from zae_limiter.stores.dynamodb.intents import Intent, Watched, cascaded_tallies
from zae_limiter.stores.dynamodb.operations.acquire_legs import THROTTLES_BORNE
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
            leg.move_to(leg.first, cache.last_seen(leg.first), fresh=True)
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
        leg.move_to(leg.first, cache.last_seen(leg.first), fresh=leg.all_seen)


def _better_of(acquire: Acquire, leg: AcquireLeg, keys: tuple[Key, Key]) -> Plan[tuple[Key, BucketSnapshot] | None]:
    """The shard that holds more than is needed, or least too little; ``None`` if both are lost."""
    best: tuple[int, Key, BucketSnapshot] | None = None
    for key in dict.fromkeys(keys):
        snapshot = acquire.parts.cache.last_seen(key) or (yield from _make(acquire, leg, key))
        if snapshot is not None:
            room = _room(acquire, leg, snapshot)
            if best is None or room > best[0]:
                best = (room, key, snapshot)
    return None if best is None else best[1:]


def _stay(acquire: Acquire, leg: AcquireLeg) -> bool:
    """Draw from where others of this process do, if there seems to be enough."""
    cache = acquire.parts.cache
    home = cache.preferred_shard(leg.first, acquire.now)
    if home is None or cache.is_avoided(home, acquire.now):
        return False
    snapshot = cache.last_seen(home)
    if snapshot is None or _room(acquire, leg, snapshot) < 0:
        return False
    leg.move_to(home, snapshot, fresh=False)
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
                snapshot = snapshot_of(found[key], parts.cache.last_seen(key))
                yield from parts.writer.see(key, snapshot, acquire.now)
            elif key == leg.first:
                parts.cache.forget(key)
            else:
                parts.cache.forget_shard(key)
    leg.all_seen = True
    for key in (leg.key, leg.first):
        there = parts.cache.last_seen(key)
        if there is not None:
            leg.move_to(key, there, fresh=True)
            break


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
            (_room(acquire, leg, snapshot), key, snapshot) for key, snapshot in parts.cache.family(leg.first).items()
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
    for key, snapshot in cache.family(leg.first).items():
        if not acquire.may_follow(leg, key, snapshot.cv):
            leg.move_to(key, snapshot, fresh=True)
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
        snapshot = parts.cache.last_seen(key)
        if snapshot is not None and is_far_ahead(snapshot, acquire.now):
            snapshot = yield from parts.propagation.bring_back(key, snapshot, acquire.now, acquire.deadline)
            if key == leg.key:
                leg.snapshot = snapshot


def adopt_all(acquire: Acquire, leg: AcquireLeg) -> Plan[None]:
    """Let every shard follow the terms that hold."""
    parts = acquire.parts
    for key in parts.cache.shards_of(leg.first):
        old = parts.cache.last_seen(key)
        if old is not None and old.cv != leg.terms.cv and acquire.may_follow(leg, key, old.cv):
            snapshot = yield from parts.propagation.adopt(key, old, leg.terms, acquire.now, acquire.deadline)
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


def draw_from_several(acquire: Acquire, leg: AcquireLeg, shards: Sequence[tuple[Key, BucketSnapshot]]) -> Plan[bool]:
    """Let several shards pay together, in one transaction. False: another client was faster."""
    payment = _shared_payment(leg, shards, acquire.now)
    if payment is None:
        return False
    cache = dict(shards)
    leg.begin_anew(acquire.parts.write_ids.write_id(acquire.now))
    leg.key = next(iter(payment))
    leg.snapshot = cache[leg.key]
    leg.set_anchor()
    leg.payers, leg.exactly = list(payment.items()), _in_debt(leg, shards, acquire.now)
    if leg.exactly:  # all of them must be as they were seen
        payment |= {key: {} for key in cache if key not in payment}
    leg.lives = {key: snapshot.inc for key, snapshot in cache.items()}
    if leg.work is not None:
        payment = _judge(leg, payment, cache, acquire.now)
        leg.payers = [(key, part) for key, part in payment.items() if part or not leg.exactly]
    if acquire.record is not None:  # they pay in the transaction that writes the record
        leg.payers = list(payment.items())
        return True
    return (yield from _pay_together(acquire, leg, payment, cache))


def _pay_together(
    acquire: Acquire,
    leg: AcquireLeg,
    written: Mapping[Key, Mapping[str, int]],
    cache: Mapping[Key, BucketSnapshot],
) -> Plan[bool]:
    """Write to all of these shards. False: another client was faster."""
    parts = acquire.parts
    writes = []
    intents = intents_of_payers(leg, written)
    for key, intent in intents.items():
        writes.append(
            {"Update": dict(parts.writer.params(key, cache[key], intent, acquire.now, leg.write_id, acquire.deadline))}
        )
    doubts: list[NoAnswer] = []
    try:
        reasons = yield from parts.client.transact(writes, acquire.deadline, doubts)
    except BaseException as failure:
        if doubts or not isinstance(failure, Refused):
            leg.advance(WriteEvent.LOST)
        if not isinstance(failure, Refused) or not failure.by_throttling:
            raise
        leg.throttled = THROTTLES_BORNE + 1  # load, not an outage
        return True
    if not reasons:
        leg.advance(WriteEvent.ANSWERED)
    elif doubts:
        leg.advance(WriteEvent.LOST)
        yield from parts.writer.void(leg, acquire.now, acquire.deadline)
    if not leg.done:
        leg.payers = ()
        return False
    leg.granted_at = acquire.now
    for key, intent in intents.items():
        after = after_write(cache[key], intent, acquire.now, leg.write_id, leg.terms)
        parts.cache.see(key, after, acquire.now)
    leg.snapshot = parts.cache.last_seen(leg.key)
    return True


def _judge(
    leg: AcquireLeg, payment: Mapping[Key, Mapping[str, int]], shards: Mapping[Key, BucketSnapshot], now: int
) -> dict[Key, dict[str, int]]:
    """The payment, with what is taken of limits that only watch: from the first of these shards, by what it holds."""
    work, first = leg.work, next(iter(payment))
    assert work is not None
    moment = max(now, *(snapshot.rf for snapshot in shards.values()))
    work.judge(adopted(shards[first], leg.terms, now), leg.needed, moment, {})
    work.dues = {
        name: max(due, *(_due_on(shards[key], name, moment) for key in payment)) for name, due in work.dues.items()
    }
    leg.deltas = work.taken()
    watching = {limit.name for limit in leg.leg.limits if not limit.enforce}
    taken = {name: milli for name, milli in {**work.wanted, **work.lends}.items() if name in watching - leg.refused}
    return {key: {**part, **(taken if key == first else {})} for key, part in payment.items()}


def intents_of_payers(leg: AcquireLeg, payment: Mapping[Key, Mapping[str, int]]) -> dict[Key, Intent]:
    """What each of several shards does that pay together."""
    watching = frozenset(limit.name for limit in leg.leg.limits if not limit.enforce)
    intents: dict[Key, Intent] = {}
    for key, paid in payment.items():
        place = len(intents)
        deltas, lent = leg.parts_of(paid)
        intents[key] = Intent(
            deltas,
            deltas,
            grants=int(place == 0),
            exactly=leg.exactly,
            tallies=cascaded_tallies(leg.counting_leg(), {**deltas, **lent}, int(place == 0)),
            slots={} if leg.work is None else leg.work.lent(lent, watching),
            watched=_unjudged(leg) if place else leg.watched,
        )
    return intents


def _due_on(snapshot: BucketSnapshot, name: str, now: int) -> int:
    """Until when a shard lends, if it does."""
    balance = snapshot.holds.get(name)
    return 0 if balance is None else balance.due_time(now)


def _unjudged(leg: AcquireLeg) -> dict[str, Watched]:
    """What limits say that only watch, on a shard that does not judge by them."""
    return {key_of(limit): Watched() for limit in leg.leg.limits if not limit.enforce}


def _in_debt(leg: AcquireLeg, shards: Sequence[tuple[Key, BucketSnapshot]], now: int) -> frozenset[str]:
    """The limits of which some shard is in debt, although all together are not.

    That is so when new terms reached the shards of a bucket in debt one after the other; and when they were read while
    a debt was being written. So all of them must be as they were seen.
    """
    return frozenset(
        balance.name
        for _, snapshot in shards
        for balance in adopted(snapshot, leg.terms, now)
        if balance.level(now) < 0 and balance.limit.enforce and not balance.limit.is_held
    )


def _shared_payment(
    leg: AcquireLeg, shards: Sequence[tuple[Key, BucketSnapshot]], now: int
) -> dict[Key, dict[str, int]] | None:
    """How much each shard pays: as few shards as possible, the fullest first. ``None``: they do not have it."""
    payment: dict[Key, dict[str, int]] = {}
    levels = {
        key: {balance.name: balance.level(now) for balance in adopted(snapshot, leg.terms, now)}
        for key, snapshot in shards
    }
    wanted = leg.deltas if leg.work is None else {**leg.work.wanted, **leg.work.lends}
    watching = {limit.name for limit in leg.leg.limits if not limit.enforce}
    asked = {name: amount for name, amount in wanted.items() if name not in watching}
    if not asked:
        return {shards[0][0]: {}}
    for name, amount in asked.items():
        left = amount
        for key in sorted(levels, key=lambda key: (key not in payment, -levels[key].get(name, 0))):
            part = min(left, max(levels[key].get(name, 0), 0))
            if part:
                payment.setdefault(key, {})[name] = part
                left -= part
            if not left:
                break
        if left:
            return None
    return payment or None
