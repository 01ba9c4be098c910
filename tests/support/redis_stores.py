"""Limiters and stores on Redis servers, for tests."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from engines.redis_servers import RedisCluster, RedisServer
from zae_limiter import RateLimiter, SyncRateLimiter
from zae_limiter.repository.repository import Repository
from zae_limiter.repository.sync_repository import SyncRepository
from zae_limiter.stores.redis.store import RedisStore
from zae_limiter.stores.redis.urls import servers_of


def store_at(url: str, deadline: float = 20.0) -> RedisStore:
    return RedisStore(servers_of(urlsplit(url)), deadline=deadline)


def store_on(servers: RedisServer | RedisCluster, deadline: float = 20.0) -> RedisStore:
    return store_at(servers.url, deadline)


def limiter_on(servers: RedisServer | RedisCluster, deadline: float = 20.0, **options: Any) -> SyncRateLimiter:
    return SyncRateLimiter(SyncRepository(store_on(servers, deadline), **options))


def async_limiter_on(servers: RedisServer | RedisCluster, deadline: float = 20.0, **options: Any) -> RateLimiter:
    return RateLimiter(Repository(store_on(servers, deadline), **options))


def consumed(limiter: SyncRateLimiter, entity_id: str, name: str = "rpd") -> int:
    """What the buckets of an entity have counted of one limit."""
    levels = [level for bucket in limiter.get_status(entity_id).buckets for level in bucket.limits]
    return sum(level.total_consumed for level in levels if level.limit_name == name)


def events(limiter: SyncRateLimiter, entity_id: str) -> int:
    """How many grants the buckets of an entity have counted."""
    return sum(bucket.total_events for bucket in limiter.get_status(entity_id).buckets)


def has_no_gaps(limiter: SyncRateLimiter, entity_id: str) -> bool:
    """Whether usage equals what was taken."""
    return not any(chain.gaps for chain in limiter.repository.verify_usage(entity_id).chains)
