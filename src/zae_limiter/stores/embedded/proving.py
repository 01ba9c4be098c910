"""The proof that usage equals what was taken: rows and buckets, read in one transaction.

A bucket that was removed and created again goes on counting where it ended, so all its rows are one chain (see
``stores.chains``). The counting is done with the taking: a bucket that is further than its last row is a gap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zae_limiter.models.proofs import UsageChain
from zae_limiter.stores.chains import Joint, Whose, chains_of
from zae_limiter.stores.embedded.tables import Tables, UsageRow
from zae_limiter.stores.windows import NOTHING_COUNTED, Counters, counted

LAST_HOUR = 1 << 62
ROWS_AT_ONCE = 500


def chains_in(tables: Tables, entity_id: str, resource: str | None, now: int) -> Iterator[UsageChain]:
    """The chains of an entity, by resource and limit."""
    live = {bucket.resource: bucket for bucket in tables.buckets_of(entity_id)}
    used = {name for _, name in _pairs(tables, entity_id, resource)}
    for name in sorted(used | live.keys()):
        if resource in (None, name):
            rows = tables.usage_rows(entity_id, name, 0, LAST_HOUR)
            bucket = live.get(name)
            has_counted = None if bucket is None else counted(bucket)
            joints = joints_of(rows, has_counted, None if bucket is None else bucket.hour)
            lost = tables.usage_dropped > 0
            yield from chains_of(Whose(name), joints, len(rows), has_counted, now, beginnings_lost=lost)


def joints_of(rows: Sequence[UsageRow], bucket: Counters | None, hour: int | None) -> list[Joint]:
    """All joints of the rows, from their beginning to the bucket. ``hour`` is when that was last written to."""
    if not rows:
        return [Joint(None, hour, NOTHING_COUNTED, bucket or NOTHING_COUNTED)]
    joints = []
    after: int | None = None
    ended = NOTHING_COUNTED
    for row in rows:
        joints.append(Joint(after, row.hour, ended, row.start))
        after, ended = row.hour, row.end or bucket or row.start
    joints.append(Joint(after, None, ended, bucket or ended))
    return joints


def _pairs(tables: Tables, entity_id: str, resource: str | None) -> Iterator[tuple[str, str]]:
    last: tuple[str, str] | None = None
    while pairs := tables.usage_pairs(entity_id, resource, last, ROWS_AT_ONCE):
        yield from pairs
        last = pairs[-1]
