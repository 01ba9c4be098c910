"""Which limits of wider levels a level of a manifest replaces, as everything will be once it is applied. Pure.

A level replaces wider ones whole, so a limit that only a wider level has no longer holds where a nearer one is set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from zae_limiter.manifests.model import SYSTEM, Kind, Thing, limits_of, resource_defaults
from zae_limiter.models.level_changes import ReplacedLimit
from zae_limiter.models.limit import Limit
from zae_limiter.naming import DEFAULT_RESOURCE, TOTAL_RESOURCE
from zae_limiter.repository.wider_levels import replaced_by
from zae_limiter.stores.protocol import Scope

LimitsAfter: TypeAlias = Callable[[Thing], Sequence[Limit]]
"""The limits that a level will have; none, if nothing is known of it."""


def wider_things(thing: Thing) -> tuple[Thing, ...]:
    """The levels behind one, the nearest first; behind an entity's limits for all resources there are others too."""
    if thing.kind is Kind.RESOURCE:
        return (SYSTEM,)
    if thing.kind is not Kind.LIMITS or thing.resource == TOTAL_RESOURCE:
        return ()
    if thing.resource == DEFAULT_RESOURCE:
        return (SYSTEM,)
    return limits_of(thing.entity_id, DEFAULT_RESOURCE), resource_defaults(thing.resource), SYSTEM


def replaced_limits(thing: Thing, after: LimitsAfter, resources: Iterable[str]) -> tuple[ReplacedLimit, ...]:
    """The limits of wider levels that no longer hold. ``resources`` are those that may have limits of their own."""
    limits = after(thing)
    if not limits:
        return ()
    nearest = next((wider for wider in wider_things(thing) if after(wider)), None)
    behind = [] if nearest is None else [nearest]
    if thing.kind is Kind.LIMITS and thing.resource == DEFAULT_RESOURCE:
        behind = [
            resource_defaults(resource)
            for resource in sorted(resources)
            if not after(limits_of(thing.entity_id, resource))
        ] + behind
    return replaced_by(limits, [(_scope(wider), tuple(after(wider))) for wider in behind])


def _scope(thing: Thing) -> Scope:
    return Scope(thing.entity_id or None, thing.resource or None)
