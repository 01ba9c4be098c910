"""The access switch of the public API, written once as plans."""

from __future__ import annotations

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.access import Access
from zae_limiter.models.choices import AccessMode, check_choice
from zae_limiter.models.reports import Page
from zae_limiter.naming import (
    TOTAL_RESOURCE,
    check_config_resource,
    check_entity_id,
    check_principal,
    check_resource,
)
from zae_limiter.repository.arguments import Moment, check_cursor, check_moment, check_page_size
from zae_limiter.repository.core import Core
from zae_limiter.running.plan import READ_CLOCK, Plan
from zae_limiter.stores.protocol import Scope, access_on, access_scope


class AccessVerbs:
    """Who is let through at all, whatever the limits say."""

    __slots__ = ()

    _core: Core

    def _set_access(
        self,
        mode: AccessMode | str,
        *,
        entity_id: str | None = None,
        resource: str | None = None,
        principal: str | None = None,
        until: Moment | None = None,
    ) -> Plan[None]:
        """Turn the access switch of an entity, of an entity on one resource, of a resource, or of the system.

        ``"block"``: every acquire raises ``AccessBlocked``. ``"observe"``: limits are counted as ever, and what they
        would refuse is let through, uncharged (``lease.refused_by``). ``"enforce"``: the normal state. Of all switches
        that concern an acquire the strictest holds, those of the ancestors it cascades to included. ``until``: from
        then on the switch says nothing.
        """
        chosen = check_choice(AccessMode, mode, "mode")
        scope = _checked_scope(entity_id, resource)
        check_principal(principal)
        until_ms = check_moment(until, "until")
        core = self._core
        now = yield from READ_CLOCK
        access = None if chosen is AccessMode.ENFORCE else access_on(scope, chosen, until_ms)
        if until_ms is not None and (access is None or until_ms <= now):
            reason = "must lie in the future" if access else "goes with block and observe; enforce has no end"
            raise ValidationError("until", until, reason)
        yield from core.call("set_access", core.space.set_access(scope, access, principal, now))
        core.wait_queue.wake_all()

    def _get_access(self, *, entity_id: str | None = None, resource: str | None = None) -> Plan[Access]:
        """What the switch of one level says; ``enforce`` if nothing, or if its time is over."""
        scope = _checked_scope(entity_id, resource)
        core = self._core
        access = yield from core.call("get_access", core.space.get_access(scope))
        now = yield from READ_CLOCK
        return access if access is not None and access.holds_at(now) else access_on(scope, AccessMode.ENFORCE, None)

    def _list_access(self, *, limit: int = 100, cursor: str | None = None) -> Plan[Page[Access]]:
        """Every switch that holds: the system's, those of resources, those of entities by id."""
        core = self._core
        plan = core.space.switches(check_page_size(limit), check_cursor(cursor))
        page = yield from core.call("list_access", plan)
        now = yield from READ_CLOCK
        return Page([access for access in page.items if access.holds_at(now)], page.next_cursor)

    def _resolve_access(self, entity_id: str, resource: str | None = None) -> Plan[list[Access]]:
        """The switches that hold for an entity on a resource, the one that decides first; empty: limits are enforced.

        Those of the ancestors it cascades to are among them. Without a ``resource``: all of the entity and its
        ancestors, and the system's.
        """
        check_entity_id(entity_id)
        if resource is not None:
            check_resource(resource)
        core = self._core
        now = yield from READ_CLOCK
        return list((yield from core.call("access_of", core.space.access_of(entity_id, resource, now))))


def _checked_scope(entity_id: str | None, resource: str | None) -> Scope:
    if entity_id is not None:
        check_entity_id(entity_id)
    if resource is not None:
        own = entity_id is not None and resource != TOTAL_RESOURCE  # a switch is for each resource, never for a total
        check_config_resource(resource) if own else check_resource(resource)
    return access_scope(entity_id, resource)
