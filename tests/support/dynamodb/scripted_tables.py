"""Tables of the model of DynamoDB, and clients on them: each like a process of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from copy import copy
from itertools import count
from typing import Any, NamedTuple

from simulation.model import Model
from support.dynamodb.scripted_plans import Script
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter.bucket import Balance, refill_bucket
from zae_limiter.lease.lease_base import LeaseBase
from zae_limiter.repository.core import Core
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot, snapshot_of
from zae_limiter.stores.dynamodb.schema import bucket_key
from zae_limiter.stores.dynamodb.store import DynamoSpace, DynamoStore
from zae_limiter.stores.dynamodb.write_ids import WriteIds

START_MS = 1_800_000_000_000
DEADLINE_S = 2.0

LIMITS = (Limit.per_day("rpd", 100), Limit.per_day("tpd", 1_000))
WANTED = {"rpd": 3, "tpd": 50}
RESOURCE = "gpt"


class Held(NamedTuple):
    """One limit of a bucket: what it holds, what was ever taken, and its ceiling, in millitokens."""

    level: int
    taken: int
    burst: int


def held_in(item: Any, now: int) -> dict[tuple[str, str], Held]:
    """What a bucket holds; nothing if a test has spoiled it."""
    try:
        snapshot = snapshot_of(item)
    except Exception:
        return {}
    return {
        (snapshot.entity_id, name): Held(refill_bucket(balance, now), balance.tc, balance.bx)
        for name, balance in snapshot.balances.items()
    }


class Table:
    """One table, all its clients, and one time for all of them."""

    NAME = "limits"

    def __init__(self) -> None:
        self.model = Model()
        self.now = START_MS
        self.timer = 0
        self._numbers = count(1)
        self._read: dict[str, tuple[Any, int, dict[tuple[str, str], Held]]] = {}
        self.operator = self.client()
        self.operator.run(self.operator.store.create(self.now))
        self.ns: str = self.operator.run(self.operator.space.namespace.checked_ns())

    def copy(self) -> Table:
        """Another table that is like this one now, without its clients but for an operator. Cheaper than making it."""
        twin: Table = object.__new__(Table)
        twin.model = Model()
        twin.model.tables = {name: copy_of(table) for name, table in self.model.tables.items()}
        twin.now, twin.timer, twin.ns = self.now, self.timer, self.ns
        twin._numbers, twin._read = count(1_000), {}
        twin.operator = twin.client()
        return twin

    def client(self, *, corrected: bool = False, config_cache_ttl: float = 60.0) -> Client:
        """Another process on the table. It knows nothing yet."""
        return Client(self, f"{next(self._numbers):08x}", corrected, config_cache_ttl)

    def call(self, operation: str, params: Mapping[str, Any]) -> Any:
        return self.model.call(operation, params, now_s=self.timer / 1000)

    # Looking inside

    def place(self, entity_id: str, resource: str = RESOURCE, ns: str | None = None) -> tuple[str, str]:
        return tuple(bucket_key(ns or self.ns, entity_id, resource))  # type: ignore[return-value]

    def item(self, entity_id: str, resource: str = RESOURCE) -> Any:
        return self.model.item(self.NAME, *self.place(entity_id, resource))

    def snapshot(self, entity_id: str, resource: str = RESOURCE) -> BucketSnapshot | None:
        item = self.item(entity_id, resource)
        return None if item is None else snapshot_of(item)

    def levels(self, entity_id: str, resource: str = RESOURCE) -> dict[str, int]:
        """Millitokens by limit over all shards, at the time of the table; nothing for a bucket that is not there."""
        shards = self._over_shards(entity_id, resource)
        return {name: sum(refill_bucket(one, self.now) for one in parts) for name, parts in shards}

    def counters(self, entity_id: str, resource: str = RESOURCE) -> dict[str, int]:
        """What was ever taken, net, in millitokens by limit."""
        return {name: sum(one.tc for one in parts) for name, parts in self._over_shards(entity_id, resource)}

    def _over_shards(self, entity_id: str, resource: str) -> list[tuple[str, list[Balance]]]:
        found: dict[str, list[Balance]] = {}
        prefix = self.place(entity_id, resource)[0].removesuffix("0")
        for item in self.buckets():
            if item["PK"]["S"].startswith(prefix):
                for name, balance in snapshot_of(item).balances.items():
                    found.setdefault(name, []).append(balance)
        return list(found.items())

    def buckets(self) -> list[Any]:
        """The items of all buckets."""
        return [item for (_, sk), item in self.model.snapshot(self.NAME).items() if sk == "#STATE"]

    def contents(self) -> dict[tuple[str, str], Held]:
        """What every bucket holds, by entity and limit."""
        found: dict[tuple[str, str], Held] = {}
        for (pk, sk), item in self.model.tables[self.NAME].items.items():
            if sk == "#STATE":
                known = self._read.get(pk)
                if known is None or known[0] is not item or known[1] != self.now:
                    known = self._read[pk] = (item, self.now, held_in(item, self.now))
                for place, held in known[2].items():
                    others = found.get(place, Held(0, 0, 0))
                    found[place] = Held(*(mine + theirs for mine, theirs in zip(held, others, strict=True)))
        return found

    # What else may happen

    def remove_bucket(self, entity_id: str, resource: str = RESOURCE) -> None:
        pk, sk = self.place(entity_id, resource)
        self.call("DeleteItem", {"TableName": self.NAME, "Key": {"PK": {"S": pk}, "SK": {"S": sk}}})

    def spoil(self, entity_id: str, attribute: str, value: Any = None) -> None:
        """Change one attribute of a bucket by hand, or remove it."""
        item = dict(self.item(entity_id))
        item.pop(attribute, None)
        if value is not None:
            item[attribute] = value
        self.call("PutItem", {"TableName": self.NAME, "Item": item})


def copy_of(table: Any) -> Any:
    """A table of the model; items are never changed in place, so they are shared."""
    twin = copy(table)
    twin.items, twin._sizes, twin.changes = dict(table.items), dict(table._sizes), []
    twin.order = order_of(table.order)
    twin.indexes = {name: order_of(index) for name, index in table.indexes.items()}
    return twin


def order_of(order: Any) -> Any:
    twin = copy(order)
    twin.partitions = {name: list(places) for name, places in order.partitions.items()}
    return twin


class Client:
    """One process: a store of its own, with its bucket cache, its config cache and its write ids."""

    def __init__(self, table: Table, name: str, corrected: bool, config_cache_ttl: float) -> None:
        self.table = table
        self.store = DynamoStore(
            table.NAME, deadline=DEADLINE_S, config_cache_ttl=config_cache_ttl, write_ids=WriteIds(name)
        )
        self.core = Core(self.store, clock=lambda: table.now, keep_holds=False)
        if corrected:
            self.core.space = self.store.space("default", corrected=True)
        self.space: DynamoSpace = self.core.space  # type: ignore[assignment]
        repository: SyncRepository = object.__new__(SyncRepository)
        repository._core = self.core
        repository._driver = self  # type: ignore[assignment]
        self.limiter = SyncRateLimiter(repository)

    @property
    def unresolved(self) -> int:
        return self.core.unresolved + self.space.unresolved

    def run(self, plan: Plan[Any], *, to_the_end: bool = False) -> Any:
        """The result of a plan to which nothing happens."""
        ended = Script(self.table).run(plan, to_the_end=to_the_end)
        if ended.error is not None:
            raise ended.error
        return ended.result

    def lease(self, entity_id: str = "key", wanted: Mapping[str, int] = WANTED, **options: Any) -> LeaseBase:
        return self.limiter.acquire(entity_id, RESOURCE, wanted, **options)

    def adjust(self, lease: LeaseBase, **deltas: int) -> None:
        """Correct what a lease has consumed, and flush what is due by its age."""
        if lease._open_ledger().adjust(deltas, self.table.timer):
            self.run(lease._flush_old(), to_the_end=True)

    def take(self, entity_id: str = "key", wanted: Mapping[str, int] = WANTED, **options: Any) -> LeaseBase:
        """A lease that has begun."""
        lease = self.lease(entity_id, wanted, **options)
        self.run(lease._begin())
        return lease

    def takes(self, entity_id: str = "key", wanted: Mapping[str, int] = WANTED, **options: Any) -> bool:
        """Whether it is granted."""
        try:
            self.take(entity_id, wanted, **options)
        except RateLimitExceeded:
            return False
        return True


class ModelTransport:
    """Carries the calls of a real store to the model. ``before`` may raise instead, ``after`` lose the reply."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.calls: list[str] = []
        self.before: Callable[[str], object] = lambda operation: None
        self.after: Callable[[str], object] = lambda operation: None
        self.seconds = 0.0
        """How long an answer takes."""
        self._lock = threading.Lock()

    def _answer(self, operation: str, params: Mapping[str, Any]) -> Any:
        self.calls.append(operation)
        self.before(operation)
        with self._lock:
            reply = self.table.call(operation, params)
        self.after(operation)
        return reply

    def call(self, operation: str, params: Mapping[str, Any], seconds: float) -> Any:
        try:
            return self._answer(operation, params)
        finally:
            time.sleep(self.seconds)

    def close(self) -> None:
        """Nothing to close."""


class AsyncModelTransport(ModelTransport):
    """The same for event loops."""

    async def call(self, operation: str, params: Mapping[str, Any], seconds: float) -> Any:  # type: ignore[override]
        try:
            return self._answer(operation, params)
        finally:
            await asyncio.sleep(self.seconds)

    async def close(self) -> None:  # type: ignore[override]
        """Nothing to close."""


class ModelStore(DynamoStore):
    """A real store, answered by the model, in both worlds: ``threads`` and ``loops`` are its transports."""

    def __init__(self, table: Table, *, deadline: float = DEADLINE_S, config_cache_ttl: float = 60.0) -> None:
        self.threads = ModelTransport(table)
        self.loops = AsyncModelTransport(table)
        super().__init__(
            table.NAME,
            deadline=deadline,
            config_cache_ttl=config_cache_ttl,
            transport=self.threads,
            async_transport=self.loops,  # type: ignore[arg-type]
        )
