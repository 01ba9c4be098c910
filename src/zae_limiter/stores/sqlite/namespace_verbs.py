"""The namespaces of the file."""

from __future__ import annotations

from typing import Any

from zae_limiter.exceptions import NamespaceNotFoundError
from zae_limiter.models.reports import NamespaceInfo, Page
from zae_limiter.naming import DEFAULT_NAMESPACE, NAMESPACE_SUBJECT
from zae_limiter.running.plan import Plan
from zae_limiter.stores.cursors import name_after, page_of
from zae_limiter.stores.refusals import not_deleted_yet
from zae_limiter.stores.sqlite.chunked_delete import KEYS, delete_of_namespace
from zae_limiter.stores.sqlite.rows import decoder, moment, text
from zae_limiter.stores.sqlite.tables import Connection, SqliteTables
from zae_limiter.stores.sqlite.transactions import Read, Write

ROWS_PER_CHUNK = 500
_FIELDS = "id, name, created_ms, deleted_ms"


class NamespaceVerbs:
    """The verbs on namespaces, and on the file as a whole."""

    def register_namespace(self, name: str, principal: str | None, now: int) -> Plan[NamespaceInfo]:
        def work(connection: Connection) -> NamespaceInfo:
            if _find(connection, name) is None:
                connection.execute("INSERT INTO namespaces (name, created_ms) VALUES (?, ?)", (name, now))
                _audit(connection, name, "registered", principal, now)
            info = _registered(connection, name)
            if info.deleted_at is not None:
                raise NamespaceNotFoundError(name, deleted=True)
            return info

        return (yield from Write(work, now))

    def get_namespace(self, name: str) -> Plan[NamespaceInfo]:
        return (yield from Read(lambda connection: _registered(connection, name)))

    def list_namespaces(self, limit: int, cursor: str | None) -> Plan[Page[NamespaceInfo]]:
        def work(connection: Connection) -> Page[NamespaceInfo]:
            rows = connection.execute(
                f"SELECT {_FIELDS} FROM namespaces WHERE name > ? ORDER BY name LIMIT ?",
                (name_after(cursor) or "", limit + 1),
            ).fetchall()
            return page_of([_info(row) for row in rows], limit, lambda info: (info.name,))

        return (yield from Read(work))

    def delete_namespace(self, name: str, principal: str | None, now: int) -> Plan[None]:
        def work(connection: Connection) -> None:
            if _registered(connection, name).deleted_at is not None:
                raise NamespaceNotFoundError(name, deleted=True)
            _audit(connection, name, "deleted", principal, now)
            connection.execute("UPDATE namespaces SET deleted_ms = ? WHERE name = ?", (now, name))

        yield from Write(work, now)

    def recover_namespace(self, name: str, principal: str | None, now: int) -> Plan[NamespaceInfo]:
        def work(connection: Connection) -> NamespaceInfo:
            if _registered(connection, name).deleted_at is not None:
                connection.execute("UPDATE namespaces SET deleted_ms = NULL WHERE name = ?", (name,))
                _audit(connection, name, "recovered", principal, now)
            return _registered(connection, name)

        return (yield from Write(work, now))

    def purge_namespace(self, name: str) -> Plan[int]:
        """In chunks, so that acquires of other namespaces go on; the name goes last, so that it can be repeated."""
        removed = 0
        while True:
            chunk = yield from Write(lambda connection: _purge_chunk(connection, name))
            removed += chunk
            if chunk < ROWS_PER_CHUNK:
                return removed

    def destroy(self) -> Plan[None]:
        def work(connection: Connection) -> None:
            for table in (*KEYS, "namespaces"):
                connection.execute(f"DELETE FROM {table}")
            connection.execute("INSERT INTO namespaces (name, created_ms) VALUES (?, ?)", (DEFAULT_NAMESPACE, 0))

        yield from Write(work)


def _find(connection: Connection, name: str) -> NamespaceInfo | None:
    row = connection.execute(f"SELECT {_FIELDS} FROM namespaces WHERE name = ?", (name,)).fetchone()
    return None if row is None else _info(row)


def _registered(connection: Connection, name: str) -> NamespaceInfo:
    info = _find(connection, name)
    if info is None:
        raise NamespaceNotFoundError(name)
    return info


@decoder("a namespace")
def _info(row: tuple[Any, ...]) -> NamespaceInfo:
    id_, name, created_ms, deleted_ms = row
    deleted_at = None if deleted_ms is None else moment(deleted_ms)
    return NamespaceInfo(text(name), f"ns{id_}", moment(created_ms), deleted_at)


def _audit(connection: Connection, name: str, action: str, principal: str | None, now: int) -> None:
    tables = SqliteTables(connection)
    (tables.ns,) = connection.execute("SELECT id FROM namespaces WHERE name = ?", (name,)).fetchone()
    tables.add_audit(NAMESPACE_SUBJECT, action, None, principal, {}, now)


def _purge_chunk(connection: Connection, name: str) -> int:
    info = _registered(connection, name)
    if info.deleted_at is None:
        raise not_deleted_yet(name)
    (ns,) = connection.execute("SELECT id FROM namespaces WHERE name = ?", (name,)).fetchone()
    deleted = delete_of_namespace(connection, ns, ROWS_PER_CHUNK)
    if deleted < ROWS_PER_CHUNK:
        connection.execute("DELETE FROM namespaces WHERE id = ?", (ns,))
    return deleted
