"""Limits and buckets as the scripts have them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha1
from typing import Any, Final

from zae_limiter.bucket import MILLI, WOULD_REFUSE, Balance, Bucket, HeldBalance, SteppedBalance, key_of
from zae_limiter.calendars import calendar_from
from zae_limiter.exceptions import ValidationError, VersionError
from zae_limiter.models.access import Access, live
from zae_limiter.models.choices import ConfigSource
from zae_limiter.models.limit import Limit
from zae_limiter.stores.protocol import Scope, access_from_text

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

VALUES_PER_LIMIT = 12
VALUES_PER_BUCKET = 8

WATCHES, BY_CALENDAR, HELD = "wch"
"""What the kind of a limit begins with, in this order (see ``lua/kinds.lua``)."""


@lru_cache(4096)
def terms_of(limits: tuple[Limit, ...]) -> tuple[str | int, ...]:
    """What the scripts compute with: ten values per limit (see ``lua/arithmetic.lua``)."""
    values: list[str | int] = []
    for limit in limits:
        plain = values_of(limit)[:5]
        if limit.is_even:
            balance = Balance(limit, 0)
            whole, s = divmod(balance.ra, balance.rp)
            values += (*plain, *divmod(whole, MILLI), s, balance.rp, kind_of(limit))
        else:
            values += (*plain, 0, 0, 0, 1, kind_of(limit))
    return tuple(values)


@lru_cache(4096)
def call_version(limits: tuple[Limit, ...]) -> str:
    """The version of limits that were given with a call: the same in every process."""
    return "x" + sha1(json.dumps(terms_of(limits)).encode(), usedforsecurity=False).hexdigest()[:16]


def limit_of(values: Sequence[Any]) -> Limit:
    """The limit of a route or a stored level."""
    name, capacity, amount, period, burst, *kinds = values
    if not kinds:
        return Limit(name, capacity, amount, period, burst)
    kind = kinds[0]
    enforce = not kind.startswith(WATCHES)
    rest = kind.removeprefix(WATCHES)
    try:
        if not rest:
            return Limit(name, capacity, amount, period, burst, enforce=enforce)
        if rest == HELD:
            return Limit(name, capacity, 0, None, burst, hold_seconds=period, enforce=enforce)
        if not rest.startswith(BY_CALENDAR):
            raise ValueError("a kind of limit that this version does not know")
        periods = calendar_from(rest.removeprefix(BY_CALENDAR))
        return Limit(name, capacity, amount, None, burst, periods, enforce=enforce)
    except (ValueError, ValidationError) as error:
        raise VersionError(f"the limit {name!r} cannot be used here: {error}") from error


def values_of(limit: Limit) -> list[str | int]:
    """The other way round. A period is the seconds of a refill, or those that a slot is held for."""
    period = limit.hold_seconds or limit.refill_period_seconds or 0
    values: list[str | int] = [limit.name, limit.capacity, limit.refill_amount, period, limit.burst]
    return values if limit.is_plain else [*values, kind_of(limit)]


def kind_of(limit: Limit) -> str:
    """The kind of a limit as the scripts know it."""
    kind = HELD if limit.is_held else "" if limit.periods is None else f"{BY_CALENDAR}{limit.periods}"
    return kind if limit.enforce else WATCHES + kind


def balance_from(limit: Limit, now: int, tk: int, tc: int, x: Sequence[int]) -> Balance:
    """The balance of a limit as the scripts have it (see ``lua/kinds.lua``)."""
    balance: Balance
    if limit.is_held:
        counts = dict(zip(x[3::2], x[4::2], strict=True))
        counts = {due: slots * MILLI for due, slots in counts.items()}
        balance = HeldBalance(limit, now, tk=tk, tc=tc, counts=counts, hb=x[1])
    elif limit.periods is not None:
        balance = SteppedBalance(limit, now, tk=tk, tc=tc, pn=x[1], extra=sum(x[2:]) * MILLI)
    else:
        balance = Balance(limit, now, tk=tk, tc=tc)
    balance.sn = x[0] if x else 0
    return balance


def access_of(switch: str, entity_id: str, resource: str) -> Access:
    """A switch as a script tells it, with its level."""
    return access_from_text(Scope(entity_id or None, resource or None), switch)


def switches_in(reply: Sequence[Any]) -> tuple[Access, ...]:
    """The switches that ``show.lua`` tells, those that hold at its time, the one that decides first."""
    told = [part.decode() for part in reply[3]]
    found = [access_of(*told[place : place + 3]) for place in range(0, len(told), 3)]
    return live(found, reply[1])


def buckets_in(reply: Sequence[Any]) -> list[Bucket]:
    """The buckets that ``show.lua`` tells, as of its time, by entity and resource."""
    return [bucket for bucket, _ in placed_buckets_in(reply)]


def placed_buckets_in(reply: Sequence[Any]) -> list[tuple[Bucket, tuple[str, ...]]]:
    """The same, each with the ancestors that its acquires also take from, if it was asked for a whole resource."""
    now, values = reply[1], reply[4:]
    buckets, place = [], 0
    while place < len(values):
        entity_id, resource, above, events, cascaded, hour, in_force, count = values[place : place + VALUES_PER_BUCKET]
        place += VALUES_PER_BUCKET
        bucket = Bucket(entity_id.decode(), resource.decode(), now)
        bucket.events, bucket.cascaded_events, bucket.hour = events, cascaded, hour
        balances = []
        for _ in range(count):
            end = place + VALUES_PER_LIMIT + values[place + VALUES_PER_LIMIT - 1]
            balance = _balance(bucket, values[place:end], now)
            place = end
            if balance is not None:
                balances.append(balance)
        bucket.balances = tuple(balances[:in_force])
        bucket.limits = tuple(balance.limit for balance in bucket.balances)
        bucket.retired = {key_of(balance.limit): balance for balance in balances[in_force:]}
        buckets.append((bucket, tuple(above.decode().split("#")) if above else ()))
    return sorted(buckets, key=lambda one: (one[0].entity_id, one[0].resource))


def _balance(bucket: Bucket, values: Sequence[Any], now: int) -> Balance | None:
    """One limit of a bucket, whose counters are noted there; ``None`` if it has ended, and only they are left."""
    named, capacity, amount, period, burst, tokens, milli, consumed, cascaded, denials, kind, _, *x = values
    name = named.decode()
    if cascaded:
        bucket.cascaded[name] = bucket.cascaded.get(name, 0) + cascaded * MILLI
    if denials:
        bucket.denials[name] = bucket.denials.get(name, 0) + denials
    if burst == 0:
        bucket.carried[name] = bucket.carried.get(name, 0) + consumed * MILLI
        if x:
            bucket.carried[name + WOULD_REFUSE] = x[0] * MILLI
        return None
    limit = limit_of([name, capacity, amount, period, burst, *([kind.decode()] if kind else [])])
    return balance_from(limit, now, tokens * MILLI + milli, consumed * MILLI, x)
