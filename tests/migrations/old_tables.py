"""Tables as clients of older layouts left them, and what such a client would have answered."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from itertools import count
from typing import Any, NamedTuple

from engines.servers import Engine
from support.transports import Ask, sync_asking, target_of
from zae_limiter import Limit, SyncRateLimiter
from zae_limiter.stores.dynamodb.operations.namespaces import table_params
from zae_limiter.stores.dynamodb.schema import decode_item, encode_item

TABLES = count()
NOW = 1_800_000_000_000
PATIENCE_S = 20.0


class Was(NamedTuple):
    """A limit of an old bucket: its terms, its balance, what it counted, when it was refilled."""

    limit: Limit
    tk: int
    tc: int
    rf: int

    def level(self, now: int) -> Fraction:
        """What its client would have found, to the last fraction of a millitoken."""
        rate = Fraction(self.limit.refill_amount, self.limit.refill_period_seconds)
        return min(self.tk + (now - self.rf) * rate, Fraction(self.limit.burst * 1000))


def terms(limit: Limit) -> dict[str, int]:
    return {
        "cp": limit.capacity * 1000,
        "bx": limit.burst * 1000,
        "ra": limit.refill_amount * 1000,
        "rp": limit.refill_period_seconds * 1000,
    }


def separate_items(entity_id: str, resource: str, limits: Mapping[str, Was], prefix: str = "") -> list[dict[str, Any]]:
    """A bucket of the first layout: an item per limit."""
    return [
        {
            "PK": f"{prefix}ENTITY#{entity_id}",
            "SK": f"#BUCKET#{resource}#{name}",
            "entity_id": entity_id,
            "resource": resource,
            "limit_name": name,
            "tokens_milli": was.tk,
            "capacity_milli": was.limit.capacity * 1000,
            "burst_milli": was.limit.burst * 1000,
            "refill_amount_milli": was.limit.refill_amount * 1000,
            "refill_period_ms": was.limit.refill_period_seconds * 1000,
            "last_refill_ms": was.rf,
            "total_consumed_milli": was.tc,
            "GSI2PK": f"{prefix}RESOURCE#{resource}",
            "GSI2SK": f"BUCKET#{entity_id}#{name}",
            "ttl": NOW // 1000 + 86_400,
        }
        for name, was in limits.items()
    ]


def composite(entity_id: str, resource: str, limits: Mapping[str, Was], prefix: str = "") -> dict[str, Any]:
    """A bucket of the second layout: one item, one time of refill."""
    (rf,) = {was.rf for was in limits.values()}
    fields = {}
    for name, was in limits.items():
        for field, value in {**terms(was.limit), "tk": was.tk, "tc": was.tc}.items():
            fields[f"b_{name}_{field}"] = value
    return {
        "PK": f"{prefix}ENTITY#{entity_id}",
        "SK": f"#BUCKET#{resource}",
        "entity_id": entity_id,
        "resource": resource,
        "rf": rf,
        "cascade": False,
        "GSI2PK": f"{prefix}RESOURCE#{resource}",
        "GSI2SK": f"BUCKET#{entity_id}",
        "ttl": NOW // 1000 + 86_400,
        **fields,
    }


def entity(entity_id: str, parent_id: str | None = None, *, prefix: str = "", **more: Any) -> dict[str, Any]:
    """An entity of the second layout."""
    family = {} if parent_id is None else {"GSI1PK": f"{prefix}PARENT#{parent_id}", "GSI1SK": f"CHILD#{entity_id}"}
    return {
        "PK": f"{prefix}ENTITY#{entity_id}",
        "SK": "#META",
        "entity_id": entity_id,
        "name": entity_id.title(),
        "parent_id": parent_id,
        "metadata": {"team": "search"},
        **family,
        **more,
    }


def config(pk: str, sk: str, *limits: Limit, prefix: str = "", **more: Any) -> dict[str, Any]:
    """Limits of one level, in whole tokens and seconds."""
    fields: dict[str, Any] = {"config_version": 4}
    for limit in limits:
        values = limit.capacity, limit.burst, limit.refill_amount, limit.refill_period_seconds
        fields |= {
            f"l_{limit.name}_{field}": value for field, value in zip(("cp", "bx", "ra", "rp"), values, strict=True)
        }
    return {"PK": f"{prefix}{pk}", "SK": sk, **fields, **more}


def usage(entity_id: str, resource: str, window: str, start: str, prefix: str = "", **counters: int) -> dict[str, Any]:
    return {
        "PK": f"{prefix}ENTITY#{entity_id}",
        "SK": f"#USAGE#{resource}#{start}",
        "entity_id": entity_id,
        "resource": resource,
        "window": window,
        "window_start": start,
        "GSI2PK": f"{prefix}RESOURCE#{resource}",
        "GSI2SK": f"USAGE#{start}#{entity_id}",
        **counters,
    }


class OldTable:
    """A table that an older layout was written to."""

    def __init__(self, ask: Ask, engine: Engine, name: str) -> None:
        self.ask = ask
        self.name = name
        self.url = f"dynamodb://{name}?region={engine.region}&endpoint_url={engine.endpoint_url}"

    def put(self, *items: Mapping[str, Any]) -> None:
        for start in range(0, len(items), 25):
            requests = [{"PutRequest": {"Item": old_item(item)}} for item in items[start : start + 25]]
            self.ask("BatchWriteItem", {"RequestItems": {self.name: requests}})

    def items(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Everything in it, by key."""
        found: dict[tuple[str, str], dict[str, Any]] = {}
        params: dict[str, Any] = {"TableName": self.name, "ConsistentRead": True}
        while True:
            reply = self.ask("Scan", params)
            found |= {(item["PK"]["S"], item["SK"]["S"]): decode_item(item) for item in reply["Items"]}
            if "LastEvaluatedKey" not in reply:
                return found
            params["ExclusiveStartKey"] = reply["LastEvaluatedKey"]

    def ns(self) -> str:
        return str(self.items()["_/SYSTEM#", "#NAMESPACE#default"]["ns"])

    def buckets(self) -> dict[tuple[str, str], dict[str, Any]]:
        """The buckets of today's layout, by entity and resource."""
        return {(i["entity_id"], i["resource"]): i for key, i in self.items().items() if key[1] == "#STATE"}

    @contextmanager
    def limiter(self, now: int = NOW) -> Iterator[SyncRateLimiter]:
        with SyncRateLimiter.open(self.url, clock=lambda: now, deadline=PATIENCE_S) as limiter:
            yield limiter


def old_item(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """As older clients wrote it: they kept ``NULL`` for what is not there."""
    nulls = {name: {"NULL": True} for name, value in attributes.items() if value is None}
    return encode_item(attributes) | nulls


@contextmanager
def old_table(engine: Engine, params: Callable[[str], Mapping[str, Any]] = table_params) -> Iterator[OldTable]:
    """An empty one, which no version record tells about."""
    with sync_asking(target_of(engine)) as ask:
        table = OldTable(ask, engine, f"old-{os.getpid()}-{next(TABLES)}")
        ask("CreateTable", params(table.name))
        try:
            yield table
        finally:
            ask("DeleteTable", {"TableName": table.name})
