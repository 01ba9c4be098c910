"""The namespaces: a hash of their names, and in each one's own slot whether it is live.

The id of a namespace is never given again, so what a client remembers of one that was purged is never taken for
another.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from zae_limiter.exceptions import NamespaceNotFoundError, VersionError
from zae_limiter.models.moments import at
from zae_limiter.models.reports import NamespaceInfo
from zae_limiter.naming import DEFAULT_NAMESPACE
from zae_limiter.running.plan import Plan
from zae_limiter.stores.redis.keys import LAYOUT, REGISTRY, namespace_key, prefix_of, tag_of
from zae_limiter.stores.redis.requests import Commands

KEYS_PER_SCAN = 1000


class Record(NamedTuple):
    """One namespace, as it is registered."""

    id: str
    name: str
    created_ms: int
    deleted_ms: int | None

    @property
    def info(self) -> NamespaceInfo:
        """As callers see it."""
        deleted_at = None if self.deleted_ms is None else at(self.deleted_ms)
        return NamespaceInfo(self.name, self.id, at(self.created_ms), deleted_at)


class Registry:
    """Reads and writes the hash of namespaces."""

    def find(self, name: str) -> Plan[Record | None]:
        """The record of a name. The default namespace is always there."""
        layout, text = yield from Commands(REGISTRY, ("HGET", REGISTRY, "layout"), ("HGET", REGISTRY, f"n/{name}"))
        if layout is not None and int(layout) != LAYOUT:
            raise VersionError(
                f"the data on this Redis server has layout {int(layout)}, and this version of zae-limiter knows "
                f"{LAYOUT}; use the version that wrote it"
            )
        if text is None:
            return (yield from self.add(name, 0)) if name == DEFAULT_NAMESPACE else None
        return Record(*json.loads(text))

    def registered(self, name: str) -> Plan[Record]:
        """The record of a name that is registered, deleted or not."""
        record = yield from self.find(name)
        if record is None:
            raise NamespaceNotFoundError(name)
        return record

    def live(self, name: str) -> Plan[Record]:
        """The record of a name that can be used."""
        record = yield from self.registered(name)
        if record.deleted_ms is not None:
            raise NamespaceNotFoundError(name, deleted=True)
        yield from self.begin(record)
        return record

    def add(self, name: str, now: int) -> Plan[Record]:
        """A new namespace, or the one that another client added meanwhile."""
        serial, _ = yield from Commands(
            REGISTRY, ("HINCRBY", REGISTRY, "serial", 1), ("HSETNX", REGISTRY, "layout", LAYOUT)
        )
        text = json.dumps(Record(f"ns{serial}", name, now, None))
        _, stored = yield from Commands(
            REGISTRY, ("HSETNX", REGISTRY, f"n/{name}", text), ("HGET", REGISTRY, f"n/{name}")
        )
        record = Record(*json.loads(stored))
        yield from self.begin(record)
        return record

    def begin(self, record: Record) -> Plan[None]:
        """Let a namespace be live, unless it says what it is."""
        tag = tag_of(record.id)
        key = namespace_key(prefix_of(tag))
        yield from Commands(tag, ("HSETNX", key, "state", "live"), ("HSETNX", key, "epoch", 0))

    def change(self, record: Record, deleted_ms: int | None) -> Plan[Record]:
        """Note that a namespace is deleted, or is not any more."""
        changed = record._replace(deleted_ms=deleted_ms)
        tag = tag_of(record.id)
        state = ("HSET", namespace_key(prefix_of(tag)), "state", "live" if deleted_ms is None else "deleted")
        yield from Commands(tag, state)
        yield from Commands(REGISTRY, ("HSET", REGISTRY, f"n/{record.name}", json.dumps(changed)))
        return changed

    def all(self) -> Plan[list[Record]]:
        """Every namespace, by name."""
        yield from self.find(DEFAULT_NAMESPACE)
        (found,) = yield from Commands(REGISTRY, ("HGETALL", REGISTRY))
        fields = dict(zip(found[::2], found[1::2], strict=True))
        records = (Record(*json.loads(text)) for field, text in fields.items() if field.startswith(b"n/"))
        return sorted(records, key=lambda record: record.name)

    def remove(self, record: Record) -> Plan[int]:
        """Everything in a namespace, then its name; the number of keys."""
        removed = yield from self.sweep(record)
        yield from Commands(REGISTRY, ("HDEL", REGISTRY, f"n/{record.name}"))
        return removed

    def sweep(self, record: Record) -> Plan[int]:
        """Remove all keys of a namespace, some at a time."""
        tag = tag_of(record.id)
        yield from Commands(tag, ("EXISTS", namespace_key(prefix_of(tag))))  # a cluster then has told where it is
        cursor: Any = b"0"
        removed = 0
        while True:
            pattern = prefix_of(tag) + "*"
            ((cursor, keys),) = yield from Commands(tag, ("SCAN", cursor, "MATCH", pattern, "COUNT", KEYS_PER_SCAN))
            if keys:
                (count,) = yield from Commands(tag, ("UNLINK", *keys))
                removed += count
            if cursor == b"0":
                return removed
