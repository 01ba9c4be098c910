"""The proof that usage equals what was taken, read from snapshots and buckets.

Each life of each shard of a bucket is a chain of its own (see ``stores.chains``). The last hour must end where the
bucket is now; a bucket that is further is no gap, because the aggregator comes a moment later. Hours that overlap,
because the clocks of two writers differed, join where the later one begins (see ``snapshots``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from zae_limiter.models.proofs import UsageChain, UsageProof
from zae_limiter.running.plan import Plan
from zae_limiter.stores.chains import Joint, Whose, chains_of
from zae_limiter.stores.dynamodb.errors import verb
from zae_limiter.stores.dynamodb.items import key_of
from zae_limiter.stores.dynamodb.keys import GSI3, Key, bucket_key, pk_entity
from zae_limiter.stores.dynamodb.plans.base import SpaceBase
from zae_limiter.stores.dynamodb.plans.listing import fetch
from zae_limiter.stores.dynamodb.snapshots import (
    Life,
    Span,
    counters_in,
    life_of,
    max_edge,
    met,
    min_edge,
    span_of,
)
from zae_limiter.stores.windows import NOTHING_COUNTED, Counters


class VerifyingVerbs(SpaceBase):
    """Comparing usage with the buckets."""

    @verb
    def verify_usage(self, entity_id: str, resource: str | None, now: int) -> Plan[UsageProof]:
        """How the usage of an entity compares with what its buckets counted."""
        ns = yield from self.checked_ns()
        prefix = "#USAGE#" if resource is None else f"#USAGE#{resource}#"
        items = yield from self.asking.query_all(pk_entity(ns, entity_id), prefix=prefix)
        spans = [span_of(item) for item in items]
        live = yield from self._live(ns, entity_id, resource, {span.life for span in spans})
        return UsageProof(entity_id, resource, tuple(chains_from(spans, live, now)))

    def _live(self, ns: str, entity_id: str, resource: str | None, lives: set[Life]) -> Plan[dict[Life, Counters]]:
        """What the live buckets have counted. They are read after the snapshots, and are never behind them."""
        prefix = "BUCKET#" if resource is None else f"BUCKET#{resource}#"
        found = yield from self.asking.query_all(pk_entity(ns, entity_id), prefix=prefix, index=GSI3)
        keys: dict[Key, None] = dict.fromkeys(key_of(item) for item in found)
        keys |= dict.fromkeys(bucket_key(ns, entity_id, life.resource, life.shard) for life in sorted(lives))
        items = yield from fetch(self.asking, list(keys))
        return {life_of(key.pk, item): counters_in(item) for key, item in items.items()}


def chains_from(spans: Iterable[Span], live: Mapping[Life, Counters], now: int) -> list[UsageChain]:
    """The chains of every life, limit by limit."""
    lives: dict[Life, list[Span]] = {life: [] for life in live}
    for span in spans:
        lives.setdefault(span.life, []).append(span)
    return [
        chain
        for life, hours in sorted(lives.items())
        for chain in chains_of(
            Whose(life.resource, life.shard, life.inc),
            joints_of(sorted(hours, key=lambda span: span.hour)),
            len(hours),
            live.get(life),
            now,
        )
    ]


def joints_of(spans: Sequence[Span]) -> list[Joint]:
    """All joints of a life, from its beginning to its end. The last one has the same on both sides."""
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
    joints.append(Joint(spans[-1].hour, None, ends[-1].counters, ends[-1].counters))
    return joints
