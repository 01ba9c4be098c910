"""A DynamoDB store whose usage is always up to date: before every answer its table's stream is read to the end.

Where a Lambda would do that a moment later, tests want to see at once what they did.
"""

from __future__ import annotations

from typing import Any

from zae_limiter.models.reports import Page, UsageSnapshot
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.protocol import UsageQuery
from zae_limiter_aggregator.follower import Follower, Position

READ_SO_FAR: dict[tuple[Any, str], dict[str, Position]] = {}
"""How far this process has read each stream of each store: shard by shard."""


class Aggregated:
    """Wraps a DynamoDB store; everything but the usage it reads is the store's own."""

    def __init__(self, store: DynamoStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def space(self, namespace: str, **options: Any) -> Any:
        return AggregatedSpace(self._store, self._store.space(namespace, **options))


class AggregatedSpace:
    """One namespace of it."""

    def __init__(self, store: DynamoStore, space: Any) -> None:
        self._store = store
        self._space = space

    def __getattr__(self, name: str) -> Any:
        return getattr(self._space, name)

    def usage(self, query: UsageQuery, limit: int, cursor: str | None) -> Plan[Page[UsageSnapshot]]:
        yield from drain(self._store)
        return (yield from self._space.usage(query, limit, cursor))


def drain(store: DynamoStore) -> Plan[None]:
    """Count everything that is in the stream of a store's table now. Engines send no empty pages in between."""
    follower = Follower(store.client, empty_pages=1)
    stream = yield from follower.stream()
    progress = yield from follower.catch_up(stream, READ_SO_FAR.setdefault((store.identity, stream), {}))
    assert not progress.poisonous, progress.poisonous
    assert not progress.trimmed, progress.trimmed
