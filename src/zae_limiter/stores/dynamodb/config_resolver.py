"""Which limits hold: four levels, the total and the entity itself, read at once and remembered for a while.

What is remembered may be old. That is safe, because every write is guarded by the version of what was resolved: a
bucket that obeys something newer refuses it, and then it is resolved again with consistent reads (``fresh``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from zae_limiter.config_cache import ConfigCache
from zae_limiter.models.access import Access, strictest
from zae_limiter.models.choices import OnUnavailable
from zae_limiter.models.limit import Limit
from zae_limiter.models.reports import CacheStats
from zae_limiter.naming import TOTAL_RESOURCE
from zae_limiter.running.plan import Plan, WakeUp
from zae_limiter.stores.dynamodb.config_versions import Versions, of_call
from zae_limiter.stores.dynamodb.intents import Terms
from zae_limiter.stores.dynamodb.items import NO_ROUTE, config_of, route_of
from zae_limiter.stores.dynamodb.namespace import AccessWatch, Namespace
from zae_limiter.stores.dynamodb.requests import AwaitNews, DeadlineOver, Item
from zae_limiter.stores.dynamodb.schema import Key, access_key, bucket_key, config_key, meta_key, namespace_id_key
from zae_limiter.stores.dynamodb.table_client import Deadline, verb
from zae_limiter.stores.limit_statuses import check_names, knows, no_limits
from zae_limiter.stores.protocol import Draw, Leg, Resolution, in_order, scopes_for

HIGHEST_TREE = 100
"""Levels of a hierarchy that are followed; cycles are refused when they are made."""


class ResolvedConfig(NamedTuple):
    """How an entity stands on a resource: its limits (``leg`` is ``None`` without any), and its parent.

    ``cv`` is the version its bucket is to carry. The end of it, the ``way``, has the versions of the ancestors
    without limits between its bucket and the next one above (see ``config_versions``); ``passed_by`` is what it is
    itself to such a way. ``read_at`` is the moment at which the reading began, ``bucket`` the key of its first shard.
    ``total`` is how the entity stands over all resources together, if it has a total.
    ``switches`` are the access switches of the entity that concern the resource, and of the ancestors on its way.
    """

    entity_id: str
    resource: str
    leg: Leg | None
    cv: str
    meta: int
    passed_by: str
    parent_id: str | None
    cascade: bool
    on_unavailable: OnUnavailable | None
    read_at: int
    bucket: Key
    way: str = ""
    total: ResolvedConfig | None = None
    total_version: int = 0
    switches: tuple[Access, ...] = ()
    read_ms: int = 0
    """When it was read, by the machine's timer."""

    def is_of(self, deadline: Deadline) -> bool:
        """Whether it was read since then, by any caller: what was configured before is in it."""
        return self.read_at > deadline.moment

    def terms(self) -> Terms | None:
        """What its bucket is to obey."""
        return None if self.leg is None else Terms(self.leg, self.cv, self.parent_id, self.cascade)

    def others(self) -> list[Terms]:
        """What the total is to obey, if there is one: it comes after the entity's own bucket."""
        return [] if self.total is None else [self.total.terms_of_caller()]

    def terms_given(self, limits: tuple[Limit, ...]) -> Terms:
        """What its bucket is to obey when limits came with the call."""
        known = frozenset[str]() if self.leg is None else self.leg.known
        return self.terms_of(Leg(self.entity_id, self.resource, limits, "call", known=known))

    def terms_of_caller(self) -> Terms:
        """What its bucket is to obey when it calls. Without limits of its own it has a bucket all the same: what is
        configured for it later is noticed there, by every client."""
        leg = self.leg or Leg(self.entity_id, self.resource, (), "system")
        return Terms(leg, self.cv, self.parent_id, self.cascade)

    def terms_again(self, leg: Leg) -> Terms:
        """What its bucket is to obey when a lease takes more from it: what holds now, or what did if nothing does."""
        if leg.source == "call" or (self.leg is None and leg.limits):
            return self.terms_given(leg.limits)
        return self.terms_of_caller()

    def terms_of(self, leg: Leg) -> Terms:
        """What its bucket is to obey when nothing but a leg says so."""
        return Terms(leg, of_call(leg.limits, self.total_version, self.meta) + self.way, self.parent_id, self.cascade)

    def below(self, above: Sequence[ResolvedConfig]) -> ResolvedConfig:
        """The same, with the way over these ancestors, of which only the last may have limits."""
        if not above:
            return self
        way = "".join(resolved.passed_by for resolved in above if resolved.leg is None)
        read_at = min(self.read_at, *(resolved.read_at for resolved in above))
        passed = [switch for resolved in above if resolved.leg is None for switch in resolved.switches]
        return self._replace(cv=self.cv + way, way=way, read_at=read_at, switches=(*self.switches, *passed))


class Route(NamedTuple):
    """What every bucket of a draw is to obey, and the access switches of the entities it draws from.

    ``fresh``: as it is, not as it was remembered.
    """

    terms: list[Terms]
    fresh: bool
    switches: tuple[Access, ...] = ()
    read_ms: int = 0
    """When the oldest part of it was read, by the machine's timer."""

    def knows(self, wanted: Mapping[str, int]) -> bool:
        """Whether every name is known to a level that was consulted."""
        return knows([terms.leg for terms in self.terms], wanted)


def terms_in_order(terms: Sequence[Terms]) -> list[Terms]:
    """The terms of every leg of a draw: each leg knows what those before it count."""
    legs = in_order(one.leg for one in terms)
    return [one if one.leg is leg else one._replace(leg=leg) for one, leg in zip(terms, legs, strict=True)]


def with_ways(chain: list[ResolvedConfig]) -> list[ResolvedConfig]:
    """An entity and all its ancestors, each that has a bucket with the way above it."""
    if all(resolved.leg is not None for resolved in chain):
        return chain
    ways = []
    above: list[ResolvedConfig] = []
    for resolved in reversed(chain):
        ways.append(resolved.below(above[::-1]))
        if resolved.leg is not None:
            above = []
        above.append(resolved)
    return ways[::-1]


Prefetched = dict[Key, Item | None]
"""Buckets as they were when their limits were read, by the same call. ``None``: it was not there."""


class Reading:
    """Limits that are being read by one caller, and the callers that wait for it until ``over_at``, machine time."""

    __slots__ = ("over_at", "wake_ups")

    def __init__(self, over_at: int) -> None:
        self.wake_ups: list[WakeUp] = []
        self.over_at = over_at


class ConfigResolver:
    """From an entity and a resource to terms."""

    def __init__(self, namespace: Namespace, config_ttl_ms: int) -> None:
        self.namespace = namespace
        self.watch = AccessWatch(namespace)
        self.client = namespace.client
        self.cache = namespace.cache
        self.configs: ConfigCache[tuple[str, str], ResolvedConfig] = ConfigCache(config_ttl_ms)
        self._under_way: dict[tuple[int, str, str], Reading] = {}
        self._on_unavailable: OnUnavailable | None = None
        namespace.when_forgotten(self.configs.clear)

    @verb
    def resolve(self, entity_id: str, resource: str) -> Plan[Resolution]:
        deadline = yield from self.client.new_deadline()
        yield from self.namespace.checked_ns(deadline)
        resolved = yield from self.resolved(entity_id, resource, deadline, fresh=True)
        if resolved.leg is None:
            return Resolution(None, resolved.on_unavailable, None)
        return Resolution(list(resolved.leg.limits), resolved.on_unavailable, resolved.leg.source)

    def remembered_on_unavailable(self) -> OnUnavailable | None:
        return self._on_unavailable

    def remembered_access(self, entity_id: str, resource: str, now: int) -> Access | None:
        """The switch that decides as last seen, however long ago."""
        switches: list[Access] = []
        current: str | None = entity_id
        for _ in range(HIGHEST_TREE):
            resolved = None if current is None else self.configs.last((current, resource))
            if resolved is None:
                break
            switches += resolved.switches
            current = resolved.parent_id if resolved.cascade else None
        return strictest((*switches, *self.watch.concerning(resource)), now)

    def invalidate_config_cache(self) -> None:
        self.configs.clear()

    def cache_stats(self) -> CacheStats:
        return self.configs.stats()

    def terms_for(
        self, draw: Draw, deadline: Deadline, *, fresh: bool, prefetched: Prefetched | None = None
    ) -> Plan[Route]:
        """What every bucket of a draw is to obey, the entity's own first.

        ``prefetched`` gets the buckets that are not remembered, as far as something is read for them anyway.
        """
        if draw.legs is not None:
            return (yield from self._terms_again(draw.legs, draw.wanted, deadline, fresh))
        chain = with_ways((yield from self._chain(draw.entity_id, draw.resource, deadline, fresh, prefetched)))
        own = chain[0].terms_of_caller() if draw.limits is None else chain[0].terms_given(draw.limits)
        terms = [own, *chain[0].others()]
        for resolved in chain[1:]:
            above = resolved.terms()
            terms += [*([] if above is None else [above]), *resolved.others()]
        switches = tuple(switch for resolved in chain for switch in resolved.switches)
        fresh_all = all(resolved.is_of(deadline) for resolved in chain)
        route = Route(terms_in_order(terms), fresh_all, switches, min(resolved.read_ms for resolved in chain))
        if len(terms) > 1 or own.leg.limits:
            if route.knows(draw.wanted):
                return route
        elif route.fresh:
            raise no_limits(draw.entity_id, draw.resource)
        if route.fresh:
            check_names([one.leg for one in terms], draw.wanted)
        # It may have been configured a moment ago.
        return (yield from self.terms_for(draw, deadline, fresh=True, prefetched=prefetched))

    def _terms_again(
        self, legs: tuple[Leg, ...], wanted: Mapping[str, int], deadline: Deadline, fresh: bool
    ) -> Plan[Route]:
        """A lease takes more where it took first, but by the limits that hold now."""
        terms = []
        fresh_all = True
        switches: list[Access] = []
        read_ms = deadline.started
        for leg in legs:
            resolved = yield from self.resolved_with_way(leg.entity_id, leg.resource, deadline, fresh=fresh)
            terms.append(resolved.terms_again(leg))
            fresh_all = fresh_all and resolved.is_of(deadline)
            switches += resolved.switches
            read_ms = min(read_ms, resolved.read_ms)
        route = Route(terms_in_order(terms), fresh_all, tuple(switches), read_ms)
        if not route.knows(wanted):
            if not fresh_all:
                return (yield from self._terms_again(legs, wanted, deadline, True))
            check_names([one.leg for one in terms], wanted)
        return route

    def _chain(
        self, entity_id: str, resource: str, deadline: Deadline, fresh: bool, prefetched: Prefetched | None
    ) -> Plan[list[ResolvedConfig]]:
        """The entity and the ancestors it cascades to."""
        resolved = yield from self.resolved(entity_id, resource, deadline, fresh=fresh, prefetched=prefetched)
        chain = [resolved]
        while resolved.cascade and resolved.parent_id is not None and len(chain) < HIGHEST_TREE:
            resolved = yield from self.resolved(
                resolved.parent_id, resource, deadline, fresh=fresh, prefetched=prefetched
            )
            chain.append(resolved)
        return chain

    def chain(self, entity_id: str, resource: str, deadline: Deadline, *, fresh: bool) -> Plan[list[ResolvedConfig]]:
        """The entity and the ancestors it cascades to, each that has a bucket with the way above it."""
        return with_ways((yield from self._chain(entity_id, resource, deadline, fresh, None)))

    def above(self, entity_id: str, resource: str, deadline: Deadline) -> Plan[tuple[str, ...]]:
        """The entities that an acquire by this one also takes from, if they have limits."""
        chain = yield from self._chain(entity_id, resource, deadline, False, None)
        return tuple(resolved.entity_id for resolved in chain[1:] if resolved.leg is not None)

    def resolved_with_way(
        self, entity_id: str, resource: str, deadline: Deadline, *, fresh: bool, since: Deadline | None = None
    ) -> Plan[ResolvedConfig]:
        """How one entity stands, with the way above its bucket.

        ``fresh``: as it is; of its ancestors, what was read ``since`` then is fresh enough.
        """
        resolved = own = yield from self.resolved(entity_id, resource, deadline, fresh=fresh)
        above: list[ResolvedConfig] = []
        while resolved.cascade and resolved.parent_id is not None and len(above) < HIGHEST_TREE:
            parent_id = resolved.parent_id
            known = None if since is None else self.configs.get((parent_id, resource), deadline.started)
            if known is not None and since is not None and known.is_of(since):
                resolved = known
            else:
                resolved = yield from self.resolved(parent_id, resource, deadline, fresh=fresh)
            above.append(resolved)
            if resolved.leg is not None:
                break
        return own.below(above)

    def resolved(
        self, entity_id: str, resource: str, deadline: Deadline, *, fresh: bool, prefetched: Prefetched | None = None
    ) -> Plan[ResolvedConfig]:
        """How one entity stands: as remembered, or (``fresh``) as it is."""
        if fresh or not self.configs.remembers:
            return (yield from self._read(entity_id, resource, deadline, prefetched))
        place = (entity_id, resource)
        key = (os.getpid(), entity_id, resource)  # what a parent reads stays behind in a fork
        patience = (deadline.give_up_at - deadline.started) // 4
        mine = Reading(deadline.started + patience)
        known = self.configs.get(place, deadline.started)
        while known is None and not (yield from self._is_turn_of(mine, key, deadline, patience)):
            known = self.configs.get(place, deadline.started)
        if known is not None:
            return known
        try:
            return (yield from self._read(entity_id, resource, deadline, prefetched))
        finally:
            if self._under_way.get(key) is mine:
                self._under_way.pop(key, None)
            for wake_up in mine.wake_ups:
                wake_up.wake()

    def _is_turn_of(self, mine: Reading, key: tuple[int, str, str], deadline: Deadline, patience: int) -> Plan[bool]:
        """Wait for another caller that reads the same. Returns whether this one is to read: not if that one ended."""
        other = self._under_way.setdefault(key, mine)
        if other is mine:
            return True
        if deadline.started < other.over_at:
            wake_up = WakeUp()
            other.wake_ups.append(wake_up)
            if self._under_way.get(key) is not other:
                return False  # it has just ended
            yield from AwaitNews(wake_up, min(other.over_at, deadline.give_up_at))
            if self._under_way.get(key) is not other:
                return False
            if other.over_at >= deadline.give_up_at:
                raise DeadlineOver("another caller is still reading the limits")
            mine.over_at = other.over_at + patience
        # The other's event loop may have been stopped, and then its reading never ends: this caller reads instead.
        self._under_way[key] = mine
        return True

    def _read(
        self, entity_id: str, resource: str, deadline: Deadline, prefetched: Prefetched | None
    ) -> Plan[ResolvedConfig]:
        ns = yield from self.namespace.ns(deadline)
        scopes = scopes_for(entity_id, resource)
        read_at = self.client.moment()
        while True:
            configs = [config_key(ns, scope.entity_id, scope.resource) for scope in scopes]
            in_all = config_key(ns, entity_id, TOTAL_RESOURCE)
            meta, registered = meta_key(ns, entity_id), namespace_id_key(ns)
            bucket = bucket_key(ns, entity_id, resource)
            unseen = [] if prefetched is None or self.cache.get(bucket) is not None else [bucket]
            watched = [access_key(ns)] if self.watch.is_due(deadline.started) else []
            keys = dict.fromkeys([registered, *configs, in_all, meta, *watched])  # a total is read by itself, too
            items = yield from self.client.get_all([*keys], deadline, spare=unseen)
            if registered in items:
                self.namespace.live_ns(items[registered])
                break
            ns = yield from self.namespace.checked_ns(deadline)  # purged; the name may have been given again
        if watched:
            self.watch.see(items.get(watched[0]), deadline.started)
        if prefetched is not None:
            prefetched.update((key, items.get(key)) for key in unseen)
        found = [config_of(items.get(key)) for key in configs]
        known = frozenset(limit.name for config in found for limit in config.limits)
        leg = next(
            (
                Leg(entity_id, resource, config.limits, scope.level, known=known)
                for scope, config in zip(scopes, found, strict=True)
                if config.limits
            ),
            None,
        )
        route = route_of(items[meta]) if meta in items else NO_ROUTE
        meta_version = route.version
        own, default, on_resource, system = (config.version for config in found)
        sum_of_all = config_of(items.get(in_all))
        versions = Versions(system, on_resource, default, own, sum_of_all.version, meta_version)
        total = ResolvedConfig(
            entity_id,
            TOTAL_RESOURCE,
            Leg(entity_id, TOTAL_RESOURCE, sum_of_all.limits, "total") if sum_of_all.limits else None,
            versions.of_total,
            meta_version,
            "",
            None,
            False,
            found[-1].on_unavailable,
            read_at,
            bucket_key(ns, entity_id, TOTAL_RESOURCE),
            total_version=versions.total,
            read_ms=deadline.started,
        )
        if total.leg is not None or resource == TOTAL_RESOURCE:
            self.configs.put((entity_id, TOTAL_RESOURCE), total, deadline.started)
        if resource == TOTAL_RESOURCE:
            return total
        resolved = ResolvedConfig(
            entity_id,
            resource,
            leg,
            str(versions),
            meta_version,
            versions.passed_by,
            route.parent_id,
            route.cascade,
            found[-1].on_unavailable,
            read_at,
            bucket,
            total=None if total.leg is None else total,
            total_version=versions.total,
            switches=tuple(config.access for config in found if config.access is not None),
            read_ms=deadline.started,
        )
        self._on_unavailable = resolved.on_unavailable
        self.configs.put((entity_id, resource), resolved, deadline.started)
        return resolved
