"""What the audit trail says of a change, on every store."""

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
