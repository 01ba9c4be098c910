"""A bounded table whose entries are good for a while. Pure: the caller says what time it is."""

from __future__ import annotations

from typing import Generic, TypeVar

from zae_limiter.models.reports import CacheStats

Key = TypeVar("Key")
Value = TypeVar("Value")

MAX_ENTRIES = 100_000


class ConfigCache(Generic[Key, Value]):
    """Entries by key, each good for ``ttl_ms`` milliseconds; 0 remembers nothing."""

    __slots__ = ("_entries", "_misses", "_most", "_ttl_ms", "hits")

    def __init__(self, ttl_ms: int, most: int = MAX_ENTRIES) -> None:
        self._ttl_ms = ttl_ms
        self._most = most
        self._entries: dict[Key, tuple[Value, int]] = {}
        self.hits = 0
        self._misses = 0

    @property
    def remembers(self) -> bool:
        """Whether it remembers anything at all."""
        return self._ttl_ms > 0

    def get(self, key: Key, timer_ms: int) -> Value | None:
        """The entry, if there is a good one."""
        entry = self._entries.get(key)
        if entry is not None and timer_ms < entry[1]:
            self.hits += 1
            return entry[0]
        self._misses += 1
        return None

    def peek(self, key: Key, timer_ms: int) -> Value | None:
        """The same without counting; a caller that uses the entry adds to ``hits``."""
        entry = self._entries.get(key)
        return entry[0] if entry is not None and timer_ms < entry[1] else None

    def last(self, key: Key) -> Value | None:
        """The entry, good or not: for what must be known while nothing can be read."""
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def put(self, key: Key, value: Value, timer_ms: int) -> None:
        """Remember an entry from now on. The oldest half goes when there are too many."""
        if self._ttl_ms == 0:
            return
        if len(self._entries) >= self._most:
            for oldest in list(self._entries)[: self._most // 2 or 1]:
                self._entries.pop(oldest, None)
        self._entries.pop(key, None)
        self._entries[key] = (value, timer_ms + self._ttl_ms)

    def forget(self, key: Key) -> None:
        """Remember one entry no longer."""
        self._entries.pop(key, None)

    def clear(self) -> None:
        """Remember nothing any more."""
        self._entries.clear()

    def stats(self) -> CacheStats:
        """How the cache is doing."""
        return CacheStats(self.hits, self._misses, len(self._entries), self._ttl_ms / 1000)
