"""Several calls in one request: done in order, each with its own status, none depending on another."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from zae_limiter import ValidationError
from zae_limiter.service.endpoint import entity_of
from zae_limiter.service.lease_routes import IDEMPOTENCY_KEY
from zae_limiter.service.operations import Call, Handler, Operation, json_reply
from zae_limiter.service.problems import Reply, reply_to_error
from zae_limiter.service.schema_check import check_document
from zae_limiter.service.schemas import MOST_TIMEOUT_SECONDS


def batch_of(operations: Mapping[str, Operation]) -> Handler:
    """What answers a batch of calls of these operations."""

    async def batch(call: Call) -> Reply:
        """Do each of them in order."""
        waits = sum(_number(part.get("body", {}).get("timeout")) for part in call.body["calls"])
        if waits > MOST_TIMEOUT_SECONDS:
            raise ValidationError("timeout", waits, f"must be {MOST_TIMEOUT_SECONDS} seconds in all calls together")
        results = [await _result(call, operations[part["call"]], part) for part in call.body["calls"]]
        return json_reply({"results": results})

    return batch


async def _result(call: Call, operation: Operation, part: Mapping[str, Any]) -> dict[str, Any]:
    body = part.get("body")
    try:
        call.caller.check_role(operation.roles)
        if operation.check_body is not None:
            check_document(operation.check_body, {} if body is None else body)
        reply = await operation.handler(_part_of(call, part))
        assert reply is not None
    except Exception as error:
        reply = reply_to_error(error, entity_of(body))
    result: dict[str, Any] = {"status": reply.status, "body": json.loads(reply.body) if reply.body else None}
    retry = dict(reply.headers).get(b"retry-after")
    return result if retry is None else {**result, "retry_after": int(retry)}


def _part_of(call: Call, part: Mapping[str, Any]) -> Call:
    """One call of a batch, as if it had come alone."""
    headers = {name: value for name, value in call.headers.items() if name != IDEMPOTENCY_KEY}
    if "idempotency_key" in part:
        headers[IDEMPOTENCY_KEY] = part["idempotency_key"].encode()
    path = {"lease": part.get("lease", "")}
    whose = call.backend, call.caller, call.limiter
    return Call(*whose, headers, path, {}, part.get("body", {}), call.receive, call.send)


def _number(value: Any) -> float:
    return value if isinstance(value, int | float) else 0
