"""A namespace's data in dicts.

Nothing grows without bound: a bucket that is full again is the same as no bucket, so each new bucket looks
at a few old ones and drops those; usage and audit rows leave when they are older than their retention, and
of the usage rows only the newest are kept, so that ids that come once do not fill the memory for that long.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from zae_limiter.bucket import Bucket
from zae_limiter.models.access import Access
from zae_limiter.models.entity import Entity
from zae_limiter.models.moments import at
from zae_limiter.models.reports import AuditEvent
from zae_limiter.stores.audit_events import ulid
from zae_limiter.stores.embedded.routes import LevelLimits, Routes
from zae_limiter.stores.embedded.tables import (
    AUDIT_RETENTION_MS,
    BUCKET_MARGIN_MS,
    USAGE_RETENTION_MS,
    LeaseSlot,
    UsageRow,
    begin_hour,
)
from zae_limiter.stores.lease_records import LeaseRecord
from zae_limiter.stores.memory.lease_table import LeaseTable
from zae_limiter.stores.memory.ordered_names import SPARE, Index, OrderedNames
from zae_limiter.stores.protocol import Config, FastPath, Scope
from zae_limiter.stores.windows import Counters, counted

logger = logging.getLogger("zae_limiter")

LOOKED_AT_PER_NEW_BUCKET = 4

MAX_USAGE_ROWS = 100_000
"""So many hours of use are kept in a namespace, each of one entity on one resource: some 150 MB."""


class MemoryTables:
    """One namespace.

    ``fast_paths`` are dropped when a bucket that they lead to goes, and all of them when the configuration changes.
    """

    in_place = True

    def __init__(self, fast_paths: dict[tuple[str, str], FastPath]) -> None:
        self.routes = Routes()
        self.corrected_at: dict[tuple[str, str], int] = {}
        self._fast_paths = fast_paths
        self._epoch = 0
        self._entities: dict[str, Entity] = {}
        self._entity_ids: OrderedNames[str] = OrderedNames()
        self._children = Index()
        self._configs: dict[Scope, Config] = {}
        self._limited_resources: OrderedNames[str] = OrderedNames()
        self._limited_entities = Index()
        self._limited_scopes = Index()
        self._switches: OrderedNames[tuple[str, str]] = OrderedNames()
        self._buckets: dict[tuple[str, str], Bucket] = {}
        self._bucket_keys: OrderedNames[tuple[str, str]] = OrderedNames()
        self._resources_by_entity: dict[str, tuple[str, ...]] = {}  # in order; few each
        self._entities_by_resource = Index()
        self._oldest_buckets: deque[tuple[str, str]] = deque()
        self._buckets_kept = 0
        self._usage: dict[tuple[str, str], list[UsageRow]] = {}
        self._usage_pairs: OrderedNames[tuple[str, str]] = OrderedNames()
        self._oldest_usage: deque[tuple[int, tuple[str, str]]] = deque()
        self.usage_dropped = 0
        self._leases = LeaseTable()
        self._pulses: dict[str, tuple[int, str]] = {}
        self._audit: list[AuditEvent] = []
        self._audit_serial = 0

    def __len__(self) -> int:
        """How many things there are."""
        rows = sum(len(rows) for rows in self._usage.values())
        return (
            len(self._entities) + len(self._configs) + len(self._buckets) + rows + len(self._leases) + len(self._audit)
        )

    def epoch(self) -> int:
        return self._epoch

    def advance_epoch(self) -> None:
        self._epoch += 1
        self._fast_paths.clear()

    # Entities

    def entity(self, entity_id: str) -> Entity | None:
        return self._entities.get(entity_id)

    def put_entity(self, entity: Entity) -> None:
        self.drop_entity(entity.id)
        self._entities[entity.id] = entity
        self._entity_ids.add(entity.id)
        if entity.parent_id is not None:
            self._children.add(entity.parent_id, entity.id)

    def drop_entity(self, entity_id: str) -> None:
        entity = self._entities.pop(entity_id, None)
        if entity is not None:
            self._entity_ids.discard(entity_id)
            if entity.parent_id is not None:
                self._children.discard(entity.parent_id, entity_id)

    def entities(self, after: str | None, count: int) -> list[Entity]:
        return [self._entities[name] for name in self._entity_ids.after(after, count)]

    def children(self, parent_id: str, after: str | None, count: int) -> list[Entity]:
        return [self._entities[name] for name in self._children.after(parent_id, after, count)]

    # Limits

    def config(self, scope: Scope) -> Config | None:
        return self._configs.get(scope)

    def limits_in(self, scopes: Sequence[Scope]) -> LevelLimits:
        configs = ((scope, self._configs.get(scope)) for scope in scopes)
        return tuple((scope, config.limits) for scope, config in configs if config is not None and config.limits)

    def put_config(self, scope: Scope, config: Config) -> None:
        self._configs[scope] = config
        place = (scope.entity_id or "", scope.resource or "")
        (self._switches.add if config.access else self._switches.discard)(place)
        if not config.limits:
            self._unlist_limits(scope)
        elif scope.resource is not None and scope.entity_id is None:
            self._limited_resources.add(scope.resource)
        elif scope.resource is not None and scope.entity_id is not None:
            self._limited_entities.add(scope.resource, scope.entity_id)
        if scope.resource is not None and scope.entity_id is not None:
            self._limited_scopes.add(scope.entity_id, scope.resource)

    def drop_config(self, scope: Scope) -> None:
        del self._configs[scope]
        self._switches.discard((scope.entity_id or "", scope.resource or ""))
        self._unlist_limits(scope)
        if scope.resource is not None and scope.entity_id is not None:
            self._limited_scopes.discard(scope.entity_id, scope.resource)

    def _unlist_limits(self, scope: Scope) -> None:
        if scope.resource is not None and scope.entity_id is None:
            self._limited_resources.discard(scope.resource)
        elif scope.resource is not None and scope.entity_id is not None:
            self._limited_entities.discard(scope.resource, scope.entity_id)

    def switches(self, after: tuple[str, str] | None, count: int) -> list[Access]:
        configs = [
            self._configs[Scope(entity_id or None, resource or None)]
            for entity_id, resource in self._switches.after(after, count)
        ]
        return [config.access for config in configs if config.access is not None]

    def scopes_of(self, entity_id: str) -> list[Scope]:
        return [Scope(entity_id, resource) for resource in self._limited_scopes.after(entity_id, None)]

    def resources_with_limits(self, after: str | None, count: int) -> list[str]:
        return self._limited_resources.after(after, count)

    def entities_with_limits(self, resource: str, after: str | None, count: int) -> list[str]:
        return self._limited_entities.after(resource, after, count)

    # Buckets

    def bucket(self, entity_id: str, resource: str) -> Bucket | None:
        return self._buckets.get((entity_id, resource))

    def put_bucket(self, bucket: Bucket) -> None:
        key = (bucket.entity_id, bucket.resource)
        if key in self._buckets:
            return
        try:
            self._list_bucket(key, bucket)
        except BaseException:
            self._list_bucket(key, bucket)  # an interrupt: every list has it, or it would never be found again
            raise

    def _list_bucket(self, key: tuple[str, str], bucket: Bucket) -> None:
        self._buckets[key] = bucket
        self._bucket_keys.add(key)
        others = self._resources_by_entity.get(bucket.entity_id, ())
        self._resources_by_entity[bucket.entity_id] = tuple(sorted({*others, bucket.resource}))
        self._entities_by_resource.add(bucket.resource, bucket.entity_id)
        self._oldest_buckets.append(key)
        if len(self._oldest_buckets) > 2 * len(self._buckets) + SPARE:  # buckets that are deleted and made again
            self._oldest_buckets = deque(dict.fromkeys(kept for kept in self._oldest_buckets if kept in self._buckets))

    def drop_bucket(self, bucket: Bucket) -> None:
        del self._buckets[bucket.entity_id, bucket.resource]
        self._fast_paths.pop((bucket.entity_id, bucket.resource), None)
        self._bucket_keys.discard((bucket.entity_id, bucket.resource))
        others = tuple(name for name in self._resources_by_entity.pop(bucket.entity_id) if name != bucket.resource)
        if others:
            self._resources_by_entity[bucket.entity_id] = others
        self._entities_by_resource.discard(bucket.resource, bucket.entity_id)
        bucket.balances = ()  # a fast path that still holds it finds that it changed

    def buckets_of(self, entity_id: str) -> list[Bucket]:
        return [self._buckets[entity_id, resource] for resource in self._resources_by_entity.get(entity_id, ())]

    def buckets(self, after: tuple[str, str] | None, count: int) -> list[Bucket]:
        return [self._buckets[key] for key in self._bucket_keys.after(after, count)]

    def buckets_on(self, resource: str, after: str | None, count: int) -> list[Bucket]:
        names = self._entities_by_resource.after(resource, after, count)
        return [self._buckets[entity_id, resource] for entity_id in names]

    def drop_idle_buckets(self, now: int) -> None:
        """Look at a few of the oldest, for every bucket that came since the last time. Between transactions
        only: one that is being drawn from must stay."""
        new = len(self._buckets) - self._buckets_kept
        for _ in range(min(LOOKED_AT_PER_NEW_BUCKET * new, len(self._oldest_buckets))):
            key = self._oldest_buckets.popleft()
            bucket = self._buckets.get(key)
            if bucket is None:
                continue
            if bucket.rf + BUCKET_MARGIN_MS < now and bucket.full_at() + BUCKET_MARGIN_MS < now:
                self.close_usage(bucket, counted(bucket))
                self.drop_bucket(bucket)
            else:
                self._oldest_buckets.append(key)
        self._buckets_kept = len(self._buckets)

    # Usage

    def open_usage(self, bucket: Bucket, hour: int, start: Counters) -> int:
        key = (bucket.entity_id, bucket.resource)
        rows = self._usage.setdefault(key, [])
        if rows and rows[-1].hour >= hour:
            rows[-1] = rows[-1]._replace(end=None)
            return rows[-1].hour
        self._usage_pairs.add(key)
        rows.append(UsageRow(*key, hour, begin_hour(bucket, start), None))
        self._oldest_usage.append((hour, key))
        while self._oldest_usage[0][0] < hour - USAGE_RETENTION_MS:
            self._drop_oldest_usage_of(self._oldest_usage.popleft()[1])
        if len(self._oldest_usage) > MAX_USAGE_ROWS:
            if not self.usage_dropped:
                logger.warning("more than %s rows of usage in memory: the oldest are dropped", f"{MAX_USAGE_ROWS:,}")
            self.usage_dropped += 1
            self._drop_oldest_usage_of(self._oldest_usage.popleft()[1])
        return hour

    def close_usage(self, bucket: Bucket, end: Counters) -> None:
        rows = self._usage.get((bucket.entity_id, bucket.resource))
        if rows and rows[-1].hour == bucket.hour:
            rows[-1] = rows[-1]._replace(end=end)

    def last_usage(self, entity_id: str, resource: str) -> UsageRow | None:
        rows = self._usage.get((entity_id, resource))
        return rows[-1] if rows else None

    def usage_rows(self, entity_id: str, resource: str, start: int, end: int) -> list[UsageRow]:
        return [row for row in self._usage.get((entity_id, resource), ()) if start <= row.hour < end]

    def usage_pairs(
        self, entity_id: str | None, resource: str | None, after: tuple[str, str] | None, count: int
    ) -> list[tuple[str, str]]:
        first = max(after or ("", ""), (entity_id or "", ""))
        found = []
        for pair in self._usage_pairs.after(first):
            if entity_id is not None and pair[0] != entity_id:
                break
            if resource is None or pair[1] == resource:
                found.append(pair)
                if len(found) == count:
                    break
        return found

    def _drop_oldest_usage_of(self, key: tuple[str, str]) -> None:
        rows = self._usage[key]
        del rows[0]
        if not rows:
            del self._usage[key]
            self._usage_pairs.discard(key)

    # Records of leases

    def lease_slot(self, record_id: str) -> LeaseSlot:
        return self._leases.slot(record_id)

    def put_lease(self, slot: LeaseSlot, record: LeaseRecord) -> None:
        self._leases.put(slot, record)

    def lease_records(self, entity_id: str | None, after: str | None, count: int, now: int) -> list[LeaseRecord]:
        return self._leases.after(entity_id, after, count, now)

    # Pulses

    def put_pulse(self, process: str, text: str, expires_at: int, now: int) -> None:
        self._pulses = {name: pulse for name, pulse in self._pulses.items() if pulse[0] > now and name != process}
        self._pulses[process] = expires_at, text

    def pulses(self, most: int, now: int) -> list[str]:
        live = [text for expires_at, text in self._pulses.values() if expires_at > now]
        return live[-most:]

    # Audit

    def add_audit(
        self,
        subject: str,
        action: str,
        resource: str | None,
        principal: str | None,
        details: Mapping[str, Any],
        now: int,
    ) -> None:
        self._audit_serial += 1
        event = AuditEvent(ulid(now, self._audit_serial), at(now), action, subject, resource, principal, dict(details))
        insort(self._audit, event, key=lambda event: event.event_id)
        expired = bisect_left(self._audit, at(max(now - AUDIT_RETENTION_MS, 0)), key=lambda event: event.timestamp)
        del self._audit[:expired]

    def audit(
        self, subject: str | None, start: int | None, end: int | None, before: str | None, count: int
    ) -> list[AuditEvent]:
        last = len(self._audit)
        if before is not None:
            last = bisect_left(self._audit, before, key=lambda event: event.event_id)
        found: list[AuditEvent] = []
        for event in reversed(self._audit[:last]):
            if _matches(event, subject, start, end):
                found.append(event)
                if len(found) == count:
                    break
        return found


def _matches(event: AuditEvent, subject: str | None, start: int | None, end: int | None) -> bool:
    return (
        (subject is None or event.entity_id == subject)
        and (start is None or event.timestamp >= at(start))
        and (end is None or event.timestamp < at(end))
    )
