"""Entities and who their parents are.

**Counters.** An entity's item has a public ``version``, and a ``config_version`` that buckets carry: it grows with
whatever a bucket must notice (another parent, another cascade, a new life) and is kept as a tombstone when the
entity is deleted. ``children`` counts those it is the parent of, so that one with children is never deleted.

**No cycles.** Only a change of parent could make one. It walks up from the new parent with consistent reads, and its
transaction demands that every ancestor it met is still as it was. So of two changes that would close a circle
together, one is refused, looks again, and finds the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from zae_limiter.exceptions import EntityChangedError, EntityExistsError, EntityNotFoundError, ValidationError
from zae_limiter.models.entity import Entity
from zae_limiter.models.moments import LAST_MOMENT_MS, at, milliseconds_at
from zae_limiter.models.reports import Page
from zae_limiter.naming import DEFAULT_RESOURCE
from zae_limiter.running.plan import Plan
from zae_limiter.stores.audit_events import change_told, deletion_told, description, fields_told
from zae_limiter.stores.cursors import page_of
from zae_limiter.stores.dynamodb.expressions import ABSENT, EXISTING, NEW, PRESENT, Expected, Write, check, put, update
from zae_limiter.stores.dynamodb.items import config_of, decoder, key_of, unless_broken, version_in
from zae_limiter.stores.dynamodb.namespace import Namespace
from zae_limiter.stores.dynamodb.operations.audit import AuditEntry, as_json, audited
from zae_limiter.stores.dynamodb.operations.config import TOMBSTONE, config_write, place_of, says_something
from zae_limiter.stores.dynamodb.operations.paging import (
    FIRST,
    LAST,
    fetch,
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
    decode,
    gsi1,
    gsi4,
    meta_key,
    number_in,
    pk_entity,
    sk_config,
)
from zae_limiter.stores.dynamodb.table_client import WRITES_AT_ONCE, Deadline, Overtaken, commit, persist, verb
from zae_limiter.stores.protocol import Config, EntityChange, Scope
from zae_limiter.stores.refusals import has_children, own_ancestor

MOST_ANCESTORS = WRITES_AT_ONCE - 3
"""How many ancestors one transaction can watch, beside the entity, its old parent and the audit event."""

GRAVES_AT_ONCE = 50
"""How many configs of a deleted entity are buried in one transaction."""

LOOKED_AT_ONCE = 500

MOST_METADATA_BYTES = 300_000
"""An item, and the audit event that repeats the metadata, may have 400 KB."""

LIVE: Expected = {"PK": PRESENT, "deleted": ABSENT}


class Entities:
    """The verbs on entities."""

    def __init__(self, namespace: Namespace, propagation: Propagation) -> None:
        self.namespace = namespace
        self.client = namespace.client
        self.propagation = propagation

    @verb
    def create_entity(self, entity: Entity, principal: str | None, now: int) -> Plan[Entity]:
        """A new entity. One that was deleted lives again, as another."""
        deadline = yield from self.client.new_deadline()
        ns = yield from self.namespace.checked_ns(deadline)
        now, _ = yield from self.namespace.checked_time(now, deadline)
        check_size(entity.metadata)
        yield from persist(self.client, lambda deadline: self._create(ns, entity, principal, now, deadline))
        yield from self.propagation.rewrite_buckets_of(ns, entity.id, now)
        return entity

    @verb
    def get_entity(self, entity_id: str) -> Plan[Entity]:
        """An entity that exists."""
        ns = yield from self.namespace.checked_ns()
        deadline = yield from self.client.new_deadline()
        return entity_of((yield from self._existing(ns, entity_id, deadline)))

    @verb
    def update_entity(self, entity_id: str, change: EntityChange, principal: str | None, now: int) -> Plan[Entity]:
        """Change some fields."""
        deadline = yield from self.client.new_deadline()
        ns = yield from self.namespace.checked_ns(deadline)
        now, _ = yield from self.namespace.checked_time(now, deadline)
        check_size(change.fields.get("metadata", {}))
        before, after = yield from persist(
            self.client, lambda deadline: self._update(ns, entity_id, change, principal, now, deadline)
        )
        if another_route(before, after):
            yield from self.propagation.rewrite_buckets_of(ns, entity_id, now)
            yield from self.propagation.rewrite_buckets_below(ns, entity_id, now)
        return after

    @verb
    def delete_entity(self, entity_id: str, principal: str | None, now: int) -> Plan[None]:
        """Remove the entity, its buckets and its limits."""
        deadline = yield from self.client.new_deadline()
        ns = yield from self.namespace.checked_ns(deadline)
        now, _ = yield from self.namespace.checked_time(now, deadline)
        buckets = yield from self._count_buckets(ns, entity_id)
        scopes = yield from persist(
            self.client, lambda deadline: self._delete(ns, entity_id, buckets, principal, now, deadline)
        )
        for start in range(GRAVES_AT_ONCE, len(scopes), GRAVES_AT_ONCE):
            yield from persist(self.client, partial(self._bury, ns, scopes[start : start + GRAVES_AT_ONCE]))
        configured = [scope.resource for scope in scopes if scope.resource not in (None, DEFAULT_RESOURCE)]
        yield from self.propagation.drop_buckets_of(ns, entity_id, now, configured)

    @verb
    def children(self, parent_id: str, limit: int, cursor: str | None) -> Plan[Page[Entity]]:
        """Entities by parent, in the order of their ids."""
        ns = yield from self.namespace.checked_ns()
        pk = gsi1(ns, parent_id, "")["GSI1PK"]
        keys = partition(self.client, pk, names_after("CHILD#", position(cursor)), index=GSI1)

        def child(item: Item) -> Entity | None:
            entity = live_entity(item)
            return entity if entity is not None and entity.parent_id == parent_id else None

        rows = yield from fetched_rows_of(self.client, keys, limit, child)
        return page_of(rows, limit, lambda entity: (entity.id,))

    @verb
    def entities(self, limit: int, cursor: str | None) -> Plan[Page[Entity]]:
        """All entities, in the order of their ids."""
        ns = yield from self.namespace.checked_ns()
        keys = whole_namespace(self.client, ns, between=names_after("ENTITY#", position(cursor)))
        rows = yield from fetched_rows_of(self.client, keys, limit, live_entity)
        return page_of(rows, limit, lambda entity: (entity.id,))

    # One try each

    def _create(self, ns: str, entity: Entity, principal: str | None, now: int, deadline: Deadline) -> Plan[None]:
        own = meta_key(ns, entity.id)
        parent = None if entity.parent_id is None else meta_key(ns, entity.parent_id)
        found = yield from self.client.get_all([own, *([parent] if parent else [])], deadline)
        item = found.get(own)
        if is_live(item):
            raise EntityExistsError(entity.id)
        if entity.parent_id == entity.id:
            raise own_ancestor(entity.id, entity.id)
        if parent is not None and not is_live(found.get(parent)):
            raise EntityNotFoundError(str(entity.parent_id))
        version = 0 if item is None else config_version_of(item)
        expected = NEW if item is None else {"config_version": version, "deleted": True}
        entry = AuditEntry(entity.id, "entity_created", None, principal, change_told(None, description(entity)))
        writes = [
            put(self.client.table, own, new_entity_attributes(ns, entity, version + 1), expected),
            audited(self.client, ns, entry, now, deadline),
        ]
        if parent is not None:
            writes.append(update(self.client.table, parent, LIVE, adds={"children": 1}))
        yield from commit(self.client, writes, deadline)

    def _update(
        self, ns: str, entity_id: str, change: EntityChange, principal: str | None, now: int, deadline: Deadline
    ) -> Plan[tuple[Entity, Entity]]:
        item = yield from self._existing(ns, entity_id, deadline)
        before = entity_of(item)
        if change.expected_version not in (None, before.version):
            raise EntityChangedError(entity_id, change.expected_version, before.version)
        after = replace(before, **change.fields, version=before.version + 1)
        expected = {"version": before.version, "config_version": config_version_of(item), "deleted": ABSENT}
        sets = {**description(after), **filing(ns, after), "version": after.version}
        adds = {"config_version": 1} if another_route(before, after) else {}
        entry = AuditEntry(entity_id, "entity_updated", None, principal, fields_told(before, change.fields))
        writes = [
            update(self.client.table, meta_key(ns, entity_id), expected, sets=sets, adds=adds),
            audited(self.client, ns, entry, now, deadline),
            *(yield from self._new_parent(ns, before, after, deadline)),
        ]
        yield from commit(self.client, writes, deadline)
        return before, after

    def _new_parent(self, ns: str, before: Entity, after: Entity, deadline: Deadline) -> Plan[list[Write]]:
        """What a change of parent writes to the ancestors: counts that move, and that nothing else may have."""
        if before.parent_id == after.parent_id:
            return []
        expected: dict[str, Expected] = {}
        if before.parent_id is not None:
            expected[before.parent_id] = EXISTING
        expected |= yield from self._ancestors(ns, after, deadline)
        counts = {before.parent_id: -1, after.parent_id: 1}
        return [
            update(self.client.table, meta_key(ns, ancestor), as_it_was, adds={"children": counts[ancestor]})
            if ancestor in counts
            else check(self.client.table, meta_key(ns, ancestor), as_it_was)
            for ancestor, as_it_was in expected.items()
        ]

    def _ancestors(self, ns: str, entity: Entity, deadline: Deadline) -> Plan[dict[str, Expected]]:
        """Every ancestor an entity would have, and what it must be like for that to stay true."""
        walked: dict[str, Expected] = {}
        ancestor = entity.parent_id
        while ancestor is not None:
            if ancestor == entity.id:
                raise own_ancestor(entity.id, entity.parent_id)
            if ancestor in walked:
                raise Overtaken  # the circle is not ours: it was never there at one moment
            if len(walked) == MOST_ANCESTORS:
                reason = f"has {MOST_ANCESTORS} ancestors or more, too many to move under it at once"
                raise ValidationError("parent_id", entity.parent_id, reason)
            item = yield from self._existing(ns, ancestor, deadline)
            walked[ancestor] = {"config_version": config_version_of(item), "deleted": ABSENT}
            ancestor = entity_of(item).parent_id
        return walked

    def _delete(
        self, ns: str, entity_id: str, buckets: int, principal: str | None, now: int, deadline: Deadline
    ) -> Plan[list[Scope]]:
        """Delete the entity and bury its first configs; all it had."""
        own = meta_key(ns, entity_id)
        item = yield from self.client.get(own, deadline)
        configs = yield from self._configs_of(ns, entity_id)
        entity = None if item is None else live_entity(item)
        if entity is None and not configs and not buckets:
            raise EntityNotFoundError(entity_id)
        levels = {str(scope.resource): config for scope, config in configs.items()}
        told = deletion_told(entity, levels, buckets)
        entry = AuditEntry(entity_id, "entity_deleted", None, principal, told)
        writes = [audited(self.client, ns, entry, now, deadline)]
        if item is not None and entity is not None:
            if children_of(item) > 0:
                raise has_children(entity_id)
            version = config_version_of(item)
            expected = {"version": entity.version, "config_version": version, "deleted": ABSENT, "children": 0}
            grave = {"entity_id": entity_id, "deleted": True, "config_version": version + 1}
            writes.append(put(self.client.table, own, grave | gsi4(ns, own.pk, TOMBSTONE), expected))
            if entity.parent_id is not None:
                parent = meta_key(ns, entity.parent_id)
                writes.append(update(self.client.table, parent, EXISTING, adds={"children": -1}))
        scopes = list(configs)
        writes += [self._grave(ns, scope, configs[scope]) for scope in scopes[:GRAVES_AT_ONCE]]
        yield from commit(self.client, writes, deadline)
        return scopes

    def _bury(self, ns: str, scopes: list[Scope], deadline: Deadline) -> Plan[None]:
        """Bury those of the configs that are still there."""
        items = yield from self.client.get_all([place_of(ns, scope) for scope in scopes], deadline)
        configs = {scope: config_of(items.get(place_of(ns, scope))) for scope in scopes}
        writes = [self._grave(ns, scope, config) for scope, config in configs.items() if says_something(config)]
        if writes:
            yield from commit(self.client, writes, deadline)

    def _grave(self, ns: str, scope: Scope, config: Config) -> Write:
        return config_write(self.client.table, ns, scope, Config((), None, config.version + 1))

    # What there is

    def _existing(self, ns: str, entity_id: str, deadline: Deadline) -> Plan[Item]:
        item = yield from self.client.get(meta_key(ns, entity_id), deadline)
        if item is None or not is_live(item):
            raise EntityNotFoundError(entity_id)
        return item

    def _configs_of(self, ns: str, entity_id: str) -> Plan[dict[Scope, Config]]:
        """The levels of an entity that say something."""
        between = (sk_config(FIRST), sk_config(LAST))
        items = partition(self.client, pk_entity(ns, entity_id), between)
        configs: dict[Scope, Config] = {}
        while found := (yield from items.take(LOOKED_AT_ONCE)):
            for item in found:
                config = unless_broken(config_of, item)
                if config is not None and says_something(config):
                    configs[Scope(entity_id, item["SK"]["S"].removeprefix(sk_config("")))] = config
        return configs

    def _count_buckets(self, ns: str, entity_id: str) -> Plan[int]:
        """How many resources an entity has buckets for; only what really exists counts."""
        keys = partition(self.client, pk_entity(ns, entity_id), ("BUCKET#", f"BUCKET#{LAST}"), index=GSI3)
        resources: set[str] = set()
        while found := (yield from keys.take(LOOKED_AT_ONCE)):
            items = yield from fetch(self.client, [key_of(item) for item in found])
            resources.update(key.pk.split("#")[2] for key in items)
        return len(resources)


def is_live(item: Item | None) -> bool:
    """Whether it describes an entity: a tombstone does not."""
    return item is not None and "deleted" not in item


def live_entity(item: Item) -> Entity | None:
    """The entity an item describes, unless it is a tombstone."""
    return entity_of(item) if is_live(item) else None


@decoder("an entity")
def entity_of(item: Item) -> Entity:
    """An entity from its item. Raises ``BrokenItem``."""
    entity_id = item["entity_id"]["S"]
    if item["PK"]["S"].partition("/")[2] != f"ENTITY#{entity_id}":
        raise ValueError("it has the key of another one")
    created = item.get("created_at")
    return Entity(
        id=entity_id,
        name=text_in(item, "name"),
        parent_id=text_in(item, "parent_id"),
        cascade=item["cascade"]["BOOL"],
        metadata=decode({"M": item["metadata"]["M"]}),
        version=version_in(item, "version"),
        created_at=None if created is None else at(number_in(created, 0, LAST_MOMENT_MS)),
    )


def text_in(item: Item, attribute: str) -> str | None:
    """A text, if there is one."""
    return item[attribute]["S"] if attribute in item else None


@decoder("an entity")
def config_version_of(item: Item) -> int:
    """The counter of an entity, or of its tombstone, that its buckets carry."""
    return version_in(item, "config_version")


@decoder("an entity")
def children_of(item: Item) -> int:
    """How many entities it is the parent of."""
    return number_in(item["children"])


def new_entity_attributes(ns: str, entity: Entity, config_version: int) -> Mapping[str, Any]:
    """What the item of an entity that begins now has beside its key. It has no children yet."""
    created = entity.created_at
    return {
        **description(entity),
        **filing(ns, entity),
        "entity_id": entity.id,
        "created_at": None if created is None else milliseconds_at(created),
        "version": entity.version,
        "config_version": config_version,
        "children": 0,
    }


def filing(ns: str, entity: Entity) -> Mapping[str, str | None]:
    """Where the indexes have an entity: under its parent, if it has one, and among all."""
    under_parent: Mapping[str, str | None] = {"GSI1PK": None, "GSI1SK": None}
    if entity.parent_id is not None:
        under_parent = gsi1(ns, entity.parent_id, entity.id)
    return {**under_parent, **gsi4(ns, pk_entity(ns, entity.id), f"ENTITY#{entity.id}")}


def another_route(before: Entity, after: Entity) -> bool:
    """Whether acquires go another way up than before, which buckets must notice."""
    return (before.parent_id, before.cascade) != (after.parent_id, after.cascade)


def check_size(metadata: Mapping[str, str]) -> None:
    """Refuse notes that no item could hold."""
    if len(as_json(metadata).encode()) > MOST_METADATA_BYTES:
        raise ValidationError("metadata", metadata, f"must have at most {MOST_METADATA_BYTES} bytes altogether here")
