"""The write load of a bucket: a limit named ``wcu`` in every bucket item, which no caller sees.

A partition of DynamoDB takes about 1,000 writes a second. Every write charges the write load of its bucket, without
any condition: it never refuses, it only tells. A client that sees it below zero has seen real pressure, more writes
for more than a second than the partition can take, and splits the bucket. The write load itself is not split: every
shard is a partition of its own.
"""

from __future__ import annotations

from typing import Any

from zae_limiter.bucket import MILLI, accrued_in_a_second
from zae_limiter.naming import RESERVED_LIMIT_NAME
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot
from zae_limiter.stores.dynamodb.schema import MOST_SHARDS

LOAD_TK = f"b_{RESERVED_LIMIT_NAME}_tk"

WRITE = 1 * MILLI
"""What one write of up to a kilobyte is charged."""

PARTITION_WCU = 1_000
"""What a partition takes per second."""

PAUSE_BETWEEN_SPLITS_MS = 1_000
"""Shard 0 is left alone for so long after a split, so that its effect is seen first."""

YOUNG_MS = 1_000
"""A snapshot younger than this says that the bucket is being written to."""

TOO_FULL = 2
"""So many ceilings it may hold, after a quiet time, before a client cuts it to one."""

TOO_LOW = 4
"""If it is below zero by more than this part of its ceiling it is lifted to zero: old pressure is no pressure."""


def load_attributes(burst: int, load: int = WRITE) -> dict[str, Any]:
    """The write load of a new bucket, full but for the write that makes it."""
    fields = {"tk": burst - load, "tc": 0, "cp": burst, "bx": burst, "ra": burst, "rp": MILLI}
    return {f"b_{RESERVED_LIMIT_NAME}_{field}": value for field, value in fields.items()}


def load_level_at(snapshot: BucketSnapshot, now: int) -> int:
    """What the partition could still take, with nothing forgotten: it may lie above the ceiling."""
    return snapshot.load_level + accrued_in_a_second(snapshot.load_burst, snapshot.rf, now)


def reset_level(level: int, burst: int, age_ms: int) -> int | None:
    """The level it is to be set to, because ``level`` tells too much of the past; ``None`` if it does not.

    ``age_ms`` is how old the snapshot is that has it. It is set without any condition, by the clients that use the
    bucket: what others write in between is forgotten, and they will be there again.
    """
    if age_ms >= YOUNG_MS:
        return None
    if level > TOO_FULL * burst:
        return burst
    return 0 if level < -burst // TOO_LOW else None


def is_overloaded(snapshot: BucketSnapshot, now: int) -> bool:
    """Whether a bucket is written to faster than its partition can take."""
    return load_level_at(snapshot, now) < 0


def may_split(first: BucketSnapshot, now: int) -> bool:
    """Whether shard 0, as it is, may be split now."""
    return may_split_at(first.shards, first.rf, now)


def may_split_at(shards: int, rf: int, now: int) -> bool:
    """The same, of so many shards, the first of which has its baseline at ``rf``: that of the last split, if any."""
    paused = shards == 1 or now - rf >= PAUSE_BETWEEN_SPLITS_MS
    return paused and shards < MOST_SHARDS


def load_of(snapshot: BucketSnapshot, failed: int) -> int:
    """What a write is charged: each kilobyte of the item that is begun, and the conditions that failed before it."""
    return WRITE * (snapshot.kilobytes + failed)
