"""A namespace's data in SQLite. Every list is an index walked from a key."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zae_limiter.bucket import Bucket
from zae_limiter.models.access import Access
from zae_limiter.models.entity import Entity
from zae_limiter.models.reports import AuditEvent
from zae_limiter.naming import DEFAULT_RESOURCE, TOTAL_RESOURCE
from zae_limiter.stores.audit_events import ulid
from zae_limiter.stores.embedded.bounded_dict import BoundedDict
from zae_limiter.stores.embedded.routes import LevelLimits, Routes
from zae_limiter.stores.embedded.tables import BUCKET_MARGIN_MS, LeaseSlot, UsageRow, begin_hour
from zae_limiter.stores.lease_records import LeaseRecord, RecordState, record_to_text
from zae_limiter.stores.protocol import Config, Leg, Scope, access_to_text
from zae_limiter.stores.sqlite.row_cache import MAX_CACHED_ROWS, NEVER_MS, CachedRow
from zae_limiter.stores.sqlite.rows import (
    access_from_row,
    audit_from_row,
    bucket_from_row,
    config_from_row,
    counters_to_text,
    entity_from_row,
    entity_to_row,
    lease_from_row,
    limits_from_text,
    limits_to_text,
    next_epoch,
    terms_to_text,
    to_json,
    tokens_to_text,
    usage_from_row,
)
from zae_limiter.stores.windows import HOUR_MS, Counters

EXPIRY_STEP_MS = HOUR_MS
"""Expiry is rounded up to whole hours, so that an acquire seldom has to move it."""

_ENTITY = "id, name, parent_id, cascade, metadata, version, created_ms"
_BUCKET = "entity_id, resource, rf, events, hour, terms, tokens, carried, born"
_ROW = "rf, events, hour, terms, tokens, carried, born, expires_ms"
_USAGE = "entity_id, resource, hour, start, end"
_LEASE = "id, state, version, expires_ms, body"
_AUDIT = "event_id, at_ms, action, subject, resource, principal, details"

_READ_ROW = f"SELECT {_ROW} FROM buckets WHERE ns = ? AND entity_id = ? AND resource = ?"
_READ_ROUTE_AND_ROW = (
    "SELECT n.id, n.epoch,"
    " (SELECT parent_id FROM entities WHERE ns = n.id AND id = ? AND cascade),"
    " (SELECT limits FROM configs WHERE ns = n.id AND entity_id = ? AND resource = ?),"
    f" (SELECT limits FROM configs WHERE ns = n.id AND entity_id = ? AND resource = '{DEFAULT_RESOURCE}'),"
    f" (SELECT limits FROM configs WHERE ns = n.id AND entity_id = ? AND resource = '{TOTAL_RESOURCE}'),"
    f" {_ROW} FROM namespaces AS n JOIN buckets AS b ON b.ns = n.id AND b.entity_id = ? AND b.resource = ?"
    " WHERE n.name = ? AND n.deleted_ms IS NULL"
)
_NO_LIMITS = (None, "[]")
"""What is stored where a level has no limits."""


class Connection(sqlite3.Connection):
    """A connection, and the tables that were used through it, by namespace."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.tables: dict[str, SqliteTables] = {}
        super().__init__(*args, **kwargs)


class SqliteTables:
    """One namespace through one connection."""

    usage_dropped = 0  # there is room on a disk
    in_place = False

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.routes = Routes()
        self.corrected_at: dict[tuple[str, str], int] = {}
        self.row_cache: BoundedDict[tuple[str, str], CachedRow] = BoundedDict(MAX_CACHED_ROWS)
        self.connection = connection
        self.ns = 0
        self._epoch = 0

    def begin(self, ns: int, epoch: int) -> None:
        """A transaction begins: what its first statement said about the namespace."""
        if ns != self.ns:
            self.routes = Routes()
            self.row_cache.clear()
            self.corrected_at.clear()
            self.ns = ns
        self._epoch = epoch

    def epoch(self) -> int:
        return self._epoch

    def advance_epoch(self) -> None:
        self._epoch = next_epoch(self._epoch)
        self.connection.execute("UPDATE namespaces SET epoch = ? WHERE id = ?", (self._epoch, self.ns))

    # Entities

    def entity(self, entity_id: str) -> Entity | None:
        row = self._one(f"SELECT {_ENTITY} FROM entities WHERE ns = ? AND id = ?", self.ns, entity_id)
        return None if row is None else entity_from_row(row)

    def put_entity(self, entity: Entity) -> None:
        self.connection.execute(
            f"INSERT OR REPLACE INTO entities (ns, {_ENTITY}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (self.ns, *entity_to_row(entity)),
        )

    def drop_entity(self, entity_id: str) -> None:
        self.connection.execute("DELETE FROM entities WHERE ns = ? AND id = ?", (self.ns, entity_id))

    def entities(self, after: str | None, count: int) -> list[Entity]:
        rows = self._all(
            f"SELECT {_ENTITY} FROM entities WHERE ns = ? AND id > ? ORDER BY id LIMIT ?",
            *(self.ns, after or "", count),
        )
        return [entity_from_row(row) for row in rows]

    def children(self, parent_id: str, after: str | None, count: int) -> list[Entity]:
        rows = self._all(
            f"SELECT {_ENTITY} FROM entities WHERE ns = ? AND parent_id = ? AND id > ? ORDER BY id LIMIT ?",
            *(self.ns, parent_id, after or "", count),
        )
        return [entity_from_row(row) for row in rows]

    # Limits

    def config(self, scope: Scope) -> Config | None:
        row = self._one(
            "SELECT limits, on_unavailable, version, access FROM configs"
            " WHERE ns = ? AND entity_id = ? AND resource = ?",
            *(self.ns, *_place(scope)),
        )
        return None if row is None else config_from_row((scope, *row))

    def limits_in(self, scopes: Sequence[Scope]) -> LevelLimits:
        places = [_place(scope) for scope in scopes]
        entities, resources = (list(dict.fromkeys(part)) for part in zip(*places, strict=True))
        # Every pair of them is looked for: that is a search by key for each, unlike a list of pairs.
        rows = self._all(
            "SELECT entity_id, resource, limits FROM configs WHERE ns = ? AND limits <> '[]'"
            f" AND entity_id IN ({_marks(entities)}) AND resource IN ({_marks(resources)})",
            *(self.ns, *entities, *resources),
        )
        found = {(entity_id, resource): limits for entity_id, resource, limits in rows}
        return tuple(
            (scope, limits_from_text(found[place]))
            for scope, place in zip(scopes, places, strict=True)
            if place in found
        )

    def put_config(self, scope: Scope, config: Config) -> None:
        self.connection.execute(
            "INSERT OR REPLACE INTO configs (ns, entity_id, resource, limits, on_unavailable, version, access)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                *(self.ns, *_place(scope)),
                *(limits_to_text(config.limits), config.on_unavailable, config.version),
                None if config.access is None else access_to_text(config.access),
            ),
        )

    def drop_config(self, scope: Scope) -> None:
        self.connection.execute(
            "DELETE FROM configs WHERE ns = ? AND entity_id = ? AND resource = ?", (self.ns, *_place(scope))
        )

    def scopes_of(self, entity_id: str) -> list[Scope]:
        rows = self._all(
            "SELECT resource FROM configs WHERE ns = ? AND entity_id = ?"
            " AND (limits <> '[]' OR access IS NOT NULL) ORDER BY resource",
            *(self.ns, entity_id),
        )
        return [Scope(entity_id, resource) for (resource,) in rows]

    def switches(self, after: tuple[str, str] | None, count: int) -> list[Access]:
        where, values = ("", ()) if after is None else (" AND (entity_id, resource) > (?, ?)", after)
        rows = self._all(
            "SELECT entity_id, resource, access FROM configs INDEXED BY configs_with_access"
            " WHERE ns = ? AND access IS NOT NULL"
            f"{where} ORDER BY entity_id, resource LIMIT ?",
            *(self.ns, *values, count),
        )
        return [access_from_row((Scope(entity or None, resource or None), text)) for entity, resource, text in rows]

    def resources_with_limits(self, after: str | None, count: int) -> list[str]:
        rows = self._all(
            "SELECT resource FROM configs WHERE ns = ? AND entity_id = '' AND resource > ?"
            " AND limits <> '[]' ORDER BY resource LIMIT ?",
            *(self.ns, after or "", count),
        )
        return [resource for (resource,) in rows]

    def entities_with_limits(self, resource: str, after: str | None, count: int) -> list[str]:
        rows = self._all(
            "SELECT entity_id FROM configs WHERE ns = ? AND resource = ? AND entity_id > ?"
            " AND limits <> '[]' ORDER BY entity_id LIMIT ?",
            *(self.ns, resource, after or "", count),
        )
        return [entity_id for (entity_id,) in rows]

    # Buckets

    def bucket(self, entity_id: str, resource: str) -> Bucket | None:
        row = self._one(
            f"SELECT {_BUCKET} FROM buckets WHERE ns = ? AND entity_id = ? AND resource = ?",
            *(self.ns, entity_id, resource),
        )
        return None if row is None else bucket_from_row(row)

    def row(self, leg: Leg) -> CachedRow | None:
        """The row of a bucket as it is cached, or else read. ``None``: there is none that could be written at once."""
        try:
            return self.row_cache[leg.entity_id, leg.resource]
        except KeyError:
            row = self._one(_READ_ROW, self.ns, leg.entity_id, leg.resource)
            return None if row is None else self._cached(leg.entity_id, leg.resource, row)

    def forget_rows(self, legs: Iterable[Leg]) -> None:
        """These rows are not as they are cached."""
        for leg in legs:
            self.row_cache.forget((leg.entity_id, leg.resource))

    def read_route_and_row(self, namespace: str, entity_id: str, resource: str) -> tuple[Leg, ...] | None:
        """Every leg of an acquire, found in one statement with the row of its own bucket, which is cached from now on.

        ``None``: there is no such bucket, or no namespace, or no limits.
        """
        found = self._one(_READ_ROUTE_AND_ROW, entity_id, entity_id, resource, *(entity_id,) * 3, resource, namespace)
        if found is None:
            return None
        ns, epoch, parent_id, for_resource, for_each, in_all, *row = found
        self.begin(ns, epoch)
        own = tuple(
            (Scope(entity_id, place), limits_from_text(limits))
            for place, limits in ((resource, for_resource), (DEFAULT_RESOURCE, for_each), (TOTAL_RESOURCE, in_all))
            if limits not in _NO_LIMITS
        )
        legs = self.routes.legs_of_found(self, entity_id, resource, own, parent_id)
        if legs is None or self._cached(entity_id, resource, row) is None:
            return None
        return legs

    def _cached(self, entity_id: str, resource: str, row: Sequence[Any]) -> CachedRow | None:
        *columns, expires = row
        bucket = bucket_from_row((entity_id, resource, *columns))
        if bucket.retired or not bucket.is_plain or type(expires) is not int:
            return None  # the whole transaction knows what to do with it
        cached = self.row_cache[entity_id, resource] = CachedRow(bucket, columns[3], columns[4], expires)
        return cached

    def put_bucket(self, bucket: Bucket) -> None:
        expires = bucket.full_at() + BUCKET_MARGIN_MS
        expires = min(expires + -expires % EXPIRY_STEP_MS, NEVER_MS)
        key = (bucket.entity_id, bucket.resource)
        terms, tokens = terms_to_text(bucket), tokens_to_text(bucket)
        numbers = (bucket.rf, bucket.events, bucket.hour, terms, tokens)
        carried = to_json(bucket.carried) if bucket.carried else "{}"
        changed = self.connection.execute(
            "UPDATE buckets SET rf = ?, events = ?, hour = ?, terms = ?, tokens = ?, carried = ?"
            " WHERE ns = ? AND entity_id = ? AND resource = ? AND expires_ms = ?",
            (*numbers, carried, self.ns, *key, expires),
        )
        if changed.rowcount == 0:
            self.connection.execute(
                "INSERT OR REPLACE INTO buckets"
                " (ns, entity_id, resource, rf, events, hour, terms, tokens, carried, born, expires_ms)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (self.ns, *key, *numbers, carried, bucket.born, expires),
            )
        if bucket.retired or not bucket.is_plain:
            self.row_cache.forget(key)
        else:
            self.row_cache[key] = CachedRow(bucket, terms, tokens, expires)

    def drop_bucket(self, bucket: Bucket) -> None:
        self.connection.execute(
            "DELETE FROM buckets WHERE ns = ? AND entity_id = ? AND resource = ?",
            (self.ns, bucket.entity_id, bucket.resource),
        )

    def buckets_of(self, entity_id: str) -> list[Bucket]:
        return self._buckets("entity_id = ? ORDER BY resource", entity_id)

    def buckets(self, after: tuple[str, str] | None, count: int) -> list[Bucket]:
        where = "(entity_id, resource) > (?, ?) ORDER BY entity_id, resource LIMIT ?"
        return self._buckets(where, *(after or ("", "")), count)

    def buckets_on(self, resource: str, after: str | None, count: int) -> list[Bucket]:
        where = "resource = ? AND entity_id > ? ORDER BY entity_id LIMIT ?"
        return self._buckets(where, resource, after or "", count)

    def _buckets(self, where: str, *values: Any) -> list[Bucket]:
        rows = self._all(f"SELECT {_BUCKET} FROM buckets WHERE ns = ? AND {where}", self.ns, *values)
        return [bucket_from_row(row) for row in rows]

    # Usage

    def open_usage(self, bucket: Bucket, hour: int, start: Counters) -> int:
        last = self.last_usage(bucket.entity_id, bucket.resource)
        if last is not None and last.hour >= hour:
            self._end_usage(bucket, last.hour, None)
            return last.hour
        self.connection.execute(
            "INSERT INTO usage (ns, entity_id, resource, hour, start) VALUES (?, ?, ?, ?, ?)",
            (self.ns, bucket.entity_id, bucket.resource, hour, counters_to_text(begin_hour(bucket, start))),
        )
        return hour

    def close_usage(self, bucket: Bucket, end: Counters) -> None:
        self._end_usage(bucket, bucket.hour, counters_to_text(end))

    def _end_usage(self, bucket: Bucket, hour: int, end: str | None) -> None:
        self.connection.execute(
            "UPDATE usage SET end = ? WHERE ns = ? AND entity_id = ? AND resource = ? AND hour = ?",
            (end, self.ns, bucket.entity_id, bucket.resource, hour),
        )

    def last_usage(self, entity_id: str, resource: str) -> UsageRow | None:
        row = self._one(
            f"SELECT {_USAGE} FROM usage WHERE ns = ? AND entity_id = ? AND resource = ? ORDER BY hour DESC LIMIT 1",
            *(self.ns, entity_id, resource),
        )
        return None if row is None else usage_from_row(row)

    def usage_rows(self, entity_id: str, resource: str, start: int, end: int) -> list[UsageRow]:
        rows = self._all(
            f"SELECT {_USAGE} FROM usage WHERE ns = ? AND entity_id = ? AND resource = ?"
            " AND hour >= ? AND hour < ? ORDER BY hour",
            *(self.ns, entity_id, resource, start, end),
        )
        return [usage_from_row(row) for row in rows]

    def usage_pairs(
        self, entity_id: str | None, resource: str | None, after: tuple[str, str] | None, count: int
    ) -> list[tuple[str, str]]:
        last = after or ("", "")
        if entity_id is not None and resource is not None:
            found = (entity_id, resource) > last and self.last_usage(entity_id, resource) is not None
            return [(entity_id, resource)] if found else []
        where, values = ("(entity_id, resource) > (?, ?)", last)
        if entity_id is not None:
            where, values = ("entity_id = ? AND resource > ?", (entity_id, last[1]))
        elif resource is not None:
            where, values = ("resource = ? AND entity_id > ?", (resource, last[0]))
        return self._all(
            f"SELECT DISTINCT entity_id, resource FROM usage WHERE ns = ? AND {where}"
            " ORDER BY entity_id, resource LIMIT ?",
            *(self.ns, *values, count),
        )

    # Records of leases

    def lease_slot(self, record_id: str) -> LeaseSlot:
        row = self._one(f"SELECT {_LEASE} FROM leases WHERE ns = ? AND id = ?", self.ns, record_id)
        return LeaseSlot(None if row is None else lease_from_row(row))

    def put_lease(self, slot: LeaseSlot, record: LeaseRecord) -> None:
        self.connection.execute(
            f"INSERT OR REPLACE INTO leases (ns, entity_id, {_LEASE}) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                *(self.ns, record.entity_id, record.id, record.state, record.version, record.expires_at),
                record_to_text(record),
            ),
        )

    def lease_records(self, entity_id: str | None, after: str | None, count: int, now: int) -> list[LeaseRecord]:
        whose = "" if entity_id is None else " AND entity_id = ?"
        rows = self._all(
            f"SELECT {_LEASE} FROM leases WHERE ns = ?{whose} AND id > ? AND expires_ms > ? AND state <> ?"
            " ORDER BY id LIMIT ?",
            *(self.ns, *(() if entity_id is None else (entity_id,)), after or "", now, RecordState.DONE, count),
        )
        return [lease_from_row(row) for row in rows]

    # Pulses

    def put_pulse(self, process: str, text: str, expires_at: int, now: int) -> None:
        expired = self._all("SELECT ns, process FROM pulses WHERE ns = ? AND expires_ms <= ?", self.ns, now)
        self.connection.executemany("DELETE FROM pulses WHERE ns = ? AND process = ?", expired)
        self.connection.execute(
            "INSERT OR REPLACE INTO pulses (ns, process, expires_ms, body) VALUES (?, ?, ?, ?)",
            (self.ns, process, expires_at, text),
        )

    def pulses(self, most: int, now: int) -> list[str]:
        query = "SELECT body FROM pulses WHERE ns = ? AND expires_ms > ? ORDER BY expires_ms DESC LIMIT ?"
        return [str(body) for (body,) in self._all(query, self.ns, now, most)]

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
        added = self.connection.execute(
            "INSERT INTO audit (ns, event_id, at_ms, subject, action, resource, principal, details)"
            " VALUES (?, '', ?, ?, ?, ?, ?, ?)",
            (self.ns, now, subject, action, resource, principal, to_json(dict(details))),
        )
        serial = added.lastrowid or 0
        self.connection.execute("UPDATE audit SET event_id = ? WHERE serial = ?", (ulid(now, serial), serial))

    def audit(
        self, subject: str | None, start: int | None, end: int | None, before: str | None, count: int
    ) -> list[AuditEvent]:
        conditions: list[tuple[str, Any]] = [("ns = ?", self.ns)]
        if subject is not None:
            conditions.append(("subject = ?", subject))
        if start is not None:
            conditions.append(("event_id >= ?", ulid(start, 0)))
        if end is not None:
            conditions.append(("event_id < ?", ulid(end, 0)))
        if before is not None:
            conditions.append(("event_id < ?", before))
        where = " AND ".join(condition for condition, _ in conditions)
        rows = self._all(
            f"SELECT {_AUDIT} FROM audit WHERE {where} ORDER BY event_id DESC LIMIT ?",
            *(value for _, value in conditions),
            count,
        )
        return [audit_from_row(row) for row in rows]

    def _one(self, statement: str, *values: Any) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = self.connection.execute(statement, values).fetchone()
        return row

    def _all(self, statement: str, *values: Any) -> list[Any]:
        return self.connection.execute(statement, values).fetchall()


def expired_buckets(connection: sqlite3.Connection, now: int, count: int) -> list[tuple[int, Bucket]]:
    """Buckets of any namespace that have long been full again, each with the number of its namespace."""
    rows = connection.execute(f"SELECT ns, {_BUCKET} FROM buckets WHERE expires_ms < ? LIMIT ?", (now, count))
    return [(ns, bucket_from_row(row)) for ns, *row in rows.fetchall()]


def _marks(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values))


def _place(scope: Scope) -> tuple[str, str]:
    """Where a scope's row stands: the system's under two empty names, a resource's under one."""
    return scope.entity_id or "", scope.resource or ""
