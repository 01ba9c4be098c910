"""What a bucket looks like at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from zae_limiter.models.access import Access
from zae_limiter.models.choices import ConfigSource
from zae_limiter.models.limit import Limit

AT_LATEST_WAIT_SECONDS = 1.0
"""After so long it is worth asking again for a slot, whatever the bound of its wait is."""


class LimitStatus(NamedTuple):
    """One limit of one leg, as a request met it.

    It is a tuple: a grant makes one of each limit, and nothing else that is immutable is made as fast.
    ``available`` is in whole tokens, rounded down and negative in debt; after a grant it is what is left.
    ``retry_after_seconds`` is 0 when the limit had enough and ``None`` when it never can have. ``at_latest``: it may
    be over sooner, when a call in flight ends. ``seconds_to_full`` says when it is full if no caller takes more,
    ``resets_at`` when the next period of a calendar limit begins. A limit that is not ``enforced`` only watches: if it
    is ``exceeded``, it would have refused. ``extra`` is what an operator gave a calendar limit above its burst, for
    this period.
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
    enforced: bool = True
    resets_at: datetime | None = None
    at_latest: bool = False
    extra: int = 0

    @property
    def capacity(self) -> int:
        """What it can hold now: its burst, and what is extra in this period."""
        return self.limit.burst + self.extra

    @property
    def refuses(self) -> bool:
        """Whether it refuses the request: a limit that only watches never does."""
        return self.exceeded and self.enforced

    @property
    def suggested_wait_seconds(self) -> float | None:
        """When to ask again: the wait, or a second where that is only a bound."""
        wait = self.retry_after_seconds
        return min(wait, AT_LATEST_WAIT_SECONDS) if wait is not None and self.at_latest else wait

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready description."""
        described: dict[str, Any] = {
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
        if self.resets_at is not None:
            described["resets_at"] = self.resets_at.isoformat()
        if self.at_latest:
            described["at_latest"] = True
        if not self.enforced:
            described["enforced"] = False
        if self.extra:
            described["extra"] = self.extra
            described["capacity"] = self.capacity
        return described


@dataclass(frozen=True, slots=True)
class Check:
    """Whether an acquire would be granted now, over all legs. Nothing was taken.

    ``wait_seconds`` is 0 if it would, else how long until it would be if no other caller takes; ``None``: never.
    ``binding`` is the limit it waits for longest. ``access`` is the switch that decides, if one is turned: blocked,
    nothing fits; observed, everything does.
    """

    fits: bool
    wait_seconds: float | None
    binding: LimitStatus | None
    statuses: tuple[LimitStatus, ...]
    access: Access | None = None


@dataclass(frozen=True, slots=True)
class LimitLevel:
    """One limit of a live bucket: its level, what was taken from it so far, and when it will be full.

    ``denials`` is how many calls it refused so far, ``extra`` what it may hold above its burst in this period.
    """

    limit_name: str
    limit: Limit
    available: int
    total_consumed: int
    seconds_to_full: float
    denials: int = 0
    extra: int = 0

    @property
    def capacity(self) -> int:
        """What it can hold now: its burst, and what is extra in this period."""
        return self.limit.burst + self.extra


@dataclass(frozen=True, slots=True)
class BucketStatus:
    """One bucket: an entity's use of one resource. ``total_events`` counts its grants."""

    entity_id: str
    resource: str
    limits: tuple[LimitLevel, ...]
    total_events: int


@dataclass(frozen=True, slots=True)
class EntityStatus:
    """Every live bucket of an entity, and the access switches that hold for it, the one that decides first."""

    entity_id: str
    buckets: tuple[BucketStatus, ...]
    access: tuple[Access, ...] = ()
