"""Several processes that follow one stream share its shards, without a coordinator.

Each writes a heartbeat to an item of the table every few seconds, and reads those of the others. The owner of a shard
follows from the names alone: every member ranks all members for it in the same order, and the first reads it. If one
comes or goes, only the shards it wins or leaves change hands. Two that see different members for a moment may both
read a shard, which does no harm; one that dies is absent after half a minute, and the others continue from its
checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final

from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.items import address, decoder, unless_broken
from zae_limiter.stores.dynamodb.requests import Item
from zae_limiter.stores.dynamodb.schema import REGISTRY, Key, encode_item, number_in, pk_system
from zae_limiter.stores.dynamodb.table_client import Deadline, TableClient

MEMBER: Final = "#AGGREGATOR#"
HEARTBEAT_EVERY_MS: Final = 10_000
ABSENT_AFTER_S: Final = 30
"""A member without a heartbeat for so long is gone; so is one whose clock is ahead by more, which may read a shard
twice."""

KEPT_S: Final = 3_600


class Membership:
    """The processes that follow the stream of one table, as one of them sees it."""

    def __init__(self, client: TableClient) -> None:
        self.name = client.write_ids.incarnation()
        self._client = client

    def heartbeat(self) -> Plan[frozenset[str]]:
        """Write a heartbeat, and read which members are present."""
        until = yield from self._client.new_deadline()
        yield from self._write_presence(until, until.epoch_s)
        present = {
            item["SK"]["S"].removeprefix(MEMBER)
            for item in (yield from self._client.query_all(pk_system(REGISTRY), until, prefix=MEMBER))
            if abs(until.epoch_s - (unless_broken(seen_in, item) or 0)) < ABSENT_AFTER_S
        }
        return frozenset(present | {self.name})

    def leave(self) -> Plan[None]:
        """Tell the others that this member leaves, so that they need not wait for its absence."""
        until = yield from self._client.new_deadline()
        yield from self._write_presence(until, 0)

    def _write_presence(self, until: Deadline, seen_s: int) -> Plan[None]:
        attributes = encode_item({"seen": seen_s, "ttl": until.epoch_s + KEPT_S})
        params: dict[str, Any] = {
            "TableName": self._client.table,
            "Item": {**address(Key(pk_system(REGISTRY), f"{MEMBER}{self.name}")), **attributes},
        }
        yield from self._client.ask("PutItem", params, until, repeatable=True)


@decoder("a member")
def seen_in(item: Item) -> int:
    """When a member last said that it is there, in seconds since the epoch."""
    return number_in(item["seen"])


def owner_of(shard: str, members: Iterable[str]) -> str:
    """Which of the members reads a shard."""
    return max(members, key=lambda name: blake2b(f"{name}/{shard}".encode(), digest_size=8).digest())
