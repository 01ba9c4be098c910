"""What a bucket looks like at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zae_limiter.models.choices import ConfigSource
from zae_limiter.models.limit import Limit


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """One limit of one leg, as a request met it.

    ``available`` is in whole tokens, rounded down and negative in debt; after a grant it is what is left.
    ``retry_after_seconds`` is 0 when the limit had enough and ``None`` when it never can have. ``seconds_to_full``
    says when the limit is full if no caller takes more.
    """

    entity_id: str
    resource: str
    limit_name: str
    limit: Limit
    available: int
    requested: int
    exceeded: bool
    retry_after_seconds: float | None
    source: ConfigSource
    seconds_to_full: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready description."""
        return {
            "entity_id": self.entity_id,
            "resource": self.resource,
            "limit_name": self.limit_name,
            "limit": self.limit.as_dict(),
            "available": self.available,
            "requested": self.requested,
            "exceeded": self.exceeded,
            "retry_after_seconds": self.retry_after_seconds,
            "source": self.source,
            "seconds_to_full": self.seconds_to_full,
        }


@dataclass(frozen=True, slots=True)
class Check:
    """Whether an acquire would be granted now, over all legs. Nothing was taken.

    ``wait_seconds`` is 0 if it would, else how long until it would be if no other caller takes; ``None``: never.
    ``binding`` is the limit it waits for longest.
    """

    fits: bool
    wait_seconds: float | None
    binding: LimitStatus | None
    statuses: tuple[LimitStatus, ...]


@dataclass(frozen=True, slots=True)
class LimitLevel:
    """One limit of a live bucket: its level, what was taken from it so far, and when it will be full.

    ``denials`` is how many calls it refused so far.
    """

    limit_name: str
    limit: Limit
    available: int
    total_consumed: int
    seconds_to_full: float
    denials: int = 0


@dataclass(frozen=True, slots=True)
class BucketStatus:
    """One bucket: an entity's use of one resource. ``total_events`` counts its grants."""

    entity_id: str
    resource: str
    limits: tuple[LimitLevel, ...]
    total_events: int


@dataclass(frozen=True, slots=True)
class EntityStatus:
    """Every live bucket of an entity."""

    entity_id: str
    buckets: tuple[BucketStatus, ...]
