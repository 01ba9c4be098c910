"""The levels that a level stands before: what they say does not hold where it has limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from zae_limiter.models.level_changes import ReplacedLimit
from zae_limiter.models.limit import Limit, check_limits
from zae_limiter.naming import MAX_PAGE
from zae_limiter.repository.core import Core
from zae_limiter.running.plan import Plan
from zae_limiter.stores.protocol import Config, Scope, scopes_for

WiderLevels: TypeAlias = Sequence[tuple[Scope, tuple[Limit, ...]]]
"""Levels that have limits, and these."""


def levels_behind(core: Core, scope: Scope) -> Plan[WiderLevels]:
    """Those levels that would give the limits if ``scope`` had none.

    That is one, the nearest that has limits. Behind an entity's limits for all resources there is one for each
    resource that has limits, unless the entity has others there, and the system's for all other resources.
    """
    if scope.level in ("system", "total"):
        return []  # a total stands before nothing: it holds besides
    if scope.level == "entity_default":
        return [*(yield from _resources_behind(core, str(scope.entity_id))), *(yield from _first(core, [Scope()]))]
    if scope.level == "resource":
        return (yield from _first(core, [Scope()]))
    return (yield from _first(core, scopes_for(str(scope.entity_id), str(scope.resource))[1:]))


def replaced_by(limits: Sequence[Limit], behind: WiderLevels) -> tuple[ReplacedLimit, ...]:
    """The limits of wider levels that no longer hold."""
    names = {limit.name for limit in limits}
    return tuple(
        ReplacedLimit(limit, scope.level, scope.resource if scope.level == "resource" else None)
        for scope, theirs in behind
        for limit in theirs
        if limit.name not in names
    )


def merged(scope: Scope, limits: tuple[Limit, ...], behind: WiderLevels) -> tuple[Limit, ...]:
    """These limits, and those of the wider level whose names they lack.

    An entity's limits for all resources are the same for each: there those of the system are kept, and not those of
    single resources.
    """
    kept = [one for one in behind if scope.level != "entity_default" or one[0].level == "system"]
    return check_limits([*limits, *(replaced.limit for replaced in replaced_by(limits, kept))])


def _first(core: Core, scopes: Sequence[Scope]) -> Plan[WiderLevels]:
    for scope in scopes:
        limits = yield from _limits(core, scope)
        if limits:
            return [(scope, limits)]
    return []


def _resources_behind(core: Core, entity_id: str) -> Plan[WiderLevels]:
    found: list[tuple[Scope, tuple[Limit, ...]]] = []
    cursor: str | None = None
    while True:
        page = yield from core.call("get_config", core.space.resources_with_defaults(MAX_PAGE, cursor))
        for resource in page.items:
            limits = yield from _limits(core, Scope(None, resource))
            if limits and not (yield from _limits(core, Scope(entity_id, resource))):
                found.append((Scope(None, resource), limits))
        cursor = page.next_cursor
        if cursor is None:
            return found


def _limits(core: Core, scope: Scope) -> Plan[tuple[Limit, ...]]:
    config: Config = yield from core.call("get_config", core.space.get_config(scope))
    return config.limits
