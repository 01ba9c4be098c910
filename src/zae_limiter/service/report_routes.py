"""What operators look at: levels, usage, changes, what needs attention, and what happens right now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from zae_limiter import Decided, Degraded, Event, Settled, __version__
from zae_limiter.service.documents import (
    audit_document,
    bucket_document,
    lease_document,
    page_document,
    status_document,
    summary_document,
    total_document,
    usage_document,
)
from zae_limiter.service.operations import Call, json_reply
from zae_limiter.service.problems import NO_STORE, Problem, Reply, encode_json


async def status(call: Call) -> Reply:
    """The live buckets of an entity; without one, how the service itself does."""
    entity_id = call.query.get("entity")
    if entity_id is not None:
        found = await call.limiter.get_status(call.entity(entity_id), call.query.get("resource"))
        return json_reply(status_document(found, call.caller.sees_ancestors))
    call.caller.check_everything()
    repository = call.limiter.repository
    document = {
        "version": __version__,
        "namespace": repository.namespace,
        "ready": await call.backend.is_ready(),
        "unresolved": repository.unresolved,
    }
    return json_reply(document)


async def tightest(call: Call) -> Reply:
    """The live buckets with the least left, those in debt first."""
    call.caller.check_everything()
    found = await call.limiter.get_tightest_buckets(call.query.get("resource"), limit=call.query.get("limit", 20))
    return json_reply({"buckets": [bucket_document(bucket) for bucket in found]})


async def list_leases(call: Call) -> Reply:
    """The leases that have a record, of one entity or of all."""
    page = await call.limiter.list_leases(call.entity_or_all(call.query.get("entity")), **_page(call))
    return json_reply(page_document("leases", page, lease_document))


async def usage(call: Call) -> Reply:
    """What was taken, per window: of an entity, of a resource, or of one on the other."""
    snapshots = await call.limiter.get_usage_snapshots(
        call.entity_or_all(call.query.get("entity")),
        call.query.get("resource"),
        call.query.get("window"),
        call.query.get("start"),
        call.query.get("end"),
        **_page(call),
    )
    return json_reply(page_document("usage", snapshots, usage_document))


async def usage_summary(call: Call) -> Reply:
    """All windows of one type added up."""
    summary = await call.limiter.get_usage_summary(
        call.entity_or_all(call.query.get("entity")),
        call.query.get("resource"),
        call.query.get("window", "hourly"),
        call.query.get("start"),
        call.query.get("end"),
    )
    return json_reply(summary_document(summary))


async def top_usage(call: Call) -> Reply:
    """The entities, or the resources, that took most."""
    call.caller.check_everything()
    ranking = await call.limiter.get_top_usage(
        call.query.get("by", "entity"),
        limit_name=call.query.get("limit_name"),
        resource=call.query.get("resource"),
        window_type=call.query.get("window", "hourly"),
        start_time=call.query.get("start"),
        end_time=call.query.get("end"),
        limit=call.query.get("limit", 20),
    )
    return json_reply({"ranking": [total_document(total) for total in ranking]})


async def audit(call: Call) -> Reply:
    """Who changed what, newest first."""
    page = await call.limiter.get_audit_events(
        call.entity_or_all(call.query.get("entity")),
        start_time=call.query.get("start"),
        end_time=call.query.get("end"),
        **_page(call),
    )
    return json_reply(page_document("events", page, audit_document))


async def attention(call: Call) -> Reply:
    """What needs an operator's attention, worst first."""
    call.caller.check_everything()
    source = call.backend.attention
    if source is None:
        raise Problem(404, "this process keeps no account of what needs attention")
    return json_reply(await source(call.limiter.repository.namespace))


def _page(call: Call) -> dict[str, Any]:
    return {"limit": call.query.get("limit", 100), "cursor": call.query.get("cursor")}


# What happens right now


async def events(call: Call) -> None:
    """The decisions, settlements and outages of this process, as a stream of events."""
    listener = call.backend.events.listen(_wanted_by(call))
    if listener is None:
        raise Problem(503, "too many clients listen, or the process is about to end")
    headers = [(b"content-type", b"text/event-stream"), NO_STORE]
    await call.send({"type": "http.response.start", "status": 200, "headers": headers})
    leaving = asyncio.ensure_future(_left(call))
    leaving.add_done_callback(lambda _: listener.end())
    try:
        await _say(call, ": listening\n\n")
        async for told in listener.pieces():
            await _say(call, "".join(_as_event(document, call) for document in told) or ": nothing new\n\n")
        if not leaving.done():
            await call.send({"type": "http.response.body", "body": b"", "more_body": False})
    finally:
        leaving.cancel()
        with suppress(asyncio.CancelledError):
            await leaving


def _wanted_by(call: Call) -> Callable[[Event], bool]:
    """Which events a client may hear of, and asked for."""
    namespace = call.limiter.repository.namespace
    entity_id, resource = call.query.get("entity"), call.query.get("resource")
    prefix = call.caller.entity_prefix or ""
    if entity_id is not None:
        call.entity(entity_id)

    def wants(event: Event) -> bool:
        return (
            isinstance(event, Decided | Settled | Degraded)
            and event.namespace == namespace
            and event.entity_id.startswith(prefix)
            and (entity_id is None or event.entity_id == entity_id)
            and (resource is None or event.resource == resource)
        )

    return wants


def _as_event(document: dict[str, Any], call: Call) -> str:
    """An event as it is sent. What ancestors have left is only for clients that may know it."""
    if "violations" in document and not call.caller.sees_ancestors:
        own = [found for found in document["violations"] if found["entity_id"] == document["entity"]]
        document = {**document, "violations": own}
    return f"event: {document['event']}\ndata: {encode_json(document)}\n\n"


async def _say(call: Call, text: str) -> None:
    await call.send({"type": "http.response.body", "body": text.encode(), "more_body": True})


async def _left(call: Call) -> None:
    """Until the client is gone."""
    while (await call.receive())["type"] != "http.disconnect":
        pass
