"""What a change of limits would do, before it is made: the difference, and which limit binds next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zae_limiter import Check, Limit, RateLimiter, ValidationError
from zae_limiter.dashboard.statuses import check_document
from zae_limiter.manifests.limit_syntax import format_limit


def difference(before: Sequence[Limit], after: Sequence[Limit]) -> list[dict[str, Any]]:
    """Each limit that comes, goes or changes; those that stay, too."""
    old, new = {limit.name: limit for limit in before}, {limit.name: limit for limit in after}
    lines = []
    for name in dict.fromkeys([*old, *new]):
        was, becomes = old.get(name), new.get(name)
        mark = "same" if was == becomes else "added" if was is None else "removed" if becomes is None else "changed"
        lines.append({"mark": mark, "name": name, "from": _words(was), "to": _words(becomes)})
    return lines


def _words(limit: Limit | None) -> str | None:
    return None if limit is None else format_limit(limit) or f"{limit.name}: {limit.as_dict()}"


class Preview:
    """A change of one level, seen by one entity on one resource."""

    def __init__(self, limiter: RateLimiter, level_entity: str | None, level_resource: str | None) -> None:
        self._limiter = limiter
        self._entity_id = level_entity
        self._resource = level_resource

    async def limits(self) -> list[Limit]:
        """The limits of the level as they are."""
        if self._entity_id is not None:
            return await self._limiter.get_limits(self._entity_id, resource=self._resource or "_default_")
        if self._resource is not None:
            return await self._limiter.get_resource_defaults(self._resource)
        return (await self._limiter.get_system_defaults())[0]

    async def document(
        self, limits: Sequence[Limit], seen_by: tuple[str, str] | None, requested: Mapping[str, int]
    ) -> dict[str, Any]:
        """The difference; and what the last call of the entity would meet, now and then."""
        before = await self.limits()
        document: dict[str, Any] = {"lines": difference(before, limits), "now": None, "then": None, "effect": None}
        if seen_by is None:
            return document
        entity_id, resource = seen_by
        now = await self._look(entity_id, resource, requested, None)
        document["now"] = None if now is None else check_document(now)
        if not await self._would_hold(entity_id, resource, bool(before)):
            document["effect"] = f"{entity_id} has limits of a narrower level on {resource}: nothing changes for it"
            return document
        then = await self._look(entity_id, resource, requested, list(limits))
        document["then"] = None if then is None else check_document(then)
        return document

    async def _would_hold(self, entity_id: str, resource: str, has_limits: bool) -> bool:
        """Whether the level would give the limits of an entity on a resource."""
        if self._entity_id not in (None, entity_id):
            return False
        order = ["entity", "entity_default", "resource", "system"]
        if self._entity_id is not None:
            own = "entity" if self._resource == resource else "entity_default"
        else:
            own = "system" if self._resource is None else "resource"
        if self._resource not in (None, resource):
            return False
        found = await self._limiter.repository.resolve_limits(entity_id, resource)
        return found.source is None or order.index(own) <= order.index(found.source)

    async def _look(
        self, entity_id: str, resource: str, requested: Mapping[str, int], limits: list[Limit] | None
    ) -> Check | None:
        try:
            return await self._limiter.check(entity_id, resource, requested, limits=limits)
        except ValidationError:
            return None
