"""Several shards that pay for one draw together, in one transaction: as few as possible, the fullest first.

Limits that only watch are judged by the first of them alone, so they may report too many refusals, never too few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from zae_limiter.bucket import key_of
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot
from zae_limiter.stores.dynamodb.bucket_write import WriteEvent
from zae_limiter.stores.dynamodb.config_versions import adopted, after_taking
from zae_limiter.stores.dynamodb.intents import Intent, Watched
from zae_limiter.stores.dynamodb.requests import NoAnswer, Refused
from zae_limiter.stores.dynamodb.schema import Key
from zae_limiter.stores.dynamodb.tallies import cascaded_tallies

if TYPE_CHECKING:
    from zae_limiter.stores.dynamodb.operations.acquire import Acquire
    from zae_limiter.stores.dynamodb.operations.acquire_legs import AcquireLeg

THROTTLES_BORNE = 2
"""So often a bucket's own throttled key is met before the draw is denied: it is load, not an outage."""


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
        snapshot = after_taking(
            *(cache[key], leg.terms, intent.deltas, acquire.now, leg.write_id),
            grants=int(key == leg.key),
            slots=intent.slots,
            watched=intent.watched,
        )
        parts.cache.see(key, snapshot, acquire.now)
    cached = parts.cache.get(leg.key)
    leg.snapshot = None if cached is None else cached.snapshot
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
