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

LETTERS: Final[dict[ConfigSource, str]] = {"entity": "e", "entity_default": "d", "resource": "r", "system": "s"}
LEVELS: Final[dict[str, ConfigSource]] = {letter: level for level, letter in LETTERS.items()} | {"x": "call"}
"""The first letter of a version says whose limits they are; ``x``: they were given with the call."""

VALUES_PER_LIMIT = 8
VALUES_PER_BUCKET = 7


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
    now, values = reply[1], reply[3:]
    buckets, place = [], 0
    while place < len(values):
        entity_id, resource, _, events, hour, in_force, count = values[place : place + VALUES_PER_BUCKET]
        place += VALUES_PER_BUCKET
        bucket = Bucket(entity_id.decode(), resource.decode(), now)
        bucket.events, bucket.hour = events, hour
        balances = []
        for _ in range(count):
            name, capacity, amount, period, burst, tokens, milli, consumed = values[place : place + VALUES_PER_LIMIT]
            place += VALUES_PER_LIMIT
            if burst == 0:  # it has ended, and only its counter is left
                bucket.carried[name.decode()] = consumed * MILLI
                continue
            limit = Limit(name.decode(), capacity, amount, period, burst)
            balances.append(Balance(limit, now, tk=tokens * MILLI + milli, tc=consumed * MILLI))
        bucket.balances = tuple(balances[:in_force])
        bucket.limits = tuple(balance.limit for balance in bucket.balances)
        bucket.retired = {balance.name: balance for balance in balances[in_force:]}
        buckets.append(bucket)
    return sorted(buckets, key=lambda bucket: (bucket.entity_id, bucket.resource))
