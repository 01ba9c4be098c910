"""The narrow waist: what every store can be asked, in domain words.

A :class:`Store` keeps namespaces; a :class:`Space` is one namespace of it. Every verb returns a *plan* (see
``running.plan``) over the store's own requests; an embedded store's plans finish without a request.

Amounts in requests and answers are whole tokens, except where a name says ``milli``. ``now`` is bucket time
in milliseconds. Arguments are already valid: the facades check what callers give, stores check what only
they can know (does the parent exist, is this limit configured).

The words of the verbs have modules of their own, and are exported here: levels (``scopes``), legs and what is booked
on them (``legs``), draws and their outcomes (``outcomes``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from zae_limiter.models.access import Access
from zae_limiter.models.choices import OnUnavailable, WindowType
from zae_limiter.models.entity import Entity
from zae_limiter.models.holds import Hold
from zae_limiter.models.limit import Limit
from zae_limiter.models.proofs import UsageProof
from zae_limiter.models.reports import (
    AuditEvent,
    CacheStats,
    NamespaceInfo,
    Page,
    ResourceCapacity,
    UsageSnapshot,
)
from zae_limiter.models.status import BucketStatus, EntityStatus, LimitStatus
from zae_limiter.running.plan import Plan, Request
from zae_limiter.stores.legs import (
    NO_NAMES,
    BucketPlace,
    HoldChange,
    Leg,
    Posting,
    Settlement,
    in_order,
    leg_after,
    with_refusals,
)
from zae_limiter.stores.outcomes import (
    NOTHING_RESERVED,
    DeferredGrant,
    Denial,
    Draw,
    FastPath,
    Grant,
    NotedGrant,
    Outcome,
    Receipt,
    Ticket,
)
from zae_limiter.stores.scopes import (
    Config,
    Resolution,
    Scope,
    access_from_text,
    access_on,
    access_scope,
    access_to_text,
    check_version,
    scopes_for,
)

if TYPE_CHECKING:
    from zae_limiter.stores.lease_records import LeaseRecord
    from zae_limiter.stores.operator_changes import Credit, Reset

__all__ = [
    "NOTHING_RESERVED",
    "NO_NAMES",
    "BucketPlace",
    "Config",
    "DeferredGrant",
    "Denial",
    "Draw",
    "EntityChange",
    "FastPath",
    "Grant",
    "HoldChange",
    "Leg",
    "Look",
    "NotedGrant",
    "Outcome",
    "Posting",
    "Receipt",
    "Resolution",
    "Scope",
    "Settlement",
    "Space",
    "Store",
    "Ticket",
    "UsageQuery",
    "access_from_text",
    "access_on",
    "access_scope",
    "access_to_text",
    "check_version",
    "in_order",
    "leg_after",
    "scopes_for",
    "with_refusals",
]


class Look(NamedTuple):
    """What a draw would meet: its legs, every status for the amounts asked, and the access switch that decides."""

    legs: tuple[Leg, ...]
    statuses: tuple[LimitStatus, ...]
    access: Access | None = None


@dataclass(frozen=True, slots=True)
class EntityChange:
    """What an update sets: only the named fields change."""

    fields: Mapping[str, Any]
    expected_version: int | None = None


class UsageQuery(NamedTuple):
    """Which usage windows: of an entity, of a resource, or of one on the other, between two times (ms)."""

    entity_id: str | None
    resource: str | None
    window_type: WindowType | None
    start_ms: int | None
    end_ms: int | None


class Space(Protocol):
    """One namespace of a store."""

    @property
    def unresolved(self) -> int:
        """How often this client could not prove something done or undone (and so over-charged, never minted)."""

    @property
    def slot_pauses_ms(self) -> tuple[int, int] | None:
        """After how many milliseconds a caller that waits for a call in flight to end looks again: at first, and at
        most. ``None``: no other process can have it."""

    @property
    def claims_for_ms(self) -> int | None:
        """For how many milliseconds the claim of a caller that waits is kept, unless it is renewed. ``None``: callers
        of several processes do not wait in one line."""

    # Taking and settling

    @property
    def fast_paths(self) -> Mapping[tuple[str, str], FastPath]:
        """The fast paths of warm grants, by entity and resource. A draw without one is a plan."""

    def draw(self, draw: Draw, now: int) -> Plan[Outcome]:
        """Take all or nothing. An interrupted draw takes nothing."""

    def count_denial(self, denial: Denial, now: int) -> Plan[None]:
        """Count a denial that a caller is told at the end of a wait. Other denials are counted by the draw."""

    def write_denials(self) -> Plan[None]:
        """Write the denials that this store keeps until it writes anyway, if it does: it is about to be closed."""

    def settle(self, postings: Sequence[Posting], now: int, settlement: Settlement | None = None) -> Plan[None]:
        """Book after the fact. Never refuses; a bucket that is gone is rebuilt full first.

        What of it was booked is noted in the ``settlement``, also when the caller is interrupted and hears nothing.
        """

    def lease_record(self, record_id: str, now: int) -> Plan[LeaseRecord | None]:
        """The record of a lease, if there is one that has not expired."""

    def lease_records(
        self, entity_id: str | None, limit: int, cursor: str | None, now: int
    ) -> Plan[Page[LeaseRecord]]:
        """The records of leases, by id; of one entity, or of all."""

    def renew(self, holds: Sequence[Hold], now: int) -> Plan[Sequence[Hold]]:
        """Let holds be due later, as if they were taken now. Those that were returned already are taken again, without
        asking: the calls are running. Answers which ones these were."""

    def look(
        self,
        entity_id: str,
        resource: str,
        wanted: Mapping[str, int],
        limits: tuple[Limit, ...] | None,
        now: int,
    ) -> Plan[Look]:
        """What a draw would meet, without taking."""

    def status(self, entity_id: str, resource: str | None, now: int) -> Plan[EntityStatus]:
        """The live buckets of an entity, and the access switches that hold for it (see :meth:`access_of`)."""

    def reset(self, reset: Reset, now: int) -> Plan[int]:
        """Fill live buckets of an entity; the number of them."""

    def credit(self, credit: Credit, now: int) -> Plan[bool]:
        """Give tokens. ``False``: that was done before, under the same key."""

    def lower(
        self, entity_id: str, resource: str, levels: Mapping[str, int], principal: str | None, now: int
    ) -> Plan[None]:
        """Let the entity's own bucket hold at most these levels. Audited if a principal is named."""

    # Entities

    def create_entity(self, entity: Entity, principal: str | None, now: int) -> Plan[Entity]:
        """A new entity."""

    def get_entity(self, entity_id: str) -> Plan[Entity]:
        """An entity that exists."""

    def update_entity(self, entity_id: str, change: EntityChange, principal: str | None, now: int) -> Plan[Entity]:
        """Change some fields."""

    def delete_entity(self, entity_id: str, principal: str | None, now: int) -> Plan[None]:
        """Remove the entity, its buckets and its limits."""

    def children(self, parent_id: str, limit: int, cursor: str | None) -> Plan[Page[Entity]]:
        """Entities by parent."""

    def entities(self, limit: int, cursor: str | None) -> Plan[Page[Entity]]:
        """All entities, by id."""

    # Limits

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
        """Replace what one level says; if an ``expected`` version is named, only that one, compared in the write."""

    def get_config(self, scope: Scope) -> Plan[Config]:
        """What one level says; empty if nothing."""

    def delete_config(
        self, scope: Scope, principal: str | None, propagate: bool, now: int, expected: str | None = None
    ) -> Plan[None]:
        """Let one level say nothing; likewise."""

    def resolve(self, entity_id: str, resource: str) -> Plan[Resolution]:
        """The limits that hold."""

    def remembered_on_unavailable(self) -> OnUnavailable | None:
        """The stored policy as last seen: must answer while the store does not."""

    # Access

    def set_access(self, scope: Scope, access: Access | None, principal: str | None, now: int) -> Plan[None]:
        """Turn the switch of one level; ``None``: it says nothing from now on."""

    def get_access(self, scope: Scope) -> Plan[Access | None]:
        """What the switch of one level says, whether its time is over or not."""

    def switches(self, limit: int, cursor: str | None) -> Plan[Page[Access]]:
        """Every switch that says something, the system's first, then those of resources, then those of entities."""

    def access_of(self, entity_id: str, resource: str | None, now: int) -> Plan[tuple[Access, ...]]:
        """The live switches that concern an entity on a resource (``None``: its own and its ancestors' on all of
        them, and the system's), the one that decides first."""

    def remembered_access(self, entity_id: str, resource: str, now: int) -> Access | None:
        """The switch that decides as last seen: must answer while the store does not."""

    def resources_with_defaults(self, limit: int, cursor: str | None) -> Plan[Page[str]]:
        """Resources that have limits of their own."""

    def entities_with_custom_limits(self, resource: str, limit: int, cursor: str | None) -> Plan[Page[str]]:
        """Entities that have limits of their own for a resource."""

    def invalidate_config_cache(self) -> None:
        """Forget resolved limits."""

    def cache_stats(self) -> CacheStats:
        """How the cache of resolved limits is doing."""

    # Reports

    def audit_events(
        self,
        entity_id: str | None,
        start_ms: int | None,
        end_ms: int | None,
        limit: int,
        cursor: str | None,
    ) -> Plan[Page[AuditEvent]]:
        """Changes, newest first."""

    def usage(self, query: UsageQuery, limit: int, cursor: str | None) -> Plan[Page[UsageSnapshot]]:
        """Usage windows, by entity, resource, window type and start."""

    def put_pulse(self, process: str, text: str, expires_at: int, now: int) -> Plan[None]:
        """Keep what a process tells of itself in place of what it told last, until it expires. Not audited."""

    def pulses(self, most: int, now: int) -> Plan[tuple[str, ...]]:
        """What processes tell of themselves, those that have not expired. Reads nothing else."""

    def verify_usage(self, entity_id: str, resource: str | None, now: int) -> Plan[UsageProof]:
        """How the usage of an entity compares with what its buckets counted."""

    def capacity(
        self, resource: str, limit_name: str, limit: int, cursor: str | None, now: int
    ) -> Plan[ResourceCapacity]:
        """One limit of a resource over all live buckets."""

    def tightest_buckets(self, resource: str | None, limit: int, now: int) -> Plan[tuple[BucketStatus, ...]]:
        """The live buckets with the least left, of all entities; the tightest first. It reads every live bucket."""

    def active_entities(self) -> Plan[tuple[str, ...]]:
        """Every entity that has a live bucket or usage, created or not, by id."""


class Store(Protocol):
    """A place for namespaces."""

    @property
    def identity(self) -> Hashable:
        """The same for all stores of a process that keep the same data."""

    def space(self, namespace: str, *, corrected: bool = False) -> Space:
        """One namespace; nothing is read until a verb runs.

        ``corrected``: bucket time is the machine's, and may be corrected by what other machines' clocks show.
        """

    def attempt(self, request: Request[Any], /) -> Any:
        """Do what a plan of this store asks if that needs no waiting, else answer ``NOT_YET``."""

    def perform(self, request: Request[Any], /) -> Any:
        """Do what a plan of this store asks, in this thread."""

    def perform_async(self, request: Request[Any], /) -> Awaitable[Any]:
        """Do what a plan of this store asks, in the running event loop."""

    def create(self, now: int) -> Plan[None]:
        """Make what the store needs, if it is not there yet."""

    def destroy(self) -> Plan[None]:
        """Undo :meth:`create`: every namespace is gone."""

    def ping(self) -> Plan[None]:
        """Answer, or raise why not."""

    def close(self) -> None:
        """Let go of files, connections and threads."""

    async def aclose(self) -> None:
        """Likewise, in the running event loop."""

    def register_namespace(self, name: str, principal: str | None, now: int) -> Plan[NamespaceInfo]:
        """A namespace; the existing one if the name is taken."""

    def get_namespace(self, name: str) -> Plan[NamespaceInfo]:
        """A namespace that is registered, deleted or not."""

    def list_namespaces(self, limit: int, cursor: str | None) -> Plan[Page[NamespaceInfo]]:
        """All namespaces, deleted ones too."""

    def delete_namespace(self, name: str, principal: str | None, now: int) -> Plan[None]:
        """Refuse every use of the namespace from now on; its data stays."""

    def recover_namespace(self, name: str, principal: str | None, now: int) -> Plan[NamespaceInfo]:
        """Undo :meth:`delete_namespace`."""

    def purge_namespace(self, name: str) -> Plan[int]:
        """Remove a deleted namespace and everything in it; the number of things removed."""
