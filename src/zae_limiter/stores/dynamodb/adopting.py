"""A bucket as the next write will see it, under the terms that hold. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from zae_limiter.bucket import MILLI, Balance, accrued_in_a_second, force_consume, rebase, refill_bucket
from zae_limiter.stores.dynamodb.items import Image
from zae_limiter.stores.dynamodb.writes import Terms
from zae_limiter.stores.protocol import Leg

NEVER_MS = 10**12


def adopted(image: Image | None, terms: Terms, now: int) -> tuple[Balance, ...]:
    """The limits of ``terms`` as they stand; those of a bucket that does not exist are full."""
    limits = terms.leg.limits
    if image is None:
        return tuple(Balance(limit, now) for limit in limits)
    known = image.balances
    if image.cv == terms.cv and known.keys() >= terms.leg.names:
        return tuple([known[limit.name] for limit in limits])
    now = max(now, image.rf)
    return tuple(
        rebase(known[limit.name], limit, now)
        if limit.name in known
        else Balance(limit, now, shard=image.shard, shards=image.shards)
        for limit in limits
    )


def as_brought_back(image: Image, ahead: int, now: int) -> Image:
    """A bucket that was written by a clock that is wrong, as it is once it goes on from ``now``."""
    balances = {
        name: Balance(
            balance.limit, now, tk=balance.level(ahead), tc=balance.tc, shard=image.shard, shards=image.shards
        )
        for name, balance in image.balances.items()
    }
    return Image(
        image.entity_id,
        image.resource,
        rf=now,
        cv=image.cv,
        inc=image.inc,
        balances=balances,
        resting=image.resting,
        ev=image.ev,
        ring=image.ring,
        gauge=image.gauge_burst,
        gauge_burst=image.gauge_burst,
        shard=image.shard,
        shards=image.shards,
        rv=image.rv,
        ended=image.ended,
        eh=image.eh,
    )


def after_taking(
    image: Image, terms: Terms, deltas: Mapping[str, int], now: int, nonce: str, *, grants: int = 1
) -> Image:
    """What a transaction left of the bucket, which it does not tell itself.

    Limits that were taken away are told to rest, also if they have ended: the next write to the bucket learns that.
    """
    rebased = image.cv != terms.cv
    rf = max(now, image.rf) if rebased else image.rf
    kept = {balance.name: balance for balance in adopted(image, terms, now)}
    resting = {
        name: rebase(balance, balance.limit, rf) if rebased else balance
        for name, balance in image.balances.items()
        if name not in kept
    }
    balances = {}
    for name, balance in (kept | resting).items():
        taken = deltas.get(name, 0)
        balances[name] = Balance(
            balance.limit,
            rf,
            tk=force_consume(balance, taken, now) if taken else balance.tk,
            tc=balance.tc + taken,
            shard=image.shard,
            shards=image.shards,
        )
    return Image(
        image.entity_id,
        image.resource,
        rf=rf,
        cv=terms.cv,
        inc=image.inc,
        balances=balances,
        resting=frozenset(resting),
        ev=image.ev + grants,
        ring=(nonce, *image.ring[:-1]),
        gauge=image.gauge + accrued_in_a_second(image.gauge_burst, image.rf, rf),
        gauge_burst=image.gauge_burst,
        shard=image.shard,
        shards=image.shards,
        rv=nonce if rebased else image.rv,
        ended=image.ended,
        eh=image.eh,
    )


def after_settling(image: Image, deltas: Mapping[str, int], now: int, nonce: str, *, grants: int) -> Image:
    """Likewise, of a transaction that settled by the terms the bucket has."""
    limits = tuple(balance.limit for name, balance in image.balances.items() if name not in image.resting)
    terms = Terms(Leg(image.entity_id, image.resource, limits, "call"), image.cv)
    return after_taking(image, terms, deltas, now, nonce, grants=grants)


def needed_of(terms: Terms, wanted: Mapping[str, int], reserved: Mapping[str, int]) -> dict[str, int]:
    """Millitokens each named limit must hold: what is wanted, and what others wait for."""
    return {
        name: (amount + reserved.get(name, 0)) * MILLI
        for name, amount in wanted.items()
        if amount and name in terms.leg.names
    }


def taken_of(terms: Terms, wanted: Mapping[str, int]) -> dict[str, int]:
    """Millitokens to take, by limit."""
    return {name: amount * MILLI for name, amount in wanted.items() if amount and name in terms.leg.names}


def lacking(balances: tuple[Balance, ...], needed: Mapping[str, int], now: int) -> list[Balance]:
    """The limits that do not hold what is needed: nothing, for those not named, means no debt."""
    return [balance for balance in balances if refill_bucket(balance, now) < needed.get(balance.name, 0)]


def due_at(balance: Balance, needed: int, now: int) -> int:
    """When it will; far away, if never."""
    return now + NEVER_MS if needed > balance.bx else balance.due(needed, now)
