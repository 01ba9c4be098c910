"""What the page asks besides the routes of the service.

Reads are shared by all viewers: one of them reads, and the others get the same answer, for two seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Any

from zae_limiter import RateLimiter, __version__
from zae_limiter.dashboard.overview import read_overview
from zae_limiter.dashboard.preview import Preview
from zae_limiter.dashboard.usage_chart import MOST_HOURS, usage_chart
from zae_limiter.manifests.limit_syntax import format_limit, parse_limit
from zae_limiter.service import schemas
from zae_limiter.service.backend import Backend
from zae_limiter.service.operations import Call, Operation, Parameter, json_reply
from zae_limiter.service.problems import Reply
from zae_limiter.service.routes import ENTITY, READ, RESOURCE, change, get
from zae_limiter.service.tokens import Role

MOST_ENTITIES = 50
MOST_LEVELS = 50
SECONDS_OF_CHARTS = 30.0
SECONDS_KEPT = 2.0
MOST_KEPT = 2_000

ANY_ROLE = frozenset(Role)
HOURS = Parameter(
    "hours", {"type": "integer", "minimum": 1, "maximum": MOST_HOURS}, "So many hours; a day if not said."
)
WORDS = schemas.list_of({"type": "string", "minLength": 1, "maxLength": 200}, maxItems=32)
PREVIEW = schemas.document(
    {"limits": WORDS},
    {
        "entity": schemas.ENTITY,
        "resource": schemas.RESOURCE,
        "seen_by": schemas.document({"entity": schemas.ENTITY, "resource": schemas.RESOURCE}),
        "requested": schemas.AMOUNTS,
    },
)
LEVELS = schemas.document({"entities": schemas.list_of(schemas.ENTITY, maxItems=MOST_ENTITIES)})


class SharedReads:
    """What was read lately, by what was asked."""

    def __init__(self, seconds: float = SECONDS_KEPT) -> None:
        self._seconds = seconds
        self._answers: OrderedDict[Hashable, tuple[float, asyncio.Task[Any]]] = OrderedDict()

    async def get(self, key: Hashable, read: Callable[[], Awaitable[Any]]) -> Any:
        """The answer to a question: one that is young enough or under way, else a new one."""
        now = time.monotonic()
        known = self._answers.get(key)
        if known is None or (known[1].done() and now - known[0] > self._seconds):
            known = (now, asyncio.ensure_future(read()))
            self._answers[key] = known
            self._answers.move_to_end(key)
            while len(self._answers) > MOST_KEPT:
                self._answers.popitem(last=False)
        try:
            return await asyncio.shield(known[1])
        except Exception:
            self._answers.pop(key, None)
            raise


class DashboardRoutes:
    """The routes of the dashboard on a backend; reads are shared by all who look at the same."""

    def __init__(self, backend: Backend) -> None:
        self._reads = SharedReads()
        self._charts = SharedReads(SECONDS_OF_CHARTS)
        self._backend = backend
        backend.attention = self.overview
        self.operations: tuple[Operation, ...] = (
            get("me", "/v1/me", ANY_ROLE, "Who asks, and what that client may do", self.me, schemas.ANYTHING),
            change(
                "levels",
                "POST /v1/levels",
                READ,
                "How full the buckets of some entities are",
                self.levels,
                LEVELS,
                schemas.ANYTHING,
            ),
            get("all_limits", "/v1/limits/all", READ, "The limits of all levels", self.limits, schemas.ANYTHING),
            change(
                "preview",
                "POST /v1/limits/preview",
                READ,
                "What a change of limits would do; changes nothing",
                self.preview,
                PREVIEW,
                schemas.ANYTHING,
            ),
            get(
                "chart",
                "/v1/usage/chart",
                READ,
                "Usage by the hour, of an entity or of a resource",
                self.chart,
                schemas.ANYTHING,
                ENTITY,
                RESOURCE,
                HOURS,
            ),
        )

    async def overview(self, namespace: str) -> dict[str, Any]:
        """What needs attention, for ``/v1/attention``."""
        limiter = self._backend.limiter(namespace)
        found: dict[str, Any] = await self._reads.get(("overview", namespace), lambda: read_overview(limiter))
        return found

    async def me(self, call: Call) -> Reply:
        """Who asks, and what that client may do."""
        caller = call.caller
        return json_reply(
            {
                "name": caller.name,
                "roles": sorted(caller.roles),
                "namespace": call.limiter.repository.namespace,
                "entity_prefix": caller.entity_prefix,
                "version": __version__,
            }
        )

    async def levels(self, call: Call) -> Reply:
        """How full the buckets of some entities are."""
        namespace = call.limiter.repository.namespace
        found = {}
        for entity_id in dict.fromkeys(call.body["entities"]):
            key = (namespace, call.entity(entity_id))
            found[entity_id] = await self._reads.get(key, partial(_levels, call.limiter, entity_id))
        return json_reply({"levels": found})

    async def limits(self, call: Call) -> Reply:
        """The limits of all levels, the widest first."""
        call.caller.check_everything()
        namespace = call.limiter.repository.namespace
        return json_reply(await self._reads.get(("limits", namespace), lambda: _all_limits(call.limiter)))

    async def preview(self, call: Call) -> Reply:
        """What a change of limits would do."""
        body = call.body
        limits = [parse_limit(word, f"limits[{place}]") for place, word in enumerate(body["limits"])]
        seen_by = body.get("seen_by")
        place = None if seen_by is None else (call.entity(seen_by["entity"]), seen_by["resource"])
        level = Preview(call.limiter, call.entity_or_all(body.get("entity")), body.get("resource"))
        return json_reply(await level.document(limits, place, body.get("requested", {})))

    async def chart(self, call: Call) -> Reply:
        """Usage by the hour."""
        entity_id, resource = call.entity_or_all(call.query.get("entity")), call.query.get("resource")
        hours = call.query.get("hours", 24)
        key = (call.limiter.repository.namespace, entity_id, resource, hours)
        return json_reply(await self._charts.get(key, lambda: usage_chart(call.limiter, entity_id, resource, hours)))


async def _levels(limiter: RateLimiter, entity_id: str) -> list[dict[str, Any]]:
    """The limits of an entity's live buckets."""
    status = await limiter.get_status(entity_id)
    return [
        {
            "resource": bucket.resource,
            "name": level.limit_name,
            "word": format_limit(level.limit),
            "available": level.available,
            "burst": level.limit.burst,
            "used_permille": 1000 - 1000 * level.available // level.capacity,
        }
        for bucket in status.buckets
        for level in bucket.limits
    ]


async def _all_limits(limiter: RateLimiter) -> dict[str, Any]:
    system, policy = await limiter.get_system_defaults()
    resources = await limiter.list_resources_with_defaults(limit=MOST_LEVELS)
    levels: list[dict[str, Any]] = [
        {"entity": None, "resource": None, "limits": [format_limit(limit) for limit in system]}
    ]
    for name in resources.items:
        limits = await limiter.get_resource_defaults(name)
        levels.append({"entity": None, "resource": name, "limits": [format_limit(limit) for limit in limits]})
    more = resources.next_cursor is not None
    in_use = [row.resource for row in (await limiter.get_pulse()).rows]
    for resource in (None, *dict.fromkeys([*resources.items, *in_use])):
        page = await limiter.list_entities_with_custom_limits(resource or "_default_", limit=MOST_LEVELS)
        more = more or page.next_cursor is not None
        for entity_id in page.items[: max(MOST_LEVELS * 2 - len(levels), 0)]:
            limits = await limiter.get_limits(entity_id, resource=resource or "_default_")
            words = [format_limit(limit) for limit in limits]
            levels.append({"entity": entity_id, "resource": resource, "limits": words})
    return {"levels": levels, "more": more, "on_unavailable": None if policy is None else str(policy)}
