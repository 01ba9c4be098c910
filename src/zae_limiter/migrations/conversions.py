"""One step of a migration: what is written and removed together, so that nothing is ever in two places or in none.

Every step reads what is there now, not what the page of the scan showed, and its transaction demands that all of it is
still the same. So a step may be repeated, cut off, or done by two processes at once: the later one finds nothing to
do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from zae_limiter.migrations.census import CONFIGS, ENTITIES, HOURS, LIMITS
from zae_limiter.migrations.item_kinds import Kind, OldPlace, kind_of, place_of
from zae_limiter.migrations.old_buckets import (
    OldBucket,
    Unreadable,
    composite_bucket,
    composite_item,
    joined_item,
    present_item,
    separate_limit,
)
from zae_limiter.migrations.old_records import (
    BEGINNING,
    FIRST_CHANGE,
    config_item,
    entity_item,
    old_entity,
    span_item,
    usage_item,
)
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.expressions import PRESENT, Write, update
from zae_limiter.stores.dynamodb.items import address, key_of
from zae_limiter.stores.dynamodb.operations.entities import LIVE, is_live
from zae_limiter.stores.dynamodb.requests import Item
from zae_limiter.stores.dynamodb.schema import Key, bucket_key, encode, meta_key
from zae_limiter.stores.dynamodb.table_client import Deadline, TableClient, commit, persist
from zae_limiter.stores.dynamodb.usage_items import RETENTION_S, Edge, Life, Span
from zae_limiter.stores.windows import DAY_MS, Counters, hour_of

BEFORE_MS = 31 * DAY_MS
"""How long ago usage is filed that was counted before a bucket was moved: ``usage verify`` knows that as expired."""

HIGHEST_TREE = 100
NO_DESCENDANTS: frozenset[str] = frozenset()


class Change(NamedTuple):
    """What one step does: writes that happen together, and how many things became one by it."""

    writes: list[Write]
    joined: Mapping[str, int]


class MigrationContext:
    """What every step needs: the table, the namespace of what had none, and the migration's moment."""

    def __init__(self, client: TableClient, checkpoint: Key, default_ns: str, at: int) -> None:
        self.client = client
        self.checkpoint = checkpoint
        self.default_ns = default_ns
        self.at = at

    def ns(self, place: OldPlace) -> str:
        """The namespace that something belongs to from now on."""
        return self.default_ns if place.ns is None else place.ns

    def commit(self, change: Change, until: Deadline) -> Plan[None]:
        """Do it all at once, and count what was joined in the same transaction."""
        writes = list(change.writes)
        if change.joined:
            adds = {f"joined_{thing}": count for thing, count in change.joined.items()}
            writes.append(update(self.client.table, self.checkpoint, {"PK": PRESENT}, adds=adds))
        yield from commit(self.client, writes, until)

    def put(self, item: Item, before: Item | None) -> Write:
        """Write an item where there was none, or in the place of exactly this one."""
        return {"Put": {"TableName": self.client.table, "Item": item, **unchanged(before)}}

    def remove(self, item: Item) -> Write:
        """Remove exactly this item."""
        return {"Delete": {"TableName": self.client.table, "Key": address(key_of(item)), **unchanged(item)}}


def unchanged(item: Item | None) -> dict[str, Any]:
    """The condition that an item is as it was read; or that there is none."""
    if item is None:
        return {"ConditionExpression": "attribute_not_exists(#0)", "ExpressionAttributeNames": {"#0": "PK"}}
    names = [name for name in item if name not in ("PK", "SK")]
    return {
        "ConditionExpression": " AND ".join(
            ["attribute_exists(#k)", *(f"#{place} = :{place}" for place in range(len(names)))]
        ),
        "ExpressionAttributeNames": {"#k": "PK", **{f"#{place}": name for place, name in enumerate(names)}},
        **(
            {"ExpressionAttributeValues": {f":{place}": item[name] for place, name in enumerate(names)}}
            if names
            else {}
        ),
    }


# One item per limit → one per bucket


def combine_limits(context: MigrationContext, item: Item) -> Plan[int]:
    """Let all limits of a bucket become one item; how many there were."""

    def attempt(until: Deadline) -> Plan[int]:
        pk, sort_key = item["PK"]["S"], f"#BUCKET#{place_of(item).resource}"
        found = yield from context.client.query(pk, until, prefix=f"{sort_key}#")
        separate = [one for one in found.items if kind_of(one) is Kind.OLD_LIMIT and _readable(one, context.at)]
        if not separate:
            return 0
        existing = yield from context.client.get(Key(pk, sort_key), until)
        whole = composite_item(separate, existing, context.at)
        joined = 0
        if existing is not None:
            held = composite_bucket(existing, context.at).balances
            joined = sum(separate_limit(one, context.at).name in held for one in separate)
        writes = [context.put(whole, existing), *map(context.remove, separate)]
        yield from context.commit(Change(writes, {LIMITS: joined} if joined else {}), until)
        return len(separate)

    return (yield from persist(context.client, attempt))


def _readable(item: Item, at: int) -> bool:
    try:
        separate_limit(item, at)
    except Unreadable:
        return False
    return True


# One per bucket → a partition of its own


def move_bucket(context: MigrationContext, item: Item) -> Plan[int]:
    """Give a bucket a partition of its own, in today's form."""

    def attempt(until: Deadline) -> Plan[int]:
        old = yield from context.client.get(key_of(item), until)
        if old is None or kind_of(old) is not Kind.OLD_BUCKET:
            return 0
        bucket = composite_bucket(old, context.at)
        ns = context.ns(bucket.place)
        key = bucket_key(ns, str(bucket.place.entity_id), str(bucket.place.resource))
        existing = yield from context.client.get(key, until)
        change = _moved(context, ns, bucket, existing, until)
        yield from context.commit(Change([*change.writes, context.remove(old)], change.joined), until)
        return 1

    return (yield from persist(context.client, attempt))


def _moved(context: MigrationContext, ns: str, bucket: OldBucket, existing: Item | None, until: Deadline) -> Change:
    write_ids = context.client.write_ids
    write_id = write_ids.write_id(context.at)
    if existing is not None:
        same = sum(f"b_{name}_tk" in existing for name in bucket.balances)
        whole = joined_item(bucket, existing, context.at, write_id=write_id)
        return Change([context.put(whole, existing)], {LIMITS: same} if same else {})
    inc, margin = write_ids.incarnation(), context.client.ttl_margin_s
    item = present_item(bucket, ns, context.at, write_id=write_id, inc=inc, epoch_s=until.epoch_s, ttl_margin_s=margin)
    life = Life(ns, str(bucket.place.entity_id), str(bucket.place.resource), 0, inc)
    counted = Counters(0, {name: balance.tc for name, balance in bucket.balances.items() if balance.tc})
    return Change(
        [
            context.put(item, None),
            *(context.put(span, None) for span in _history_spans(context, life, counted, until)),
        ],
        {},
    )


def _history_spans(context: MigrationContext, life: Life, counted: Counters, until: Deadline) -> Iterable[Item]:
    """Snapshots that keep what was counted long ago from being counted as used in the hour of the migration.

    The stream will tell that a bucket began with these counters. Its hour has begun with them already, and before
    that there is one, long ago, in which nothing was used.
    """
    if not counted.milli:
        return
    ttl = {"ttl": encode(until.epoch_s + RETENTION_S)}
    for hour, sequence in ((hour_of(context.at - BEFORE_MS), BEGINNING), (hour_of(context.at), FIRST_CHANGE)):
        edge = Edge(sequence, counted)
        yield span_item(Span(life, hour, edge, edge)) | ttl


# Entities, limits, usage


def convert_entity(context: MigrationContext, item: Item, below: frozenset[str] = NO_DESCENDANTS) -> Plan[int]:
    """Describe an entity in today's form, after its ancestors, who count their children; how many that were.

    ``below`` are the descendants that wait for it: an ancestor among them would be a cycle, which is not followed.
    """
    ancestors = 0
    entity = old_entity(item)
    parent_id = entity.parent_id
    ns = context.ns(place_of(item))
    if parent_id is not None and parent_id != entity.id and parent_id not in below and len(below) < HIGHEST_TREE:
        until = yield from context.client.new_deadline()
        family, _, _ = item["PK"]["S"].rpartition("#")
        parent = yield from context.client.get(Key(f"{family}#{parent_id}", item["SK"]["S"]), until)
        if parent is not None and kind_of(parent) is Kind.OLD_ENTITY:
            with suppress(Unreadable):
                ancestors = yield from convert_entity(context, parent, below | {entity.id})

    def attempt(until: Deadline) -> Plan[int]:
        old = yield from context.client.get(key_of(item), until)
        if old is None or kind_of(old) is not Kind.OLD_ENTITY:
            return 0
        counting = None if parent_id is None else meta_key(ns, parent_id)
        parent = None if counting is None else (yield from context.client.get(counting, until))
        known = parent is not None and kind_of(parent) is Kind.ENTITY and is_live(parent)
        change = yield from _replaced(context, old, entity_item(old, ns, orphan=not known), ENTITIES, until)
        if known and counting is not None and not change.joined:
            change.writes.append(update(context.client.table, counting, LIVE, adds={"children": 1}))
        yield from context.commit(change, until)
        return 1

    return ancestors + (yield from persist(context.client, attempt))


def convert_config(context: MigrationContext, item: Item) -> Plan[int]:
    """Write the limits of one level in today's form."""
    return (yield from _convert(context, item, Kind.OLD_CONFIG, CONFIGS))


def convert_usage(context: MigrationContext, item: Item) -> Plan[int]:
    """Write a window of usage in today's form."""
    return (yield from _convert(context, item, Kind.OLD_USAGE, HOURS))


_FORMS = {Kind.OLD_CONFIG: config_item, Kind.OLD_USAGE: usage_item}


def _convert(context: MigrationContext, item: Item, kind: Kind, thing: str) -> Plan[int]:
    def attempt(until: Deadline) -> Plan[int]:
        old = yield from context.client.get(key_of(item), until)
        if old is None or kind_of(old) is not kind:
            return 0
        renewed = _FORMS[kind](old, context.ns(place_of(old)))
        yield from context.commit((yield from _replaced(context, old, renewed, thing, until)), until)
        return 1

    return (yield from persist(context.client, attempt))


def _replaced(context: MigrationContext, old: Item, renewed: Item, thing: str, until: Deadline) -> Plan[Change]:
    """An old item in its new form. If there is one of today already, that is newer, and stays."""
    if key_of(renewed) == key_of(old):
        return Change([context.put(renewed, old)], {})
    existing = yield from context.client.get(key_of(renewed), until)
    if existing is not None:
        return Change([context.remove(old)], {thing: 1})
    return Change([context.put(renewed, None), context.remove(old)], {})
