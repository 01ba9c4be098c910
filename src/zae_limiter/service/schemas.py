"""The forms of documents, as JSON Schema: those of bodies are checked, all of them are in the OpenAPI document."""

from __future__ import annotations

from typing import Any

from zae_limiter.service.schema_check import Schema

MOST_AMOUNT = 10**15
MOST_TIMEOUT_SECONDS = 60
MOST_TTL_SECONDS = 90 * 86_400
MOST_IN_BATCH = 100

ENTITY: Schema = {"type": "string", "minLength": 1, "maxLength": 256, "description": "The id of an entity."}
RESOURCE: Schema = {"type": "string", "minLength": 1, "maxLength": 128, "description": "What is limited."}
AMOUNT: Schema = {"type": "integer", "minimum": 0, "maximum": MOST_AMOUNT}
DELTA: Schema = {"type": "integer", "minimum": -MOST_AMOUNT, "maximum": MOST_AMOUNT}
AMOUNTS: Schema = {
    "type": "object",
    "additionalProperties": AMOUNT,
    "description": "Whole tokens by the name of the limit.",
    "examples": [{"rpm": 1, "tpm": 500}],
}
DELTAS: Schema = {**AMOUNTS, "additionalProperties": DELTA, "examples": [{"tpm": -120}]}
TIMEOUT: Schema = {
    "type": "number",
    "minimum": 0,
    "maximum": MOST_TIMEOUT_SECONDS,
    "default": 0,
    "description": "How many seconds to wait in the queue.",
}
TTL: Schema = {
    "type": "number",
    "minimum": 1,
    "maximum": MOST_TTL_SECONDS,
    "description": "For how many seconds the lease can be settled; a day if nothing is said.",
}
KEEP_OPEN: Schema = {"type": "boolean", "description": "Whether the lease stays open for further calls."}
TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
NULLABLE_TEXT: Schema = {"type": ["string", "null"]}
ANYTHING: Schema = {"type": "object"}


def document(required: dict[str, Schema], optional: dict[str, Schema] | None = None, **words: Any) -> Schema:
    """A document with these members, and no others."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
        **words,
    }


def answer(**members: Schema) -> Schema:
    """A document that has at least these members: later versions may have more."""
    return {"type": "object", "properties": members, "required": list(members)}


def list_of(item: Schema, **words: Any) -> Schema:
    """A list."""
    return {"type": "array", "items": item, **words}


def page_of(name: str, item: Schema) -> Schema:
    """A part of a list, and where the next one begins."""
    return answer(**{name: list_of(item), "next_cursor": NULLABLE_TEXT})


LIMIT_STATE = answer(entity=ENTITY, name=TEXT, available={"type": "integer"}, burst={"type": "integer"})

TAKE = document({"entity": ENTITY, "resource": RESOURCE, "consume": AMOUNTS}, {"timeout": TIMEOUT})
TAKEN = answer(consumed=AMOUNTS, degraded=FLAG, limits=list_of(LIMIT_STATE))
ACQUIRE = document({"entity": ENTITY, "resource": RESOURCE, "consume": AMOUNTS}, {"timeout": TIMEOUT, "ttl": TTL})
ACQUIRED = answer(lease=NULLABLE_TEXT, consumed=AMOUNTS, degraded=FLAG, ended=FLAG, limits=list_of(LIMIT_STATE))
SETTLE = document({"actual": AMOUNTS}, {"keep_open": KEEP_OPEN, "ttl": TTL})
ADJUST = document({"deltas": DELTAS}, {"keep_open": KEEP_OPEN, "ttl": TTL})
CONSUME = document({"consume": AMOUNTS}, {"keep_open": KEEP_OPEN, "ttl": TTL})
LEASE_ENDED = answer(lease=TEXT, consumed=AMOUNTS, ended=FLAG, already_settled=FLAG)
LEASE = answer(
    lease=TEXT,
    entity=ENTITY,
    resource=RESOURCE,
    state={"type": "string", "enum": ["open", "closed", "void"]},
    granted=AMOUNTS,
    consumed=AMOUNTS,
    granted_at=TEXT,
    expires_at=TEXT,
)
CHECK = document({"entity": ENTITY, "resource": RESOURCE, "consume": AMOUNTS})
CHECKED = answer(fits=FLAG, wait_seconds={"type": ["number", "null"]}, limits=list_of(LIMIT_STATE))
HEALTH = answer(ok=FLAG)
PROBLEM = answer(type=TEXT, title=TEXT, status={"type": "integer"})
