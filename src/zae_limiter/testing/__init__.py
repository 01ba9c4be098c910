"""For tests of code that uses zae-limiter, and of stores for it.

- :class:`FakeClock` drives refill and waiting;
- :func:`memory_limiter` and :func:`sync_memory_limiter` need nothing but the limits you name;
- :class:`FakeProvider` answers like a provider of language models, and bills;
- :class:`FailingStore` wraps a store and fails when told to;
- ``zae_limiter.testing.contract`` is the suite every store passes, yours too.
"""

from __future__ import annotations

from zae_limiter.stores.memory.store import MemoryStore
from zae_limiter.testing.clock import FakeClock
from zae_limiter.testing.failing_store import FailingStore
from zae_limiter.testing.fake_provider import FakeProvider
from zae_limiter.testing.limiters import memory_limiter, sync_memory_limiter

__all__ = ["FailingStore", "FakeClock", "FakeProvider", "MemoryStore", "memory_limiter", "sync_memory_limiter"]
