"""Limiters for tests: in memory, with the limits you name."""

from __future__ import annotations

from collections.abc import Iterable

from zae_limiter.limiter.limiter import RateLimiter
from zae_limiter.limiter.sync_limiter import SyncRateLimiter
from zae_limiter.models.events import Observer
from zae_limiter.models.limit import Limit
from zae_limiter.repository.repository import Repository
from zae_limiter.repository.sync_repository import SyncRepository
from zae_limiter.running.clocks import Clock
from zae_limiter.stores.memory.store import MemoryStore
from zae_limiter.stores.protocol import Store


def memory_limiter(
    limits: Iterable[Limit] | None = None,
    *,
    clock: Clock | None = None,
    store: Store | None = None,
    observer: Observer | None = None,
) -> RateLimiter:
    """An async limiter in memory (or on ``store``), with ``limits`` as the system's.

    >>> from zae_limiter import Limit
    >>> from zae_limiter.testing import FakeClock, memory_limiter
    >>> limiter = memory_limiter([Limit.per_minute("rpm", 10)], clock=FakeClock())
    """
    store = store or MemoryStore()
    if limits is not None:
        SyncRepository(store, clock=clock).set_system_defaults(limits)
    return RateLimiter(Repository(store, clock=clock, observer=observer))


def sync_memory_limiter(
    limits: Iterable[Limit] | None = None,
    *,
    clock: Clock | None = None,
    store: Store | None = None,
    observer: Observer | None = None,
) -> SyncRateLimiter:
    """The sync twin of :func:`memory_limiter`."""
    store = store or MemoryStore()
    repository = SyncRepository(store, clock=clock, observer=observer)
    if limits is not None:
        repository.set_system_defaults(limits)
    return SyncRateLimiter(repository)
