"""Entities: create, read, change, delete. A change may name the version it is about (``If-Match``)."""

from __future__ import annotations

import re
from typing import Any

from zae_limiter.service.documents import entity_document, page_document
from zae_limiter.service.operations import Call, json_reply, no_content
from zae_limiter.service.problems import Problem, Reply

_VERSION = re.compile(r'"([0-9]{1,18})"').fullmatch

FIELDS = {"name": "name", "parent": "parent_id", "cascade": "cascade", "metadata": "metadata"}
"""What a document calls a field, and what the library does."""


async def list_entities(call: Call) -> Reply:
    """The entities of the namespace, or those directly below one."""
    parent = call.entity_or_all(call.query.get("parent"))
    page = {"limit": call.query.get("limit", 100), "cursor": call.query.get("cursor")}
    if parent is None:
        found = await call.limiter.list_entities(**page)
    else:
        found = await call.limiter.get_children(parent, **page)
    return json_reply(page_document("entities", found, entity_document))


async def create_entity(call: Call) -> Reply:
    """Create an entity."""
    entity_id = call.entity(call.body["id"])
    entity = await call.limiter.create_entity(entity_id, **_fields(call), principal=call.caller.name)
    return json_reply(entity_document(entity), 201, [_etag(entity.version)])


async def get_entity(call: Call) -> Reply:
    """One entity."""
    entity = await call.limiter.get_entity(call.entity(call.path["entity"]))
    return json_reply(entity_document(entity), 200, [_etag(entity.version)])


async def update_entity(call: Call) -> Reply:
    """Change some fields of an entity; those that are not named stay."""
    entity = await call.limiter.update_entity(
        call.entity(call.path["entity"]),
        **_fields(call),
        principal=call.caller.name,
        expected_version=expected_version(call),
    )
    return json_reply(entity_document(entity), 200, [_etag(entity.version)])


async def delete_entity(call: Call) -> Reply:
    """Delete an entity, its buckets and its limits."""
    entity_id = call.entity(call.path["entity"])
    expected = expected_version(call)
    if expected is not None:
        found = (await call.limiter.get_entity(entity_id)).version
        if found != expected:
            raise Problem(412, f"entity {entity_id} is at version {found}, not {expected}; read it again")
    await call.limiter.delete_entity(entity_id, principal=call.caller.name)
    return no_content()


def expected_version(call: Call) -> int | None:
    """The version that ``If-Match`` names."""
    given = call.headers.get(b"if-match", b"").decode("latin-1").strip()
    if given in ("", "*"):
        return None
    version = _VERSION(given)
    if version is None:
        raise Problem(412, 'If-Match must be the ETag of the entity, like "3"')
    return int(version[1])


def _fields(call: Call) -> dict[str, Any]:
    fields = {FIELDS[name]: value for name, value in call.body.items() if name in FIELDS}
    if fields.get("parent_id") is not None:
        call.entity(fields["parent_id"])
    return fields


def _etag(version: int) -> tuple[bytes, bytes]:
    return b"etag", f'"{version}"'.encode()
