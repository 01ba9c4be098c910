"""The proof that usage equals what was taken, read from snapshots and buckets.

Each life of each shard of a bucket is a chain of its own (see ``stores.chains``). The last hour must end where the
bucket is now. If it has seen the bucket's last write, which its mark tells, the two must be equal. Otherwise the
aggregator is behind, and the bucket may be further; it may also have counted less than the hour says, if tokens came
back since. But only as long as the aggregator can still read of it: an hour that is ahead of its bucket for longer
than the stream keeps records is wrong. Hours that overlap, because the clocks of two writers differed, join where the
later one begins (see ``snapshots``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from zae_limiter.models.proofs import UsageChain, UsageProof
from zae_limiter.running.plan import Plan
from zae_limiter.stores.chains import Joint, Whose, chains_of
from zae_limiter.stores.dynamodb.errors import verb
from zae_limiter.stores.dynamodb.items import decoder, key_of, unless_broken
from zae_limiter.stores.dynamodb.keys import GSI3, Key, bucket_key, pk_entity
from zae_limiter.stores.dynamodb.marks import nonce_time
from zae_limiter.stores.dynamodb.plans.base import Namespace
from zae_limiter.stores.dynamodb.plans.listing import fetch
from zae_limiter.stores.dynamodb.requests import Item
from zae_limiter.stores.dynamodb.snapshots import (
    Edge,
    Life,
    Span,
    counters_in,
    life_of,
    max_edge,
    met,
    min_edge,
    span_of,
)
from zae_limiter.stores.windows import DAY_MS, NOTHING_COUNTED, Counters

STREAM_KEPT_MS: Final = DAY_MS
"""How long the table's stream keeps a record."""


class LiveBucket(NamedTuple):
    """What a live bucket has counted, and the mark of its last write."""

    counters: Counters
    mark: str


class UsageProofs:
    """Comparing usage with the buckets."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.asking = namespace.asking

    @verb
    def verify_usage(self, entity_id: str, resource: str | None, now: int) -> Plan[UsageProof]:
        """How the usage of an entity compares with what its buckets counted."""
        ns = yield from self.namespace.checked_ns()
        prefix = "#USAGE#" if resource is None else f"#USAGE#{resource}#"
        items = yield from self.asking.query_all(pk_entity(ns, entity_id), prefix=prefix)
        spans = [span for item in items if (span := unless_broken(span_of, item)) is not None]
        live = yield from self._live(ns, entity_id, resource, {span.life for span in spans})
        return UsageProof(entity_id, resource, tuple(chains_from(spans, live, now)))

    def _live(self, ns: str, entity_id: str, resource: str | None, lives: set[Life]) -> Plan[dict[Life, LiveBucket]]:
        """What the live buckets have counted. They are read after the snapshots, and are never behind them."""
        prefix = "BUCKET#" if resource is None else f"BUCKET#{resource}#"
        found = yield from self.asking.query_all(pk_entity(ns, entity_id), prefix=prefix, index=GSI3)
        keys: dict[Key, None] = dict.fromkeys(key_of(item) for item in found)
        keys |= dict.fromkeys(bucket_key(ns, entity_id, life.resource, life.shard) for life in sorted(lives))
        items = yield from fetch(self.asking, list(keys))
        buckets = [unless_broken(live_bucket, item) for item in items.values()]
        return dict(bucket for bucket in buckets if bucket is not None)


@decoder("a bucket")
def live_bucket(item: Item) -> tuple[Life, LiveBucket]:
    """Whose life a bucket's item shows, and what it says about its counters."""
    return life_of(item["PK"]["S"], item), LiveBucket(counters_in(item), item["w0"]["S"])


def chains_from(spans: Iterable[Span], live: Mapping[Life, LiveBucket], now: int) -> list[UsageChain]:
    """The chains of every life, limit by limit."""
    lives: dict[Life, list[Span]] = {life: [] for life in live}
    for span in spans:
        lives.setdefault(span.life, []).append(span)
    return [
        chain
        for life, hours in sorted(lives.items())
        for chain in chains_of(
            Whose(life.resource, life.shard, life.inc),
            joints_of(sorted(hours, key=lambda span: span.hour), live.get(life), now),
            len(hours),
            live[life].counters if life in live else None,
            now,
        )
    ]


def joints_of(spans: Sequence[Span], bucket: LiveBucket | None, now: int) -> list[Joint]:
    """All joints of a life, from its beginning to its end and to its bucket, unless that is gone."""
    if not spans:
        return []
    begins = list(accumulate([span.first for span in reversed(spans)], min_edge))[::-1]
    ends = list(accumulate([span.last for span in spans], max_edge))
    joints = [Joint(None, spans[0].hour, NOTHING_COUNTED, begins[0].counters)]
    for place in range(1, len(spans)):
        end, begin = ends[place - 1], begins[place]
        overlap = begin.sequence <= end.sequence  # then they join where the later one begins
        ended = met(end, begin, ends[place]) if overlap else end.counters
        joints.append(Joint(spans[place - 1].hour, spans[place].hour, ended, begin.counters))
    joints.append(Joint(spans[-1].hour, None, ends[-1].counters, end_by_bucket(ends[-1], bucket, now)))
    return joints


def end_by_bucket(end: Edge, bucket: LiveBucket | None, now: int) -> Counters:
    """Where the last hour should end, by what the bucket says now; where it does end, if the bucket cannot tell."""
    if bucket is None:
        return end.counters
    counted = {**end.counters.milli, **bucket.counters.milli}  # a limit that has ended is in no bucket any more
    if end.mark == bucket.mark:
        return Counters(bucket.counters.events, counted)
    if end.mark and now - nonce_time(bucket.mark) <= STREAM_KEPT_MS:
        return end.counters  # it was written to since, and the aggregator has yet to read of it
    milli = {name: min(amount, counted[name]) for name, amount in end.counters.milli.items()}
    return Counters(min(end.counters.events, bucket.counters.events), milli)
