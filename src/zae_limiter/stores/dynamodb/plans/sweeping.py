"""Sweeping: divided buckets that nobody uses any more are removed, all shards of one together.

An undivided bucket that is full again expires by itself. A single shard must not: its share would be gone until the
others expire too. So the shards of a divided bucket only note when they are surely full, and are removed in one
transaction that proves, shard by shard, that no client has written since that was read, nor made one that was not
there.
"""

from __future__ import annotations

from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.items import BrokenItem, image_of, key_of
from zae_limiter.stores.dynamodb.keys import REGISTRY, Key, pk_system, shard_key, shard_of, sk_namespace_id
from zae_limiter.stores.dynamodb.plans.asking import Asking
from zae_limiter.stores.dynamodb.plans.changes import NEW, delete
from zae_limiter.stores.dynamodb.plans.listing import whole_namespace
from zae_limiter.stores.dynamodb.requests import Item
from zae_limiter.stores.dynamodb.writes import FULL_BY

KEYS_AT_ONCE = 500


def sweep_table(asking: Asking) -> Plan[int]:
    """Remove the divided buckets of all namespaces that are idle; how many there were."""
    swept = 0
    for item in (yield from asking.query_all(pk_system(REGISTRY), prefix=sk_namespace_id(""))):
        swept += yield from sweep(asking, item["ns"]["S"])
    return swept


def sweep(asking: Asking, ns: str) -> Plan[int]:
    """Remove the divided buckets of a namespace that are idle; how many there were."""
    swept = 0
    buckets = whole_namespace(asking, ns, prefix="BUCKET")
    while page := (yield from buckets.take(KEYS_AT_ONCE)):
        for item in page:
            key = key_of(item)
            if shard_of(key) == 1:  # every divided bucket has one, and no other has
                swept += yield from _sweep_one(asking, shard_key(key, 0))
    return swept


def _sweep_one(asking: Asking, first: Key) -> Plan[bool]:
    until = yield from asking.window()
    item = yield from asking.get(first, until)
    if item is None or not is_idle(item, until.epoch_s):
        return False
    try:
        shards = image_of(item).shards
    except BrokenItem:
        return False
    keys = [shard_key(first, shard) for shard in range(shards)]
    found = yield from asking.get_all(keys, until)
    if not all(is_idle(item, until.epoch_s) for item in found.values()):
        return False
    unchanged = ("inc", "rf", "shard_count", "w0")
    writes = [
        delete(asking.table, key, {name: _value(found[key][name]) for name in unchanged} if key in found else NEW)
        for key in keys
    ]
    return not (yield from asking.transact(writes, until))


def is_idle(item: Item, epoch_s: int) -> bool:
    """Whether a shard has been surely full for as long as an undivided bucket is kept."""
    return FULL_BY in item and int(item[FULL_BY]["N"]) < epoch_s


def _value(attribute: Item) -> int | str:
    return int(attribute["N"]) if "N" in attribute else str(attribute["S"])
