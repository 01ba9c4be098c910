"""The narrow waist: what every store can be asked, in domain words.

A :class:`Store` keeps namespaces; a :class:`Space` is one namespace of it. Every verb returns a *plan* (see
``running.plan``) over the store's own requests; an embedded store's plans finish without a request.

Amounts in requests and answers are whole tokens, except where a name says ``milli``. ``now`` is bucket time
in milliseconds. Arguments are already valid: the facades check what callers give, stores check what only
they can know (does the parent exist, is this limit configured).
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from zae_limiter.bucket import MILLI, Balance, are_plain
from zae_limiter.models.access import Access
from zae_limiter.models.choices import AccessMode, ConfigSource, OnUnavailable, WindowType
from zae_limiter.models.entity import Entity
from zae_limiter.models.holds import Hold
from zae_limiter.models.limit import Limit
from zae_limiter.models.moments import LAST_MOMENT_MS, at
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
from zae_limiter.naming import DEFAULT_RESOURCE, RESOURCE_SUBJECT, SYSTEM_SUBJECT, TOTAL_RESOURCE
from zae_limiter.running.plan import Plan, Request

if TYPE_CHECKING:
    from zae_limiter.stores.lease_records import LeaseRecord, RecordChange, RecordRequest
    from zae_limiter.stores.operator_changes import Credit, Reset


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose limits: the system's, a resource's, or an entity's (for one resource, for each, or for all together)."""

    entity_id: str | None = None
    resource: str | None = None

    @property
    def level(self) -> ConfigSource:
        """The level this scope stands on."""
        if self.entity_id is None:
            return "system" if self.resource is None else "resource"
        if self.resource == TOTAL_RESOURCE:
            return "total"
        return "entity_default" if self.resource == DEFAULT_RESOURCE else "entity"

    @property
    def audited_as(self) -> str:
        """The subject of its audit events."""
        if self.entity_id is not None:
            return self.entity_id
        return SYSTEM_SUBJECT if self.resource is None else RESOURCE_SUBJECT + self.resource


def access_scope(entity_id: str | None, resource: str | None) -> Scope:
    """The level an access switch stands on: an entity alone stands for all resources."""
    return Scope(entity_id, DEFAULT_RESOURCE if entity_id is not None and resource is None else resource)


def access_on(scope: Scope, mode: AccessMode, until_ms: int | None) -> Access:
    """The access switch of a level, as callers see it."""
    resource = None if scope.resource == DEFAULT_RESOURCE else scope.resource
    return Access(mode, scope.entity_id, resource, None if until_ms is None else at(until_ms))


def access_to_text(access: Access) -> str:
    """A switch as stores keep it: its mode, and the moment it ends, if it does. Its level is where it stands."""
    until = access.until_ms
    return str(access.mode) if until is None else f"{access.mode} {until}"


def access_from_text(scope: Scope, text: str) -> Access:
    """The inverse of :func:`access_to_text`. Raises ``ValueError``."""
    mode, _, until = text.partition(" ")
    until_ms = int(until) if until else None
    if until_ms is not None and not 0 <= until_ms <= LAST_MOMENT_MS:
        raise ValueError("out of bounds")
    return access_on(scope, AccessMode(mode), until_ms)


def scopes_for(entity_id: str, resource: str) -> tuple[Scope, ...]:
    """The four levels in the order they are asked: the first that has limits gives all of them."""
    return (
        Scope(entity_id, resource),
        Scope(entity_id, DEFAULT_RESOURCE),
        Scope(None, resource),
        Scope(),
    )


@dataclass(frozen=True, slots=True)
class Config:
    """What one level says. The version grows with every change, and where clients compare it, with a deletion too."""

    limits: tuple[Limit, ...] = ()
    on_unavailable: OnUnavailable | None = None
    version: int = 0
    access: Access | None = None


class Resolution(NamedTuple):
    """The limits that hold for an entity and resource, and where they came from."""

    limits: list[Limit] | None
    on_unavailable: OnUnavailable | None
    source: ConfigSource | None


BucketPlace: TypeAlias = tuple[str, str]
"""Entity and resource."""

NO_NAMES: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class Leg:
    """One bucket an acquire takes from: the entity's own, its total over all resources, or one of an ancestor.

    ``paid`` says which shards of a sharded bucket gave how many millitokens, for those who settle there. ``known`` are
    the names of limits that any of the levels consulted for it has; those in ``names`` are taken from it. ``cascaded``
    has those of its limits that a leg before it has too, and counts: reports count each call once. ``None``: it is
    the first leg. ``refused`` names the limits that only watch and would have refused: nothing was taken from them,
    and nothing is settled there. ``held`` names those of calls in flight, ``is_plain`` says that all limits refill
    evenly and refuse.

    The first leg of an acquire is the entity's own. Where only others of its legs have limits, it has none. The total
    of an entity comes after its own.
    """

    entity_id: str
    resource: str
    limits: tuple[Limit, ...]
    source: ConfigSource
    paid: tuple[tuple[int, Mapping[str, int]], ...] = ()
    known: frozenset[str] = frozenset()
    cascaded: frozenset[str] | None = None
    refused: frozenset[str] = NO_NAMES
    names: frozenset[str] = field(init=False)
    settled_names: frozenset[str] = field(init=False)
    held: frozenset[str] = field(init=False)
    is_plain: bool = field(init=False)

    @property
    def place(self) -> BucketPlace:
        """Which bucket it is."""
        return self.entity_id, self.resource

    def __post_init__(self) -> None:
        names = frozenset([limit.name for limit in self.limits])
        held = NO_NAMES if are_plain(self.limits) else frozenset(one.name for one in self.limits if one.is_held)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "known", self.known | names)
        object.__setattr__(self, "settled_names", names - self.refused - held if self.refused or held else names)
        object.__setattr__(self, "held", held)
        object.__setattr__(self, "is_plain", are_plain(self.limits))


def in_order(legs: Iterable[Leg]) -> tuple[Leg, ...]:
    """The legs of one acquire, the first one first: each knows what those before it count."""
    found: list[Leg] = []
    counted: frozenset[str] | None = None
    for leg in legs:
        placed = leg_after(leg, counted)
        found.append(placed)
        counted = placed.names if counted is None else counted | placed.names
    return tuple(found)


@lru_cache(4096)
def leg_after(leg: Leg, counted: frozenset[str] | None) -> Leg:
    """A leg that comes after others, which count these limits; ``None``: it is the first."""
    cascaded = None if counted is None else leg.names & counted
    return leg if leg.cascaded == cascaded else replace(leg, cascaded=cascaded)


def with_refusals(legs: tuple[Leg, ...], refused: Mapping[int, set[str]]) -> tuple[Leg, ...]:
    """The legs; those with limits that only watch and would have refused say so, and what those before them have
    counted then. ``refused`` has them by the place of the leg."""
    if not refused:
        return legs
    marked = []
    counted: frozenset[str] = frozenset()
    for place, leg in enumerate(legs):
        names = leg.names - refused.get(place, set())
        cascaded = None if leg.cascaded is None else leg.cascaded & counted & names
        marked.append(replace(leg, refused=leg.names - names, cascaded=cascaded))
        counted |= names
    return tuple(marked)


NOTHING_RESERVED: Mapping[BucketPlace, Mapping[str, int]] = {}


class Draw(NamedTuple):
    """A request to take ``wanted`` from an entity's bucket and those of the ancestors it cascades to.

    ``reserved`` is what others wait for in the queue of each of these buckets (its place → limit → tokens): a
    request with an amount for such a limit must leave that much. ``legs`` repeats an earlier draw's route
    instead of resolving it (a lease takes more where it took first). ``is_final``: a denial is what the caller is
    told, and is counted; else the caller waits. With a ``record`` the grant is recorded in the step that
    takes, or is the one that was recorded before (``lease_records.py``).
    """

    entity_id: str
    resource: str
    wanted: Mapping[str, int]
    limits: tuple[Limit, ...] | None = None
    reserved: Mapping[BucketPlace, Mapping[str, int]] = NOTHING_RESERVED
    legs: tuple[Leg, ...] | None = None
    is_final: bool = True
    record: RecordRequest | None = None


class Grant(NamedTuple):
    """Everything wanted was taken, from every leg.

    ``balances`` has the terms of every limit of every leg in order, ``left`` the new ``tk`` of each; neither, if it
    was read from a record. ``path`` is the fast path that took it, if one did, ``record`` what the store keeps of it.
    ``holds`` are what the legs lent of calls in flight.
    """

    legs: tuple[Leg, ...]
    wanted: Mapping[str, int]
    balances: Sequence[Balance]
    left: Sequence[int]
    now: int
    path: FastPath | None = None
    holds: tuple[Hold, ...] = ()
    record: LeaseRecord | None = None

    @property
    def is_repeated(self) -> bool:
        """Whether it was granted before, and read from its record: nothing was taken now."""
        return self.record is not None and not self.balances

    @property
    def statuses(self) -> tuple[LimitStatus, ...]:
        """Every limit of every leg with what the grant left in it; none, if it was read from a record."""
        if not self.balances:
            return ()
        places = [(leg, limit) for leg in self.legs for limit in leg.limits]
        return tuple(
            self._status(leg, limit, balance, tk)
            for (leg, limit), balance, tk in zip(places, self.balances, self.left, strict=True)
        )

    def _status(self, leg: Leg, limit: Limit, balance: Balance, tk: int) -> LimitStatus:
        resets_at = balance.resets_at(self.now)
        wait: float | None = 0.0
        requested = self.wanted.get(limit.name, 0)
        exceeded = limit.name in leg.refused
        if exceeded:
            due = balance.with_tokens(tk, 0).due(requested * MILLI, self.now)
            wait = None if requested * MILLI > balance.bx else max(due - self.now, 0) / MILLI
        return LimitStatus(
            entity_id=leg.entity_id,
            resource=leg.resource,
            limit_name=limit.name,
            limit=limit,
            available=balance.level_with(tk, self.now) // MILLI,
            requested=requested,
            exceeded=exceeded,
            retry_after_seconds=wait,
            source=leg.source,
            seconds_to_full=balance.full_in(tk, self.now) / MILLI,
            enforced=limit.enforce,
            resets_at=None if resets_at is None else at(resets_at),
            at_latest=exceeded and limit.is_held and wait is not None,
        )

    @property
    def would_refuse(self) -> tuple[LimitStatus, ...]:
        """The limits that only watch and would have refused."""
        if not any(leg.refused for leg in self.legs):
            return ()
        return tuple(status for status in self.statuses if status.exceeded)

    def give_back(self) -> list[Posting]:
        """What undoes it."""
        return [
            Posting(
                leg,
                {name: -amount * MILLI for name, amount in self.wanted.items() if name in leg.settled_names},
                tuple(
                    HoldChange(hold, -hold.amount)
                    for hold in self.holds
                    if (hold.entity_id, hold.resource) == (leg.entity_id, leg.resource)
                ),
                undo=True,
            )
            for leg in self.legs
        ]


DeferredGrant: TypeAlias = "tuple[FastPath, Mapping[str, int] | None, int, *tuple[int, ...]]"
"""A :class:`Grant` that is made when it is looked at, which most never are, by its fast path: the first part of it.

A plain tuple: the fast path writes it in the instructions that take the tokens, where nothing may be called.
"""


class Denial:
    """Something lacks, and nothing was taken.

    A store under so much load that not even the limits could be read denies without statuses, and says after how many
    milliseconds to ask again: ``unread_wait_ms``. ``by_load``: it was load that denied, whatever the statuses say.
    ``observed``: a switch says that this is counted and let through.
    """

    __slots__ = ("_lacking", "_statuses", "by_load", "observed", "unread_wait_ms")

    def __init__(
        self, statuses: tuple[LimitStatus, ...], lacking: Leg, unread_wait_ms: int = 0, *, by_load: bool = False
    ) -> None:
        self._statuses = statuses
        self._lacking = lacking
        self.unread_wait_ms = unread_wait_ms
        self.by_load = by_load
        self.observed = False

    @property
    def statuses(self) -> tuple[LimitStatus, ...]:
        """Every limit of every leg."""
        return self._statuses

    @property
    def lacking(self) -> Leg:
        """The first leg that lacks."""
        return self._lacking

    @property
    def binding(self) -> LimitStatus | None:
        """The limit that lacks for longest, by which the denial is counted. ``None``: it was for load."""
        lacking = [] if self.by_load else [status for status in self.statuses if status.refuses]
        return max(lacking, key=lambda status: _seconds(status.retry_after_seconds), default=None)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} by {self.lacking.entity_id} on {self.lacking.resource}: {self.statuses}>"

    @property
    def wait_ms(self) -> int | None:
        """Milliseconds until the same draw would be granted; ``None``: never."""
        return self._longest([status.retry_after_seconds for status in self.statuses if status.refuses])

    @property
    def retry_ms(self) -> int | None:
        """Milliseconds until it is worth asking again: less, where the wait is only a bound; ``None``: never."""
        return self._longest([status.suggested_wait_seconds for status in self.statuses if status.refuses])

    @property
    def known_wait_ms(self) -> int | None:
        """Milliseconds until only calls in flight are in the way, which may end at any moment. ``None``: none is."""
        refusing = [status for status in self.statuses if status.refuses]
        if not any(status.at_latest for status in refusing):
            return None
        return self._longest([status.retry_after_seconds for status in refusing if not status.at_latest]) or 0

    def _longest(self, waits: Sequence[float | None]) -> int | None:
        if None in waits:
            return None
        return max((round((wait or 0) * MILLI) for wait in waits), default=self.unread_wait_ms)


def _seconds(wait: float | None) -> float:
    return math.inf if wait is None else wait


Outcome: TypeAlias = Grant | Denial


class Receipt(Protocol):
    """Where a store notes a grant before the tokens leave: an interrupt then never loses track of them."""

    _grant: Grant | DeferredGrant | None


class NotedGrant:
    """A receipt that is nothing else; a lease is its own."""

    __slots__ = ("_grant",)

    def __init__(self) -> None:
        self._grant: Grant | DeferredGrant | None = None


class FastPath(Protocol):
    """Draws by one entity on one resource, and their settlements, without a plan: the way of a warm grant.

    It knows the route (which legs, which buckets), and never waits. It goes with the route: a store makes one when it
    grants, and drops it when limits or hierarchies change.
    """

    legs: tuple[Leg, ...]

    @property
    def lends(self) -> bool:
        """Whether its grants hold slots of calls in flight: the last part of a deferred one."""

    def end(self, grant: DeferredGrant) -> bool:
        """Give back every slot of a deferred grant of this path, and nothing else.

        ``False``: this path cannot, and nothing was changed; :meth:`Space.settle` can.
        """

    def draw(self, wanted: object, now: int, receipt: Receipt) -> bool | Denial:
        """Take ``wanted``, as the caller gave it. ``True``: granted, and noted on the receipt.

        ``False``: this path cannot decide it, and nothing was taken. :meth:`Space.draw` can.
        """

    def settle(
        self, grant: Grant | DeferredGrant, totals: Mapping[str, int], now: int, settlement: Settlement
    ) -> bool:
        """Let a grant of this path have taken ``totals`` of the limits they name: book the difference on every leg.

        More is taken, into debt if need be, or some comes back, up to the ceiling. ``True``: booked, and noted in the
        settlement in the step that books. ``False``: this path cannot, and nothing was booked; :meth:`Space.settle`
        can.
        """

    def wanted(self, deferred: DeferredGrant) -> Mapping[str, int]:
        """What a deferred grant of this path took."""

    def grant(self, deferred: DeferredGrant) -> Grant:
        """The grant that was deferred."""


class HoldChange(NamedTuple):
    """Slots by which a hold is to change: positive ones are taken without asking, negative ones given back."""

    hold: Hold
    slots: int


class Posting(NamedTuple):
    """Millitokens to book on one leg after the fact, per limit: positive taken, negative given back.

    Limits of calls in flight are changed by ``holds``. ``undo``: it was never used, so nothing of it is counted, and
    neither is what limits that only watch would have refused.
    """

    leg: Leg
    deltas_milli: Mapping[str, int]
    holds: Sequence[HoldChange] = ()
    undo: bool = False


class Settlement:
    """What is to be booked, until it is: ``postings`` has what is left of it.

    A store notes here what it books, in the step that books: a caller that was interrupted asks again for what is
    left, and all of it is booked once. A store that cannot know what became of a step says that what is left is
    ``doubtful``. With a ``change`` of the lease's record all of it is booked in the step that makes the change, or
    nothing is, and ``RecordMoved`` is raised.
    """

    __slots__ = ("doubtful", "postings")

    postings: Sequence[Posting] | None
    """``None`` if it is not spelled out which leg is to book what; then all of it is left."""

    def __init__(self, postings: Sequence[Posting]) -> None:
        self.postings = postings
        self.doubtful = False

    @property
    def change(self) -> RecordChange | None:
        """What changes in the record of the lease; most leases have none."""
        return None


class Look(NamedTuple):
    """What a draw would meet: its legs, and every status for the amounts asked."""

    legs: tuple[Leg, ...]
    statuses: tuple[LimitStatus, ...]


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
        """The live buckets of an entity."""

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
    ) -> Plan[None]:
        """Replace what one level says."""

    def get_config(self, scope: Scope) -> Plan[Config]:
        """What one level says; empty if nothing."""

    def delete_config(self, scope: Scope, principal: str | None, propagate: bool, now: int) -> Plan[None]:
        """Let one level say nothing."""

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
