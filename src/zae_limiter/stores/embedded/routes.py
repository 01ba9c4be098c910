"""From an entity and a resource to the buckets an acquire takes from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from zae_limiter.models.access import Access, strictest
from zae_limiter.models.choices import OnUnavailable
from zae_limiter.models.limit import Limit
from zae_limiter.stores.embedded.bounded_dict import BoundedDict
from zae_limiter.stores.limit_statuses import no_limits
from zae_limiter.stores.protocol import Leg, Scope, in_order, scopes_for

if TYPE_CHECKING:
    from zae_limiter.stores.embedded.tables import Tables

MAX_ROUTES = 100_000
MAX_DEFAULTS = 1_000


class Route(NamedTuple):
    """The entity's own leg, if it has limits, those of the ancestors it cascades to, and the access switches that
    concern it, the nearest first."""

    own: Leg | None
    ancestors: tuple[Leg, ...]
    switches: tuple[Access, ...] = ()


class Routes:
    """Resolved routes of one namespace, good as long as its epoch stands still."""

    __slots__ = ("_defaults", "_epoch", "_known", "has_switches", "on_unavailable")

    def __init__(self) -> None:
        self._epoch = -1
        self._known: BoundedDict[tuple[str, str], Route] = BoundedDict(MAX_ROUTES)
        self._defaults: BoundedDict[str, tuple[Scope, tuple[Limit, ...]] | None] = BoundedDict(MAX_DEFAULTS)
        self.on_unavailable: OnUnavailable | None = None
        self.has_switches = False

    def access(self, tables: Tables, entity_id: str, resource: str, now: int) -> Access | None:
        """The access switch that decides an acquire. ``None``: the limits do."""
        switches = self._route(tables, entity_id, resource).switches
        return strictest(switches, now) if switches else None

    def remembered_access(self, entity_id: str, resource: str, now: int) -> Access | None:
        """The same, as it was when the route was last resolved."""
        try:
            return strictest(self._known[entity_id, resource].switches, now)
        except KeyError:
            return None

    def legs(self, tables: Tables, entity_id: str, resource: str, limits: tuple[Limit, ...] | None) -> tuple[Leg, ...]:
        """Every leg of an acquire, the entity's own first. ``limits`` stand in for the entity's own."""
        route = self._route(tables, entity_id, resource)
        own = route.own if limits is None else Leg(entity_id, resource, limits, "call")
        if own is None:
            raise no_limits(entity_id, resource)
        return (own, *route.ancestors) if limits is None else in_order((own, *route.ancestors))

    def leg(self, tables: Tables, entity_id: str, resource: str) -> Leg | None:
        """The leg of one entity as it is configured now."""
        return self._route(tables, entity_id, resource).own

    def above(self, tables: Tables, entity_id: str, resource: str) -> tuple[str, ...]:
        """The entities that an acquire by this one also takes from."""
        return tuple(leg.entity_id for leg in self._route(tables, entity_id, resource).ancestors)

    def legs_of_found(
        self,
        tables: Tables,
        entity_id: str,
        resource: str,
        limits: tuple[Scope, tuple[Limit, ...]] | None,
        parent_id: str | None,
    ) -> tuple[Leg, ...] | None:
        """Every leg of an acquire by an entity of which is known what ``limits`` it has of its own, if any, and which
        parent it cascades to, if it does. It is not remembered.

        ``None``: no level has limits for it, or there are access switches, which may concern it.
        """
        self._look_at_epoch(tables)
        found = limits or self._default(tables, resource)
        if found is None or self.has_switches:
            return None
        own = Leg(entity_id, resource, found[1], found[0].level)
        if parent_id is None:
            return (own,)
        parent = self._route(tables, parent_id, resource)
        above = parent.ancestors if parent.own is None else (parent.own, *parent.ancestors)
        return in_order((own, *above))

    def _route(self, tables: Tables, entity_id: str, resource: str) -> Route:
        self._look_at_epoch(tables)
        try:
            return self._known[entity_id, resource]
        except KeyError:
            above = cascade(tables, entity_id)
            ancestors = [leg for ancestor in above if (leg := self._configured_leg(tables, ancestor, resource))]
            own = self._configured_leg(tables, entity_id, resource)
            if own is not None:
                own, *ancestors = in_order((own, *ancestors))
            switches = switches_on(tables, [entity_id, *above], resource) if self.has_switches else ()
            route = self._known[entity_id, resource] = Route(own, tuple(ancestors), switches)
            return route

    def _look_at_epoch(self, tables: Tables) -> None:
        epoch = tables.epoch()
        if epoch != self._epoch:
            self._known.clear()
            self._defaults.clear()
            self._epoch = epoch
            system = tables.config(Scope())
            self.on_unavailable = system.on_unavailable if system else None
            self.has_switches = bool(tables.switches(None, 1))

    def _configured_leg(self, tables: Tables, entity_id: str, resource: str) -> Leg | None:
        *own, _, _ = scopes_for(entity_id, resource)
        found = tables.limits_in(own) or self._default(tables, resource)
        return None if found is None else Leg(entity_id, resource, found[1], found[0].level)

    def _default(self, tables: Tables, resource: str) -> tuple[Scope, tuple[Limit, ...]] | None:
        """The limits of entities that have none of their own."""
        try:
            return self._defaults[resource]
        except KeyError:
            found = self._defaults[resource] = tables.limits_in((Scope(None, resource), Scope()))
            return found


def switches_on(tables: Tables, entity_ids: Iterable[str], resource: str | None) -> tuple[Access, ...]:
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


def cascade(tables: Tables, entity_id: str) -> list[str]:
    """The ancestors an acquire also takes from: upwards while each entity cascades."""
    ancestors: list[str] = []
    entity = tables.entity(entity_id)
    while entity is not None and entity.cascade and entity.parent_id is not None:
        ancestors.append(entity.parent_id)
        entity = tables.entity(entity.parent_id)
    return ancestors
