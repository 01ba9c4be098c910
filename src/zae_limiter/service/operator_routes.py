"""What operators do to balances: give, lower, fill again."""

from __future__ import annotations

from zae_limiter.service.operations import Call, json_reply
from zae_limiter.service.problems import Reply


async def grant(call: Call) -> Reply:
    """Give an entity tokens, once per key."""
    body = call.body
    entity_id, resource = call.entity(body["entity"]), body["resource"]
    done = await call.limiter.grant(
        entity_id,
        resource,
        body["amounts"],
        key=body["key"],
        above=body.get("above", False),
        principal=call.caller.name,
    )
    return json_reply({"done": done, "available": await call.limiter.available(entity_id, resource)})


async def lower(call: Call) -> Reply:
    """Let a bucket hold at most these levels."""
    body = call.body
    entity_id, resource = call.entity(body["entity"]), body["resource"]
    await call.limiter.lower(entity_id, resource, body["levels"], principal=call.caller.name)
    return json_reply({"available": await call.limiter.available(entity_id, resource)})


async def reset(call: Call) -> Reply:
    """Fill the buckets of an entity again."""
    body = call.body
    count = await call.limiter.reset(
        call.entity(body["entity"]),
        body.get("resource"),
        limits=body.get("limits"),
        key=body.get("key"),
        principal=call.caller.name,
    )
    return json_reply({"buckets": count})
