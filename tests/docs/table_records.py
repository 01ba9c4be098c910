"""A table in which everything that the library stores was written once, and what its stream told of that."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from itertools import count
from typing import Any, NamedTuple

from engines.servers import Engine
from engines.streams import records_in_stream
from support.dynamodb.counting_transport import Counting
from support.transports import target_of
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter.migrations import migrate_store
from zae_limiter.running.clocks import machine_clock
from zae_limiter.running.sync_driver import SyncDriver
from zae_limiter.stores.dynamodb.schema import encode_item
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.dynamodb.transport.botocore_fallback import BotocoreTransport
from zae_limiter.testing import FakeClock
from zae_limiter_aggregator.aggregation import Aggregation

LIMITS = ("rpm", "tpm", "usd", "budget", "calls", "slots", "spend")
"""Every limit of these tables; the page has ``{limit}`` in their place."""

READS = {"GetItem", "BatchGetItem", "Query", "Scan"}
SECONDS = 20.0
TABLES = count()


class Price(NamedTuple):
    """What something took: calls by their names, read units and write units."""

    calls: Mapping[str, int]
    reads: float
    writes: float


class Client:
    """A limiter on a table, its calls counted."""

    def __init__(self, engine: Engine, table: str, clock: FakeClock, pulse: bool = False, **options: Any) -> None:
        target = target_of(engine)
        self.calls = Counting(BotocoreTransport(target))
        self.store = DynamoStore(table, target, transport=self.calls, deadline=SECONDS, **options)
        self.repository = SyncRepository(self.store, clock=clock, pulse=pulse)
        self.limiter = SyncRateLimiter(self.repository)

    def price(self) -> Price:
        """What was paid since the last time it was asked."""
        costs = list(self.calls.costs)
        self.calls.reset()
        calls = {cost.operation: 0 for cost in costs}
        reads = writes = 0.0
        for cost in costs:
            calls[cost.operation] += 1
            if cost.operation in READS:
                reads += cost.table + cost.indexes
            else:
                writes += cost.table + cost.indexes
        return Price(calls, reads, writes)


class Table:
    """A table on an engine, with as many clients as a test wants."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.name = f"records-{os.getpid()}-{next(TABLES)}"
        self.clock = FakeClock()
        self._clients: list[Client] = []
        self.first = self.client()
        SyncDriver(machine_clock, self.first.store.perform).run(self.first.store.create(self.clock()))

    def client(self, **options: Any) -> Client:
        self._clients.append(Client(self.engine, self.name, self.clock, **options))
        return self._clients[-1]

    def aggregate(self, *, sharing: bool = False) -> None:
        """Count what is in the stream by now."""
        store = self.first.store
        aggregation = Aggregation(store.client, empty_pages=1, sharing=sharing)
        driver = SyncDriver(machine_clock, store.perform)
        for step in (aggregation.begin, aggregation.count_available, aggregation.end):
            driver.run(step())

    def put(self, item: Mapping[str, Any]) -> None:
        """An item as another program would leave it."""
        self.first.calls.call("PutItem", {"TableName": self.name, "Item": encode_item(item)}, SECONDS)

    def records(self) -> list[Mapping[str, Any]]:
        """Every item as it was after each of its changes."""

        def call(operation: str, **params: Any) -> Any:
            return self.first.calls.call(operation, params, SECONDS)

        records = records_in_stream(call, self.name)
        return [record["dynamodb"]["NewImage"] for record in records if "NewImage" in record["dynamodb"]]

    def close(self) -> None:
        SyncDriver(machine_clock, self.first.store.perform).run(self.first.store.destroy())
        for client in self._clients:
            client.repository.close()


def per_minute(*names: str, rate: int = 100) -> list[Limit]:
    return [Limit.per_minute(name, rate) for name in names]


def write_everything(table: Table) -> None:
    """Do, once, all that writes anything."""
    limiter, repository, clock = table.first.limiter, table.first.repository, table.clock
    limiter.set_system_defaults(per_minute("rpm", "tpm"), on_unavailable="allow", principal="ops")
    limiter.set_resource_defaults("gpt-4", per_minute("rpm", "tpm"))
    limiter.create_entity("org", name="Organisation", metadata={"plan": "gold"})
    limiter.create_entity("key", parent_id="org", cascade=True)
    limiter.create_entity("gone")
    limiter.delete_entity("gone")
    limiter.set_limits("key", per_minute("rpm", "tpm", "usd"), resource="gpt-4")
    limiter.set_limits("org", per_minute("rpm"))
    with limiter.acquire("key", "gpt-4", {"rpm": 1, "tpm": 50, "usd": 1}) as lease:
        lease.settle(tpm=70)
    limiter.set_limits("key", per_minute("rpm", "tpm"), resource="gpt-4")  # usd is retired
    clock.advance(90)
    limiter.set_limits("key", per_minute("rpm", "tpm", rate=90), resource="gpt-4")  # and has ended
    with limiter.acquire("key", "gpt-4", {"rpm": 1}):
        pass
    limiter.set_limits("payer", [Limit.per_month("budget", 500, tz="Europe/Berlin")], resource="gpt-4")
    limiter.grant("payer", "gpt-4", {"budget": 5}, key="invoice-1", above=True)
    with limiter.acquire("payer", "gpt-4", {"budget": 1}):
        pass
    _lend_and_watch(table)
    with limiter.acquire("key", "gpt-4", {"rpm": 1}) as lease:
        lease.detach()
    limiter.set_access("block", entity_id="key", resource="other", until=clock() + 60_000)
    limiter.set_access("observe", resource="other", until=clock() + 60_000)
    _deny_and_go_on(table)
    with limiter.acquire("busy", "gpt-4", {"slots": 1}), limiter.acquire("busy", "gpt-4", {"slots": 1}):
        pass  # in another hour, which begins with what was counted before
    _tell_a_pulse(table)
    limiter.delete_limits("key", resource="gpt-4")
    _split(table)
    _come_and_go(repository)
    table.aggregate(sharing=True)
    _migrate(table)


def _lend_and_watch(table: Table) -> None:
    """Calls in flight, and limits that only watch: both count what they would have refused, and one of them ends."""
    limiter = table.first.limiter
    calls, watched = Limit.concurrent("calls", 2), Limit.concurrent("slots", 1, enforce=False)
    spend = Limit.per_minute("spend", 10, enforce=False)
    limiter.set_limits("busy", [calls, watched, spend], resource="gpt-4")
    for _ in range(2):
        with (
            limiter.acquire("busy", "gpt-4", {"calls": 1, "slots": 1, "spend": 9}),
            limiter.acquire("busy", "gpt-4", {"calls": 1, "slots": 1, "spend": 9}),
        ):
            pass
    table.clock.advance(60)
    limiter.set_limits("busy", [calls, watched], resource="gpt-4")  # spend is full, and ends


def _deny_and_go_on(table: Table) -> None:
    """Deny once, and let two hours go by in which something is granted."""
    limiter = table.first.limiter
    try:
        with limiter.acquire("key", "gpt-4", {"rpm": 1_000}):
            raise AssertionError("granted")
    except RateLimitExceeded:
        pass
    for _ in range(2):
        with limiter.acquire("key", "gpt-4", {"rpm": 1}):
            pass
        table.clock.advance(3_600)
    with limiter.acquire("key", "gpt-4", {"rpm": 1}):
        pass


def _tell_a_pulse(table: Table) -> None:
    telling = table.client(pulse=True).limiter
    with telling.acquire("key", "gpt-4", {"rpm": 1}):
        pass
    telling.write_pulse()


def _split(table: Table) -> None:
    """Write to a bucket faster than a shard takes."""
    pressing = table.client(wcu=2).limiter
    for _ in range(8):
        try:
            with pressing.acquire("hot", "gpt-4", {"rpm": 1}):
                pass
        except RateLimitExceeded:
            break
    table.clock.advance(2)
    with pressing.acquire("hot", "gpt-4", {"rpm": 1}):
        pass


def _come_and_go(repository: SyncRepository) -> None:
    repository.register_namespace("staging", principal="ops")
    repository.delete_namespace("staging")
    repository.recover_namespace("staging")
    repository.delete_namespace("staging")
    repository.purge_namespace("staging")


def _migrate(table: Table) -> None:
    """Find two limits that an older client left, one of them in the place of a bucket that is there."""
    ns = table.first.repository.get_namespace("default").id
    terms = {"capacity_milli": 1_000, "burst_milli": 1_000, "refill_amount_milli": 1_000, "refill_period_ms": 60_000}
    for entity_id in ("key", "old"):
        table.put(
            {
                "PK": f"{ns}/ENTITY#{entity_id}",
                "SK": "#BUCKET#gpt-4#rpm",
                "entity_id": entity_id,
                "resource": "gpt-4",
                "limit_name": "rpm",
                "tokens_milli": 500,
                "last_refill_ms": table.clock(),
                "total_consumed_milli": 500,
                **terms,
            }
        )
    migrate_store(table.first.store, clock=table.clock, from_layout=1, page=1)


# Kinds of records

KINDS = {
    "bucket": r"[^_][^/]*/BUCKET#.+ #STATE",
    "entity": r"[^_][^/]*/ENTITY#\S+ #META",
    "config": r"[^_][^/]*/(?:SYSTEM#|RESOURCE#\S+) #CONFIG|[^_][^/]*/ENTITY#\S+ #CONFIG#.+",
    "access switches": r"[^_][^/]*/SYSTEM# #ACCESS",
    "usage": r"[^_][^/]*/ENTITY#\S+ #USAGE#.+",
    "lease": r"[^_][^/]*/LEASE#\S+ #LEASE",
    "pulse": r"[^_][^/]*/PULSE# #PULSE#.+",
    "audit event": r"[^_][^/]*/AUDIT#\S+ #AUDIT#.+",
    "version": r"_/SYSTEM# #VERSION",
    "namespace": r"_/SYSTEM# (?:#NAMESPACE#|#NSID#).+",
    "stream checkpoint": r"_/SYSTEM# #CHECKPOINT#.+",
    "aggregator": r"_/SYSTEM# #AGGREGATOR#.+",
    "migration": r"_/SYSTEM# #MIGRATION",
    "of an older layout": r"[^_][^/]*/ENTITY#\S+ #BUCKET#.+",
}


def kind_of(item: Mapping[str, Any]) -> str:
    """Which kind of record an item is, by its key."""
    place = f"{item['PK']['S']} {item['SK']['S']}"
    (kind,) = [kind for kind, pattern in KINDS.items() if re.fullmatch(pattern, place)]
    return kind


def attributes_written(records: list[Mapping[str, Any]]) -> dict[str, dict[str, set[str]]]:
    """For each kind of record its attributes, with the types they have had."""
    written: dict[str, dict[str, set[str]]] = {}
    for item in records:
        attributes = written.setdefault(kind_of(item), {})
        for name, value in item.items():
            attributes.setdefault(general(name), set()).update(value)
    del written["of an older layout"]
    return written


def general(attribute: str) -> str:
    """The name of an attribute, without that of the limit it is of."""
    attribute = re.sub(rf"^x_[0-9a-f]{{8}}_(?:{'|'.join(LIMITS)})$", "x_{due}_{limit}", attribute)
    return re.sub(rf"^(b|h|l|e|st|tc|c|cs|d|ds)_(?:{'|'.join(LIMITS)})(?=_|!|$)", r"\1_{limit}", attribute)
