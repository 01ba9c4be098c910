"""Limits of the four levels, and access switches: read, set, remove.

Which level a request is about is said by what it names: nothing is the system, a resource is that resource, an entity
is the entity on every resource that has none of its own, both are the one on the other.

``If-Match`` names the limits that a change is about, by what ``ETag`` said of them. The store compares them in
the step that changes them: of two clients that change the same ones at once, one is told that they are others by now.
"""

from __future__ import annotations

from typing import Any

from zae_limiter import Limit, LimitsSet, limits_version
from zae_limiter.service.documents import access_document, limits_document, limits_from, page_document
from zae_limiter.service.operations import Call, json_reply, no_content
from zae_limiter.service.problems import Headers, Problem, Reply

EVERY_RESOURCE = "_default_"


class Level:
    """One of the four levels, in the namespace of a call."""

    def __init__(self, call: Call) -> None:
        self._limiter = call.limiter
        self._how: dict[str, Any] = {"principal": call.caller.name, "expected_version": _expected_version(call)}
        self.entity_id: str | None = call.entity_or_all(call.query.get("entity"))
        self.resource: str | None = call.query.get("resource")

    async def read(self) -> tuple[list[Limit], str | None]:
        """Its limits as they were set, and the system's policy for outages."""
        if self.entity_id is not None:
            return await self._limiter.get_limits(self.entity_id, resource=self.resource or EVERY_RESOURCE), None
        if self.resource is not None:
            return await self._limiter.get_resource_defaults(self.resource), None
        limits, policy = await self._limiter.get_system_defaults()
        return limits, None if policy is None else str(policy)

    async def set(self, limits: list[Limit], *, merge: bool, on_unavailable: str | None) -> LimitsSet:
        """Set them."""
        how = self._how
        if self.entity_id is not None:
            on = self.resource or EVERY_RESOURCE
            return await self._limiter.set_limits(self.entity_id, limits, resource=on, merge=merge, **how)
        if self.resource is not None:
            return await self._limiter.set_resource_defaults(self.resource, limits, merge=merge, **how)
        return await self._limiter.set_system_defaults(limits, on_unavailable=on_unavailable, **how)

    async def delete(self) -> None:
        """Remove them."""
        how = self._how
        if self.entity_id is not None:
            await self._limiter.delete_limits(self.entity_id, resource=self.resource or EVERY_RESOURCE, **how)
        elif self.resource is not None:
            await self._limiter.delete_resource_defaults(self.resource, **how)
        else:
            await self._limiter.delete_system_defaults(**how)

    def document(self, limits: list[Limit], policy: str | None) -> dict[str, Any]:
        """What is said of it."""
        return {
            "entity": self.entity_id,
            "resource": self.resource,
            "limits": limits_document(limits),
            "on_unavailable": policy,
        }


async def get_limits(call: Call) -> Reply:
    """The limits of a level as they were set; empty if none were."""
    level = Level(call)
    limits, policy = await level.read()
    return json_reply(level.document(limits, policy), 200, _etag(limits, policy))


async def get_effective_limits(call: Call) -> Reply:
    """The limits that hold for an entity on a resource, and the level that they come from."""
    entity_id = call.entity(call.query["entity"])
    found = await call.limiter.repository.resolve_limits(entity_id, call.query["resource"])
    document = {
        "entity": entity_id,
        "resource": call.query["resource"],
        "limits": limits_document(found.limits or ()),
        "source": found.source,
        "on_unavailable": None if found.on_unavailable is None else str(found.on_unavailable),
    }
    return json_reply(document)


async def set_limits(call: Call) -> Reply:
    """Set the limits of a level. They replace those of wider levels there; what no longer holds is told."""
    level = Level(call)
    limits = limits_from(call.body["limits"])
    if call.body.get("on_unavailable") is not None and (level.entity_id or level.resource):
        raise Problem(422, "on_unavailable is a policy of the system: name no entity and no resource")
    changed = await level.set(
        limits, merge=call.body.get("merge", False), on_unavailable=call.body.get("on_unavailable")
    )
    now, policy = await level.read()
    document = {**level.document(now, policy), "replaced": [replaced.as_dict() for replaced in changed.replaced]}
    return json_reply(document, 200, _etag(now, policy))


async def delete_limits(call: Call) -> Reply:
    """Remove the limits of a level: the next wider one holds again."""
    level = Level(call)
    await level.delete()
    return no_content()


def _expected_version(call: Call) -> str | None:
    """The version that ``If-Match`` names: in quotes, or any."""
    named = call.headers.get(b"if-match")
    if named is None:
        return None
    text = named.decode("latin-1").strip()
    return text if text == "*" else text.removeprefix('"').removesuffix('"')


def _etag(limits: list[Limit], policy: str | None) -> Headers:
    return [(b"etag", f'"{limits_version(limits, policy)}"'.encode())]


# Access switches


async def list_access(call: Call) -> Reply:
    """Every access switch that holds; with an entity, those that hold for it, the one that decides first."""
    entity_id = call.entity_or_all(call.query.get("entity"))
    if entity_id is not None:
        switches = await call.limiter.resolve_access(entity_id, call.query.get("resource"))
        shown = access_document(switches, entity_id, call.caller.sees_ancestors)
        return json_reply({"access": shown, "next_cursor": None})
    page = await call.limiter.list_access(limit=call.query.get("limit", 100), cursor=call.query.get("cursor"))
    return json_reply(page_document("access", page, lambda switch: switch.as_dict()))


async def set_access(call: Call) -> Reply:
    """Turn an access switch: of an entity, of an entity on a resource, of a resource, or of the system."""
    body = call.body
    scope = {"entity_id": call.entity_or_all(body.get("entity")), "resource": body.get("resource")}
    await call.limiter.set_access(body["mode"], **scope, until=body.get("until"), principal=call.caller.name)
    return json_reply((await call.limiter.get_access(**scope)).as_dict())
