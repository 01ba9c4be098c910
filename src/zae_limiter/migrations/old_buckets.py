"""Buckets as older layouts had them, and what becomes of them. Pure.

**A balance is carried at one moment**, the same for the whole migration: its *level* then, refill included, up to the
ceiling. From that moment on it grows at its rate, so it does not matter when the item is written, and a migration that
was cut short and continued later gives the very same balances.

**Two buckets of one place are joined**: a client used the old layout after the migration, or the new one before.
What both counted adds up, and what is missing in one of them to be full is missing in the joint one too. So counters
and what is missing are the same before and after, whatever was joined; nothing is minted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from zae_limiter.bucket import MILLI, force_consume, refill_bucket
from zae_limiter.migrations.item_kinds import OldPlace, place_of
from zae_limiter.models.limit import Limit
from zae_limiter.naming import RESERVED_LIMIT_NAME
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot, snapshot_of
from zae_limiter.stores.dynamodb.config_versions import Versions
from zae_limiter.stores.dynamodb.intents import Terms
from zae_limiter.stores.dynamodb.items import RECENT_WRITERS, limit_of
from zae_limiter.stores.dynamodb.requests import Item
from zae_limiter.stores.dynamodb.schema import bucket_key, encode_item, number_in
from zae_limiter.stores.dynamodb.write_forms import FULL_BY, new_item
from zae_limiter.stores.protocol import Leg

UNRESOLVED = str(Versions(0, 0, 0, 0, 0, 0))
"""The config version of a bucket whose limits are not resolved yet: that of any client is newer."""

FIELDS = ("tk", "cp", "bx", "ra", "rp", "tc")

MOST_AHEAD_MS = 86_400_000
"""A refill further ahead than this is a broken item, not a wrong clock."""

LONG_NAMES = {
    "tk": "tokens_milli",
    "cp": "capacity_milli",
    "bx": "burst_milli",
    "ra": "refill_amount_milli",
    "rp": "refill_period_ms",
    "tc": "total_consumed_milli",
}
"""What the fields were called when each limit was an item of its own."""


class Unreadable(ValueError):
    """An item under an old bucket's key that is none."""


class OldBalance(NamedTuple):
    """One limit of an old bucket: millitokens, milliseconds, and when it was last refilled."""

    name: str
    tk: int
    cp: int
    bx: int
    ra: int
    rp: int
    tc: int
    rf: int

    def level(self, at: int) -> int:
        """What it holds at a moment, as its own layout reckoned; less than it had, if that was before ``rf``."""
        return min(self.tk + (at - self.rf) * self.ra // self.rp, self.bx)

    def missing(self, at: int) -> int:
        """What it lacks to be full."""
        return self.bx - self.level(at)

    def limit(self) -> Limit:
        """Its terms."""
        return limit_of(self.name, self.cp, self.bx, self.ra, self.rp)


class OldBucket(NamedTuple):
    """An old bucket: where it is, and its limits."""

    place: OldPlace
    balances: Mapping[str, OldBalance]
    cascade: bool = False
    parent_id: str | None = None


def separate_limit(item: Item, at: int) -> OldBalance:
    """A limit that was an item of its own. Raises :class:`Unreadable`."""
    name = place_of(item).rest
    assert name is not None
    return _balance(item, name, LONG_NAMES, "last_refill_ms", at)


def composite_bucket(item: Item, at: int) -> OldBucket:
    """A bucket of several limits under its entity's key. Raises :class:`Unreadable`."""
    names = {attribute[2:-3] for attribute in item if attribute.startswith("b_") and attribute.endswith("_tk")}
    balances = {
        name: _balance(item, name, {field: f"b_{name}_{field}" for field in FIELDS}, "rf", at)
        for name in sorted(names - {RESERVED_LIMIT_NAME})
    }
    if not balances:
        raise Unreadable(f"{where(item)} has no limits")
    return OldBucket(
        place_of(item),
        balances,
        bool(item.get("cascade", {}).get("BOOL")),
        item.get("parent_id", {}).get("S"),
    )


def _balance(item: Item, name: str, called: Mapping[str, str], refilled: str, at: int) -> OldBalance:
    def number(attribute: str, otherwise: int | None = None) -> int:
        if attribute not in item and otherwise is not None:
            return otherwise
        return number_in(item[attribute])

    try:
        cp = number(called["cp"])
        balance = OldBalance(
            name,
            number(called["tk"]),
            cp,
            number(called["bx"], cp),
            number(called["ra"]),
            number(called["rp"]),
            number(called["tc"], 0),
            number(refilled),
        )
        limit = balance.limit()
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise Unreadable(f"{where(item)} is not a bucket of an older layout ({error!r})") from error
    if (limit.burst * MILLI, limit.refill_amount * MILLI, (limit.refill_period_seconds or 0) * MILLI) != balance[3:6]:
        raise Unreadable(f"{where(item)} has limits in parts of tokens or seconds")
    if balance.rf > at + MOST_AHEAD_MS:
        raise Unreadable(f"{where(item)} was refilled in the future")
    return balance


def where(item: Item) -> str:
    """An item's key, for people."""
    return f"{item['PK']['S']} {item['SK']['S']}"


# One item per limit → one per bucket


def composite_item(separate: Iterable[Item], existing: Item | None, at: int) -> Item:
    """The bucket of several limits that takes the place of an item per limit, and of one that is there already."""
    items = list(separate)
    held = {} if existing is None else composite_bucket(existing, at).balances
    place = place_of(items[0])
    attributes: dict[str, Any] = {}
    for balance in held.values():
        attributes |= _fields(balance._replace(tk=balance.level(at)))
    for item in items:
        balance = separate_limit(item, at)
        there = held.get(balance.name)
        if there is None:
            attributes |= _fields(balance._replace(tk=balance.level(at)))
        else:
            level = there.level(at) - balance.missing(at)
            attributes |= _fields(there._replace(tk=level, tc=there.tc + balance.tc))
    prefix = "" if place.ns is None else f"{place.ns}/"
    sources = items if existing is None else [*items, existing]
    try:
        expiries = [number_in(source["ttl"]) for source in sources if "N" in source.get("ttl", {})]
    except ValueError as error:
        raise Unreadable(f"{where(items[0])} has no expiry that can be read ({error!r})") from error
    attributes |= {
        "entity_id": place.entity_id,
        "resource": place.resource,
        "rf": at,
        "GSI2PK": f"{prefix}RESOURCE#{place.resource}",
        "GSI2SK": f"BUCKET#{place.entity_id}",
    }
    key = {"PK": items[0]["PK"], "SK": {"S": f"#BUCKET#{place.resource}"}}
    kept = {name: value for name, value in (existing or {}).items() if name != "ttl"}
    if len(expiries) == len(sources):
        attributes["ttl"] = max(expiries)
    return {**kept, **encode_item(attributes), **key}


def _fields(balance: OldBalance) -> dict[str, int]:
    return {f"b_{balance.name}_{field}": getattr(balance, field) for field in FIELDS}


# One per bucket → a partition of its own


def present_item(
    bucket: OldBucket, ns: str, at: int, *, write_id: str, inc: str, epoch_s: int, ttl_margin_s: int
) -> dict[str, Any]:
    """The bucket as it is stored today."""
    place = bucket.place
    assert place.entity_id is not None
    assert place.resource is not None
    limits = tuple(balance.limit() for balance in bucket.balances.values())
    terms = Terms(Leg(place.entity_id, place.resource, limits, "entity"), UNRESOLVED, bucket.parent_id, bucket.cascade)
    key = bucket_key(ns, place.entity_id, place.resource)
    item = new_item(
        key, terms, {}, now=at, write_id=write_id, inc=inc, grants=0, epoch_s=epoch_s, ttl_margin_s=ttl_margin_s
    )
    longest = 0
    for balance in bucket.balances.values():
        level = balance.level(at)
        item |= encode_item({f"b_{balance.name}_tk": level, f"b_{balance.name}_tc": balance.tc})
        longest = max(longest, -(-(balance.bx - min(level, 0)) * balance.rp // balance.ra))
    return item | encode_item({"ttl": epoch_s + -(-longest // MILLI) + ttl_margin_s})


def joined_item(bucket: OldBucket, existing: Item, at: int, *, write_id: str) -> dict[str, Any]:
    """A bucket of today's layout that takes an old one in."""
    image = snapshot_of(existing)
    moment = max(at, image.rf)
    attributes: dict[str, Any] = {}
    for balance in bucket.balances.values():
        held = image.balances.get(balance.name)
        if held is None:
            accrued = moment * balance.ra // balance.rp - image.rf * balance.ra // balance.rp
            resting = _fields(balance._replace(tk=balance.level(at) - accrued))
            del resting[f"b_{balance.name}_cp"]
            attributes |= resting
        else:
            attributes[f"b_{balance.name}_tk"] = force_consume(held, balance.missing(at), moment)
            attributes[f"b_{balance.name}_tc"] = held.tc + balance.tc
    recent_writers = (write_id, *image.recent_writers)[: len(RECENT_WRITERS)]
    kept = {name: value for name, value in existing.items() if name not in ("ttl", FULL_BY)}
    return {**kept, **encode_item(attributes | dict(zip(RECENT_WRITERS, recent_writers, strict=False)))}


# What is the same before and after


class BucketSums(NamedTuple):
    """What a bucket holds, whatever its layout: its limits, what they counted, and what they lack to be full."""

    limits: int = 0
    consumed: int = 0
    missing: int = 0


def sums_of(balances: Iterable[OldBalance], at: int) -> BucketSums:
    """What an old bucket holds."""
    known = list(balances)
    return BucketSums(len(known), sum(balance.tc for balance in known), sum(balance.missing(at) for balance in known))


def sums_of_current(image: BucketSnapshot, at: int) -> BucketSums:
    """What a bucket of today holds."""
    moment = max(at, image.rf)
    balances = image.balances.values()
    return BucketSums(
        len(balances),
        sum(balance.tc for balance in balances),
        sum(balance.bx - refill_bucket(balance, moment) for balance in balances),
    )
