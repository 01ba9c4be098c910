"""The table of routes: every path of the service, its roles, the form of its body, and what answers it."""

from __future__ import annotations

from zae_limiter.service import lease_routes, probe_routes, schemas
from zae_limiter.service.operations import Operation, Parameter
from zae_limiter.service.tokens import Role

TAKE = frozenset({Role.TAKE})
LOOK = frozenset({Role.TAKE, Role.READ})
READ = frozenset({Role.READ})
WRITE = frozenset({Role.WRITE})
ALL: frozenset[Role] = frozenset()

IDEMPOTENCY = Parameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": lease_routes.LONGEST_KEY},
    "Repeated under the same key within a day, the request gets the same grant and is charged once.",
    place="header",
)

LEASES = (
    Operation(
        "take",
        "POST",
        "/v1/take",
        TAKE,
        "Take, and keep what was taken",
        lease_routes.take,
        body=schemas.TAKE,
        parameters=(IDEMPOTENCY,),
        reply=schemas.TAKEN,
        errors=(413, 422, 429, 503),
        tag="leases",
    ),
    Operation(
        "acquire",
        "POST",
        "/v1/leases",
        TAKE,
        "Take under a lease, to be settled by another call, at any replica",
        lease_routes.acquire,
        body=schemas.ACQUIRE,
        parameters=(IDEMPOTENCY,),
        success=201,
        reply=schemas.ACQUIRED,
        errors=(413, 422, 429, 503),
        tag="leases",
    ),
    Operation(
        "settle",
        "POST",
        "/v1/leases/{lease}/settle",
        TAKE,
        "Say what was used in all, and end the lease",
        lease_routes.settle,
        body=schemas.SETTLE,
        reply=schemas.LEASE_ENDED,
        errors=(404, 422, 503),
        tag="leases",
    ),
    Operation(
        "adjust",
        "POST",
        "/v1/leases/{lease}/adjust",
        TAKE,
        "Correct what was used; the lease stays open",
        lease_routes.adjust,
        body=schemas.ADJUST,
        reply=schemas.LEASE_ENDED,
        errors=(404, 422, 503),
        tag="leases",
    ),
    Operation(
        "consume",
        "POST",
        "/v1/leases/{lease}/consume",
        TAKE,
        "Take more from the same buckets; the lease stays open",
        lease_routes.consume,
        body=schemas.CONSUME,
        reply=schemas.LEASE_ENDED,
        errors=(404, 413, 422, 429, 503),
        tag="leases",
    ),
    Operation(
        "show_lease",
        "GET",
        "/v1/leases/{lease}",
        LOOK,
        "What is recorded of a lease",
        lease_routes.show_lease,
        reply=schemas.LEASE,
        errors=(404, 422, 503),
        tag="leases",
    ),
    Operation(
        "release",
        "DELETE",
        "/v1/leases/{lease}",
        TAKE,
        "Give back what is not settled, and end the lease",
        lease_routes.release,
        success=204,
        errors=(404, 422, 503),
        tag="leases",
    ),
    Operation(
        "check",
        "POST",
        "/v1/check",
        LOOK,
        "Whether a take would be granted; nothing is taken",
        lease_routes.check,
        body=schemas.CHECK,
        reply=schemas.CHECKED,
        errors=(422, 503),
        tag="leases",
    ),
)

PROBES = (
    Operation("live", "GET", "/livez", ALL, "Whether the process runs", probe_routes.live, reply=schemas.HEALTH),
    Operation(
        "ready",
        "GET",
        "/readyz",
        ALL,
        "Whether requests can be answered: 503 if the store does not answer, or the process is about to end",
        probe_routes.ready,
        reply=schemas.HEALTH,
        errors=(503,),
    ),
)

OPERATIONS: tuple[Operation, ...] = (*LEASES, *PROBES)
