"""From an entity and a resource to the buckets an acquire takes from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from zae_limiter.models.access import Access, live, strictest
from zae_limiter.models.choices import OnUnavailable
from zae_limiter.models.limit import Limit
from zae_limiter.naming import TOTAL_RESOURCE
from zae_limiter.stores.embedded.bounded_dict import BoundedDict
from zae_limiter.stores.limit_statuses import no_limits
from zae_limiter.stores.protocol import Leg, Scope, in_order, scopes_for

if TYPE_CHECKING:
    from zae_limiter.stores.embedded.tables import SharedTables

MAX_ROUTES = 100_000
MAX_DEFAULTS = 1_000

LevelLimits: TypeAlias = tuple[tuple[Scope, tuple[Limit, ...]], ...]
"""Levels that have limits, the nearest first, and their limits."""


class Route(NamedTuple):
    """The entity's own leg, which may have no limits, and those besides that have some: its total, and the legs and
    totals of the ancestors it cascades to. And the access switches that concern it, the nearest first."""

    own: Leg
    others: tuple[Leg, ...]
    switches: tuple[Access, ...] = ()

    @property
    def legs(self) -> tuple[Leg, ...]:
        """Those that an acquire by a descendant takes from."""
        return (self.own, *self.others) if self.own.limits else self.others


class Routes:
    """Resolved routes of one namespace, good as long as its epoch stands still."""

    __slots__ = ("_defaults", "_epoch", "_known", "has_switches", "on_unavailable")

    def __init__(self) -> None:
        self._epoch = -1
        self._known: BoundedDict[tuple[str, str], Route] = BoundedDict(MAX_ROUTES)
        self._defaults: BoundedDict[str, LevelLimits] = BoundedDict(MAX_DEFAULTS)
        self.on_unavailable: OnUnavailable | None = None
        self.has_switches = False

    def access(self, tables: SharedTables, entity_id: str, resource: str, now: int) -> Access | None:
        """The access switch that decides an acquire. ``None``: the limits do."""
        switches = self._route(tables, entity_id, resource).switches
        return strictest(switches, now) if switches else None

    def remembered_access(self, entity_id: str, resource: str, now: int) -> Access | None:
        """The same, as it was when the route was last resolved."""
        try:
            return strictest(self._known[entity_id, resource].switches, now)
        except KeyError:
            return None

    def legs(
        self, tables: SharedTables, entity_id: str, resource: str, limits: tuple[Limit, ...] | None
    ) -> tuple[Leg, ...]:
        """Every leg of an acquire, the entity's own first. ``limits`` stand in for the entity's own."""
        own, others, _ = self._route(tables, entity_id, resource)
        if limits is not None:
            own = Leg(entity_id, resource, limits, "call", known=own.known)
        elif not own.limits and not others:
            raise no_limits(entity_id, resource)
        return (own, *others) if limits is None else in_order((own, *others))

    def leg(self, tables: SharedTables, entity_id: str, resource: str) -> Leg | None:
        """The leg of one entity as it is configured now, if it has limits."""
        own = self._route(tables, entity_id, resource).own
        return own if own.limits else None

    def above(self, tables: SharedTables, entity_id: str, resource: str) -> tuple[str, ...]:
        """The entities that an acquire by this one also takes from."""
        others = self._route(tables, entity_id, resource).others
        return tuple(dict.fromkeys(leg.entity_id for leg in others if leg.entity_id != entity_id))

    def legs_of_found(
        self, tables: SharedTables, entity_id: str, resource: str, found: LevelLimits, parent_id: str | None
    ) -> tuple[Leg, ...] | None:
        """Every leg of an acquire by an entity of which is known which limits were ``found`` of its own, and which
        parent it cascades to, if it does. It is not remembered.

        ``None``: none has limits, or there are access switches, which may concern it.
        """
        self._look_at_epoch(tables)
        if self.has_switches:
            return None
        own, *total = self._legs_of(tables, entity_id, resource, found)
        ancestors = () if parent_id is None else self._route(tables, parent_id, resource).legs
        return in_order((own, *total, *ancestors)) if own.limits or total or ancestors else None

    def _route(self, tables: SharedTables, entity_id: str, resource: str) -> Route:
        self._look_at_epoch(tables)
        try:
            return self._known[entity_id, resource]
        except KeyError:
            own, *others = self._configured_legs(tables, entity_id, resource)
            above = [] if resource == TOTAL_RESOURCE else cascade(tables, entity_id)
            for ancestor in above:
                others += [leg for leg in self._configured_legs(tables, ancestor, resource) if leg.limits]
            own, *others = in_order((own, *others))
            switches = switches_on(tables, [entity_id, *above], resource) if self.has_switches else ()
            route = self._known[entity_id, resource] = Route(own, tuple(others), switches)
            return route

    def _look_at_epoch(self, tables: SharedTables) -> None:
        epoch = tables.epoch()
        if epoch != self._epoch:
            self._known.clear()
            self._defaults.clear()
            self._epoch = epoch
            system = tables.config(Scope())
            self.on_unavailable = system.on_unavailable if system else None
            self.has_switches = bool(tables.switches(None, 1))

    def _configured_legs(self, tables: SharedTables, entity_id: str, resource: str) -> tuple[Leg, ...]:
        """The leg of an entity on a resource, and its total if it has one. The total is a leg by itself, on ``*``."""
        total = Scope(entity_id, TOTAL_RESOURCE)
        if resource == TOTAL_RESOURCE:
            return (leg_of(entity_id, resource, tables.limits_in((total,))),)
        *own, _, _ = scopes_for(entity_id, resource)
        return self._legs_of(tables, entity_id, resource, tables.limits_in((*own, total)))

    def _legs_of(self, tables: SharedTables, entity_id: str, resource: str, found: LevelLimits) -> tuple[Leg, ...]:
        """Likewise, from what was found for the entity."""
        total = tuple(one for one in found if one[0].resource == TOTAL_RESOURCE)
        if total:
            found = tuple(one for one in found if one not in total)
        own = leg_of(entity_id, resource, found + self._default(tables, resource))
        return (own, leg_of(entity_id, TOTAL_RESOURCE, total)) if total else (own,)

    def _default(self, tables: SharedTables, resource: str) -> LevelLimits:
        """The levels of entities that have no limits of their own."""
        try:
            return self._defaults[resource]
        except KeyError:
            found = self._defaults[resource] = tables.limits_in((Scope(None, resource), Scope()))
            return found


def leg_of(entity_id: str, resource: str, levels: Sequence[tuple[Scope, tuple[Limit, ...]]]) -> Leg:
    """The leg of an entity: the nearest level gives its limits, and all of them the names that are known."""
    if not levels:
        return Leg(entity_id, resource, (), "system")
    known = frozenset(limit.name for _, limits in levels for limit in limits)
    nearest, limits = levels[0]
    return Leg(entity_id, resource, limits, nearest.level, known=known)


def switches_on(tables: SharedTables, entity_ids: Iterable[str], resource: str | None) -> tuple[Access, ...]:
    """The access switches that concern an acquire by the first of these entities, which cascades to the others.

    Without a ``resource``: those of the entities on any resource, and the system's.
    """
    scopes: dict[Scope, None] = {}
    for entity_id in entity_ids:
        scopes |= dict.fromkeys(
            tables.scopes_of(entity_id) if resource is None else scopes_for(entity_id, resource)[:2]
        )
    wide = (Scope(),) if resource is None else (Scope(None, resource), Scope())
    configs = [tables.config(scope) for scope in (*scopes, *wide)]
    return tuple(config.access for config in configs if config is not None and config.access is not None)


def live_switches(tables: SharedTables, entity_id: str, resource: str | None, now: int) -> tuple[Access, ...]:
    """The access switches that hold for an entity, the one that decides first."""
    return live(switches_on(tables, [entity_id, *cascade(tables, entity_id)], resource), now)


def cascade(tables: SharedTables, entity_id: str) -> list[str]:
    """The ancestors an acquire also takes from: upwards while each entity cascades."""
    ancestors: list[str] = []
    entity = tables.entity(entity_id)
    while entity is not None and entity.cascade and entity.parent_id is not None:
        ancestors.append(entity.parent_id)
        entity = tables.entity(entity.parent_id)
    return ancestors
