"""What operators read: pages, usage, capacity, audit, namespaces, caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

from zae_limiter.models.choices import WindowType

Item = TypeVar("Item")


class Page(NamedTuple, Generic[Item]):
    """Some of a list. ``next_cursor`` asks for what follows; ``None`` on the last page."""

    items: Sequence[Item]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class UsageSnapshot:
    """What one entity took of one resource in one window: whole tokens per limit, and grants."""

    entity_id: str
    resource: str
    window_type: WindowType
    window_start: datetime
    window_end: datetime
    counters: Mapping[str, int]
    total_events: int


@dataclass(frozen=True, slots=True)
class UsageSummary:
    """Several windows added up."""

    snapshot_count: int
    total: Mapping[str, int]
    average: Mapping[str, float]
    total_events: int
    min_window_start: datetime | None
    max_window_start: datetime | None


@dataclass(frozen=True, slots=True)
class EntityCapacity:
    """One entity's part in the capacity of a resource."""

    entity_id: str
    capacity: int
    available: int
    utilization_pct: float


@dataclass(frozen=True, slots=True)
class ResourceCapacity:
    """One limit of one resource over all live buckets. The totals are of all of them, not of the page."""

    resource: str
    limit_name: str
    total_capacity: int
    total_available: int
    utilization_pct: float
    entities: Page[EntityCapacity]


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One change: what, to whom, by whom, when. Ids sort by time."""

    event_id: str
    timestamp: datetime
    action: str
    entity_id: str
    resource: str | None = None
    principal: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NamespaceInfo:
    """A namespace. ``id`` is opaque, and new when a purged name is registered again."""

    name: str
    id: str
    created_at: datetime
    deleted_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class CacheStats:
    """How the cache of resolved limits is doing. Embedded stores need none: theirs stays empty."""

    hits: int
    misses: int
    size: int
    ttl_seconds: float
