"""A DynamoDB inside the process that always says the same, so that a client can be followed for a million entities.

First the client's calls go to the model of DynamoDB that the tests have. Then the answers are *canned*: every write to
a bucket is answered with the bucket as it was, under whatever name it is asked for, and what is configured is the same
for every caller. Nothing is stored, so what grows is the client, and what costs is the client: the
transport is left out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.running.clocks import machine_clock
from zae_limiter.running.sync_driver import SyncDriver
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.dynamodb.transport.protocol import Target

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from simulation.model import Model

TABLE, RESOURCE = "canned", "gpt-4"
BUCKET = "/BUCKET#"
CONFIG_TTL_S = 3_600
"""Limits that are resolved stay so for as long as is measured, however slow the machine is."""


class Answered:
    """A call that was sent, as the transport of threads has it; its reply is there at once."""

    __slots__ = ("_reply",)

    def __init__(self, reply: Any) -> None:
        self._reply = reply

    def reply(self) -> Any:
        return self._reply

    def abandon(self) -> None:
        """Nothing is waited for."""


class Canned:
    """A transport without a wire."""

    def __init__(self, *, parsed: bool = False) -> None:
        """``parsed``: every bucket is read from text, as from a wire, so that no two share what they are made of."""
        self._parsed = parsed
        self._texts: dict[int, str] = {}
        self._model = Model()
        self._buckets: dict[str, dict[str, Any]] = {}
        self._any: dict[str, Any] = {}
        self._configured: dict[str, dict[str, Any]] | None = None

    def freeze(self) -> None:
        """From now on every answer is one that was given before."""
        items = self._model.call("Scan", {"TableName": TABLE})["Items"]
        self._buckets = {item["PK"]["S"]: item for item in items if BUCKET in item["PK"]["S"]}
        self._any = next(iter(self._buckets.values()))
        self._texts = {id(bucket): json.dumps(bucket) for bucket in self._buckets.values()}
        self._configured = {
            f"{item['PK']['S']} {item['SK']['S']}": item for item in items if BUCKET not in item["PK"]["S"]
        }

    def call(self, operation: str, params: Mapping[str, Any], seconds: float) -> Any:
        if self._configured is None:
            return self._model.call(operation, params)
        if operation == "UpdateItem":
            return {"Attributes": self._bucket(params["Key"])}
        if operation == "GetItem":
            return {"Item": self._bucket(params["Key"])}
        if operation == "BatchGetItem":
            ((table, asked),) = params["RequestItems"].items()
            return {"Responses": {table: self._found(asked["Keys"])}}
        raise AssertionError(f"{operation} is not answered here")

    def begin(self, operation: str, params: Mapping[str, Any], seconds: float) -> Answered:
        """As :meth:`call`, without waiting for the reply."""
        return Answered(self.call(operation, params, seconds))

    def _bucket(self, key: Mapping[str, Any]) -> dict[str, Any]:
        """The bucket of that key; of an entity that it never met, a copy of another one's."""
        pk = key["PK"]["S"]
        bucket = self._buckets.get(pk, self._any)
        _, entity_id, resource, _ = pk.split("#")
        own = {"entity_id": {"S": entity_id}, "resource": {"S": resource}, **key}
        return {**(json.loads(self._texts[id(bucket)]) if self._parsed else bucket), **own}

    def _found(self, keys: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        assert self._configured is not None
        found = []
        for key in keys:
            name = f"{key['PK']['S']} {key['SK']['S']}"
            if BUCKET in name:
                found.append(self._bucket(key))
            elif name in self._configured:
                found.append(self._configured[name])
        return found

    def close(self) -> None:
        """Nothing is open."""


def canned_limiter(limits: Sequence[Limit], depth: int = 1, *, parsed: bool = False) -> SyncRateLimiter:
    """A client that has taken once as ``key-0``, under ``depth - 1`` ancestors; its answers are canned."""
    canned = Canned(parsed=parsed)
    target = Target("us-east-1")
    store = DynamoStore(TABLE, target, deadline=600, config_cache_ttl=CONFIG_TTL_S, transport=canned)
    SyncDriver(machine_clock, store.perform).run(store.create(0))
    limiter = SyncRateLimiter(SyncRepository(store))
    limiter.set_system_defaults(list(limits))
    make_chain(limiter, depth)
    for _ in range(2):
        with limiter.acquire("key-0", RESOURCE, {limit.name: 1 for limit in limits}):
            pass
    canned.freeze()
    return limiter


def make_chain(limiter: SyncRateLimiter, depth: int) -> None:
    """``key-0`` with so many levels, itself included."""
    if depth > 1:
        limiter.create_entity(f"level-{depth}")
        for level in range(depth - 1, 1, -1):
            limiter.create_entity(f"level-{level}", parent_id=f"level-{level + 1}", cascade=True)
        limiter.create_entity("key-0", parent_id="level-2", cascade=True)
