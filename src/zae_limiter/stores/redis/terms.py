"""Limits and buckets as the scripts have them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha1
from typing import Any, Final

from zae_limiter.bucket import MILLI, Balance, Bucket
from zae_limiter.models.choices import ConfigSource
from zae_limiter.models.limit import Limit, even_rate
from zae_limiter.stores.refusals import check_plain

LETTERS: Final[dict[ConfigSource, str]] = {
    "entity": "e",
    "entity_default": "d",
    "total": "t",
    "resource": "r",
    "system": "s",
}
LEVELS: Final[dict[str, ConfigSource]] = {letter: level for level, letter in LETTERS.items()} | {
    "x": "call",
    "-": "system",
}
"""The first letter of a version says whose limits they are. ``x``: they were given with the call; ``-``: none."""

VALUES_PER_LIMIT = 10
VALUES_PER_BUCKET = 8


@lru_cache(4096)
def terms_of(limits: tuple[Limit, ...]) -> tuple[str | int, ...]:
    """What the scripts compute with: ten values per limit (see ``lua/arithmetic.lua``)."""
    values: list[str | int] = []
    check_plain(limits, "Redis")
    for limit in limits:
        balance = Balance(limit, 0)
        whole, s = divmod(balance.ra, balance.rp)
        values += values_of(limit)
        values += (*divmod(whole, MILLI), s, balance.rp, "")
    return tuple(values)


@lru_cache(4096)
def call_version(limits: tuple[Limit, ...]) -> str:
    """The version of limits that were given with a call: the same in every process."""
    return "x" + sha1(json.dumps(terms_of(limits)).encode(), usedforsecurity=False).hexdigest()[:16]


def limit_of(values: Sequence[Any]) -> Limit:
    """The limit of a route or a stored level."""
    return Limit(*values)


def values_of(limit: Limit) -> list[str | int]:
    """The other way round."""
    check_plain((limit,), "Redis")
    amount, seconds = even_rate(limit)
    return [limit.name, limit.capacity, amount, seconds, limit.burst]


def buckets_in(reply: Sequence[Any]) -> list[Bucket]:
    """The buckets that ``show.lua`` tells, as of its time, by entity and resource."""
    return [bucket for bucket, _ in placed_buckets_in(reply)]


def placed_buckets_in(reply: Sequence[Any]) -> list[tuple[Bucket, tuple[str, ...]]]:
    """The same, each with the ancestors that its acquires also take from, if it was asked for a whole resource."""
    now, values = reply[1], reply[3:]
    buckets, place = [], 0
    while place < len(values):
        entity_id, resource, above, events, cascaded, hour, in_force, count = values[place : place + VALUES_PER_BUCKET]
        place += VALUES_PER_BUCKET
        bucket = Bucket(entity_id.decode(), resource.decode(), now)
        bucket.events, bucket.cascaded_events, bucket.hour = events, cascaded, hour
        balances = []
        for _ in range(count):
            balance = _balance(bucket, values[place : place + VALUES_PER_LIMIT], now)
            place += VALUES_PER_LIMIT
            if balance is not None:
                balances.append(balance)
        bucket.balances = tuple(balances[:in_force])
        bucket.limits = tuple(balance.limit for balance in bucket.balances)
        bucket.retired = {balance.name: balance for balance in balances[in_force:]}
        buckets.append((bucket, tuple(above.decode().split("#")) if above else ()))
    return sorted(buckets, key=lambda one: (one[0].entity_id, one[0].resource))


def _balance(bucket: Bucket, values: Sequence[Any], now: int) -> Balance | None:
    """One limit of a bucket, whose counters are noted there; ``None`` if it has ended, and only they are left."""
    named, capacity, amount, period, burst, tokens, milli, consumed, cascaded, denials = values
    name = named.decode()
    if cascaded:
        bucket.cascaded[name] = cascaded * MILLI
    if denials:
        bucket.denials[name] = denials
    if burst == 0:
        bucket.carried[name] = consumed * MILLI
        return None
    limit = Limit(name, capacity, amount, period, burst)
    return Balance(limit, now, tk=tokens * MILLI + milli, tc=consumed * MILLI)
