"""Audit events, the same on every store: what is said of a change, and ids that sort by time.

An id is a ULID: 48 bits of milliseconds, 80 bits to tell ids of one millisecond apart, in Crockford's base 32.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from zae_limiter.models.choices import OnUnavailable
from zae_limiter.models.entity import Entity
from zae_limiter.models.limit import Limit


def description(entity: Entity) -> Mapping[str, Any]:
    """What an update of an entity may change."""
    return {
        "name": entity.name,
        "parent_id": entity.parent_id,
        "cascade": entity.cascade,
        "metadata": dict(entity.metadata),
    }


def limits_told(limits: Iterable[Limit], on_unavailable: OnUnavailable | None) -> Mapping[str, Any]:
    """What a level was told to say; the policy only if one was given."""
    told: dict[str, Any] = {"limits": [limit.as_dict() for limit in limits]}
    if on_unavailable is not None:
        told["on_unavailable"] = str(on_unavailable)
    return told


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
