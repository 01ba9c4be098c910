"""Drawing from a bucket that is divided over shards.

A draw tries the better of two shards, by what is remembered of them. Where writes of one process are joined, the
process stays with that shard for a moment: spread over all shards at once, its writes would hardly ever meet, and
every division would undo what joining saves. If that shard turns out to be drained the draw tries two others, and then
looks at all: the request is refused only if all shards together lack, and if they do not, but no single one has
enough, several pay in one transaction. Whoever sees a shard under real pressure divides shard 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from zlib import crc32

from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.bucket_cache import is_far_ahead
from zae_limiter.stores.dynamodb.bucket_writer import TRIES_AT_ONCE
from zae_limiter.stores.dynamodb.config_versions import adopted, after_taking, lacking
from zae_limiter.stores.dynamodb.items import Image, image_of
from zae_limiter.stores.dynamodb.operations.acquire_legs import SHARDS_TRIED, LegUnderWay, Taking
from zae_limiter.stores.dynamodb.operations.shard_life import make_shard, split_first
from zae_limiter.stores.dynamodb.requests import Contended, NoAnswer, Refused
from zae_limiter.stores.dynamodb.schema import Key, shard_key
from zae_limiter.stores.dynamodb.write_forms import Wish
from zae_limiter.stores.dynamodb.write_load import may_split

THROTTLES_BORNE = 2
"""So often a bucket's own throttled key is met before the draw is denied: it is load, not an outage."""

AVOIDED_MS = 20, 100
"""For how long a shard that takes no more writes is left alone."""

LONGEST_AVOIDED_MS = 2_000
"""It is left alone twice as long each time, up to this: else those who ask would leave nothing for a division."""

SPLIT_PATIENCE_MS = 100
"""How long a draw tries to divide a bucket, and how soon another one of this process may try again."""

HOME_MS = 100
"""For how long those of one process whose writes can be joined draw from the same shard."""

LOST_MS = 60_000
"""For how long nobody looks for a shard that is lost."""


def choose_shard(taking: Taking, leg: LegUnderWay) -> Plan[None]:
    """Draw from the better of two shards that were not tried yet."""
    images = taking.space.images
    keys = images.shards_of(leg.first)
    if len(keys) == 1:
        return
    may_stay = taking.space.batching.coalesce and not leg.tried and not leg.leg.paid
    if may_stay and _stay(taking, leg):
        return
    one, two = _two_of(taking, leg, keys)
    if any(images.get(key) is None for key in (one, two)):
        yield from look_at_all(taking, leg)
        there = images.shards_of(leg.first)
        if len(there) == 1:  # it is gone, or another one by now
            memory = images.get(leg.first)
            leg.move_to(leg.first, None if memory is None else memory.image, fresh=True)
            return
        if len(there) < len(keys):
            one, two = _two_of(taking, leg, there)
    best: tuple[int, Key, Image] | None = None
    for key in dict.fromkeys((one, two)):
        memory = images.get(key)
        image = memory.image if memory is not None else (yield from _make(taking, leg, key))
        if image is not None:
            room = _room(taking, leg, image)
            if best is None or room > best[0]:
                best = (room, key, image)
    if best is not None:
        leg.move_to(best[1], best[2], fresh=False)
        if taking.space.batching.coalesce:
            images.settle_at(leg.first, best[1], taking.now + HOME_MS)
    else:  # both are lost: shard 0 never is
        leg.tried.update((one, two))
        memory = images.get(leg.first)
        leg.move_to(leg.first, None if memory is None else memory.image, fresh=leg.all_seen)


def _stay(taking: Taking, leg: LegUnderWay) -> bool:
    """Draw from where others of this process do, if there seems to be enough."""
    images = taking.space.images
    home = images.home_of(leg.first, taking.now)
    memory = None if home is None or images.is_avoided(home, taking.now) else images.get(home)
    if home is None or memory is None or _room(taking, leg, memory.image) < 0:
        return False
    leg.move_to(home, memory.image, fresh=False)
    return True


def _two_of(taking: Taking, leg: LegUnderWay, keys: Sequence[Key]) -> tuple[Key, Key]:
    """Two shards to choose from."""
    images = taking.space.images
    choice = [key for key in keys if key not in leg.tried and not images.is_avoided(key, taking.now)]
    if leg.leg.paid and not leg.tried and (paid := shard_key(leg.first, leg.leg.paid[0][0])) in keys:
        choice = [paid]
    if not choice:
        choice = [key for key in keys if key not in leg.tried] or [leg.first]
    draw = crc32(f"{leg.nonce}{len(leg.tried)}".encode())
    return (
        choice[draw % len(choice)],
        choice[(draw + 1 + draw // len(choice) % max(len(choice) - 1, 1)) % len(choice)],
    )


def _room(taking: Taking, leg: LegUnderWay, image: Image) -> int:
    """How much more than needed a shard holds, of the limit that is shortest."""
    return min(
        balance.level(taking.now) - leg.needed.get(balance.name, 0)
        for balance in adopted(image, leg.terms, taking.now)
    )


def _make(taking: Taking, leg: LegUnderWay, key: Key) -> Plan[Image | None]:
    """A shard that nobody has made yet, or nothing."""
    space = taking.space
    try:
        image = yield from make_shard(space.asking, key, taking.now, taking.until)
    except (Refused, NoAnswer):
        image = None
    if image is None:
        space.images.avoid(key, taking.now + LOST_MS)
        return None
    yield from look_at_all(taking, leg)
    return image


def look_at_all(taking: Taking, leg: LegUnderWay) -> Plan[None]:
    """Read every shard there is."""
    space = taking.space
    seen: set[Key] = set()
    while unseen := [key for key in space.images.shards_of(leg.first) if key not in seen]:
        found = yield from space.asking.get_all(unseen, taking.until)
        seen.update(unseen)
        for key in unseen:
            if key in found:
                memory = space.images.get(key)
                image = image_of(found[key], None if memory is None else memory.image)
                yield from space.writer.see(key, image, taking.now)
            elif key == leg.first:
                space.images.forget(key)
    leg.all_seen = True
    memory = space.images.get(leg.key)
    if memory is not None:
        leg.image, leg.fresh = memory.image, True


def look_elsewhere(taking: Taking, leg: LegUnderWay) -> Plan[bool]:
    """Its shard is drained: find another way. False: all of them together lack."""
    space = taking.space
    if len(space.images.shards_of(leg.first)) == 1:
        return False
    if leg.doubtful:
        leg.done = yield from space.writer.void(leg, taking.now, taking.until)
        if leg.done:
            return True
    leg.tried.add(leg.key)
    if leg.fits() and not leg.all_seen:
        while len(leg.tried) < SHARDS_TRIED:
            yield from choose_shard(taking, leg)
            if leg.key in leg.tried:
                break
            if not leg.lacks(taking.now):
                return True
            leg.tried.add(leg.key)
        yield from look_at_all(taking, leg)
    return (yield from _draw_from_all(taking, leg))


def _draw_from_all(taking: Taking, leg: LegUnderWay) -> Plan[bool]:
    """Draw from the shard that has enough, or from several; until the deadline, if others are faster every time."""
    space = taking.space
    for tries in count(1):
        if leg.all_seen and space.images.get(leg.first) is None:
            leg.move_to(leg.first, None, fresh=True)  # it is gone, with all its shards
            return True
        if meets_newer_terms(taking, leg):
            return True
        yield from _bring_back_all(taking, leg)
        if lacking(leg.whole(space.images, taking.now), leg.needed, taking.now):
            return False
        rooms = [
            (_room(taking, leg, memory.image), key, memory.image)
            for key in space.images.shards_of(leg.first)
            if (memory := space.images.get(key)) is not None
        ]
        shunned = leg.tried | {key for _, key, _ in rooms if space.images.is_avoided(key, taking.now)}
        roomy = [one for one in rooms if one[0] >= 0 and one[1] not in shunned]
        if roomy:
            _, key, image = max(roomy, key=lambda one: one[0])
            leg.move_to(key, image, fresh=True)
            return True
        if any(image.cv != leg.terms.cv for _, _, image in rooms):
            yield from adopt_all(taking, leg)
        elif (yield from _draw_from_several(taking, leg, [(key, image) for _, key, image in rooms])):
            return True
        taking.overtaken += 1
        if tries >= TRIES_AT_ONCE:
            yield from space.asking.pause(tries - 1, taking.until, Contended())
        yield from look_at_all(taking, leg)
        leg.tried.clear()
    raise AssertionError("counting has no end")


def meets_newer_terms(taking: Taking, leg: LegUnderWay) -> bool:
    """Whether some shard obeys what may be newer than ours; it is moved there, to be noticed."""
    images = taking.space.images
    for key in images.shards_of(leg.first):
        memory = images.get(key)
        if memory is not None and not taking.may_follow(leg, key, memory.image.cv):
            leg.move_to(key, memory.image, fresh=True)
            return True
    return False


def bring_back(taking: Taking, astray: Sequence[LegUnderWay]) -> Plan[bool]:
    """Let the buckets of these legs, which a wrong clock has written to, go on from now. False: none was moved."""
    space, moved = taking.space, False
    for leg in astray:
        if leg.image is not None and space.images.may_bring_back(leg.key, taking.now):
            image = yield from space.propagation.bring_back(leg.key, leg.image, taking.now, taking.until)
            if image is not leg.image:
                leg.image, leg.fresh, moved = image, True, True
    return moved


def _bring_back_all(taking: Taking, leg: LegUnderWay) -> Plan[None]:
    """The same for every shard of one bucket."""
    space = taking.space
    for key in space.images.shards_of(leg.first):
        memory = space.images.get(key)
        if memory is not None and is_far_ahead(memory.image, taking.now):
            image = yield from space.propagation.bring_back(key, memory.image, taking.now, taking.until)
            if key == leg.key:
                leg.image = image


def adopt_all(taking: Taking, leg: LegUnderWay) -> Plan[None]:
    """Let every shard follow the terms that hold."""
    space = taking.space
    for key in space.images.shards_of(leg.first):
        memory = space.images.get(key)
        if memory is not None and memory.image.cv != leg.terms.cv and taking.may_follow(leg, key, memory.image.cv):
            image = yield from space.propagation.adopt(key, memory.image, leg.terms, taking.now, taking.until)
            if key == leg.key:
                leg.image = image


def _draw_from_several(taking: Taking, leg: LegUnderWay, shards: Sequence[tuple[Key, Image]]) -> Plan[bool]:
    """Let several shards pay together, in one transaction. False: somebody was faster."""
    space = taking.space
    payment = _shared_payment(leg, shards, taking.now)
    if payment is None:
        return False
    images = dict(shards)
    leg.begin_anew(space.marks.nonce(taking.now))
    leg.key = next(iter(payment))
    leg.image = images[leg.key]
    leg.drop_anchor()
    in_debt = _in_debt(leg, shards, taking.now)
    written = payment if not in_debt else payment | {key: {} for key in images if key not in payment}
    writes = []
    for place, (key, deltas) in enumerate(written.items()):
        wish = Wish(deltas, deltas, grants=int(place == 0), exactly=in_debt)
        writes.append(
            {"Update": dict(space.writer.params(key, images[key], wish, taking.now, leg.nonce, taking.until))}
        )
    leg.payers = list(payment.items())
    doubts: list[NoAnswer] = []
    try:
        reasons = yield from space.asking.transact(writes, taking.until, doubts)
    except Refused as refusal:
        leg.doubtful = bool(doubts)
        if not refusal.by_throttling:
            raise
        leg.throttled = THROTTLES_BORNE + 1  # load, not an outage
        return True
    except BaseException:
        leg.doubtful = True
        raise
    if reasons and doubts:
        leg.doubtful = True
        leg.done = yield from space.writer.void(leg, taking.now, taking.until)
    elif not reasons:
        leg.done = True
    if not leg.done:
        leg.payers = ()
        return False
    leg.granted_at = taking.now
    for key, deltas in written.items():
        image = after_taking(images[key], leg.terms, deltas, taking.now, leg.nonce, grants=int(key == leg.key))
        space.images.see(key, image, taking.now)
    memory = space.images.get(leg.key)
    leg.image = None if memory is None else memory.image
    return True


def _in_debt(leg: LegUnderWay, shards: Sequence[tuple[Key, Image]], now: int) -> frozenset[str]:
    """The limits of which some shard is in debt, although all together are not.

    That is so when new terms reached the shards of a bucket in debt one after the other; and when they were read while
    a debt was being written. So all of them must be as they were seen.
    """
    return frozenset(
        balance.name for _, image in shards for balance in adopted(image, leg.terms, now) if balance.level(now) < 0
    )


def relieve_hot(taking: Taking, leg: LegUnderWay) -> Plan[None]:
    """Its shard takes no more writes: divide the bucket, and try another shard."""
    space = taking.space
    leg.is_hot = False
    shortest, longest = AVOIDED_MS
    pause = shortest + crc32(leg.nonce.encode()) % (longest - shortest)
    memory = space.images.get(leg.key)
    if memory is not None:
        memory.throttled += 1
        pause = min(pause << max(memory.throttled - THROTTLES_BORNE, 0), LONGEST_AVOIDED_MS)
    space.images.avoid(leg.key, taking.now + pause)
    yield from divide(taking, leg)
    if not leg.doubtful and len(space.images.shards_of(leg.first)) > 1:
        leg.tried.add(leg.key)
        yield from choose_shard(taking, leg)


def divide(taking: Taking, leg: LegUnderWay) -> Plan[None]:
    """Divide a bucket that is under pressure; whatever comes of it, the draw goes on."""
    asking = taking.space.asking
    memory = taking.space.images.get(leg.first)
    if memory is not None:
        if 0 < memory.split_again_at - taking.now <= SPLIT_PATIENCE_MS or not may_split(memory.image, taking.now):
            return
        memory.split_again_at = taking.now + SPLIT_PATIENCE_MS
    window = yield from asking.window()
    until = window._replace(give_up_at=min(taking.until.give_up_at, window.started + SPLIT_PATIENCE_MS))
    with suppress(Refused, NoAnswer):
        if (yield from split_first(asking, leg.first, taking.now, until)):
            yield from look_at_all(taking, leg)


def _shared_payment(
    leg: LegUnderWay, shards: Sequence[tuple[Key, Image]], now: int
) -> dict[Key, dict[str, int]] | None:
    """How much each shard pays: as few shards as possible, the fullest first. ``None``: they do not have it."""
    payment: dict[Key, dict[str, int]] = {}
    levels = {
        key: {balance.name: balance.level(now) for balance in adopted(image, leg.terms, now)} for key, image in shards
    }
    if not leg.deltas:
        return {shards[0][0]: {}}
    for name, amount in leg.deltas.items():
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
