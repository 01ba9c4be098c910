"""Entities and limits: what is configured."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Protocol

from zae_limiter.exceptions import EntityChangedError, EntityExistsError, EntityNotFoundError
from zae_limiter.models.choices import OnUnavailable
from zae_limiter.models.entity import Entity
from zae_limiter.models.limit import Limit
from zae_limiter.models.reports import CacheStats, Page
from zae_limiter.running.plan import Plan
from zae_limiter.stores.audit_events import change_told, deletion_told, description, fields_told, level_told
from zae_limiter.stores.cursors import name_after, page_of
from zae_limiter.stores.embedded.tables import SharedTables, Transacting, reads, scans, writes
from zae_limiter.stores.protocol import Config, EntityChange, Resolution, Scope, check_version
from zae_limiter.stores.refusals import has_children, own_ancestor
from zae_limiter.stores.windows import counted

logger = logging.getLogger("zae_limiter")


class Propagating(Transacting, Protocol):
    """Lets live buckets follow a change of limits."""

    def _propagate(self, scope: Scope, now: int) -> Plan[None]: ...


class ConfigVerbs(Propagating):
    """The verbs on entities and limits."""

    @writes
    def create_entity(self, tables: SharedTables, entity: Entity, principal: str | None, now: int) -> Entity:
        if tables.entity(entity.id) is not None:
            raise EntityExistsError(entity.id)
        check_parent(tables, entity.id, entity.parent_id)
        tables.put_entity(entity)
        tables.advance_epoch()
        tables.add_audit(entity.id, "entity_created", None, principal, change_told(None, description(entity)), now)
        return entity

    @reads
    def get_entity(self, tables: SharedTables, entity_id: str) -> Entity:
        return existing(tables, entity_id)

    @writes
    def update_entity(
        self, tables: SharedTables, entity_id: str, change: EntityChange, principal: str | None, now: int
    ) -> Entity:
        entity = existing(tables, entity_id)
        if change.expected_version not in (None, entity.version):
            raise EntityChangedError(entity_id, change.expected_version, entity.version)
        updated = replace(entity, **change.fields, version=entity.version + 1)
        if updated.parent_id != entity.parent_id:
            check_parent(tables, entity_id, updated.parent_id)
        tables.put_entity(updated)
        tables.advance_epoch()
        tables.add_audit(entity_id, "entity_updated", None, principal, fields_told(entity, change.fields), now)
        return updated

    @writes
    def delete_entity(self, tables: SharedTables, entity_id: str, principal: str | None, now: int) -> None:
        entity = tables.entity(entity_id)
        buckets = tables.buckets_of(entity_id)
        scopes = tables.scopes_of(entity_id)
        if entity is None and not buckets and not scopes:
            raise EntityNotFoundError(entity_id)
        if tables.children(entity_id, None, 1):
            raise has_children(entity_id)
        for bucket in buckets:
            tables.close_usage(bucket, counted(bucket))
            tables.drop_bucket(bucket)
        said = {str(scope.resource): tables.config(scope) for scope in scopes}
        levels = {resource: config for resource, config in said.items() if config}
        for scope in scopes:
            tables.drop_config(scope)
        tables.drop_entity(entity_id)
        tables.advance_epoch()
        tables.add_audit(
            entity_id, "entity_deleted", None, principal, deletion_told(entity, levels, len(buckets)), now
        )

    @scans
    def children(self, tables: SharedTables, parent_id: str, limit: int, cursor: str | None) -> Page[Entity]:
        rows = tables.children(parent_id, name_after(cursor), limit + 1)
        return page_of(rows, limit, lambda entity: (entity.id,))

    @scans
    def entities(self, tables: SharedTables, limit: int, cursor: str | None) -> Page[Entity]:
        rows = tables.entities(name_after(cursor), limit + 1)
        return page_of(rows, limit, lambda entity: (entity.id,))

    def set_config(
        self,
        scope: Scope,
        limits: tuple[Limit, ...],
        on_unavailable: OnUnavailable | None,
        principal: str | None,
        propagate: bool,
        now: int,
        expected: str | None = None,
    ) -> Plan[None]:
        yield from self._put_config(scope, limits, on_unavailable, principal, now, expected)
        if propagate:
            yield from self._propagate(scope, now)

    @writes
    def _put_config(
        self,
        tables: SharedTables,
        scope: Scope,
        limits: tuple[Limit, ...],
        on_unavailable: OnUnavailable | None,
        principal: str | None,
        now: int,
        expected: str | None,
    ) -> None:
        before = tables.config(scope) or Config()
        check_version(scope, before, expected)
        policy = on_unavailable or before.on_unavailable
        after = Config(limits, policy, before.version + 1, before.access)
        tables.put_config(scope, after)
        tables.advance_epoch()
        told = change_told(level_told(before), level_told(after))
        tables.add_audit(scope.audited_as, "limits_set", scope.resource, principal, told, now)

    @reads
    def get_config(self, tables: SharedTables, scope: Scope) -> Config:
        return tables.config(scope) or Config()

    def delete_config(
        self, scope: Scope, principal: str | None, propagate: bool, now: int, expected: str | None = None
    ) -> Plan[None]:
        deleted = yield from self._forget_config(scope, principal, now, expected)
        if deleted and propagate:
            yield from self._propagate(scope, now)

    @writes
    def _forget_config(
        self, tables: SharedTables, scope: Scope, principal: str | None, now: int, expected: str | None
    ) -> bool:
        before = tables.config(scope) or Config()
        check_version(scope, before, expected)
        if not (before.limits or before.on_unavailable):
            return False
        if before.access is None:
            tables.drop_config(scope)
        else:
            tables.put_config(scope, Config(version=before.version + 1, access=before.access))
        tables.advance_epoch()
        told = change_told(level_told(before), None)
        tables.add_audit(scope.audited_as, "limits_deleted", scope.resource, principal, told, now)
        return True

    @reads
    def resolve(self, tables: SharedTables, entity_id: str, resource: str) -> Resolution:
        system = tables.config(Scope()) or Config()
        leg = tables.routes.leg(tables, entity_id, resource)
        if leg is None:
            return Resolution(None, system.on_unavailable, None)
        return Resolution(list(leg.limits), system.on_unavailable, leg.source)

    @scans
    def resources_with_defaults(self, tables: SharedTables, limit: int, cursor: str | None) -> Page[str]:
        rows = tables.resources_with_limits(name_after(cursor), limit + 1)
        return page_of(rows, limit, lambda name: (name,))

    @scans
    def entities_with_custom_limits(
        self, tables: SharedTables, resource: str, limit: int, cursor: str | None
    ) -> Page[str]:
        rows = tables.entities_with_limits(resource, name_after(cursor), limit + 1)
        return page_of(rows, limit, lambda name: (name,))

    def invalidate_config_cache(self) -> None:
        """Nothing to forget: what was resolved is checked against the epoch in every transaction."""

    def cache_stats(self) -> CacheStats:
        return CacheStats(hits=0, misses=0, size=0, ttl_seconds=0)


def existing(tables: SharedTables, entity_id: str) -> Entity:
    """The entity, or the error that it is not there."""
    entity = tables.entity(entity_id)
    if entity is None:
        raise EntityNotFoundError(entity_id)
    return entity


def check_parent(tables: SharedTables, entity_id: str, parent_id: str | None) -> None:
    """Refuse a parent that does not exist or is a descendant."""
    ancestor_id = parent_id
    while ancestor_id is not None:
        if ancestor_id == entity_id:
            raise own_ancestor(entity_id, parent_id)
        ancestor_id = existing(tables, ancestor_id).parent_id
