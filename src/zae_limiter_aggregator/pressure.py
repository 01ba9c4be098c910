"""How hard a shard of a bucket is written to, and whether it should be split before it hurts. Pure.

Every shard has a gauge of its own writes: a bucket named ``wcu`` that refills by what a partition of DynamoDB can
take, and pays for every write. It never refuses anybody. A client that finds it empty splits the bucket; whoever reads
the stream sees it coming, and does so at 80 %. Pressure on any shard splits shard 0, and the others follow when
somebody misses them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from zae_limiter.bucket import accrued_in_a_second
from zae_limiter.models.moments import LAST_MOMENT_MS
from zae_limiter.naming import RESERVED_LIMIT_NAME
from zae_limiter.stores.dynamodb.attribute_values import number_in
from zae_limiter.stores.dynamodb.requests import Item
from zae_limiter.stores.dynamodb.schema import MOST_SHARDS
from zae_limiter.stores.dynamodb.usage_items import Life
from zae_limiter.stores.dynamodb.write_load import may_split_at

HOT_PERCENT: Final = 80
"""From here on a shard is split, before its clients have to."""


class Load(NamedTuple):
    """One shard after one write: of how many shards, its baseline, when it was written, and what its gauge has left.

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

        Only shard 0 tells when that was. For the others, whoever splits asks shard 0.
        """
        if self.life.shard != 0:
            return self.shards < MOST_SHARDS
        return may_split_at(self.shards, self.baseline_ms, self.written_ms)


def should_split(load: Load) -> bool:
    """Whether a bucket is to be split now because of this shard."""
    return load.is_hot and load.may_split


def pressure_of(life: Life, image: Item, written_ms: int) -> Load:
    """What an image of a bucket tells. Raises ``KeyError``, ``TypeError`` or ``ValueError`` for what is none."""
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
