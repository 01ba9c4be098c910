"""Tables with buckets that were split: in the model of DynamoDB, and on an engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from support.dynamodb.scripted_tables import RESOURCE, Client, Table
from support.dynamodb.watched_store import PATIENCE_S, Watched
from zae_limiter import Limit, SyncRateLimiter
from zae_limiter.bucket import share
from zae_limiter.repository.sync_repository import SyncRepository
from zae_limiter.running.clocks import machine_clock, machine_timer
from zae_limiter.running.plan import Request
from zae_limiter.running.sync_driver import SyncDriver
from zae_limiter.stores.dynamodb.operations.shard_life import make_shard, split_first
from zae_limiter.stores.dynamodb.requests import KEY_THROTTLED, Call, Refused
from zae_limiter.stores.dynamodb.schema import bucket_key, decode_item, shard_key
from zae_limiter.stores.dynamodb.transport.protocol import Target
from zae_limiter.testing import FakeClock


def pass_time(table: Table, milliseconds: int = 1_500) -> None:
    table.now += milliseconds
    table.timer += milliseconds


def split_into(table: Table, client: Client, shards: int) -> None:
    """Split the bucket so far; two seconds pass each time."""
    first = bucket_key(table.ns, "key", RESOURCE)
    for so_far in (2**number for number in range(1, shards.bit_length())):
        until = client.run(client.store.client.new_deadline())
        assert client.run(split_first(client.store.client, first, table.now, until))
        for shard in range(1, so_far):
            key = bucket_key(table.ns, "key", RESOURCE, shard)
            assert client.run(make_shard(client.store.client, key, table.now, until)) is not None
        pass_time(table, 2_000)


class Throttling(Watched):
    """Refuses writes to the shards it is told to, and lets others be faster than its transactions."""

    hot: frozenset[int] = frozenset()
    faster: Iterator[None] = iter(())

    def perform(self, request: Request[Any], /) -> Any:
        if isinstance(request, Call) and request.operation == "TransactWriteItems":
            next(self.faster, None)
        if isinstance(request, Call) and request.operation == "UpdateItem":
            shard = int(request.params["Key"]["PK"]["S"].rpartition("#")[2])
            if shard in self.hot:
                self.calls["throttled"] += 1
                raise Refused(KEY_THROTTLED, "simulated")
        return super().perform(request)


@dataclass
class Stage:
    """A table on which buckets are split, clients of it, and a clock."""

    table: str
    target: Target
    clock: FakeClock
    opened: list[Throttling]

    def client(self, **options: Any) -> SyncRateLimiter:
        store = Throttling(self.table, self.target, **{"deadline": PATIENCE_S, **options})
        self.opened.append(store)
        return SyncRateLimiter(SyncRepository(store, clock=self.clock))

    def items(self, entity_id: str = "key") -> dict[int, dict[str, Any]]:
        """The shards of an entity's bucket, as they are in the table."""
        params = {"TableName": self.table, "ConsistentRead": True}
        reply = self.opened[0].perform(Call("Scan", params, machine_timer() + 20_000))
        found = [item for item in map(decode_item, reply["Items"]) if f"/BUCKET#{entity_id}#gpt#" in item["PK"]]
        return {int(item["PK"].rpartition("#")[2]): item for item in found}

    def split_into(self, limiter: SyncRateLimiter, shards: int, entity_id: str = "key") -> None:
        """Let a bucket have so many shards, and be full."""
        with limiter.acquire(entity_id, "gpt", {"rpm": 0}):
            pass
        while len(self.items(entity_id)) < shards:
            self.clock.advance(2)
            self.split_once(entity_id)
        self.clock.advance(120)

    def split_once(self, entity_id: str = "key") -> None:
        """As a client does that sees pressure."""
        store = self.opened[0]
        driver = SyncDriver(machine_clock, store.perform)
        key = bucket_key(driver.run(store.space("default").namespace.ns()), entity_id, "gpt")
        until = driver.run(store.client.new_deadline())
        assert driver.run(split_first(store.client, key, self.clock(), until))
        for shard in range(1, self.items(entity_id)[0]["shard_count"]):
            assert driver.run(make_shard(store.client, shard_key(key, shard), self.clock(), until)) is not None

    def shards_add_up(self, *limits: Limit, entity_id: str = "key") -> bool:
        items = self.items(entity_id)
        return all(
            sum(share(limit.burst * 1000, shard, item["shard_count"]) for shard, item in items.items())
            == limit.burst * 1000
            and {item[f"b_{limit.name}_bx"] for item in items.values()} == {limit.burst * 1000}
            for limit in limits
        )
