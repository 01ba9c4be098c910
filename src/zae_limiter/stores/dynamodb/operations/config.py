"""Limits at four levels. Each level is one item with a counter that grows with every change.

A level that was told to say nothing keeps its item as a tombstone, so that no counter is ever given twice: buckets
carry these counters, and obey only the newest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zae_limiter.models.choices import OnUnavailable
from zae_limiter.models.limit import Limit
from zae_limiter.models.reports import Page
from zae_limiter.running.plan import Plan
from zae_limiter.stores.audit_events import change_told, level_told
from zae_limiter.stores.cursors import page_of
from zae_limiter.stores.dynamodb.expressions import NEW, Expected, Write, put
from zae_limiter.stores.dynamodb.items import access_attributes, config_attributes, config_of, decoder
from zae_limiter.stores.dynamodb.namespace import Namespace
from zae_limiter.stores.dynamodb.operations.audit import AuditEntry, audited
from zae_limiter.stores.dynamodb.operations.paging import (
    fetched_rows_of,
    names_after,
    partition,
    position,
    whole_namespace,
)
from zae_limiter.stores.dynamodb.operations.propagate import Propagation
from zae_limiter.stores.dynamodb.requests import Item
from zae_limiter.stores.dynamodb.schema import (
    GSI3,
    Key,
    config_filed_as,
    config_key,
    gsi1_access,
    gsi3_config,
    gsi4,
)
from zae_limiter.stores.dynamodb.table_client import Deadline, commit, persist, verb
from zae_limiter.stores.protocol import Config, Scope, check_version

TOMBSTONE = "TOMB"
"""How the index of the whole namespace files what only keeps a counter."""


class Configs:
    """The verbs on limits."""

    def __init__(self, namespace: Namespace, propagation: Propagation) -> None:
        self.namespace = namespace
        self.client = namespace.client
        self.propagation = propagation

    @verb
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
        """Replace what one level says. A policy that was set stays when none is given."""
        deadline = yield from self.client.new_deadline()
        ns = yield from self.namespace.checked_ns(deadline)
        now, _ = yield from self.namespace.checked_time(now, deadline)
        had_limits = True

        def attempt(deadline: Deadline) -> Plan[None]:
            nonlocal had_limits
            before = yield from self._config(ns, scope, deadline)
            check_version(scope, before, expected)
            had_limits = had_limits and bool(before.limits)  # a second try may find what the first has set
            config = Config(limits, on_unavailable or before.on_unavailable, before.version + 1, before.access)
            told = change_told(level_told(before), level_told(config))
            entry = AuditEntry(scope.audited_as, "limits_set", scope.resource, principal, told)
            writes = [
                config_write(self.client.table, ns, scope, config),
                audited(self.client, ns, entry, now, deadline),
            ]
            yield from commit(self.client, writes, deadline)

        yield from persist(self.client, attempt)
        if propagate:
            yield from self.propagation.propagate(ns, scope, now)
            if not had_limits and scope.entity_id is not None:
                yield from self.propagation.rewrite_buckets_below(ns, scope.entity_id, now, scope=scope)

    @verb
    def get_config(self, scope: Scope) -> Plan[Config]:
        """What one level says; empty if nothing."""
        ns = yield from self.namespace.checked_ns()
        deadline = yield from self.client.new_deadline()
        return (yield from self._config(ns, scope, deadline))

    @verb
    def delete_config(
        self, scope: Scope, principal: str | None, propagate: bool, now: int, expected: str | None = None
    ) -> Plan[None]:
        """Let one level say nothing."""
        deadline = yield from self.client.new_deadline()
        ns = yield from self.namespace.checked_ns(deadline)
        now, _ = yield from self.namespace.checked_time(now, deadline)

        def attempt(deadline: Deadline) -> Plan[bool]:
            before = yield from self._config(ns, scope, deadline)
            check_version(scope, before, expected)
            if not (before.limits or before.on_unavailable):
                return False
            grave = Config((), None, before.version + 1, before.access)
            told = change_told(level_told(before), None)
            entry = AuditEntry(scope.audited_as, "limits_deleted", scope.resource, principal, told)
            writes = [
                config_write(self.client.table, ns, scope, grave),
                audited(self.client, ns, entry, now, deadline),
            ]
            yield from commit(self.client, writes, deadline)
            return True

        deleted = yield from persist(self.client, attempt)
        if deleted and propagate:
            yield from self.propagation.propagate(ns, scope, now)

    @verb
    def resources_with_defaults(self, limit: int, cursor: str | None) -> Plan[Page[str]]:
        """Resources that have limits of their own."""
        ns = yield from self.namespace.checked_ns()
        names = whole_namespace(self.client, ns, between=names_after("RESOURCE#", position(cursor)))
        rows = yield from fetched_rows_of(self.client, names, limit, resource_if_limited)
        return page_of(rows, limit, lambda name: (name,))

    @verb
    def entities_with_custom_limits(self, resource: str, limit: int, cursor: str | None) -> Plan[Page[str]]:
        """Entities that have limits of their own for a resource."""
        ns = yield from self.namespace.checked_ns()
        pk = gsi3_config(ns, resource, "")["GSI3PK"]
        names = partition(self.client, pk, names_after("", position(cursor)), index=GSI3)
        rows = yield from fetched_rows_of(self.client, names, limit, entity_if_limited)
        return page_of(rows, limit, lambda name: (name,))

    def _config(self, ns: str, scope: Scope, deadline: Deadline) -> Plan[Config]:
        item = yield from self.client.get(place_of(ns, scope), deadline)
        return config_of(item)


def place_of(ns: str, scope: Scope) -> Key:
    """Where a level's config is."""
    return config_key(ns, scope.entity_id, scope.resource)


def says_something(config: Config) -> bool:
    """Whether a level has limits, a policy or an access switch."""
    return bool(config.limits or config.on_unavailable or config.access)


def config_write(table: str, ns: str, scope: Scope, config: Config) -> Write:
    """The write that lets a level say ``config``, if it still is at the version before."""
    before = config.version - 1
    expected: Expected = {"config_version": before} if before else NEW
    return put(table, place_of(ns, scope), _attributes(ns, scope, config), expected)


def _attributes(ns: str, scope: Scope, config: Config) -> Mapping[str, Any]:
    policy = config.on_unavailable
    attributes: dict[str, Any] = {
        "entity_id": scope.entity_id,
        "resource": scope.resource,
        "on_unavailable": None if policy is None else str(policy),
        "config_version": config.version,
        **config_attributes(config.limits),
        **access_attributes(config.access),
        **gsi4(ns, place_of(ns, scope).pk, _filed_as(scope, config)),
    }
    if scope.entity_id is not None and scope.resource is not None and config.limits:
        attributes |= gsi3_config(ns, scope.resource, scope.entity_id)
    if scope.entity_id is not None and scope.resource is not None and config.access is not None:
        attributes |= gsi1_access(ns, scope.entity_id, scope.resource)
    return attributes


def _filed_as(scope: Scope, config: Config) -> str:
    if not says_something(config):
        return TOMBSTONE
    if scope.entity_id is not None:
        return config_filed_as(scope.entity_id, str(scope.resource))
    return "SYSTEM" if scope.resource is None else f"RESOURCE#{scope.resource}"


@decoder("a config")
def resource_if_limited(item: Item) -> str | None:
    """The resource that a config is of, if it has limits."""
    return item["resource"]["S"] if config_of(item).limits else None


@decoder("a config")
def entity_if_limited(item: Item) -> str | None:
    """The entity that a config is of, if it has limits."""
    return item["entity_id"]["S"] if config_of(item).limits else None
