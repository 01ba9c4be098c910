"""Audit, usage, capacity: what operators read.

:meth:`ReportVerbs.verify_usage` proves that usage equals what was taken, from rows and buckets that are read in one
transaction. A bucket that was removed and created again goes on counting where it ended, so all its rows are one
chain (see ``stores.chains``). Usage is counted in the transaction that takes, so a bucket that is further than its
last row is a gap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import nsmallest

from zae_limiter.bucket import MILLI, Bucket, calculate_available
from zae_limiter.models.proofs import UsageChain, UsageProof
from zae_limiter.models.reports import AuditEvent, EntityCapacity, Page, ResourceCapacity, UsageSnapshot
from zae_limiter.models.status import BucketStatus
from zae_limiter.stores.chains import Joint, Whose, chains_of
from zae_limiter.stores.cursors import Key, decode_cursor, name_after, page_of
from zae_limiter.stores.embedded.bucket_verbs import as_configured, bucket_status
from zae_limiter.stores.embedded.tables import SharedTables, Tables, Transacting, UsageRow, reads, scans, writes
from zae_limiter.stores.limit_statuses import capacity_of, percent_used, tightness
from zae_limiter.stores.protocol import UsageQuery
from zae_limiter.stores.windows import (
    NOTHING_COUNTED,
    Counters,
    HourOfUse,
    counted,
    hours_within,
    position,
    windows_of,
)

LAST_HOUR = 1 << 62
ROWS_AT_ONCE = 500


class HistoryVerbs(Transacting):
    """What was changed, and what was used."""

    @scans
    def audit_events(
        self,
        tables: SharedTables,
        entity_id: str | None,
        start_ms: int | None,
        end_ms: int | None,
        limit: int,
        cursor: str | None,
    ) -> Page[AuditEvent]:
        rows = tables.audit(entity_id, start_ms, end_ms, name_after(cursor), limit + 1)
        return page_of(rows, limit, lambda event: (event.event_id,))

    @scans
    def usage(self, tables: SharedTables, query: UsageQuery, limit: int, cursor: str | None) -> Page[UsageSnapshot]:
        after = decode_cursor(cursor, str, str, int, int)
        rows: list[UsageSnapshot] = []
        for entity_id, resource in pairs_from(tables, query, after):
            hours = hours_of_use(tables, query, entity_id, resource)
            for snapshot in windows_of(query, entity_id, resource, hours):
                if after is None or position(snapshot) > after:
                    rows.append(snapshot)
            if len(rows) > limit:
                break
        return page_of(rows, limit, position)


class ReportVerbs(HistoryVerbs):
    """All verbs that only read."""

    @scans
    def verify_usage(self, tables: Tables, entity_id: str, resource: str | None, now: int) -> UsageProof:
        return UsageProof(entity_id, resource, tuple(chains_in(tables, entity_id, resource, now)))

    @scans
    def capacity(
        self, tables: Tables, resource: str, limit_name: str, limit: int, cursor: str | None, now: int
    ) -> ResourceCapacity:
        held = []
        for bucket in live_buckets_on(tables, resource):
            for balance in as_configured(tables, bucket, now).balances:
                if balance.name == limit_name:
                    left = calculate_available(balance, now)
                    whole = balance.limit.burst + balance.extra_at(now) // MILLI
                    row = EntityCapacity(bucket.entity_id, whole, left, percent_used(whole, left))
                    held.append((row, tables.routes.above(tables, bucket.entity_id, resource)))
        return capacity_of(resource, limit_name, held, limit, name_after(cursor))

    @scans
    def tightest_buckets(self, tables: Tables, resource: str | None, limit: int, now: int) -> tuple[BucketStatus, ...]:
        live = live_buckets(tables) if resource is None else live_buckets_on(tables, resource)
        statuses = (bucket_status(as_configured(tables, bucket, now), now) for bucket in live)
        return tuple(nsmallest(limit, statuses, key=tightness))

    @scans
    def active_entities(self, tables: Tables) -> tuple[str, ...]:
        used = {entity_id for entity_id, _ in usage_pairs(tables, None, None, None)}
        return tuple(sorted(used | {bucket.entity_id for bucket in live_buckets(tables)}))


def live_buckets(tables: Tables) -> Iterator[Bucket]:
    """Every live bucket."""
    last: tuple[str, str] | None = None
    while buckets := tables.buckets(last, ROWS_AT_ONCE):
        yield from buckets
        last = (buckets[-1].entity_id, buckets[-1].resource)


def live_buckets_on(tables: Tables, resource: str) -> Iterator[Bucket]:
    """Every live bucket of a resource."""
    last: str | None = None
    while buckets := tables.buckets_on(resource, last, ROWS_AT_ONCE):
        yield from buckets
        last = buckets[-1].entity_id


def pairs_from(tables: SharedTables, query: UsageQuery, after: Key | None) -> Iterator[tuple[str, str]]:
    """Every (entity, resource) the query concerns, from the one the cursor stands in."""
    last: tuple[str, str] | None = None
    if after is not None:
        last = (str(after[0]), str(after[1]))
        yield last
    yield from usage_pairs(tables, query.entity_id, query.resource, last)


def usage_pairs(
    tables: SharedTables, entity_id: str | None, resource: str | None, after: tuple[str, str] | None
) -> Iterator[tuple[str, str]]:
    """Every (entity, resource) that has usage, in order, behind ``after``."""
    while pairs := tables.usage_pairs(entity_id, resource, after, ROWS_AT_ONCE):
        yield from pairs
        after = pairs[-1]


def hours_of_use(tables: SharedTables, query: UsageQuery, entity_id: str, resource: str) -> list[HourOfUse]:
    """The hours of one bucket that the query's windows are made of."""
    return [
        HourOfUse(row.hour, used_in(tables, row))
        for row in tables.usage_rows(entity_id, resource, *hours_within(query))
    ]


def used_in(tables: SharedTables, row: UsageRow) -> Counters:
    """The difference of a row's counters; those of the bucket while the hour is open."""
    end = row.end
    if end is None:
        bucket = tables.bucket(row.entity_id, row.resource)
        end = row.start if bucket is None else counted(bucket)
    return end.since(row.start)


def chains_in(tables: Tables, entity_id: str, resource: str | None, now: int) -> Iterator[UsageChain]:
    """The chains of an entity, by resource and limit."""
    live = {bucket.resource: bucket for bucket in tables.buckets_of(entity_id)}
    used = {name for _, name in usage_pairs(tables, entity_id, resource, None)}
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


class PulseVerbs(Transacting):
    """The verbs on pulses."""

    @writes
    def put_pulse(self, tables: Tables, process: str, text: str, expires_at: int, now: int) -> None:
        tables.put_pulse(process, text, expires_at, now)

    @reads
    def pulses(self, tables: Tables, most: int, now: int) -> tuple[str, ...]:
        return tuple(tables.pulses(most, now))
