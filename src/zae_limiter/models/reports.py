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
    """What one entity took of one resource in one window: whole tokens per limit, and grants.

    What its descendants took through it is in it. ``cascaded`` and ``cascaded_events`` are the parts that were counted
    for one of them too; ``own`` and ``own_events`` are the rest, which adds up over entities to what all took.
    ``denials`` is how many calls each limit of the entity refused. A call is counted by one limit, the one that lacked
    for longest.
    ``would_refuse`` has how many of these grants each limit that only watches would have refused.
    """

    entity_id: str
    resource: str
    window_type: WindowType
    window_start: datetime
    window_end: datetime
    counters: Mapping[str, int]
    total_events: int
    cascaded: Mapping[str, int] = field(default_factory=dict)
    cascaded_events: int = 0
    denials: Mapping[str, int] = field(default_factory=dict)
    would_refuse: Mapping[str, int] = field(default_factory=dict)

    @property
    def own(self) -> Mapping[str, int]:
        """What no entity below it has counted."""
        return {name: amount - self.cascaded.get(name, 0) for name, amount in self.counters.items()}

    @property
    def own_events(self) -> int:
        """The grants to the entity itself."""
        return self.total_events - self.cascaded_events

    @property
    def total_denials(self) -> int:
        """How many calls its limits refused."""
        return sum(self.denials.values())


@dataclass(frozen=True, slots=True)
class UsageSummary:
    """Several windows added up, each call once.

    ``average`` is per window, however many entities had a part in it. ``denials`` is how many calls each limit
    refused.
    """

    snapshot_count: int
    total: Mapping[str, int]
    average: Mapping[str, float]
    total_events: int
    min_window_start: datetime | None
    max_window_start: datetime | None
    denials: Mapping[str, int] = field(default_factory=dict)

    @property
    def total_denials(self) -> int:
        """How many calls were refused."""
        return sum(self.denials.values())


@dataclass(frozen=True, slots=True)
class UsageTotal:
    """What one entity took, or what was taken of one resource, each call once; and the denials by their limits."""

    name: str
    total: Mapping[str, int]
    total_events: int
    denials: Mapping[str, int] = field(default_factory=dict)

    @property
    def total_denials(self) -> int:
        """How many calls were refused."""
        return sum(self.denials.values())


@dataclass(frozen=True, slots=True)
class EntityCapacity:
    """One entity's part in the capacity of a resource.

    ``in_total``: it is added up. What a bucket holds is not, if its acquires also take from one above that is listed.
    """

    entity_id: str
    capacity: int
    available: int
    utilization_pct: float
    in_total: bool = True


@dataclass(frozen=True, slots=True)
class ResourceCapacity:
    """One limit of one resource over all live buckets. The totals are of all of them, not of the page.

    Capacity is what a bucket can hold: the burst of its limit in force. Utilization is what is missing to be full.

    A call that takes from several levels is in the totals once: of the buckets that it takes from, the uppermost is
    added up.
    """

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
