"""Usage read back from snapshots, and the proof that it equals what the buckets counted.

**Reading.** Hours come from their snapshots, days and months are sums of hours. The snapshots of an entity are in
its own partition, in the order of resources and hours, and are read there with consistent reads, also when a
resource is asked about: then its index only tells which entities there are. The index is in the order of hours, the
list in that of entities. So every page goes over the index for the hours it is about, and keeps the names of the
next few entities.

**Proving.** Each life of each shard of a bucket is a chain of its own (see ``stores.chains``). The last hour must
end where the bucket is now. If it has seen the bucket's last write, which its write id tells, the two must be equal.
Otherwise the aggregator is behind, and the bucket may be further; it may also have counted less than the hour says,
if tokens came back since. But only as long as the aggregator can still read of it: an hour that is ahead of its
bucket for longer than the stream keeps records is wrong. Hours that overlap, because the clocks of two writers
differed, join where the later one begins (see ``usage_items``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple, Protocol

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.proofs import UsageChain, UsageProof
from zae_limiter.models.reports import Page, UsageSnapshot
from zae_limiter.naming import check_bucket_resource, check_entity_id
from zae_limiter.running.plan import Plan
from zae_limiter.stores.chains import Joint, Whose, chains_of
from zae_limiter.stores.cursors import Key as Place
from zae_limiter.stores.cursors import decode_cursor, page_of
from zae_limiter.stores.dynamodb.items import decoder, key_of, unless_broken
from zae_limiter.stores.dynamodb.namespace import Namespace
from zae_limiter.stores.dynamodb.operations.paging import FIRST, LAST, fetch, side_by_side
from zae_limiter.stores.dynamodb.requests import Item
from zae_limiter.stores.dynamodb.schema import GSI2, GSI3, Key, bucket_key, pk_entity, pk_resource
from zae_limiter.stores.dynamodb.table_client import TableClient, verb
from zae_limiter.stores.dynamodb.usage_items import (
    LAST_HOUR,
    WINDOW,
    Edge,
    Life,
    Span,
    counters_in,
    hour_text,
    life_of,
    max_edge,
    met,
    min_edge,
    span_of,
    used_by_hour,
)
from zae_limiter.stores.dynamodb.write_ids import write_id_time
from zae_limiter.stores.protocol import UsageQuery
from zae_limiter.stores.windows import (
    DAY_MS,
    HOUR_MS,
    NOTHING_COUNTED,
    Counters,
    HourOfUse,
    hour_of,
    hours_within,
    position,
    windows_of,
)

STREAM_KEPT_MS: Final = DAY_MS
"""How long the table's stream keeps a record."""


class LiveBucket(NamedTuple):
    """What a live bucket has counted, and the id of its last write."""

    counters: Counters
    write_id: str


class UsageProofs:
    """Comparing usage with the buckets."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.client = namespace.client

    @verb
    def verify_usage(self, entity_id: str, resource: str | None, now: int) -> Plan[UsageProof]:
        """How the usage of an entity compares with what its buckets counted."""
        ns = yield from self.namespace.checked_ns()
        prefix = "#USAGE#" if resource is None else f"#USAGE#{resource}#"
        items = yield from self.client.query_all(pk_entity(ns, entity_id), prefix=prefix)
        spans = [span for item in items if (span := unless_broken(span_of, item)) is not None]
        live = yield from self._live(ns, entity_id, resource, {span.life for span in spans})
        return UsageProof(entity_id, resource, tuple(chains_from(spans, live, now)))

    def _live(self, ns: str, entity_id: str, resource: str | None, lives: set[Life]) -> Plan[dict[Life, LiveBucket]]:
        """What the live buckets have counted. They are read after the snapshots, and are never behind them."""
        prefix = "BUCKET#" if resource is None else f"BUCKET#{resource}#"
        found = yield from self.client.query_all(pk_entity(ns, entity_id), prefix=prefix, index=GSI3)
        keys: dict[Key, None] = dict.fromkeys(key_of(item) for item in found)
        keys |= dict.fromkeys(bucket_key(ns, entity_id, life.resource, life.shard) for life in sorted(lives))
        items = yield from fetch(self.client, list(keys))
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
    now_counted = bucket.counters
    counted = {**end.counters.milli, **now_counted.milli}  # a limit that has ended is in no bucket any more
    cascaded = {**end.counters.cascaded, **now_counted.cascaded}
    denials = {**end.counters.denials, **now_counted.denials}
    if end.write_id == bucket.write_id:
        return Counters(now_counted.events, counted, now_counted.cascaded_events, cascaded, denials)
    if end.write_id and now - write_id_time(bucket.write_id) <= STREAM_KEPT_MS:
        return end.counters  # it was written to since, and the aggregator has yet to read of it
    return Counters(
        min(end.counters.events, now_counted.events),
        _least(end.counters.milli, counted),
        min(end.counters.cascaded_events, now_counted.cascaded_events),
        _least(end.counters.cascaded, cascaded),
        _least(end.counters.denials, denials),
    )


def _least(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: min(amount, other[name]) for name, amount in one.items()}


USAGE = "#USAGE#"

BEYOND = "$"
"""Sorts after ``#``, which ends a name within a key: a name followed by it is just beyond all keys of that name."""

ENTITIES_AT_ONCE = 16
"""The partitions of so many entities are read at the same time."""

ENTITIES_KEPT = 1_000
"""So many names are kept of those that one pass over the index finds."""


class UsageWindows:
    """Reading usage."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.client = namespace.client

    @verb
    def usage(self, query: UsageQuery, limit: int, cursor: str | None) -> Plan[Page[UsageSnapshot]]:
        """Usage windows, by entity, resource, window type and start."""
        after = place_after(cursor)
        ns = yield from self.namespace.checked_ns()
        pairs = pairs_from(self.client, ns, query, after)
        rows: list[UsageSnapshot] = []
        while len(rows) <= limit:
            found = yield from pairs.take(limit + 1 - len(rows))
            if not found:
                break
            listed = yield from side_by_side([windows_read(self.client, ns, query, *pair) for pair in found])
            rows += [
                row
                for windows in listed
                for row in windows
                if after is None or in_order(position(row)) > in_order(after)
            ]
        return page_of(rows, limit, position)


def place_after(cursor: str | None) -> Place | None:
    """The place a cursor continues after; names that DynamoDB can look for."""
    after = decode_cursor(cursor, str, str, int, int)
    if after is not None:
        try:
            check_entity_id(after[0])
            check_bucket_resource(after[1])
        except ValidationError:
            raise ValidationError("cursor", cursor, "must be the next_cursor of a page of this same list") from None
    return after


def in_order(place: Place) -> tuple[object, ...]:
    """A place as the keys of usage are sorted: a resource ends with ``#`` there, before which some characters sort."""
    entity_id, resource, *rest = place
    return entity_id, f"{resource}#", *rest


# Whose windows


class Pairs(Protocol):
    """The entities and resources that a query concerns, in order."""

    def take(self, count: int) -> Plan[list[tuple[str, str]]]:
        """Some more of them, at most ``count``; none at the end."""
        ...


def pairs_from(client: TableClient, ns: str, query: UsageQuery, after: Place | None) -> Pairs:
    """Those that a query concerns, from the one on in which the cursor stands."""
    entity_id, resource = query.entity_id, query.resource
    first = ("", "") if after is None else (str(after[0]), str(after[1]))
    if entity_id is None:
        assert resource is not None
        return EntitiesOn(client, ns, resource, hours_within(query), first)
    if resource is None:
        return ResourcesOf(client, ns, entity_id, first)
    return OnePair((entity_id, resource), first)


class OnePair:
    """One entity on one resource."""

    def __init__(self, pair: tuple[str, str], first: tuple[str, str]) -> None:
        self._left = [pair] if pair >= first else []

    def take(self, count: int) -> Plan[list[tuple[str, str]]]:
        yield from ()
        taken, self._left = self._left, []
        return taken


class ResourcesOf:
    """The resources that an entity used, each found behind the keys of the one before."""

    def __init__(self, client: TableClient, ns: str, entity_id: str, first: tuple[str, str]) -> None:
        self._client = client
        self._pk = pk_entity(ns, entity_id)
        self._entity_id = entity_id
        self._from: str | None = USAGE
        if first[0] >= entity_id:
            self._from = f"{USAGE}{first[1]}#" if first[0] == entity_id else None

    def take(self, count: int) -> Plan[list[tuple[str, str]]]:
        """One, because its windows may well fill the page."""
        if self._from is None:
            return []
        deadline = yield from self._client.new_deadline()
        found = yield from self._client.query(self._pk, deadline, between=(self._from, f"{USAGE}{LAST}"), limit=1)
        if not found.items:
            self._from = None
            return []
        resource = found.items[0]["SK"]["S"].split("#")[2]
        self._from = f"{USAGE}{resource}{BEYOND}"
        return [(self._entity_id, resource)]


class EntitiesOn:
    """The entities that used a resource in some hours."""

    def __init__(
        self, client: TableClient, ns: str, resource: str, hours: tuple[int, int], first: tuple[str, str]
    ) -> None:
        self._client = client
        self._pk = pk_resource(ns, resource)
        self._resource = resource
        self._between = keys_between(f"USAGE#{WINDOW}#", *hours)
        self._from = first[0] if first[1] <= resource else f"{first[0]}{FIRST}"
        self._names: list[str] = []
        self._over = self._between is None

    def take(self, count: int) -> Plan[list[tuple[str, str]]]:
        if not self._names and not self._over:
            yield from self._read_on()
        some = min(count, ENTITIES_AT_ONCE)
        taken, self._names = self._names[:some], self._names[some:]
        return [(entity_id, self._resource) for entity_id in taken]

    def _read_on(self) -> Plan[None]:
        """Go over the index once for the next names."""
        names: set[str] = set()
        self._over = True
        start: Item | None = None
        while True:
            deadline = yield from self._client.new_deadline()
            found = yield from self._client.query(self._pk, deadline, index=GSI2, between=self._between, start=start)
            names.update(name for name in entities_in(found.items) if name >= self._from)
            if len(names) > ENTITIES_KEPT:
                self._over = False
                names = set(sorted(names)[:ENTITIES_KEPT])
            start = found.next_key
            if start is None:
                break
        self._names = sorted(names)
        if self._names:
            self._from = f"{self._names[-1]}{FIRST}"


def entities_in(keys: Iterable[Item]) -> Iterable[str]:
    """The entities of usage by resource."""
    return (item["GSI2SK"]["S"].split("#")[3] for item in keys)


# The windows of one entity on one resource


def windows_read(
    client: TableClient, ns: str, query: UsageQuery, entity_id: str, resource: str
) -> Plan[list[UsageSnapshot]]:
    """Its windows, by type and start."""
    hours = yield from hours_read(client, ns, entity_id, resource, *hours_within(query))
    return list(windows_of(query, entity_id, resource, hours))


def hours_read(
    client: TableClient, ns: str, entity_id: str, resource: str, start: int, end: int
) -> Plan[list[HourOfUse]]:
    """What was taken in each hour from ``start`` on and before ``end``.

    The hours before and after are read too: what clocks that differ put on both sides of a full hour is settled
    between the two.
    """
    between = keys_between(f"{USAGE}{resource}#{WINDOW}#", start - HOUR_MS, end + HOUR_MS)
    if between is None:
        return []
    items = yield from client.query_all(pk_entity(ns, entity_id), between=between)
    spans = [span for item in items if (span := unless_broken(span_of, item)) is not None]
    return [hour for hour in used_by_hour(spans) if start <= hour.hour < end]


def keys_between(prefix: str, start: int, end: int) -> tuple[str, str] | None:
    """Between which keys the hours are that begin from ``start`` on and before ``end``; nothing if there are none."""
    first = hour_of(max(start, 0) + HOUR_MS - 1)
    last = hour_of(min(end - 1, LAST_HOUR))
    return (f"{prefix}{hour_text(first)}", f"{prefix}{hour_text(last)}{LAST}") if first <= last else None
