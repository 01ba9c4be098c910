"""Splitting a hot bucket before its clients have to: they do it at 100 % of what a partition takes, this at 80 %.

Every shard has a bucket for its own writes, named ``wcu``: it refills by what a partition of DynamoDB can take, and
pays for every write. It never refuses a write. A client that finds it empty splits the bucket; the aggregator sees in
the stream how full it is and splits earlier. A hot shard splits shard 0, and then every other shard is split too, so
that the new ones exist before a client looks for them.

A record is from the past, and the stream may be minutes behind. What it says is believed only if the bucket still has
as many shards as it had then: otherwise one busy minute that is read late would split a bucket again and again, each
time for a load that the last split has already met. The time is that of the record, as with every write the time of
its cause; a clock that is behind mints nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from zae_limiter.bucket import FURTHEST_AHEAD_MS, accrued_in_a_second
from zae_limiter.models.moments import LAST_MOMENT_MS
from zae_limiter.naming import RESERVED_LIMIT_NAME
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.bucket_items import snapshot_of
from zae_limiter.stores.dynamodb.operations.shard_life import make_shard, split
from zae_limiter.stores.dynamodb.requests import Item
from zae_limiter.stores.dynamodb.schema import MOST_SHARDS, bucket_key, number_in, shard_key
from zae_limiter.stores.dynamodb.table_client import TableClient
from zae_limiter.stores.dynamodb.usage_items import Life
from zae_limiter.stores.dynamodb.write_load import may_split, may_split_at

HOT_PERCENT: Final = 80
"""From here on a shard is split, before its clients have to."""


class Load(NamedTuple):
    """One shard after one write: of how many shards, its baseline, when it was written, and what its write load
    leaves.

    ``left`` and ``ceiling`` are millitokens; less than nothing is left when more is written than a partition takes.
    """

    life: Life
    shards: int
    baseline_ms: int
    written_ms: int
    left: int
    ceiling: int

    @property
    def percent(self) -> int:
        """How much of what a partition can take is taken; more than 100 when it is more."""
        return (self.ceiling - self.left) * 100 // self.ceiling

    @property
    def is_hot(self) -> bool:
        """Whether it is written to so hard that it should be split."""
        return self.percent >= HOT_PERCENT

    @property
    def may_split(self) -> bool:
        """Whether it may be split as far as it tells: not beyond the most shards, and not right after the last time.

        Only shard 0 tells when that was. For the others, :class:`ProactiveSplit` reads shard 0.
        """
        if self.life.shard != 0:
            return self.shards < MOST_SHARDS
        return may_split_at(self.shards, self.baseline_ms, self.written_ms)


def should_split(load: Load) -> bool:
    """Whether a bucket is to be split now because of this shard."""
    return load.is_hot and load.may_split


def load_of(life: Life, image: Item, written_ms: int) -> Load:
    """The load of a bucket in a stream image. Raises ``KeyError``, ``TypeError`` or ``ValueError`` if it has none."""
    shards, baseline = number_in(image["shard_count"], 1, MOST_SHARDS), number_in(image["rf"], 0, LAST_MOMENT_MS)
    tk, ceiling = number_in(image[f"b_{RESERVED_LIMIT_NAME}_tk"]), number_in(image[f"b_{RESERVED_LIMIT_NAME}_bx"], 1)
    level = tk + accrued_in_a_second(ceiling, baseline, written_ms)
    return Load(life, shards, baseline, written_ms, min(level, ceiling), ceiling)


def highest(loads: Iterable[Load]) -> list[Load]:
    """Of each shard the highest load, the hardest pressed shard first."""
    most: dict[Life, Load] = {}
    for load in loads:
        before = most.get(load.life)
        if before is None or load.left < before.left:
            most[load.life] = load
    return sorted(most.values(), key=lambda load: (load.left, load.life))


class ProactiveSplit:
    """Splits buckets of one table."""

    def __init__(self, client: TableClient) -> None:
        self._client = client

    def __call__(self, load: Load) -> Plan[bool]:
        """Split the bucket of a hot shard; whether it was split. May raise ``Refused`` and ``NoAnswer``."""
        life, now = load.life, load.written_ms
        until = yield from self._client.new_deadline()
        if now > until.epoch_s * 1000 + FURTHEST_AHEAD_MS:
            return False  # the clock it was written by is wrong
        first = bucket_key(life.ns, life.entity_id, life.resource)
        item = yield from self._client.get(first, until)
        if item is None:
            return False
        image = snapshot_of(item)
        another_life = life.shard == 0 and image.inc != life.inc
        if another_life or image.shards != load.shards or not may_split(image, now):
            return False
        if not (yield from split(self._client, first, item, now, until)):
            return False
        for shard in range(image.shards + 1, 2 * image.shards):
            until = yield from self._client.new_deadline()
            yield from make_shard(self._client, shard_key(first, shard), now, until)
        return True
