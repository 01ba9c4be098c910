"""Dividing a bucket that is written to faster than its partition can take."""

from __future__ import annotations

from typing import Any

from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.gauge import may_split
from zae_limiter.stores.dynamodb.images import is_far_ahead
from zae_limiter.stores.dynamodb.items import Image, address, image_of
from zae_limiter.stores.dynamodb.keys import MOST_SHARDS, Key, shard_key, shard_of
from zae_limiter.stores.dynamodb.plans.asking import Asking, Window
from zae_limiter.stores.dynamodb.requests import Item
from zae_limiter.stores.dynamodb.splits import ancestor_of, divided, top_bit
from zae_limiter.stores.dynamodb.versions import FENCED

TRIES = 3
"""So often a split is tried while others write to the shard."""


def split(asking: Asking, key: Key, item: Item, now: int, until: Window) -> Plan[bool]:
    """Divide one shard, which ``item`` is, in two. False: somebody else was faster, or it was too busy.

    Nor is a shard divided that a wrong clock has written to: its half would not tell.
    """
    shards = image_of(item).shards
    for _ in range(TRIES):
        image = image_of(item)
        if 2 * shards > MOST_SHARDS or image.cv == FENCED or is_far_ahead(image, now):
            return False
        nonce, inc = asking.marks.nonce(now), asking.marks.incarnation()
        write, new_key, new = divided(item, now=now, nonce=nonce, inc=inc)
        put: dict[str, Any] = {
            "TableName": asking.table,
            "Item": {**new, **address(new_key)},
            "ConditionExpression": "attribute_not_exists(PK)",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        reasons = yield from asking.transact([{"Update": dict(write.params(asking.table, key))}, {"Put": put}], until)
        if not reasons:
            return True
        refused, there = reasons
        if there.code is not None or refused.item is None or image_of(refused.item).shards != shards:
            return False
        item = refused.item
    return False


def split_first(asking: Asking, key: Key, now: int, until: Window) -> Plan[bool]:
    """Divide shard 0 of the bucket that ``key`` is a shard of, if it has rested since the last time."""
    first = shard_key(key, 0)
    item = yield from asking.get(first, until)
    if item is None or not may_split(image_of(item), now):
        return False
    return (yield from split(asking, first, item, now, until))


def make_shard(asking: Asking, key: Key, now: int, until: Window) -> Plan[Image | None]:
    """The shard at ``key``, made from its ancestor if need be. ``None``: it is lost, or others are busy.

    Or the bucket began another life since a client learned of that shard, and is divided less: the first shard says
    how many there are, and clients that read or remove a bucket look for no others.
    """
    shard = shard_of(key)
    if shard == 0:
        return None  # it has no ancestor: who misses it begins a new bucket
    for _ in range(MOST_SHARDS.bit_length()):
        above = shard_key(key, ancestor_of(shard))
        first = shard_key(key, 0)
        found = yield from asking.get_all([key, above, first], until)
        if key in found:
            return image_of(found[key])
        if first not in found or image_of(found[first]).shards <= shard:
            return None
        if above not in found:
            if shard_of(above) == 0 or (yield from make_shard(asking, above, now, until)) is None:
                return None
            continue
        if image_of(found[above]).shards > top_bit(shard):
            return None
        if not (yield from split(asking, above, found[above], now, until)):
            continue
    return None
