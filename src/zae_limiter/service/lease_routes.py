"""Taking: leases that any replica can settle, takes that end at once, and looks.

A lease has a record in the store from the step that takes its tokens. Its id is what a client has to know to settle
it; ids cannot be guessed. With an ``Idempotency-Key`` the record stands under that key, mixed with what only the
client's token knows, so that keys of different clients never meet: a request that is repeated, at whichever replica,
gets the same lease and is charged once.

A call that fails leaves its lease as it was. So a resumed lease is never used as a context manager here, which would
give back at an error: it is closed, or detached again, or left alone.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from zae_limiter import Lease, LeaseInfo, LimitStatus, ValidationError
from zae_limiter.http_fields import rate_limit_fields
from zae_limiter.service.documents import lease_document
from zae_limiter.service.operations import JSON_TYPE, Call, json_reply, no_content
from zae_limiter.service.problems import NO_STORE, Headers, Problem, Reply, encode_json

Result = TypeVar("Result")

IDEMPOTENCY_KEY = b"idempotency-key"
LONGEST_KEY = 255
DEFAULT_TTL_S = 86_400
FIELD_NAMES = {name: name.lower().encode() for name in ("RateLimit-Policy", "RateLimit")}


async def take(call: Call) -> Reply:
    """Take, and keep what was taken."""
    body = call.body
    entity_id = call.entity(body["entity"])
    timeout = body.get("timeout", 0)
    key = call.headers.get(IDEMPOTENCY_KEY)
    lease = call.limiter.acquire(
        entity_id,
        body["resource"],
        body["consume"],
        timeout=timeout,
        request_id=None if key is None else request_id(call, key, "take"),
    )
    if timeout:
        await unless_client_leaves(call, _enter_and_end(lease))
    else:
        async with lease:
            pass
    statuses = lease.statuses
    return Reply(200, _taken(lease, statuses, entity_id, call), [JSON_TYPE, NO_STORE, *fields(statuses, entity_id)])


def _taken(lease: Lease, statuses: Sequence[LimitStatus], entity_id: str, call: Call) -> bytes:
    """The document of a take, written out: an encoder takes twice as long, and names of limits need no escapes."""
    every = call.caller.sees_ancestors
    entity = encode_json(entity_id)
    limits = [
        f'{{"entity":{entity if status.entity_id == entity_id else encode_json(status.entity_id)},'
        f'"name":"{status.limit_name}","available":{status.available},"burst":{status.limit.burst}}}'
        for status in statuses
        if every or status.entity_id == entity_id
    ]
    consumed = ",".join([f'"{name}":{amount}' for name, amount in lease.consumed.items()])
    degraded = "true" if lease.degraded else "false"
    return f'{{"consumed":{{{consumed}}},"degraded":{degraded},"limits":[{",".join(limits)}]}}'.encode()


async def acquire(call: Call) -> Reply:
    """Take under a lease that is settled by another call."""
    body = call.body
    entity_id = call.entity(body["entity"])
    key = call.headers.get(IDEMPOTENCY_KEY)
    lease = call.limiter.acquire(
        entity_id,
        body["resource"],
        body["consume"],
        timeout=body.get("timeout", 0),
        request_id=new_request_id() if key is None else request_id(call, key, "lease"),
    )
    granting = _enter_and_leave_open(lease, body.get("ttl"))
    token = await (unless_client_leaves(call, granting) if body.get("timeout") else granting)
    statuses = lease.statuses
    document = {
        "lease": token,
        "consumed": lease.consumed,
        "degraded": lease.degraded,
        "ended": lease.already_settled,
        "limits": limit_states(statuses, entity_id, call),
    }
    headers = fields(statuses, entity_id)
    if token is not None:
        headers.append((b"location", f"/v1/leases/{token}".encode()))
    return json_reply(document, 201, headers)


async def show_lease(call: Call) -> Reply:
    """What is recorded of a lease."""
    return json_reply(lease_document(await recorded(call)))


async def settle(call: Call) -> Reply:
    """Say what was used in all, and end the lease."""
    lease = await resumed(call)
    if not lease.already_settled:
        await lease.settle(call.body["actual"])
    return await _ended(call, lease, keep_open=call.body.get("keep_open", False))


async def adjust(call: Call) -> Reply:
    """Correct what was used."""
    lease = await resumed(call)
    if not lease.already_settled:
        await lease.adjust(call.body["deltas"])
    return await _ended(call, lease, keep_open=call.body.get("keep_open", True))


async def consume(call: Call) -> Reply:
    """Take more."""
    lease = await resumed(call)
    await lease.consume(call.body["consume"])
    return await _ended(call, lease, keep_open=call.body.get("keep_open", True))


async def release(call: Call) -> Reply:
    """Give back what is not settled, and end the lease."""
    lease = await resumed(call)
    await lease.close(refund=True)
    return no_content()


async def check(call: Call) -> Reply:
    """Whether a take would be granted; nothing is taken."""
    body = call.body
    entity_id = call.entity(body["entity"])
    found = await call.limiter.check(entity_id, body["resource"], body["consume"])
    document = {
        "fits": found.fits,
        "wait_seconds": found.wait_seconds,
        "access": None if found.access is None else str(found.access.mode),
        "limits": limit_states(found.statuses, entity_id, call),
    }
    return json_reply(document, 200, fields(found.statuses, entity_id))


# Leases


async def _enter_and_end(lease: Lease) -> None:
    async with lease:
        pass


async def _enter_and_leave_open(lease: Lease, ttl: float | None) -> str | None:
    """Take, and leave the lease open for another call; ``None`` if it was let through uncounted.

    Its record was written with the take. It is written again only if it is to be kept for another time than a day, or
    if it holds slots of calls in flight, which would come back at the end of the block.
    """
    async with lease:
        if lease.token is None or lease.already_settled:
            return lease.token
        if ttl is None and not lease.holds:
            return lease.token
        return await lease.detach(ttl=DEFAULT_TTL_S if ttl is None else ttl)


async def resumed(call: Call) -> Lease:
    """The lease that a path names. A client that is for some entities only has to own its entity."""
    if call.caller.entity_prefix is not None:
        await recorded(call)
    try:
        lease = call.limiter.resume(call.path["lease"])
    except ValidationError as error:
        raise _no_lease(error) from None
    return await lease.__aenter__()


async def recorded(call: Call) -> LeaseInfo:
    """What is recorded of the lease that a path names, if its entity is one of the client's."""
    try:
        info = await call.limiter.get_lease(call.path["lease"])
    except ValidationError as error:
        raise _no_lease(error) from None
    call.entity(info.entity_id)
    return info


def _no_lease(error: ValidationError) -> Problem:
    return Problem(404, f"there is no such lease: {error}")


async def _ended(call: Call, lease: Lease, *, keep_open: bool) -> Reply:
    """Write what was said of a lease, and leave it open or not. It may have ended elsewhere, before or meanwhile."""
    if not lease.already_settled:
        if keep_open:
            await lease.detach(ttl=call.body.get("ttl", DEFAULT_TTL_S))
        else:
            await lease.close()
    document = {
        "lease": call.path["lease"],
        "consumed": lease.consumed,
        "ended": lease.already_settled or not keep_open,
        "already_settled": lease.already_settled,
    }
    return json_reply(document)


# What several of them need


def request_id(call: Call, key: bytes, purpose: str) -> str:
    """The id of the record of a request: the same for the same key of the same client, and not to be guessed."""
    if not 0 < len(key) <= LONGEST_KEY:
        raise ValidationError("Idempotency-Key", key.decode("latin-1"), f"must have 1 to {LONGEST_KEY} characters")
    mixed = hashlib.sha256(b"\0".join((call.caller.secret, purpose.encode(), key))).digest()
    return "k" + base64.urlsafe_b64encode(mixed[:24]).decode()


def new_request_id() -> str:
    """The id of the record of a request that has no key."""
    return "r" + secrets.token_urlsafe(18)


async def unless_client_leaves(call: Call, work: Coroutine[Any, Any, Result]) -> Result:
    """Wait for something, and give it up if the client that asked for it is gone: nothing is taken for it then."""
    doing = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(call.receive())
    try:
        await asyncio.wait({doing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
        raise Problem(408, "the client left while it waited")
    finally:
        for task in (doing, leaving):
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task


def fields(statuses: Sequence[LimitStatus], entity_id: str) -> Headers:
    """The ``RateLimit`` fields of an answer."""
    return [(FIELD_NAMES[name], value.encode()) for name, value in rate_limit_fields(statuses, entity_id)]


def limit_states(statuses: Sequence[LimitStatus], entity_id: str, call: Call) -> list[dict[str, Any]]:
    """What is left of each limit; of ancestors only for clients that may know it."""
    every = call.caller.sees_ancestors
    return [
        {
            "entity": status.entity_id,
            "name": status.limit_name,
            "available": status.available,
            "burst": status.limit.burst,
        }
        for status in statuses
        if every or status.entity_id == entity_id
    ]
