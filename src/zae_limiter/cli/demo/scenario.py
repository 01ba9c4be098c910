"""The entities of the demo: one organisation, two projects, five keys, and limits on every level.

All four levels of configuration are used::

    system                     entities without nearer limits      key-index and search, on embed
    resource gpt-4             every key that has none of its own  key-app, key-agent
    entity, any resource       the organisation                    acme
    entity, one resource       projects, the noisy key, budgets    chat, search, key-noisy, key-web

Keys cascade to their project and projects to the organisation, so one call takes from three buckets. A
:class:`Place` is one of those buckets: an entity's use of one resource.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from zae_limiter import BucketStatus, Limit, LimitLevel, RateLimiter, ValidationError

CHAT_MODEL = "gpt-4"
EMBEDDER = "embed"

PARENTS: dict[str, str | None] = {
    "acme": None,
    "chat": "acme",
    "key-web": "chat",
    "key-app": "chat",
    "key-noisy": "chat",
    "search": "acme",
    "key-agent": "search",
    "key-index": "search",
}
"""Every entity and the one above it, in the order they are created and shown."""

RESOURCE_OF = {
    "key-web": CHAT_MODEL,
    "key-app": CHAT_MODEL,
    "key-noisy": CHAT_MODEL,
    "key-agent": CHAT_MODEL,
    "key-index": EMBEDDER,
}
"""What each key calls."""


def rpm_and_tpm(rpm: int, tpm: int, *, burst_seconds: int) -> tuple[Limit, Limit]:
    """Requests and tokens per minute; a bucket holds as much as comes back in ``burst_seconds``."""
    return (
        Limit.per_minute("rpm", rpm, burst=rpm * burst_seconds // 60),
        Limit.per_minute("tpm", tpm, burst=tpm * burst_seconds // 60),
    )


SYSTEM_LIMITS = rpm_and_tpm(900, 240_000, burst_seconds=3)
MODEL_LIMITS = rpm_and_tpm(900, 360_000, burst_seconds=2)
ORGANISATION_LIMITS = rpm_and_tpm(3_000, 840_000, burst_seconds=2)
OWN_LIMITS = {
    "chat": rpm_and_tpm(1_500, 600_000, burst_seconds=2),
    "search": rpm_and_tpm(1_200, 480_000, burst_seconds=2),
    "key-noisy": rpm_and_tpm(240, 60_000, burst_seconds=4),
}
"""Limits of one entity on the chat model."""

BUDGET_KEY = "key-web"
"""The key that has a monthly budget too, and so many calls at once, where the store keeps such limits."""

BUDGET = Limit.per_month("cents", 25_000, tz="Europe/Berlin")
CALLS = Limit.concurrent("calls", 6, ttl=30)


class BucketId(NamedTuple):
    """Whose use of what."""

    entity_id: str
    resource: str


@dataclass(frozen=True, slots=True)
class Place:
    """One bucket of the world. ``payers`` are the keys whose calls take from it."""

    bucket: BucketId
    branch: str
    payers: tuple[str, ...]
    limits: tuple[Limit, ...] = ()
    source: str = ""


class Reading(NamedTuple):
    """A place and what its bucket looks like now."""

    place: Place
    status: BucketStatus


async def build_world(limiter: RateLimiter) -> None:
    """Create the entities and set every level's limits."""
    for entity_id, parent_id in PARENTS.items():
        await limiter.create_entity(entity_id, parent_id=parent_id, cascade=parent_id is not None)
    await limiter.set_system_defaults(SYSTEM_LIMITS)
    await limiter.set_resource_defaults(CHAT_MODEL, MODEL_LIMITS)
    await limiter.set_limits("acme", ORGANISATION_LIMITS)
    for entity_id, limits in OWN_LIMITS.items():
        await limiter.set_limits(entity_id, limits, resource=CHAT_MODEL)
    with suppress(ValidationError):  # a store that does not keep these kinds of limits yet
        await limiter.set_limits(BUDGET_KEY, (*MODEL_LIMITS, BUDGET, CALLS), resource=CHAT_MODEL)


async def survey(limiter: RateLimiter) -> list[Place]:
    """Every bucket the callers will take from, with the limits that hold there according to the store."""
    surveyed = []
    for place in places():
        limits, _, source = await limiter.repository.resolve_limits(*place.bucket)
        surveyed.append(replace(place, limits=tuple(limits or ()), source=source or ""))
    return surveyed


async def read_levels(limiter: RateLimiter, places: list[Place]) -> list[Reading]:
    """The level of every bucket. One without a grant so far does not exist, and is full."""
    found = {}
    for entity_id in PARENTS:
        status = await limiter.get_status(entity_id)
        found.update({BucketId(bucket.entity_id, bucket.resource): bucket for bucket in status.buckets})
    return [Reading(place, found.get(place.bucket) or untouched(place)) for place in places]


def untouched(place: Place) -> BucketStatus:
    """A bucket before its first call."""
    levels = tuple(LimitLevel(limit.name, limit, limit.burst, 0, 0.0) for limit in place.limits)
    return BucketStatus(*place.bucket, levels, 0)


def places() -> Iterator[Place]:
    """Every bucket the callers will take from, resource by resource, each organisation as a tree."""
    for resource in (CHAT_MODEL, EMBEDDER):
        yield from _tree(resource, None, "")


def _tree(resource: str, parent_id: str | None, indent: str) -> Iterator[Place]:
    children = [child for child, above in PARENTS.items() if above == parent_id and _payers(child, resource)]
    for child in children:
        last = child is children[-1]
        fork, stem = ("", "") if parent_id is None else ("└ ", "  ") if last else ("├ ", "│ ")
        yield Place(BucketId(child, resource), f"{indent}{fork}{child}", _payers(child, resource))
        yield from _tree(resource, child, indent + stem)


def _payers(entity_id: str, resource: str) -> tuple[str, ...]:
    return tuple(key for key, called in RESOURCE_OF.items() if called == resource and entity_id in _lineage(key))


def _lineage(key: str) -> Iterator[str]:
    entity_id: str | None = key
    while entity_id is not None:
        yield entity_id
        entity_id = PARENTS[entity_id]
