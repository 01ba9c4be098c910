"""Every transport of each world, asked in the same way, and a table to ask about."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias

import pytest

from engines.servers import Engine
from zae_limiter.stores.dynamodb.transport.asyncio_transport import AsyncioTransport
from zae_limiter.stores.dynamodb.transport.botocore_fallback import AsyncBotocoreTransport, BotocoreTransport
from zae_limiter.stores.dynamodb.transport.protocol import Target
from zae_limiter.stores.dynamodb.transport.sync_transport import SocketTransport

Ask: TypeAlias = Callable[..., Any]

SECONDS = 5.0


def asking_with(make: Callable[[Target], Any]) -> Callable[[Target], AbstractContextManager[Ask]]:
    """How to ask through transports for threads."""

    @contextmanager
    def asking(target: Target) -> Iterator[Ask]:
        transport = make(target)
        try:
            yield lambda operation, params, seconds=SECONDS: transport.call(operation, params, seconds)
        finally:
            transport.close()

    return asking


def asking_in_a_loop_with(make: Callable[[Target], Any]) -> Callable[[Target], AbstractContextManager[Ask]]:
    """How to ask through transports for event loops."""

    @contextmanager
    def asking(target: Target) -> Iterator[Ask]:
        transport = make(target)
        with asyncio.Runner() as runner:
            try:
                yield lambda operation, params, seconds=SECONDS: runner.run(transport.call(operation, params, seconds))
            finally:
                runner.run(transport.close())

    return asking


SYNC: dict[str, Callable[[Target], Any]] = {"own": SocketTransport, "botocore": BotocoreTransport}
ASYNC: dict[str, Callable[[Target], Any]] = {"own-async": AsyncioTransport, "botocore-async": AsyncBotocoreTransport}

sync_asking = asking_with(BotocoreTransport)
OWN = {"own": asking_with(SocketTransport), "own-async": asking_in_a_loop_with(AsyncioTransport)}
EVERY = OWN | {
    "botocore": sync_asking,
    "botocore-async": asking_in_a_loop_with(AsyncBotocoreTransport),
}

WORLDS = pytest.mark.parametrize("asking", EVERY.values(), ids=EVERY)
OWN_WORLDS = pytest.mark.parametrize("asking", OWN.values(), ids=OWN)
SYNC_TRANSPORTS = pytest.mark.parametrize("make", SYNC.values(), ids=SYNC)
ASYNC_TRANSPORTS = pytest.mark.parametrize("make", ASYNC.values(), ids=ASYNC)


def target_of(engine: Engine) -> Target:
    return Target(engine.region, engine.endpoint_url)


def table_with_stream(name: str) -> dict[str, Any]:
    return {
        "TableName": name,
        "AttributeDefinitions": [{"AttributeName": "PK", "AttributeType": "S"}],
        "KeySchema": [{"AttributeName": "PK", "KeyType": "HASH"}],
        "BillingMode": "PAY_PER_REQUEST",
        "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    }


def put(table: str, key: str, n: int = 0) -> dict[str, Any]:
    return {"TableName": table, "Item": {"PK": {"S": key}, "n": {"N": str(n)}}}


def get(table: str, key: str) -> dict[str, Any]:
    return {"TableName": table, "Key": {"PK": {"S": key}}, "ConsistentRead": True}


def add(table: str, key: str) -> dict[str, Any]:
    return {
        "TableName": table,
        "Key": {"PK": {"S": key}},
        "UpdateExpression": "ADD #n :one",
        "ExpressionAttributeNames": {"#n": "n"},
        "ExpressionAttributeValues": {":one": {"N": "1"}},
        "ReturnValues": "ALL_NEW",
    }


def put_new(table: str, key: str) -> dict[str, Any]:
    return put(table, key) | {
        "ConditionExpression": "attribute_not_exists(PK)",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
