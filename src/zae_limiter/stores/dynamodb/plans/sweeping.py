"""Sweeping: divided buckets that nobody uses any more are removed, all shards of one together.

An undivided bucket that is full again expires by itself. A single shard must not: its share would be gone until the
others expire too. So the shards of a divided bucket only note when they are surely full, and are removed in one
transaction that proves, shard by shard, that no client has written since that was read, nor made one that was not
there.
"""

from __future__ import annotations

from zae_limiter.bucket import MOST_STORED
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.items import BrokenItem, decoder, image_of, key_of, logger, ns_in, unless_broken
from zae_limiter.stores.dynamodb.keys import REGISTRY, Key, pk_system, shard_key, shard_of, sk_namespace_id
from zae_limiter.stores.dynamodb.plans.asking import Asking
from zae_limiter.stores.dynamodb.plans.changes import ABSENT, NEW, Expected, delete
from zae_limiter.stores.dynamodb.plans.listing import whole_namespace
from zae_limiter.stores.dynamodb.requests import Item
from zae_limiter.stores.dynamodb.values import number_in
from zae_limiter.stores.dynamodb.writes import FULL_BY

KEYS_AT_ONCE = 500


def sweep_table(asking: Asking) -> Plan[int]:
    """Remove the divided buckets of all namespaces that are idle; how many there were."""
    swept = 0
    for item in (yield from asking.query_all(pk_system(REGISTRY), prefix=sk_namespace_id(""))):
        ns = unless_broken(ns_in, item)
        if ns is not None:
            swept += yield from sweep(asking, ns)
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
    try:
        if item is None or not full_by(item) < until.epoch_s:
            return False
        shards = image_of(item).shards
        keys = [shard_key(first, shard) for shard in range(shards)]
        found = yield from asking.get_all(keys, until)
        if not all(full_by(item) < until.epoch_s for item in found.values()):
            return False
        writes = [delete(asking.table, key, _as_it_is(found[key]) if key in found else NEW) for key in keys]
    except BrokenItem as error:
        logger.warning("not swept: %s", error)
        return False
    return not (yield from asking.transact(writes, until))


@decoder("a bucket")
def full_by(item: Item) -> int:
    """When a shard has been surely full for as long as an undivided bucket is kept, in seconds since the epoch."""
    return number_in(item[FULL_BY]) if FULL_BY in item else MOST_STORED


def _as_it_is(item: Item) -> Expected:
    """What changes with every write to a shard."""
    image = image_of(item)
    mark = image.ring[0] if image.ring else ABSENT
    return {"inc": image.inc, "rf": image.rf, "shard_count": image.shards, "w0": mark}
