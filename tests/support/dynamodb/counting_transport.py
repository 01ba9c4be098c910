"""A transport that counts: which calls were made, and what each consumed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from zae_limiter.stores.dynamodb.requests import Refused

MEASURED = {"GetItem", "PutItem", "UpdateItem", "DeleteItem", "Query", "BatchGetItem", "TransactWriteItems"}


class Cost(NamedTuple):
    """What one call consumed: of the table, and of its indexes."""

    operation: str
    table: float
    indexes: float


class Counting:
    """Wraps a sync transport. ``costs`` has every call since the last :meth:`reset`."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.costs: list[Cost] = []

    def reset(self) -> None:
        self.costs.clear()

    @property
    def operations(self) -> Counter[str]:
        return Counter(cost.operation for cost in self.costs)

    @property
    def consumed(self) -> float:
        return sum(cost.table + cost.indexes for cost in self.costs)

    @property
    def of_indexes(self) -> float:
        return sum(cost.indexes for cost in self.costs)

    def call(self, operation: str, params: Mapping[str, Any], seconds: float) -> Any:
        measured = {"ReturnConsumedCapacity": "INDEXES"} if operation in MEASURED else {}
        try:
            reply = self._transport.call(operation, {**params, **measured}, seconds)
        except Refused:
            self.costs.append(Cost(operation, 0.0, 0.0))  # a refusal does not say what it cost
            raise
        consumed = reply.get("ConsumedCapacity", {})
        parts = consumed if isinstance(consumed, list) else [consumed]
        table = sum(part.get("Table", {}).get("CapacityUnits", 0.0) for part in parts)
        indexes = sum(
            index["CapacityUnits"] for part in parts for index in part.get("GlobalSecondaryIndexes", {}).values()
        )
        self.costs.append(Cost(operation, table, indexes))
        return reply

    def close(self) -> None:
        self._transport.close()
