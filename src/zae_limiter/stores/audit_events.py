"""Audit events, the same on every store: what is said of a change, and ids that sort by time.

An id is a ULID: 48 bits of milliseconds, 80 bits to tell ids of one millisecond apart, in Crockford's base 32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zae_limiter.models.access import Access
from zae_limiter.models.choices import AccessMode
from zae_limiter.models.entity import Entity
from zae_limiter.stores.protocol import Config


def description(entity: Entity) -> Mapping[str, Any]:
    """What an update of an entity may change."""
    return {
        "name": entity.name,
        "parent_id": entity.parent_id,
        "cascade": entity.cascade,
        "metadata": dict(entity.metadata),
    }


def level_told(config: Config) -> Mapping[str, Any] | None:
    """What a level says, the policy only if it has one; ``None`` if it says nothing."""
    if not config.limits and config.on_unavailable is None:
        return None
    told: dict[str, Any] = {"limits": [limit.as_dict() for limit in config.limits]}
    if config.on_unavailable is not None:
        told["on_unavailable"] = str(config.on_unavailable)
    return told


def change_told(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """A change as an event tells it: how it was, and how it is. ``None``: it was not there."""
    return {"from": before, "to": after}


def access_told(access: Access | None) -> Mapping[str, Any]:
    """What a switch says; ``enforce`` if nothing."""
    if access is None:
        return {"mode": str(AccessMode.ENFORCE), "until": None}
    return {"mode": str(access.mode), "until": None if access.until is None else access.until.isoformat()}


def fields_told(before: Entity, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """A change of some fields of an entity."""
    was = description(before)
    return change_told({name: was[name] for name in fields}, dict(fields))


def deletion_told(entity: Entity | None, levels: Mapping[str, Config], buckets: int) -> Mapping[str, Any]:
    """What a deletion took away: the entity, unless it was never created, its limits by resource, its buckets, and
    its access switches, if it had any."""
    said = sorted(levels.items())
    limits = {name: [limit.as_dict() for limit in config.limits] for name, config in said if config.limits}
    switches = {name: access_told(config.access) for name, config in said if config.access}
    was = {} if entity is None else dict(description(entity))
    if switches:
        was["access"] = switches
    return change_told({**was, "limits": limits, "buckets": buckets}, None)


DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LENGTH = 26
_MOMENT_LENGTH = 10


def ulid(milliseconds: int, distinct: int) -> str:
    """The id for that moment. ``distinct`` tells ids of one moment apart, and orders them."""
    number = (milliseconds & (2**48 - 1)) << 80 | (distinct & (2**80 - 1))
    digits = []
    for _ in range(_LENGTH):
        digits.append(DIGITS[number & 31])
        number >>= 5
    return "".join(reversed(digits))


def moment_of(identifier: str) -> int:
    """The moment an id begins with, in milliseconds. The rest of it is not looked at."""
    milliseconds = 0
    for digit in identifier[:_MOMENT_LENGTH]:
        milliseconds = milliseconds * 32 + DIGITS.index(digit)
    return milliseconds
