"""What only a repository does: namespaces, resolution, the store itself. Written once, as plans."""

from __future__ import annotations

import logging

from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.models.reports import CacheStats, NamespaceInfo, Page
from zae_limiter.naming import check_entity_id, check_namespace, check_principal, check_resource
from zae_limiter.repository.arguments import check_cursor, check_page_size
from zae_limiter.repository.core import Core
from zae_limiter.repository.local_bookings import book_at_close
from zae_limiter.running.plan import READ_CLOCK, Plan
from zae_limiter.stores.protocol import Resolution

logger = logging.getLogger("zae_limiter")


class RepositoryVerbs:
    """What only a repository does: namespaces, resolution, the store itself."""

    _core: Core

    @property
    def namespace(self) -> str:
        """The namespace this repository works in."""
        return self._core.namespace

    @property
    def unresolved(self) -> int:
        """How many writes of this process could not be done, or not be proven done. They over-charge, never mint."""
        return self._core.unresolved + self._core.space.unresolved

    def invalidate_config_cache(self) -> None:
        """Forget resolved limits; the next acquire reads them again."""
        self._core.space.invalidate_config_cache()

    def get_cache_stats(self) -> CacheStats:
        """How the cache of resolved limits is doing (embedded stores need none)."""
        return self._core.space.cache_stats()

    def _finish(self) -> Plan[None]:
        """What is left to do before the store is closed. It closes in any case."""
        yield from book_at_close(self._core)
        try:
            yield from self._core.space.write_denials()
        except Exception as error:
            logger.warning("some denials were not counted, because the store could not be written to: %s", error)
        if self._core.pulse_writer is not None:
            yield from self._core.pulse_writer.finish()

    def _resolve_limits(self, entity_id: str, resource: str) -> Plan[Resolution]:
        """The limits that hold for an entity on a resource: ``(limits, on_unavailable, source)``.

        ``source`` is ``"entity"``, ``"entity_default"``, ``"resource"``, ``"system"``, or ``None`` with
        ``limits=None`` when no level has any.
        """
        check_entity_id(entity_id)
        check_resource(resource)
        return (yield from self._core.call("resolve", self._core.space.resolve(entity_id, resource)))

    def _register_namespace(self, name: str, *, principal: str | None = None) -> Plan[NamespaceInfo]:
        """Make a namespace usable. Registering one that exists changes nothing."""
        check_namespace(name)
        check_principal(principal)
        now = yield from READ_CLOCK
        return (
            yield from self._core.call("register_namespace", self._core.store.register_namespace(name, principal, now))
        )

    def _get_namespace(self, name: str) -> Plan[NamespaceInfo]:
        """A registered namespace, deleted or not. Raises ``NamespaceNotFoundError``."""
        check_namespace(name)
        return (yield from self._core.call("get_namespace", self._core.store.get_namespace(name)))

    def _list_namespaces(self, *, limit: int = 100, cursor: str | None = None) -> Plan[Page[NamespaceInfo]]:
        """All namespaces by name, deleted ones too."""
        plan = self._core.store.list_namespaces(check_page_size(limit), check_cursor(cursor))
        return (yield from self._core.call("list_namespaces", plan))

    def _delete_namespace(self, name: str, *, principal: str | None = None) -> Plan[None]:
        """Refuse every use of a namespace from now on. Its data stays, and ``recover_namespace`` undoes it."""
        check_namespace(name)
        check_principal(principal)
        now = yield from READ_CLOCK
        plan = self._core.store.delete_namespace(name, principal, now)
        yield from self._core.call("delete_namespace", plan)

    def _recover_namespace(self, name: str, *, principal: str | None = None) -> Plan[NamespaceInfo]:
        """Bring a deleted namespace back as it was."""
        check_namespace(name)
        check_principal(principal)
        now = yield from READ_CLOCK
        plan = self._core.store.recover_namespace(name, principal, now)
        return (yield from self._core.call("recover_namespace", plan))

    def _purge_namespace(self, name: str) -> Plan[int]:
        """Remove a deleted namespace and everything in it, for good. Returns how many things were removed."""
        check_namespace(name)
        return (yield from self._core.call("purge_namespace", self._core.store.purge_namespace(name)))

    def _delete_table(self) -> Plan[None]:
        """Remove the whole store, every namespace of it, for good. Undoes ``create=True``."""
        yield from self._core.call("delete_table", self._core.store.destroy())

    def _is_available(self) -> Plan[bool]:
        """Whether the store answers within its deadline."""
        try:
            yield from self._core.call("ping", self._core.store.ping())
        except ZAELimiterError:
            return False
        return True

    def _create(self) -> Plan[None]:
        now = yield from READ_CLOCK
        yield from self._core.call("create", self._core.store.create(now))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._core.store!r} namespace={self.namespace!r}>"
