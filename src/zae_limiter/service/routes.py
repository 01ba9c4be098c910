"""The table of routes: every path of the service, its roles, the form of its body, and what answers it.

The application, the OpenAPI document and the page about the service are made from it, or held against it.
"""

from __future__ import annotations

from zae_limiter.service import (
    entity_routes,
    lease_routes,
    limit_routes,
    manifest_routes,
    operator_routes,
    probe_routes,
    report_routes,
    schemas,
)
from zae_limiter.service.batch_routes import batch_of
from zae_limiter.service.openapi import document_handler
from zae_limiter.service.operations import Handler, Operation, Parameter
from zae_limiter.service.schema_check import Schema
from zae_limiter.service.tokens import Role

TAKE = frozenset({Role.TAKE})
LOOK = frozenset({Role.TAKE, Role.READ})
READ = frozenset({Role.READ})
WRITE = frozenset({Role.WRITE})
ALL: frozenset[Role] = frozenset()

REFUSALS = (413, 429)
LEASE = "/v1/leases/{lease}"
ENTITY_PATH = "/v1/entities/{entity:path}"

IDEMPOTENCY_KEY = Parameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": lease_routes.LONGEST_KEY},
    "Repeated under the same key within a day, the request gets the same grant and is charged once.",
    place="header",
)
IF_MATCH = Parameter(
    "If-Match", schemas.TEXT, "The ETag of what is to be changed: another one is a 412.", place="header"
)
ENTITY = Parameter("entity", schemas.ENTITY, "Of this entity.")
RESOURCE = Parameter("resource", {**schemas.RESOURCE}, "On this resource; * is an entity's total.")
START = Parameter("start", schemas.TEXT, "From this moment on, as ISO 8601.")
END = Parameter("end", schemas.TEXT, "Before this moment, as ISO 8601.")
WINDOW = Parameter("window", schemas.WINDOW, "Windows of this length.")
LIMIT = Parameter("limit", {"type": "integer", "minimum": 1, "maximum": 1_000}, "At most so many.")
CURSOR = Parameter("cursor", schemas.TEXT, "The next_cursor of the page before.")
PAGE = (LIMIT, CURSOR)


def required(parameter: Parameter) -> Parameter:
    """The same, and it has to be there."""
    return Parameter(parameter.name, parameter.schema, parameter.description, parameter.place, required=True)


def get(
    name: str,
    path: str,
    roles: frozenset[Role],
    summary: str,
    handler: Handler,
    reply: Schema,
    *parameters: Parameter,
    errors: tuple[int, ...] = (),
    reply_type: str = "application/json",
) -> Operation:
    """An operation that reads."""
    known = (404, 422, 503, *errors)
    return Operation(name, "GET", path, roles, summary, handler, None, parameters, 200, reply, reply_type, known)


def change(
    name: str,
    method_and_path: str,
    roles: frozenset[Role],
    summary: str,
    handler: Handler,
    body: Schema | None,
    reply: Schema | None,
    *parameters: Parameter,
    success: int = 200,
    errors: tuple[int, ...] = (),
) -> Operation:
    """An operation that takes or changes something."""
    method, _, path = method_and_path.partition(" ")
    known = (404, 422, 503, *errors)
    return Operation(name, method, path, roles, summary, handler, body, parameters, success, reply, errors=known)


LEASES = (
    change(
        "take",
        "POST /v1/take",
        TAKE,
        "Take, and keep what was taken",
        lease_routes.take,
        schemas.TAKE,
        schemas.TAKEN,
        IDEMPOTENCY_KEY,
        errors=REFUSALS,
    ),
    change(
        "acquire",
        "POST /v1/leases",
        TAKE,
        "Take under a lease, to be settled by another call, at any replica",
        lease_routes.acquire,
        schemas.ACQUIRE,
        schemas.ACQUIRED,
        IDEMPOTENCY_KEY,
        success=201,
        errors=REFUSALS,
    ),
    change(
        "settle",
        f"POST {LEASE}/settle",
        TAKE,
        "Say what was used in all, and end the lease",
        lease_routes.settle,
        schemas.SETTLE,
        schemas.LEASE_ENDED,
    ),
    change(
        "adjust",
        f"POST {LEASE}/adjust",
        TAKE,
        "Correct what was used; the lease stays open",
        lease_routes.adjust,
        schemas.ADJUST,
        schemas.LEASE_ENDED,
    ),
    change(
        "consume",
        f"POST {LEASE}/consume",
        TAKE,
        "Take more from the same buckets; the lease stays open",
        lease_routes.consume,
        schemas.CONSUME,
        schemas.LEASE_ENDED,
        errors=REFUSALS,
    ),
    change(
        "release",
        f"DELETE {LEASE}",
        TAKE,
        "Give back what is not settled, and end the lease",
        lease_routes.release,
        None,
        None,
        success=204,
    ),
    change(
        "check",
        "POST /v1/check",
        LOOK,
        "Whether a take would be granted; nothing is taken",
        lease_routes.check,
        schemas.CHECK,
        schemas.CHECKED,
    ),
    get("show_lease", LEASE, LOOK, "What is recorded of a lease", lease_routes.show_lease, schemas.LEASE),
    get(
        "list_leases",
        "/v1/leases",
        READ,
        "The leases that have a record",
        report_routes.list_leases,
        schemas.page_of("leases", schemas.LEASE),
        ENTITY,
        *PAGE,
    ),
)

BATCHED = {operation.id: operation for operation in LEASES if operation.id != "list_leases"}

BATCH = change(
    "batch",
    "POST /v1/batch",
    LOOK,
    "Several of the calls above, done in order, each with its own status",
    batch_of(BATCHED),
    schemas.document(
        {
            "calls": schemas.list_of(
                schemas.document(
                    {"call": {"type": "string", "enum": list(BATCHED)}},
                    {"lease": schemas.TEXT, "body": schemas.ANYTHING, "idempotency_key": IDEMPOTENCY_KEY.schema},
                ),
                minItems=1,
                maxItems=schemas.MOST_IN_BATCH,
            )
        }
    ),
    schemas.answer(results=schemas.list_of(schemas.answer(status=schemas.WHOLE))),
)

ENTITIES = (
    get(
        "list_entities",
        "/v1/entities",
        READ,
        "The entities, or those directly below one",
        entity_routes.list_entities,
        schemas.page_of("entities", schemas.ENTITY_SHOWN),
        Parameter("parent", schemas.ENTITY, "Those directly below this one."),
        *PAGE,
    ),
    change(
        "create_entity",
        "POST /v1/entities",
        WRITE,
        "Create an entity",
        entity_routes.create_entity,
        schemas.ENTITY_CREATED,
        schemas.ENTITY_SHOWN,
        success=201,
        errors=(409,),
    ),
    get("get_entity", ENTITY_PATH, READ, "One entity", entity_routes.get_entity, schemas.ENTITY_SHOWN),
    change(
        "update_entity",
        f"PATCH {ENTITY_PATH}",
        WRITE,
        "Change some fields of an entity; those that are not named stay",
        entity_routes.update_entity,
        schemas.ENTITY_CHANGED,
        schemas.ENTITY_SHOWN,
        IF_MATCH,
        errors=(412,),
    ),
    change(
        "delete_entity",
        f"DELETE {ENTITY_PATH}",
        WRITE,
        "Delete an entity, its buckets and its limits",
        entity_routes.delete_entity,
        None,
        None,
        IF_MATCH,
        success=204,
        errors=(412,),
    ),
)

LIMITS = (
    get(
        "get_limits",
        "/v1/limits",
        READ,
        "The limits of a level as they were set: of the system, a resource, an entity, or an entity on a resource",
        limit_routes.get_limits,
        schemas.LIMITS_SHOWN,
        ENTITY,
        RESOURCE,
    ),
    change(
        "set_limits",
        "PUT /v1/limits",
        WRITE,
        "Set the limits of a level",
        limit_routes.set_limits,
        schemas.LIMITS_SET,
        schemas.LIMITS_SHOWN,
        ENTITY,
        RESOURCE,
        IF_MATCH,
        errors=(412,),
    ),
    change(
        "delete_limits",
        "DELETE /v1/limits",
        WRITE,
        "Remove the limits of a level: the next wider one holds again",
        limit_routes.delete_limits,
        None,
        None,
        ENTITY,
        RESOURCE,
        IF_MATCH,
        success=204,
        errors=(412,),
    ),
    get(
        "get_effective_limits",
        "/v1/limits/effective",
        READ,
        "The limits that hold for an entity on a resource, and the level they come from",
        limit_routes.get_effective_limits,
        schemas.EFFECTIVE_LIMITS,
        required(ENTITY),
        required(RESOURCE),
    ),
    change(
        "plan",
        "POST /v1/plan",
        WRITE,
        "What a manifest would change; changes nothing",
        manifest_routes.plan,
        schemas.PLAN,
        schemas.PLANNED,
    ),
    change(
        "apply",
        "POST /v1/apply",
        WRITE,
        "Make the changes of a plan, which the digest names",
        manifest_routes.apply,
        schemas.APPLY,
        schemas.APPLIED,
        errors=(409, 412),
    ),
    get(
        "list_access",
        "/v1/access",
        READ,
        "The access switches that hold, of all or for one entity",
        limit_routes.list_access,
        schemas.page_of("access", schemas.ACCESS),
        ENTITY,
        RESOURCE,
        *PAGE,
    ),
    change(
        "set_access",
        "PUT /v1/access",
        WRITE,
        "Block, observe or enforce: for an entity, a resource or all",
        limit_routes.set_access,
        schemas.ACCESS_SET,
        schemas.ACCESS,
    ),
)

BALANCES = (
    change(
        "grant",
        "POST /v1/grant",
        WRITE,
        "Give an entity tokens, once per key",
        operator_routes.grant,
        schemas.GRANT,
        schemas.GRANTED,
    ),
    change(
        "lower",
        "POST /v1/lower",
        WRITE,
        "Let a bucket hold at most these levels",
        operator_routes.lower,
        schemas.LOWER,
        schemas.LOWERED,
    ),
    change(
        "reset",
        "POST /v1/reset",
        WRITE,
        "Fill the buckets of an entity again",
        operator_routes.reset,
        schemas.RESET,
        schemas.RESET_DONE,
    ),
)

REPORTS = (
    get(
        "status",
        "/v1/status",
        READ,
        "The live buckets of an entity; without one, how the service does",
        report_routes.status,
        schemas.ANYTHING,
        ENTITY,
        RESOURCE,
    ),
    get(
        "tightest",
        "/v1/tightest",
        READ,
        "The buckets with the least left; reads every live one",
        report_routes.tightest,
        schemas.answer(buckets=schemas.list_of(schemas.BUCKET)),
        RESOURCE,
        LIMIT,
    ),
    get(
        "usage",
        "/v1/usage",
        READ,
        "What was taken, per window: of an entity, a resource, or one on the other",
        report_routes.usage,
        schemas.page_of("usage", schemas.USAGE),
        ENTITY,
        RESOURCE,
        WINDOW,
        START,
        END,
        *PAGE,
    ),
    get(
        "usage_summary",
        "/v1/usage/summary",
        READ,
        "All windows of one length added up",
        report_routes.usage_summary,
        schemas.SUMMARY,
        ENTITY,
        RESOURCE,
        WINDOW,
        START,
        END,
    ),
    get(
        "top_usage",
        "/v1/usage/top",
        READ,
        "The entities, or resources, that took most",
        report_routes.top_usage,
        schemas.RANKING,
        Parameter("by", {"type": "string", "enum": ["entity", "resource"]}, "What is ranked."),
        Parameter("limit_name", {"type": "string", "minLength": 1, "maxLength": 64}, "By this limit."),
        RESOURCE,
        WINDOW,
        START,
        END,
        LIMIT,
    ),
    get(
        "audit",
        "/v1/audit",
        READ,
        "Who changed what, newest first",
        report_routes.audit,
        schemas.page_of("events", schemas.AUDIT_EVENT),
        ENTITY,
        START,
        END,
        *PAGE,
    ),
    get(
        "attention",
        "/v1/attention",
        READ,
        "What needs an operator's attention, worst first",
        report_routes.attention,
        schemas.ANYTHING,
    ),
    get(
        "events",
        "/v1/events",
        READ,
        "The decisions, settlements and outages of this process, as they happen",
        report_routes.events,
        schemas.TEXT,
        ENTITY,
        RESOURCE,
        reply_type="text/event-stream",
    ),
)

PROBES = (
    get("live", "/livez", ALL, "Whether the process runs", probe_routes.live, schemas.HEALTH),
    get(
        "ready",
        "/readyz",
        ALL,
        "Whether it can answer: 503 if the store does not, or the process is about to end",
        probe_routes.ready,
        schemas.HEALTH,
    ),
    get(
        "metrics",
        "/metrics",
        READ,
        "The numbers of this process, for Prometheus",
        probe_routes.metrics,
        schemas.TEXT,
        reply_type="text/plain",
    ),
)

TABLE: tuple[Operation, ...] = (*LEASES, BATCH, *ENTITIES, *LIMITS, *BALANCES, *REPORTS, *PROBES)

OPERATIONS: tuple[Operation, ...] = (
    *TABLE,
    get("openapi", "/openapi.json", ALL, "This document", document_handler(TABLE), schemas.ANYTHING),
)
"""Every operation of the service."""
