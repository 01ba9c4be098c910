"""Removing whole buckets, so that nothing is left of them.

Whoever meets a bucket without its first shard begins a new one, undivided: another shard that was left behind would
then be too much. So the first goes last, when no other is there and none can come: before that it is fenced, by a
version that nobody has, and nobody divides a fenced shard.
"""

from __future__ import annotations

from collections.abc import Sequence

from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.items import BrokenItem, image_of
from zae_limiter.stores.dynamodb.keys import Key, shard_key, shard_of
from zae_limiter.stores.dynamodb.plans.asking import Asking, Window
from zae_limiter.stores.dynamodb.requests import Item, Refused
from zae_limiter.stores.dynamodb.updates import Update
from zae_limiter.stores.dynamodb.versions import FENCED


def drop_buckets(asking: Asking, keys: Sequence[Key], now: int, until: Window) -> Plan[None]:
    """Delete the buckets that these are shards of, with all their shards."""
    firsts = list(dict.fromkeys(shard_key(key, 0) for key in keys))
    others = {key for key in keys if shard_of(key)}
    while True:
        # A shard that is divided while the others go leaves one more behind; without its ancestor none comes again.
        while left := (yield from asking.get_all(others, until)):
            yield from asking.delete_all(sorted(left, key=shard_of, reverse=True), until)
        known = len(others)
        for key, item in (yield from asking.get_all(firsts, until)).items():
            shards = yield from _fence(asking, key, item, now, until)
            others.update(shard_key(key, shard) for shard in range(1, shards))
        if len(others) == known:
            break
    yield from asking.delete_all(firsts, until)


def _fence(asking: Asking, key: Key, item: Item, now: int, until: Window) -> Plan[int]:
    """Give a shard the version nobody has. The number of shards there are, by what it says then."""
    nonce = asking.marks.nonce(now)
    while True:
        try:
            image = image_of(item)
        except BrokenItem:
            return 1
        if image.cv == FENCED or nonce in image.ring:
            return image.shards
        write = Update()
        write.demand("shard_count", "=", image.shards)
        write.push_mark(nonce, None)
        write.set("cv", FENCED)
        try:
            yield from asking.ask("UpdateItem", write.params(asking.table, key), until, repeatable=True)
            return image.shards
        except Refused as refusal:
            if not refusal.by_condition:
                raise
            if refusal.item is None:
                return 1
            item = refusal.item
