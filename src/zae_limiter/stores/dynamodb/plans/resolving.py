"""Which limits hold: four levels and the entity itself, read at once and remembered for a while.

What is remembered may be old. That is safe, because every write is guarded by the version of what was resolved: a
bucket that obeys something newer refuses it, and then it is resolved again with consistent reads (``fresh``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from zae_limiter.config_cache import ConfigCache
from zae_limiter.models.choices import OnUnavailable
from zae_limiter.models.limit import Limit
from zae_limiter.models.reports import CacheStats
from zae_limiter.running.plan import Bell, Plan
from zae_limiter.stores.dynamodb.errors import verb
from zae_limiter.stores.dynamodb.items import config_of
from zae_limiter.stores.dynamodb.keys import config_key, meta_key, namespace_id_key
from zae_limiter.stores.dynamodb.plans.asking import Asking, Window
from zae_limiter.stores.dynamodb.plans.base import SpaceBase
from zae_limiter.stores.dynamodb.requests import AwaitNews, DeadlineOver
from zae_limiter.stores.dynamodb.values import decode_item
from zae_limiter.stores.dynamodb.versions import Versions, of_call
from zae_limiter.stores.dynamodb.writes import Terms
from zae_limiter.stores.judging import check_names, no_limits
from zae_limiter.stores.protocol import Draw, Leg, Resolution, scopes_for

HIGHEST_TREE = 100
"""Levels of a hierarchy that are followed; cycles are refused when they are made."""


class Standing(NamedTuple):
    """How an entity stands on a resource: its limits (``leg`` is ``None`` without any), and its parent."""

    entity_id: str
    resource: str
    leg: Leg | None
    cv: str
    meta: int
    parent_id: str | None
    cascade: bool
    on_unavailable: OnUnavailable | None
    read_in: Window

    def terms(self) -> Terms | None:
        """What its bucket is to obey."""
        return None if self.leg is None else Terms(self.leg, self.cv, self.parent_id, self.cascade)

    def terms_given(self, limits: tuple[Limit, ...]) -> Terms:
        """What its bucket is to obey when limits came with the call."""
        leg = Leg(self.entity_id, self.resource, limits, "call")
        return Terms(leg, of_call(limits, self.meta), self.parent_id, self.cascade)


class Route(NamedTuple):
    """What every bucket of a draw is to obey; ``fresh``: as it is, not as it was remembered."""

    terms: list[Terms]
    fresh: bool


class ResolvingPlans(SpaceBase):
    """From an entity and a resource to terms."""

    def __init__(self, asking: Asking, namespace: str, *, corrected: bool, config_ttl_ms: int) -> None:
        super().__init__(asking, namespace, corrected=corrected)
        self._standings: ConfigCache[tuple[str, str], Standing] = ConfigCache(config_ttl_ms)
        self._under_way: dict[tuple[int, str, str], list[Bell]] = {}
        self._on_unavailable: OnUnavailable | None = None

    @verb
    def resolve(self, entity_id: str, resource: str) -> Plan[Resolution]:
        until = yield from self.asking.window()
        yield from self.checked_ns(until)
        standing = yield from self.standing(entity_id, resource, until, fresh=True)
        if standing.leg is None:
            return Resolution(None, standing.on_unavailable, None)
        return Resolution(list(standing.leg.limits), standing.on_unavailable, standing.leg.source)

    def remembered_on_unavailable(self) -> OnUnavailable | None:
        return self._on_unavailable

    def invalidate_config_cache(self) -> None:
        self._standings.clear()

    def cache_stats(self) -> CacheStats:
        return self._standings.stats()

    def forget_everything(self) -> None:
        super().forget_everything()
        self._standings.clear()

    def terms_for(self, draw: Draw, until: Window, *, fresh: bool) -> Plan[Route]:
        """What every bucket of a draw is to obey, the entity's own first."""
        if draw.legs is not None:
            return (yield from self._terms_again(draw.legs, draw.wanted, until, fresh))
        chain = yield from self._chain(draw.entity_id, draw.resource, until, fresh)
        own = chain[0].terms() if draw.limits is None else chain[0].terms_given(draw.limits)
        if own is None or not own.leg.names.issuperset(draw.wanted):
            if chain[0].read_in is not until:  # it may have been configured a moment ago
                return (yield from self.terms_for(draw, until, fresh=True))
            if own is None:
                raise no_limits(draw.entity_id, draw.resource)
            check_names(own.leg, draw.wanted)
        terms = [own, *(terms for standing in chain[1:] if (terms := standing.terms()) is not None)]
        return Route(terms, all(standing.read_in is until for standing in chain))

    def _terms_again(
        self, legs: tuple[Leg, ...], wanted: Mapping[str, int], until: Window, fresh: bool
    ) -> Plan[Route]:
        """A lease takes more where it took first, but by the limits that hold now."""
        terms = []
        fresh_all = True
        for leg in legs:
            standing = yield from self.standing(leg.entity_id, leg.resource, until, fresh=fresh)
            given = standing.terms_given(leg.limits)
            terms.append(given if leg.source == "call" else standing.terms() or given)
            fresh_all = fresh_all and standing.read_in is until
        if not terms[0].leg.names.issuperset(wanted):
            if not fresh_all:
                return (yield from self._terms_again(legs, wanted, until, True))
            check_names(terms[0].leg, wanted)
        return Route(terms, fresh_all)

    def _chain(self, entity_id: str, resource: str, until: Window, fresh: bool) -> Plan[list[Standing]]:
        """The entity and the ancestors it cascades to."""
        standing = yield from self.standing(entity_id, resource, until, fresh=fresh)
        chain = [standing]
        while standing.cascade and standing.parent_id is not None and len(chain) < HIGHEST_TREE:
            standing = yield from self.standing(standing.parent_id, resource, until, fresh=fresh)
            chain.append(standing)
        return chain

    def standing(self, entity_id: str, resource: str, until: Window, *, fresh: bool) -> Plan[Standing]:
        """How one entity stands: as remembered, or (``fresh``) as it is."""
        if fresh or not self._standings.remembers:
            return (yield from self._read_standing(entity_id, resource, until))
        place = (entity_id, resource)
        reading = (os.getpid(), entity_id, resource)  # what a parent reads stays behind in a fork
        bells: list[Bell] = []
        while True:
            known = self._standings.get(place, until.started)
            if known is not None:
                return known
            others = self._under_way.setdefault(reading, bells)
            if others is bells:
                break
            bell = Bell()
            others.append(bell)
            if self._under_way.get(reading) is not others:
                continue  # it has just ended
            yield from AwaitNews(bell, until.give_up_at)
            if self._under_way.get(reading) is others:
                raise DeadlineOver("another caller is still reading the limits")
        try:
            return (yield from self._read_standing(entity_id, resource, until))
        finally:
            self._under_way.pop(reading, None)
            for bell in bells:
                bell.ring()

    def _read_standing(self, entity_id: str, resource: str, until: Window) -> Plan[Standing]:
        ns = yield from self.ns(until)
        scopes = scopes_for(entity_id, resource)
        while True:
            configs = [config_key(ns, scope.entity_id, scope.resource) for scope in scopes]
            meta, registered = meta_key(ns, entity_id), namespace_id_key(ns)
            items = yield from self.asking.get_all([registered, *configs, meta], until)
            if registered in items:
                self.live_ns(items[registered])
                break
            ns = yield from self.checked_ns(until)  # purged; the name may have been given again
        found = [config_of(items.get(key)) for key in configs]
        leg = next(
            (
                Leg(entity_id, resource, config.limits, scope.level)
                for scope, config in zip(scopes, found, strict=True)
                if config.limits
            ),
            None,
        )
        entity = decode_item(items[meta]) if meta in items else {}
        meta_version = entity.get("config_version", 0)
        own, default, on_resource, system = (config.version for config in found)
        versions = Versions(system, on_resource, default, own, meta_version)
        standing = Standing(
            entity_id,
            resource,
            leg,
            str(versions),
            meta_version,
            entity.get("parent_id"),
            entity.get("cascade", False),
            found[-1].on_unavailable,
            until,
        )
        self._on_unavailable = standing.on_unavailable
        self._standings.put((entity_id, resource), standing, until.started)
        return standing
