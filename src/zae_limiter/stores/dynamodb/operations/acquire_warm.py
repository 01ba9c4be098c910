"""Warm acquires: every leg is remembered, and its first write is granted, as nearly all are.

:func:`warm_legs` finds these legs, and decides nothing that the rest of an acquire would decide otherwise. Where
anything is unusual there are none, and everything is looked at in turn; where nothing is, that comes to the same
writes. A test holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from zae_limiter.bucket import FURTHEST_AHEAD_MS, MILLI
from zae_limiter.stores.dynamodb.config_resolver import HIGHEST_TREE, ResolvedConfig
from zae_limiter.stores.dynamodb.intents import Terms
from zae_limiter.stores.dynamodb.operations.acquire_legs import AcquireLeg
from zae_limiter.stores.limit_statuses import knows
from zae_limiter.stores.protocol import leg_after

if TYPE_CHECKING:
    from zae_limiter.stores.dynamodb.operations.acquire import Acquire


def warm_legs(acquire: Acquire) -> Sequence[AcquireLeg]:
    """The legs of a draw, if all of them can be written at once as they are.

    Their terms and their buckets are remembered and of one version, no bucket is sharded, nothing was refused
    there of late, no clock that is wrong has written to one, and of several none looks drained.
    """
    parts, draw, legs = acquire.parts, acquire.draw, list[AcquireLeg]()
    if parts.namespace.known_ns is None or draw.limits is not None or draw.legs is not None or draw.record:
        return ()
    configs, entity_id = parts.resolver.configs, draw.entity_id
    counted: frozenset[str] | None = None
    while True:
        resolved = configs.peek((entity_id, draw.resource), acquire.deadline.started)
        if resolved is None or resolved.switches:
            return ()
        for part in (resolved,) if resolved.total is None else (resolved, resolved.total):
            leg = _warm_leg(acquire, part, counted)
            if leg is None:
                return ()
            counted = leg.leg.names if counted is None else counted | leg.leg.names
            legs.append(leg)
        if not resolved.cascade or resolved.parent_id is None:
            break
        if len(legs) >= HIGHEST_TREE:
            return ()
        entity_id = resolved.parent_id
    known = legs[0].leg.known.issuperset(draw.wanted) or knows([leg.leg for leg in legs], draw.wanted)
    if not known or (len(legs) > 1 and (watches(legs) or not look_healthy(acquire, legs))):
        return ()
    configs.hits += len(legs)
    return legs


def _warm_leg(acquire: Acquire, resolved: ResolvedConfig, counted: frozenset[str] | None) -> AcquireLeg | None:
    """One of them, after those that count these limits; ``None`` if something about it is unusual."""
    key, own, cache = resolved.bucket, resolved.leg, acquire.parts.cache
    cached = cache.buckets.get(key)
    if (
        own is None
        or cached is None
        or cached.denied
        or cached.throttled
        or cached.newest > acquire.now + FURTHEST_AHEAD_MS
        or cached.snapshot.cv != resolved.cv
        or cached.snapshot.shards != 1
        or key in cache.sharded
    ):
        return None
    own = own if counted is own.cascaded is None else leg_after(own, counted)
    leg = AcquireLeg(key, Terms(own, resolved.cv, resolved.parent_id, resolved.cascade), acquire.draw)
    for limit in own.limits:
        if leg.needed.get(limit.name, 0) > limit.burst * MILLI and limit.enforce:
            return None
    leg.snapshot = cached.snapshot
    return leg


def look_healthy(acquire: Acquire, legs: Sequence[AcquireLeg]) -> bool:
    """Whether none of several legs looks drained."""
    return not any(leg.looks_drained(acquire.parts.cache, acquire.now) for leg in legs)


def watches(legs: Sequence[AcquireLeg]) -> bool:
    """Whether limits only watch in some of these. Then one leg is written after the other: what a leg counts that
    those before it have counted too depends on what those say."""
    return any(leg.work is not None and not all(limit.enforce for limit in leg.leg.limits) for leg in legs)
