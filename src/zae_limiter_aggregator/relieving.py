"""Dividing a bucket before its clients have to: what they do at 100 % of a partition is done here at 80 %.

A record is from the past, and the stream may be minutes behind. What it says is believed only if the bucket is still
divided as it was then: otherwise one busy minute that is read late would divide a bucket again and again, each time
for a pressure that the last division has already met. Time is that of the record, as with every write the time of its
cause; a clock that is behind mints nothing.

Shard 0 is divided, and then every other shard is, so that the new ones are there before anybody misses them.
"""

from __future__ import annotations

from zae_limiter.bucket import FURTHEST_AHEAD_MS
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.items import snapshot_of
from zae_limiter.stores.dynamodb.operations.shard_life import make_shard, split
from zae_limiter.stores.dynamodb.schema import bucket_key, shard_key
from zae_limiter.stores.dynamodb.table_client import TableClient
from zae_limiter.stores.dynamodb.write_load import may_split
from zae_limiter_aggregator.pressure import Load


class Relief:
    """Divides buckets of one table."""

    def __init__(self, asking: TableClient) -> None:
        self._asking = asking

    def __call__(self, load: Load) -> Plan[bool]:
        """Divide the bucket that a shard under load is of; whether it was. May raise ``Refused`` and ``NoAnswer``."""
        life, now = load.life, load.written_ms
        until = yield from self._asking.new_deadline()
        if now > until.epoch_s * 1000 + FURTHEST_AHEAD_MS:
            return False  # the clock it was written by is wrong
        first = bucket_key(life.ns, life.entity_id, life.resource)
        item = yield from self._asking.get(first, until)
        if item is None:
            return False
        image = snapshot_of(item)
        another_life = life.shard == 0 and image.inc != life.inc
        if another_life or image.shards != load.shards or not may_split(image, now):
            return False
        if not (yield from split(self._asking, first, item, now, until)):
            return False
        for shard in range(image.shards + 1, 2 * image.shards):
            until = yield from self._asking.new_deadline()
            yield from make_shard(self._asking, shard_key(first, shard), now, until)
        return True
