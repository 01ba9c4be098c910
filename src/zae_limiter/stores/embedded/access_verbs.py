"""The access switches: turned, read and listed. What they do to an acquire is in ``bucket_verbs.py``."""

from __future__ import annotations

from dataclasses import replace

from zae_limiter.models.access import Access
from zae_limiter.models.reports import Page
from zae_limiter.stores.audit_events import access_told, change_told
from zae_limiter.stores.cursors import page_of, place_after
from zae_limiter.stores.embedded.routes import live_switches
from zae_limiter.stores.embedded.tables import SharedTables, Transacting, reads, scans, writes
from zae_limiter.stores.protocol import Config, Scope, access_scope


class AccessVerbs(Transacting):
    """The verbs on access switches. The next acquire obeys, of every process: the epoch of the namespace moves on."""

    @writes
    def set_access(
        self, tables: SharedTables, scope: Scope, access: Access | None, principal: str | None, now: int
    ) -> None:
        before = tables.config(scope) or Config()
        if access == before.access:
            return
        after = replace(before, access=access, version=before.version + 1)
        if after.limits or after.on_unavailable or after.access:
            tables.put_config(scope, after)
        else:
            tables.drop_config(scope)
        tables.advance_epoch()
        told = change_told(access_told(before.access), access_told(access))
        tables.add_audit(scope.audited_as, "access_set", scope.resource, principal, told, now)

    @reads
    def get_access(self, tables: SharedTables, scope: Scope) -> Access | None:
        return (tables.config(scope) or Config()).access

    @scans
    def switches(self, tables: SharedTables, limit: int, cursor: str | None) -> Page[Access]:
        rows = tables.switches(place_after(cursor), limit + 1)
        return page_of(rows, limit, position)

    @reads
    def access_of(self, tables: SharedTables, entity_id: str, resource: str | None, now: int) -> tuple[Access, ...]:
        return live_switches(tables, entity_id, resource, now)


def position(access: Access) -> tuple[str, str]:
    """Where a switch stands in the list of all."""
    scope = access_scope(access.entity_id, access.resource)
    return scope.entity_id or "", scope.resource or ""
