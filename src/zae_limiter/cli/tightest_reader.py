"""The tightest buckets, read again and again at a bearable price.

To rank them, every live bucket is read; that is done once in a while. In between, only those that are shown are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from zae_limiter import BucketStatus, Entity, EntityNotFoundError

if TYPE_CHECKING:
    from zae_limiter import SyncRateLimiter

RANKED_EVERY_MS = 30_000


class TightestReader:
    """The buckets with the least left, on one resource or on all."""

    def __init__(self, limiter: SyncRateLimiter, resource: str | None, most: int) -> None:
        self._limiter = limiter
        self._resource = resource
        self._most = most
        self._ranked_ms: int | None = None
        self._shown: list[tuple[str, str]] = []
        self.entities: Mapping[str, Entity] = {}

    def read(self, now: int) -> list[BucketStatus]:
        """How they are now; which ones they are may be half a minute old."""
        if self._ranked_ms is None or now - self._ranked_ms >= RANKED_EVERY_MS or not self._shown:
            self._ranked_ms = now
            buckets = self._limiter.get_tightest_buckets(self._resource, limit=self._most)
            self._shown = [(bucket.entity_id, bucket.resource) for bucket in buckets]
            self.entities = entities_of(self._limiter, buckets)
            return buckets
        statuses = [self._limiter.get_status(entity_id, resource) for entity_id, resource in self._shown]
        return [bucket for status in statuses for bucket in status.buckets]


def entities_of(limiter: SyncRateLimiter, buckets: Iterable[BucketStatus]) -> dict[str, Entity]:
    """The entities of buckets, as far as they were created."""
    found = {}
    for entity_id in dict.fromkeys(bucket.entity_id for bucket in buckets):
        try:
            found[entity_id] = limiter.get_entity(entity_id)
        except EntityNotFoundError:
            continue
    return found
