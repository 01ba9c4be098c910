"""What is said at a level: limits and an access switch, set, read and listed.

Each level of limits is one item with a counter that grows with every change.

A level that was told to say nothing keeps its item as a tombstone, so that no counter is ever given twice: buckets
carry these counters, and obey only the newest.

The access switch of an entity stands in its config, and is obeyed like a changed limit: the counter grows, and the
live buckets that carry it follow. The switches of the system and of resources concern any number of buckets, and stand
in one item that every process watches (:class:`AccessWatch`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.access import Access, live
from zae_limiter.models.choices import OnUnavailable
from zae_limiter.models.limit import Limit
from zae_limiter.models.reports import Page
from zae_limiter.naming import DEFAULT_RESOURCE
from zae_limiter.running.plan import Plan
from zae_limiter.stores.audit_events import access_told, change_told, level_told
from zae_limiter.stores.cursors import page_of, place_after
from zae_limiter.stores.dynamodb.config_resolver import HIGHEST_TREE
from zae_limiter.stores.dynamodb.expressions import NEW, Expected, Write, put
from zae_limiter.stores.dynamodb.items import access_attributes, config_attributes, config_of, decoder, route_of
from zae_limiter.stores.dynamodb.namespace import (
    MOST_WIDE_SWITCHES,
    AccessWatch,
    Namespace,
    Switches,
    switches_attributes,
)
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
    GSI1,
    GSI3,
    SK_CONFIG,
    SK_META,
    Key,
    access_key,
    config_filed_as,
    config_key,
    gsi1_access,
    gsi3_config,
    gsi4,
    meta_key,
    pk_entity,
)
from zae_limiter.stores.dynamodb.table_client import Deadline, commit, persist, verb
from zae_limiter.stores.protocol import Config, Scope, access_scope, check_version

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


LONGEST_NAME = 512


class AccessSwitches:
    """The verbs on access switches."""

    def __init__(self, namespace: Namespace, watch: AccessWatch, propagation: Propagation) -> None:
        self.namespace = namespace
        self.client = namespace.client
        self.watch = watch
        self.propagation = propagation

    @verb
    def set_access(self, scope: Scope, access: Access | None, principal: str | None, now: int) -> Plan[None]:
        """Turn the switch of one level. An entity's holds when this returns, a wide one within five seconds."""
        deadline = yield from self.client.new_deadline()
        ns = yield from self.namespace.checked_ns(deadline)
        now, _ = yield from self.namespace.checked_time(now, deadline)
        if scope.entity_id is None:
            yield from self._set_wide(ns, scope, access, principal, now)
        else:
            yield from self._set_on_entity(ns, scope, access, principal, now)

    def _set_on_entity(
        self, ns: str, scope: Scope, access: Access | None, principal: str | None, now: int
    ) -> Plan[None]:
        has_limits = True

        def attempt(deadline: Deadline) -> Plan[None]:
            nonlocal has_limits
            before = config_of((yield from self.client.get(place_of(ns, scope), deadline)))
            has_limits = bool(before.limits)
            if before.access == access:
                return
            config = replace(before, version=before.version + 1, access=access)
            entry = self._entry(scope, before.access, access, principal)
            writes = [
                config_write(self.client.table, ns, scope, config),
                audited(self.client, ns, entry, now, deadline),
            ]
            yield from commit(self.client, writes, deadline)

        yield from persist(self.client, attempt)
        assert scope.entity_id is not None
        yield from self.propagation.propagate(ns, scope, now)
        if not has_limits:  # perhaps it has no bucket: those of its descendants tell for it
            yield from self.propagation.rewrite_buckets_below(ns, scope.entity_id, now, scope=scope)

    def _set_wide(self, ns: str, scope: Scope, access: Access | None, principal: str | None, now: int) -> Plan[None]:
        name = scope.resource or ""

        def attempt(deadline: Deadline) -> Plan[None]:
            version, before = yield from self.watch.look(deadline, consistent=True)
            if before.get(name) == access:
                return
            after = {other: switch for other, switch in before.items() if other != name and switch.holds_at(now)}
            if access is not None:
                after[name] = access
            if len(after) > MOST_WIDE_SWITCHES:
                reason = f"is one more than the {MOST_WIDE_SWITCHES} resources that may have a switch of their own"
                raise ValidationError("resource", scope.resource, reason)
            entry = self._entry(scope, before.get(name), access, principal)
            writes = [self._wide_write(ns, version, after), audited(self.client, ns, entry, now, deadline)]
            yield from commit(self.client, writes, deadline)
            yield from self.watch.look(deadline, consistent=True)

        yield from persist(self.client, attempt)

    def _wide_write(self, ns: str, version: int, switches: Switches) -> Write:
        key = access_key(ns)
        expected: Expected = {"access_version": version} if version else NEW
        attributes = switches_attributes(version + 1, switches) | gsi4(ns, key.pk, "ACCESS")
        return put(self.client.table, key, attributes, expected)

    def _entry(self, scope: Scope, before: Access | None, after: Access | None, principal: str | None) -> AuditEntry:
        told = change_told(access_told(before), access_told(after))
        return AuditEntry(scope.audited_as, "access_set", scope.resource, principal, told)

    @verb
    def get_access(self, scope: Scope) -> Plan[Access | None]:
        """What the switch of one level says."""
        ns = yield from self.namespace.checked_ns()
        deadline = yield from self.client.new_deadline()
        if scope.entity_id is None:
            _, switches = yield from self.watch.look(deadline, consistent=True)
            return switches.get(scope.resource or "")
        return config_of((yield from self.client.get(place_of(ns, scope), deadline))).access

    @verb
    def switches(self, limit: int, cursor: str | None) -> Plan[Page[Access]]:
        """Every switch: the wide ones first, then those of entities."""
        ns = yield from self.namespace.checked_ns()
        entity_id, resource = place_after(cursor) or ("", "")
        if max(len(entity_id), len(resource)) > LONGEST_NAME:
            raise ValidationError("cursor", cursor, "must be the next_cursor of a page of this same list")
        rows: list[Access] = []
        if not entity_id:
            deadline = yield from self.client.new_deadline()
            _, wide = yield from self.watch.look(deadline, consistent=True)
            rows = [wide[name] for name in sorted(wide) if cursor is None or name > resource]
        if len(rows) <= limit:
            after = f"{entity_id}#{resource}" if entity_id else None
            pk = gsi1_access(ns, "", "")["GSI1PK"]
            names = partition(self.client, pk, names_after("SWITCH#", after), index=GSI1)
            rows += yield from fetched_rows_of(self.client, names, limit - len(rows), access_in)
        return page_of(rows, limit, _position)

    @verb
    def access_of(self, entity_id: str, resource: str | None, now: int) -> Plan[tuple[Access, ...]]:
        """The live switches that concern an entity, the one that decides first."""
        deadline = yield from self.client.new_deadline()
        ns = yield from self.namespace.ns(deadline)
        return (yield from self.switches_of(ns, entity_id, resource, now, deadline))

    def switches_of(
        self, ns: str, entity_id: str, resource: str | None, now: int, deadline: Deadline
    ) -> Plan[tuple[Access, ...]]:
        """Likewise, read as they are."""
        found: list[Access] = []
        current: str | None = entity_id
        for _ in range(HIGHEST_TREE):
            if current is None:
                break
            items = yield from self._of_entity(ns, current, resource, deadline)
            current = None
            for item in items:
                if item["SK"]["S"] != SK_META:
                    access = config_of(item).access
                    found += () if access is None else (access,)
                elif (route := route_of(item)).cascade:
                    current = route.parent_id
        _, wide = yield from self.watch.look(deadline, consistent=True)
        found += [wide[name] for name in (resource or "", "") if name in wide]
        return live(dict.fromkeys(found), now)

    def _of_entity(self, ns: str, entity_id: str, resource: str | None, deadline: Deadline) -> Plan[list[Item]]:
        """An entity, and its configs that concern a resource, by their keys as an acquire reads them; or all."""
        if resource is None:
            return (yield from self.client.query_all(pk_entity(ns, entity_id), between=(SK_CONFIG, SK_META)))
        configs = [config_key(ns, entity_id, name) for name in dict.fromkeys((resource, DEFAULT_RESOURCE))]
        items = yield from self.client.get_all((*configs, meta_key(ns, entity_id)), deadline)
        return list(items.values())


@decoder("a config")
def access_in(item: Item) -> Access | None:
    """The switch in a config."""
    return config_of(item).access


def _position(access: Access) -> tuple[str, str]:
    scope = access_scope(access.entity_id, access.resource)
    return scope.entity_id or "", scope.resource or ""
