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
CHECKED = answer(
    fits=FLAG, wait_seconds={"type": ["number", "null"]}, access=NULLABLE_TEXT, limits=list_of(LIMIT_STATE)
)
HEALTH = answer(ok=FLAG)
PROBLEM = answer(type=TEXT, title=TEXT, status={"type": "integer"})

# Entities and limits

NAME: Schema = {"type": ["string", "null"], "minLength": 1, "maxLength": 256}
PARENT: Schema = {"type": ["string", "null"], "minLength": 1, "maxLength": 256}
METADATA: Schema = {"type": "object", "additionalProperties": {"type": "string", "maxLength": 1024}}
ENTITY_FIELDS: dict[str, Schema] = {"name": NAME, "parent": PARENT, "cascade": FLAG, "metadata": METADATA}
ENTITY_CREATED = document({"id": ENTITY}, ENTITY_FIELDS)
ENTITY_CHANGED = document({}, ENTITY_FIELDS)
ENTITY_SHOWN = answer(
    id=ENTITY,
    name=NULLABLE_TEXT,
    parent=NULLABLE_TEXT,
    cascade=FLAG,
    metadata=METADATA,
    version={"type": "integer", "minimum": 1},
    created_at=NULLABLE_TEXT,
)
WHOLE: Schema = {"type": "integer"}
WHOLE_OR_NOTHING: Schema = {"type": ["integer", "null"]}
CALENDAR = document({"unit": TEXT, "every": WHOLE, "tz": TEXT, "start": TEXT, "carry_debt": FLAG})
LIMIT: Schema = {
    **document(
        {"name": TEXT, "capacity": WHOLE},
        {
            "refill_amount": WHOLE,
            "refill_period_seconds": WHOLE_OR_NOTHING,
            "burst": WHOLE_OR_NOTHING,
            "calendar": CALENDAR,
            "hold_seconds": WHOLE,
            "enforce": FLAG,
            "word": NULLABLE_TEXT,
        },
    ),
    "type": ["string", "object"],
    "description": "A limit in a word, like tpm:10k/min:15k or usd:500/month@UTC, or in full.",
    "examples": ["rpm:100", "tpm:10k/min:15k", "calls:20/inflight"],
}
LIMIT_SHOWN = answer(name=TEXT, capacity=WHOLE, burst=WHOLE, word=NULLABLE_TEXT)
LIMITS_SET = document(
    {"limits": list_of(LIMIT, minItems=1, maxItems=32)},
    {"merge": FLAG, "on_unavailable": {"type": ["string", "null"], "enum": ["allow", "block", "local", None]}},
)
LIMITS_SHOWN = answer(
    entity=NULLABLE_TEXT, resource=NULLABLE_TEXT, limits=list_of(LIMIT_SHOWN), on_unavailable=NULLABLE_TEXT
)
EFFECTIVE_LIMITS = answer(entity=ENTITY, resource=RESOURCE, limits=list_of(LIMIT_SHOWN), source=NULLABLE_TEXT)
MODE: Schema = {"type": "string", "enum": ["block", "observe", "enforce"]}
ACCESS_SET = document({"mode": MODE}, {"entity": ENTITY, "resource": RESOURCE, "until": NULLABLE_TEXT})
ACCESS = answer(mode=MODE, entity_id=NULLABLE_TEXT, resource=NULLABLE_TEXT, until=NULLABLE_TEXT)

# Operators

KEY: Schema = {"type": "string", "minLength": 1, "maxLength": 256, "description": "Under a key it is done once."}
GRANT = document({"entity": ENTITY, "resource": RESOURCE, "amounts": AMOUNTS, "key": KEY}, {"above": FLAG})
GRANTED = answer(done=FLAG, available=DELTAS)
LOWER = document({"entity": ENTITY, "resource": RESOURCE, "levels": DELTAS})
LOWERED = answer(available=DELTAS)
RESET = document({"entity": ENTITY}, {"resource": RESOURCE, "limits": list_of(TEXT, minItems=1), "key": KEY})
RESET_DONE = answer(buckets=WHOLE)
MANIFEST: Schema = {"type": ["string", "object"], "description": "A manifest: the text of the file, or as JSON."}
PLAN = document({"manifest": MANIFEST}, {"take_over": FLAG, "keep_removed": FLAG})
PLANNED = answer(digest=TEXT, summary=TEXT, changes=list_of(ANYTHING), conflicts=list_of(ANYTHING))
APPLY = document({"manifest": MANIFEST, "digest": TEXT}, {"take_over": FLAG, "keep_removed": FLAG})
APPLIED = answer(done=list_of(ANYTHING), remaining=list_of(ANYTHING))

# Reports

BUCKET = answer(entity=ENTITY, resource=TEXT, total_events=WHOLE, limits=list_of(ANYTHING))
USAGE = answer(entity=ENTITY, resource=TEXT, window=TEXT, start=TEXT, end=TEXT, counters=DELTAS, denials=AMOUNTS)
SUMMARY = answer(windows=WHOLE, total=DELTAS, total_events=WHOLE, denials=AMOUNTS)
RANKING = answer(ranking=list_of(answer(name=TEXT, total=DELTAS, total_events=WHOLE, denials=AMOUNTS)))
AUDIT_EVENT = answer(id=TEXT, timestamp=TEXT, action=TEXT, entity=TEXT, details=ANYTHING)
WINDOW: Schema = {"type": "string", "enum": ["hourly", "daily", "monthly"]}
