"""How far a stream was counted, kept in the table itself: an item per shard, in the partition of the registry.

A checkpoint only ever moves forward. A process that comes with an older one gets the newer, and continues from there:
what is before it was counted by another process. Several may also read the same records at the same time.

Checkpoints are changes of the table too, and so are snapshots: they come back as records. Only what a shard had to
say about buckets makes its checkpoint worth writing. Otherwise every checkpoint would be the reason for the next.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.items import address, decoder, unless_broken
from zae_limiter.stores.dynamodb.operations.paging import side_by_side
from zae_limiter.stores.dynamodb.requests import Item, Refused
from zae_limiter.stores.dynamodb.schema import REGISTRY, Key, encode_item, pk_system
from zae_limiter.stores.dynamodb.table_client import Deadline, TableClient
from zae_limiter.stores.dynamodb.usage_items import sequence_key
from zae_limiter_aggregator.follower import Position, Positions

KEPT_S: Final = 7 * 86_400
"""How long a checkpoint stays after it was last moved. The stream itself forgets after a day."""

AT_ONCE: Final = 16

CHECKPOINT: Final = "#CHECKPOINT#"
FINISHED: Final = "~"
"""Sorts after every digit: the end of a shard is behind all of its records."""


NOWHERE: Final = Position()


class Checkpoints:
    """Those of one stream of one table."""

    def __init__(self, client: TableClient, stream: str) -> None:
        self._client = client
        self._stream = stream

    def load(self) -> Plan[dict[str, Position]]:
        """How far each shard was counted, by any process."""
        prefix = checkpoint_key(self._stream, "").sk
        items = yield from self._client.query_all(pk_system(REGISTRY), prefix=prefix)
        found = {item["SK"]["S"].removeprefix(prefix): unless_broken(position_in, item) for item in items}
        return {shard: position for shard, position in found.items() if position is not None}

    def save(self, positions: Positions, shards: Iterable[str]) -> Plan[None]:
        """Write the positions of some shards. Where the table has one that is further, it is taken over."""
        known = [shard for shard in shards if positions.get(shard, NOWHERE) != NOWHERE]
        for begin in range(0, len(known), AT_ONCE):
            until = yield from self._client.new_deadline()
            some = known[begin : begin + AT_ONCE]
            newer = yield from side_by_side([self._move(shard, positions[shard], until) for shard in some])
            positions.update((shard, found) for shard, found in zip(some, newer, strict=True) if found is not None)

    def _move(self, shard: str, position: Position, until: Deadline) -> Plan[Position | None]:
        """Move a checkpoint forward; the one that is there, if that is as far or further."""
        params: dict[str, Any] = {
            "TableName": self._client.table,
            "Item": {
                **address(checkpoint_key(self._stream, shard)),
                **encode_item(attributes_of(position)),
                "ttl": {"N": str(until.epoch_s + KEPT_S)},
            },
            "ConditionExpression": "attribute_not_exists(place) OR place < :place",
            "ExpressionAttributeValues": {":place": {"S": place_of(position)}},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        try:
            yield from self._client.ask("PutItem", params, until, repeatable=True)
        except Refused as refusal:
            if not refusal.by_condition:
                raise
            return None if refusal.item is None else unless_broken(position_in, refusal.item)
        return None


def checkpoint_key(stream: str, shard: str) -> Key:
    """Where a checkpoint is. Of a stream's name only the last part, its label, differs between those of a table."""
    return Key(pk_system(REGISTRY), f"{CHECKPOINT}{stream.rpartition('/')[2]}#{shard}")


def attributes_of(position: Position) -> dict[str, str | bool]:
    """A position as attributes; ``place`` is the same in a form that sorts."""
    after = {} if position.after is None else {"after": position.after}
    return {**after, "finished": position.finished, "place": place_of(position)}


@decoder("a checkpoint")
def position_in(item: Item) -> Position:
    """The position that a checkpoint has. Raises ``BrokenItem``."""
    after = item["after"]["S"] if "after" in item else None
    if after is not None:
        sequence_key(after)
    return Position(after, item["finished"]["BOOL"])


def place_of(position: Position) -> str:
    """A position in a form that sorts."""
    return sequence_key(position.after or "0") + (FINISHED if position.finished else "")
