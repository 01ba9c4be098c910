"""What must be the same before and after a migration, and whether it is. Pure.

Both layouts are measured by the same sums at the same moment: how many limits of buckets, entities, configs and hours
of usage there are, what the buckets counted, and what they lack to be full. A migration moves things, so no sum
changes. Where it joined two things of one place, there is one less of them, and that was counted with the joining.

Only expiry takes something away meanwhile: DynamoDB removes buckets that have long been full. Then there are fewer
limits, and neither sum is higher. Anything else does not add up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from zae_limiter.migrations.item_kinds import Kind, kind_of
from zae_limiter.migrations.old_buckets import (
    BucketSums,
    Unreadable,
    composite_bucket,
    separate_limit,
    sums_of,
    sums_of_current,
)
from zae_limiter.migrations.old_records import old_config, old_entity, usage_item
from zae_limiter.stores.dynamodb.bucket_items import snapshot_of
from zae_limiter.stores.dynamodb.items import BrokenItem, config_of
from zae_limiter.stores.dynamodb.operations.config import says_something
from zae_limiter.stores.dynamodb.requests import Item

LIMITS, ENTITIES, CONFIGS, HOURS = "limits", "entities", "configs", "hours"
THINGS = (LIMITS, ENTITIES, CONFIGS, HOURS)
KEPT = "old audit events"
"""Counted and shown, not compared: no step touches them, and they may expire meanwhile."""

OLD_KINDS = (Kind.OLD_LIMIT, Kind.OLD_BUCKET, Kind.OLD_ENTITY, Kind.OLD_CONFIG, Kind.OLD_USAGE)


class Census(NamedTuple):
    """What is in a table.

    ``old`` has the items of older layouts by kind, ``there`` what both layouts hold together. ``consumed`` and
    ``missing`` are sums of millitokens over all limits of all buckets. ``unreadable`` items are left as they are.
    """

    items: int = 0
    old: Mapping[str, int] = {}
    there: Mapping[str, int] = {}
    consumed: int = 0
    missing: int = 0
    unreadable: int = 0

    def __add__(self, other: object) -> Census:
        assert isinstance(other, Census)
        return Census(
            self.items + other.items,
            Counter(self.old) + Counter(other.old),
            Counter(self.there) + Counter(other.there),
            self.consumed + other.consumed,
            self.missing + other.missing,
            self.unreadable + other.unreadable,
        )

    def as_record(self) -> dict[str, Any]:
        """As the checkpoint keeps it."""
        return {
            **self._asdict(),
            "old": {str(kind): count for kind, count in self.old.items()},
            "there": {**self.there},
        }

    def old_of(self, kinds: Iterable[Kind]) -> int:
        """How many items are of some older kinds."""
        return sum(self.old.get(kind, 0) for kind in kinds)


def census_of(items: Iterable[Item], at: int) -> Census:
    """What some items hold, at a moment."""
    old: Counter[str] = Counter()
    there: Counter[str] = Counter()
    count = consumed = missing = unreadable = 0
    for item in items:
        count += 1
        kind = kind_of(item)
        try:
            thing, number, held = _measured(kind, item, at)
        except (Unreadable, BrokenItem, KeyError, TypeError, ValueError):
            unreadable += 1
            continue
        consumed, missing = consumed + held.consumed, missing + held.missing
        if kind in OLD_KINDS:
            old[kind] += 1
        if thing is not None:
            there[thing] += number
    return Census(count, old, there, consumed, missing, unreadable)


def _measured(kind: Kind, item: Item, at: int) -> tuple[str | None, int, BucketSums]:
    nothing = BucketSums()
    if kind is Kind.OLD_LIMIT:
        held = sums_of([separate_limit(item, at)], at)
    elif kind is Kind.OLD_BUCKET:
        held = sums_of(composite_bucket(item, at).balances.values(), at)
    elif kind is Kind.BUCKET:
        held = sums_of_current(snapshot_of(item), at)
    elif kind in (Kind.OLD_ENTITY, Kind.ENTITY):
        if kind is Kind.OLD_ENTITY:
            old_entity(item)
        return (None if "deleted" in item else ENTITIES), 1, nothing
    elif kind in (Kind.OLD_CONFIG, Kind.CONFIG):
        config = old_config(item) if kind is Kind.OLD_CONFIG else config_of(item)
        return (CONFIGS if says_something(config) else None), 1, nothing
    elif kind in (Kind.OLD_USAGE, Kind.USAGE):
        if kind is Kind.OLD_USAGE:
            hourly = item.get("window", {}).get("S") == "hourly"
            usage_item(item, "_")
            return (HOURS if hourly else None), 1, nothing
        return (None if item["ls"]["S"] == item["fs"]["S"] else HOURS), 1, nothing
    elif kind is Kind.OLD_AUDIT:
        return KEPT, 1, nothing
    else:
        return None, 0, nothing
    return LIMITS, held.limits, held


class Comparison(NamedTuple):
    """Whether a table holds what it held before. ``expired`` limits went away by themselves meanwhile."""

    mismatches: tuple[str, ...]
    expired: int = 0


def compare(before: Census, after: Census, joined: Mapping[str, int], kinds: Iterable[Kind]) -> Comparison:
    """Compare a table before and after its migration."""
    mismatches = []
    left = {kind: after.old[kind] for kind in kinds if after.old.get(kind)}
    if left:
        kept = ", ".join(f"{count:,} of kind {str(kind)!r}" for kind, count in left.items())
        mismatches.append(
            f"items of the old layout were written meanwhile ({kept}); stop the clients that do, and migrate again"
        )
    lost = {thing: before.there.get(thing, 0) - joined.get(thing, 0) - after.there.get(thing, 0) for thing in THINGS}
    sums = (before.consumed - after.consumed, before.missing - after.missing)
    expired = lost.pop(LIMITS)
    if expired < 0 or (expired == 0 and sums != (0, 0)) or min(sums) < 0:
        mismatches.append(
            f"the buckets do not add up: {-expired:+,} limits, {-sums[0]:+,} millitokens counted, "
            f"{-sums[1]:+,} missing"
        )
    mismatches += [f"{count:,} {thing} are gone" for thing, count in lost.items() if count > 0]
    return Comparison(tuple(mismatches), max(expired, 0))
