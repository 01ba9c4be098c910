"""Every data method of the public API, written once: check the arguments, ask the store.

The plan methods here become the methods of the async and sync facades (``running.sync_async``), so their
docstrings are the public ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.choices import OnUnavailable, WindowType, check_choice
from zae_limiter.models.entity import Entity
from zae_limiter.models.level_changes import LimitsSet
from zae_limiter.models.limit import Limit, check_limits
from zae_limiter.models.moments import at
from zae_limiter.models.proofs import UsageProof
from zae_limiter.models.reports import AuditEvent, Page, ResourceCapacity, UsageSnapshot, UsageSummary, UsageTotal
from zae_limiter.models.status import BucketStatus
from zae_limiter.naming import (
    DEFAULT_RESOURCE,
    MAX_PAGE,
    check_bucket_resource,
    check_config_resource,
    check_entity_id,
    check_limit_name,
    check_principal,
    check_resource,
    is_reserved,
)
from zae_limiter.repository.arguments import (
    Moment,
    check_cursor,
    check_display_name,
    check_expected_version,
    check_flag,
    check_limits_version,
    check_metadata,
    check_moment,
    check_page_size,
    check_subject,
    usage_query,
)
from zae_limiter.repository.core import Core
from zae_limiter.repository.usage_totals import UsageBy, ranked, summarize
from zae_limiter.repository.wider_levels import levels_behind, merged, replaced_by
from zae_limiter.running.plan import READ_CLOCK, Plan
from zae_limiter.stores.protocol import EntityChange, Scope, UsageQuery

UNCHANGED: Final[Any] = type("Unchanged", (), {"__repr__": lambda self: "UNCHANGED"})()
"""The default of ``update_entity``'s fields: leave it as it is (``None`` would clear it)."""


class DataVerbs:
    """Entities, limits and reports of one namespace."""

    __slots__ = ()

    _core: Core

    # Entities

    def _create_entity(
        self,
        entity_id: str,
        *,
        name: str | None = None,
        parent_id: str | None = None,
        cascade: bool = False,
        metadata: Mapping[str, str] | None = None,
        principal: str | None = None,
    ) -> Plan[Entity]:
        """Create an entity: a key, a user, a project, an organisation.

        With ``cascade=True`` each of its acquires also takes from its parent. Raises ``EntityExistsError``,
        and ``EntityNotFoundError`` for a parent that does not exist.
        """
        check_entity_id(entity_id)
        if parent_id is not None:
            check_entity_id(parent_id, "parent_id")
        check_display_name(name)
        check_flag(cascade, "cascade")
        notes = check_metadata(metadata)
        check_principal(principal)
        core = self._core
        now = yield from READ_CLOCK
        entity = Entity(entity_id, name, parent_id, cascade, notes, created_at=at(now))
        created = yield from core.call("create_entity", core.space.create_entity(entity, principal, now))
        core.wait_queue.wake_all()
        return created

    def _get_entity(self, entity_id: str) -> Plan[Entity]:
        """The entity. Raises ``EntityNotFoundError``."""
        check_entity_id(entity_id)
        return (yield from self._core.call("get_entity", self._core.space.get_entity(entity_id)))

    def _update_entity(
        self,
        entity_id: str,
        *,
        name: str | None = UNCHANGED,
        parent_id: str | None = UNCHANGED,
        cascade: bool = UNCHANGED,
        metadata: Mapping[str, str] | None = UNCHANGED,
        principal: str | None = None,
        expected_version: int | None = None,
    ) -> Plan[Entity]:
        """Change some fields of an entity; those not given stay.

        With ``expected_version`` the change is refused (``EntityChangedError``) if another client changed the
        entity since it was read. A parent that does not exist or is a descendant is refused.
        """
        check_entity_id(entity_id)
        fields: dict[str, Any] = {}
        if name is not UNCHANGED:
            fields["name"] = check_display_name(name)
        if parent_id is not UNCHANGED:
            fields["parent_id"] = None if parent_id is None else check_entity_id(parent_id, "parent_id")
        if cascade is not UNCHANGED:
            fields["cascade"] = check_flag(cascade, "cascade")
        if metadata is not UNCHANGED:
            fields["metadata"] = check_metadata(metadata)
        check_principal(principal)
        change = EntityChange(fields, check_expected_version(expected_version))
        core = self._core
        now = yield from READ_CLOCK
        updated = yield from core.call("update_entity", core.space.update_entity(entity_id, change, principal, now))
        core.wait_queue.wake_all()
        return updated

    def _delete_entity(self, entity_id: str, *, principal: str | None = None) -> Plan[None]:
        """Delete an entity, its buckets and its limits. Its usage and audit stay until they expire.

        Raises ``EntityNotFoundError``; an entity that has children is refused (``ValidationError``).
        """
        check_entity_id(entity_id)
        check_principal(principal)
        core = self._core
        now = yield from READ_CLOCK
        yield from core.call("delete_entity", core.space.delete_entity(entity_id, principal, now))
        core.wait_queue.wake_all()

    def _get_children(self, parent_id: str, *, limit: int = 100, cursor: str | None = None) -> Plan[Page[Entity]]:
        """The entities directly below one, by id."""
        check_entity_id(parent_id, "parent_id")
        core = self._core
        plan = core.space.children(parent_id, check_page_size(limit), check_cursor(cursor))
        return (yield from core.call("get_children", plan))

    def _list_entities(self, *, limit: int = 100, cursor: str | None = None) -> Plan[Page[Entity]]:
        """All entities that were created, by id, without those in which manifests keep their records."""
        core = self._core
        found: list[Entity] = []
        while True:
            plan = core.space.entities(check_page_size(limit) - len(found), check_cursor(cursor))
            page: Page[Entity] = yield from core.call("list_entities", plan)
            found += (entity for entity in page.items if not is_reserved(entity.id))
            cursor = page.next_cursor
            if cursor is None or len(found) == limit:
                return Page(found, cursor)

    # Limits

    def _set_limits(
        self,
        entity_id: str,
        limits: Iterable[Limit],
        *,
        resource: str = DEFAULT_RESOURCE,
        merge: bool = False,
        principal: str | None = None,
        propagate: bool = True,
        expected_version: str | None = None,
    ) -> Plan[LimitsSet]:
        """Set an entity's own limits for one resource, or for every resource that has none of its own.

        ``resource="*"`` sets its total: one bucket over all resources together, from which each of its acquires takes
        besides.

        They replace all limits of the wider levels (resource, system) for this entity: what no longer holds is in the
        result, and with ``merge`` the limits that these lack are kept, as they are now. Live buckets follow: a lower
        burst clamps, a higher one mints nothing. ``expected_version`` is what ``limits_version()`` says of the limits
        that the caller has read (``"*"``: any): if there are others by then, it is a ``LimitsChangedError``.
        """
        scope = Scope(check_entity_id(entity_id), check_config_resource(resource))
        return (yield from self._set(scope, limits, None, principal, propagate, expected_version, merge=merge))

    def _get_limits(self, entity_id: str, *, resource: str = DEFAULT_RESOURCE) -> Plan[list[Limit]]:
        """The entity's own limits for a resource as they were set; empty if none were."""
        scope = Scope(check_entity_id(entity_id), check_config_resource(resource))
        config = yield from self._core.call("get_config", self._core.space.get_config(scope))
        return list(config.limits)

    def _delete_limits(
        self,
        entity_id: str,
        *,
        resource: str = DEFAULT_RESOURCE,
        principal: str | None = None,
        propagate: bool = True,
        expected_version: str | None = None,
    ) -> Plan[None]:
        """Remove an entity's own limits: the next level holds again."""
        scope = Scope(check_entity_id(entity_id), check_config_resource(resource))
        return (yield from self._delete(scope, principal, propagate, expected_version))

    def _set_resource_defaults(
        self,
        resource: str,
        limits: Iterable[Limit],
        *,
        merge: bool = False,
        principal: str | None = None,
        propagate: bool = True,
        expected_version: str | None = None,
    ) -> Plan[LimitsSet]:
        """Set the limits of a resource, for every entity that has none of its own.

        They replace the system's there: what no longer holds is in the result, and with ``merge`` it is kept.
        """
        scope = Scope(None, check_resource(resource))
        return (yield from self._set(scope, limits, None, principal, propagate, expected_version, merge=merge))

    def _get_resource_defaults(self, resource: str) -> Plan[list[Limit]]:
        """The limits of a resource as they were set; empty if none were."""
        scope = Scope(None, check_resource(resource))
        config = yield from self._core.call("get_config", self._core.space.get_config(scope))
        return list(config.limits)

    def _delete_resource_defaults(
        self,
        resource: str,
        *,
        principal: str | None = None,
        propagate: bool = True,
        expected_version: str | None = None,
    ) -> Plan[None]:
        """Remove the limits of a resource: the system's hold again."""
        scope = Scope(None, check_resource(resource))
        return (yield from self._delete(scope, principal, propagate, expected_version))

    def _set_system_defaults(
        self,
        limits: Iterable[Limit],
        *,
        on_unavailable: OnUnavailable | str | None = None,
        principal: str | None = None,
        propagate: bool = True,
        expected_version: str | None = None,
    ) -> Plan[LimitsSet]:
        """Set the limits of every entity that has no nearer ones, and what to do while the store is unavailable.

        ``on_unavailable``: ``"block"`` (raise, the default), ``"allow"`` (let through, uncounted) or
        ``"local"`` (grant from the share of the process, and book that on return); a policy that was set stays when
        none is given.
        """
        policy = None
        if on_unavailable is not None:
            policy = check_choice(OnUnavailable, on_unavailable, "on_unavailable")
        return (yield from self._set(Scope(), limits, policy, principal, propagate, expected_version))

    def _get_system_defaults(self) -> Plan[tuple[list[Limit], OnUnavailable | None]]:
        """The system's limits and its policy for outages, as they were set."""
        config = yield from self._core.call("get_config", self._core.space.get_config(Scope()))
        return list(config.limits), config.on_unavailable

    def _delete_system_defaults(
        self, *, principal: str | None = None, propagate: bool = True, expected_version: str | None = None
    ) -> Plan[None]:
        """Remove the system's limits and policy."""
        return (yield from self._delete(Scope(), principal, propagate, expected_version))

    def _list_resources_with_defaults(self, *, limit: int = 100, cursor: str | None = None) -> Plan[Page[str]]:
        """The resources that have limits of their own."""
        core = self._core
        plan = core.space.resources_with_defaults(check_page_size(limit), check_cursor(cursor))
        return (yield from core.call("list_resources_with_defaults", plan))

    def _list_entities_with_custom_limits(
        self, resource: str = DEFAULT_RESOURCE, limit: int = 100, cursor: str | None = None
    ) -> Plan[Page[str]]:
        """The entities that have limits of their own for a resource (``_default_``: for all resources)."""
        core = self._core
        plan = core.space.entities_with_custom_limits(
            check_config_resource(resource), check_page_size(limit), check_cursor(cursor)
        )
        return (yield from core.call("list_entities_with_custom_limits", plan))

    def _set(
        self,
        scope: Scope,
        limits: Iterable[Limit],
        on_unavailable: OnUnavailable | None,
        principal: str | None,
        propagate: bool,
        expected: str | None,
        *,
        merge: bool = False,
    ) -> Plan[LimitsSet]:
        checked = check_limits(limits)
        check_principal(principal)
        check_flag(propagate, "propagate")
        check_flag(merge, "merge")
        check_limits_version(expected)
        core = self._core
        behind = yield from levels_behind(core, scope)
        checked = merged(scope, checked, behind) if merge else checked
        now = yield from READ_CLOCK
        plan = core.space.set_config(scope, checked, on_unavailable, principal, propagate, now, expected)
        yield from core.call("set_config", plan)
        core.wait_queue.wake_all()
        return LimitsSet(checked, replaced_by(checked, behind))

    def _delete(self, scope: Scope, principal: str | None, propagate: bool, expected: str | None) -> Plan[None]:
        check_principal(principal)
        check_flag(propagate, "propagate")
        check_limits_version(expected)
        core = self._core
        now = yield from READ_CLOCK
        yield from core.call("delete_config", core.space.delete_config(scope, principal, propagate, now, expected))
        core.wait_queue.wake_all()

    # Reports

    def _get_audit_events(
        self,
        entity_id: str | None = None,
        *,
        start_time: Moment | None = None,
        end_time: Moment | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Plan[Page[AuditEvent]]:
        """Who changed what, newest first: of one entity, or of everything.

        Changes of system limits are filed under ``$SYSTEM``, those of a resource under ``$RESOURCE:name``.
        """
        core = self._core
        plan = core.space.audit_events(
            check_subject(entity_id),
            check_moment(start_time, "start_time"),
            check_moment(end_time, "end_time"),
            check_page_size(limit),
            check_cursor(cursor),
        )
        return (yield from core.call("get_audit_events", plan))

    def _get_usage_snapshots(
        self,
        entity_id: str | None = None,
        resource: str | None = None,
        window_type: WindowType | str | None = None,
        start_time: Moment | None = None,
        end_time: Moment | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Plan[Page[UsageSnapshot]]:
        """What was taken, per window: of an entity, of a resource, or of one on the other.

        A window is listed if it begins at or after ``start_time`` and before ``end_time``; without a
        ``window_type`` hours, days and months are. Ordered by entity, resource, window type and start.
        """
        query = usage_query(entity_id, resource, window_type, start_time, end_time)
        core = self._core
        plan = core.space.usage(query, check_page_size(limit), check_cursor(cursor))
        return (yield from core.call("get_usage_snapshots", plan))

    def _get_usage_summary(
        self,
        entity_id: str | None = None,
        resource: str | None = None,
        window_type: WindowType | str = WindowType.HOURLY,
        start_time: Moment | None = None,
        end_time: Moment | None = None,
    ) -> Plan[UsageSummary]:
        """All windows of one type added up: totals, averages per window, denials, first and last start.

        Of an entity, of a resource, of one on the other, or, without either, of the whole namespace. A call counts
        once, also where its caller's ancestors are added up too. Of a whole namespace it reads the usage of every
        entity by itself.
        """
        if entity_id is None and resource is None:
            snapshots = yield from self._usage_of_all(window_type, start_time, end_time)
        else:
            query = usage_query(entity_id, resource, window_type, start_time, end_time)
            snapshots = yield from self._usage_windows(query)
        return summarize(snapshots, of_entity=entity_id is not None)

    def _get_top_usage(
        self,
        by: UsageBy = "entity",
        *,
        limit_name: str | None = None,
        resource: str | None = None,
        window_type: WindowType | str = WindowType.HOURLY,
        start_time: Moment | None = None,
        end_time: Moment | None = None,
        limit: int = 20,
    ) -> Plan[list[UsageTotal]]:
        """The entities (or, by ``"resource"``, the resources) that took most of a limit, or had most grants.

        Each call counts once, for the entity that made it, so that all together are what was taken. ``denials`` are
        those by the limits of an entity. Without a ``resource`` it reads the usage of every entity by itself.
        """
        if by not in ("entity", "resource"):
            raise ValidationError("by", by, 'must be "entity" or "resource"')
        if limit_name is not None:
            check_limit_name(limit_name, "limit_name")
        size = check_page_size(limit)
        if resource is None:
            snapshots = yield from self._usage_of_all(window_type, start_time, end_time)
        else:
            query = usage_query(None, resource, window_type, start_time, end_time)
            snapshots = yield from self._usage_windows(query)
        return ranked(snapshots, by, limit_name, size)

    def _usage_windows(self, query: UsageQuery) -> Plan[list[UsageSnapshot]]:
        """All windows that a query concerns."""
        core = self._core
        snapshots: list[UsageSnapshot] = []
        cursor: str | None = None
        while True:
            page = yield from core.call("get_usage_snapshots", core.space.usage(query, MAX_PAGE, cursor))
            snapshots.extend(page.items)
            cursor = page.next_cursor
            if cursor is None:
                return snapshots

    def _usage_of_all(
        self, window_type: WindowType | str, start_time: Moment | None, end_time: Moment | None
    ) -> Plan[list[UsageSnapshot]]:
        """All windows of a namespace."""
        snapshots: list[UsageSnapshot] = []
        for entity_id in (yield from self._list_active_entities()):
            query = usage_query(entity_id, None, window_type, start_time, end_time)
            snapshots += yield from self._usage_windows(query)
        return snapshots

    def _verify_usage(self, entity_id: str, resource: str | None = None) -> Plan[UsageProof]:
        """Prove that usage is what was taken from the buckets of an entity, on one resource or on all.

        Every hour must begin where the one before ended, and the last must end where the bucket is; the proof says
        where that is not so, and how much is missing. On DynamoDB what the aggregator has not read yet is no gap.
        """
        check_entity_id(entity_id)
        if resource is not None:
            check_bucket_resource(resource)
        core = self._core
        now = yield from READ_CLOCK
        return (yield from core.call("verify_usage", core.space.verify_usage(entity_id, resource, now)))

    def _get_resource_capacity(
        self, resource: str, limit_name: str, *, limit: int = 100, cursor: str | None = None
    ) -> Plan[ResourceCapacity]:
        """One limit of a resource over all live buckets: how much there is, how much is left, by entity."""
        check_bucket_resource(resource)
        check_limit_name(limit_name, "limit_name")
        size = check_page_size(limit)
        core = self._core
        now = yield from READ_CLOCK
        plan = core.space.capacity(resource, limit_name, size, check_cursor(cursor), now)
        return (yield from core.call("get_resource_capacity", plan))

    def _get_tightest_buckets(self, resource: str | None = None, *, limit: int = 20) -> Plan[list[BucketStatus]]:
        """The live buckets with the least left of one of their limits, over all entities: those in debt first.

        It reads every live bucket of the namespace, or of the resource: on DynamoDB a read unit for each.
        """
        if resource is not None:
            check_bucket_resource(resource)
        size = check_page_size(limit)
        core = self._core
        now = yield from READ_CLOCK
        plan = core.space.tightest_buckets(resource, size, now)
        return list((yield from core.call("get_tightest_buckets", plan)))

    def _list_active_entities(self) -> Plan[list[str]]:
        """The ids of all entities that have a live bucket or usage, whether they were created or not.

        On DynamoDB it reads the keys of all buckets and hours of usage of the namespace.
        """
        core = self._core
        return list((yield from core.call("list_active_entities", core.space.active_entities())))
