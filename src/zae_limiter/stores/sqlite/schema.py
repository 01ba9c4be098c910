"""The layout of the file, its version, and the way from older ones.

SQLite's ``application_id`` says that the file is ours, ``user_version`` which layout it has. ``UPGRADES``
has one script per version: a new file runs all of them, an older file those it lacks, in one transaction.

Numbers that change with every acquire (``tokens``) are kept apart from the terms of the limits (``terms``),
which hardly ever change; ``expires_ms`` is coarse, so that its index is written a few times an hour at most.
"""

from __future__ import annotations

import sqlite3

from zae_limiter.exceptions import VersionError
from zae_limiter.naming import DEFAULT_NAMESPACE

APPLICATION_ID = 0x7A61656C  # "zael"

UPGRADES = (
    """
    CREATE TABLE namespaces (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE,
        epoch INTEGER NOT NULL DEFAULT 0,
        created_ms INTEGER NOT NULL,
        deleted_ms INTEGER
    );
    CREATE TABLE entities (
        ns INTEGER NOT NULL,
        id TEXT NOT NULL,
        name TEXT,
        parent_id TEXT,
        cascade INTEGER NOT NULL,
        metadata TEXT NOT NULL,
        version INTEGER NOT NULL,
        created_ms INTEGER,
        PRIMARY KEY (ns, id)
    ) WITHOUT ROWID;
    CREATE INDEX entities_by_parent ON entities (ns, parent_id, id) WHERE parent_id IS NOT NULL;
    CREATE TABLE configs (
        ns INTEGER NOT NULL,
        entity_id TEXT NOT NULL,
        resource TEXT NOT NULL,
        limits TEXT NOT NULL,
        on_unavailable TEXT,
        version INTEGER NOT NULL,
        PRIMARY KEY (ns, entity_id, resource)
    ) WITHOUT ROWID;
    CREATE INDEX configs_by_resource ON configs (ns, resource, entity_id) WHERE limits <> '[]';
    CREATE TABLE buckets (
        ns INTEGER NOT NULL,
        entity_id TEXT NOT NULL,
        resource TEXT NOT NULL,
        rf INTEGER NOT NULL,
        events INTEGER NOT NULL,
        hour INTEGER NOT NULL,
        terms TEXT NOT NULL,
        tokens TEXT NOT NULL,
        carried TEXT NOT NULL,
        expires_ms INTEGER NOT NULL,
        PRIMARY KEY (ns, entity_id, resource)
    ) WITHOUT ROWID;
    CREATE INDEX buckets_by_resource ON buckets (ns, resource, entity_id);
    CREATE INDEX buckets_by_expiry ON buckets (expires_ms);
    CREATE TABLE usage (
        ns INTEGER NOT NULL,
        entity_id TEXT NOT NULL,
        resource TEXT NOT NULL,
        hour INTEGER NOT NULL,
        start TEXT NOT NULL,
        end TEXT,
        PRIMARY KEY (ns, entity_id, resource, hour)
    ) WITHOUT ROWID;
    CREATE INDEX usage_by_resource ON usage (ns, resource, entity_id, hour);
    CREATE INDEX usage_by_hour ON usage (hour);
    CREATE TABLE audit (
        serial INTEGER PRIMARY KEY AUTOINCREMENT,
        ns INTEGER NOT NULL,
        event_id TEXT NOT NULL,
        at_ms INTEGER NOT NULL,
        subject TEXT NOT NULL,
        action TEXT NOT NULL,
        resource TEXT,
        principal TEXT,
        details TEXT NOT NULL
    );
    CREATE INDEX audit_by_subject ON audit (ns, subject, event_id);
    CREATE INDEX audit_by_event ON audit (ns, event_id);
    CREATE INDEX audit_by_time ON audit (at_ms);
    """,
    # Which life of a bucket it is; calls in flight belong to one. Rows know every kind of limit from here on.
    """
    ALTER TABLE buckets ADD COLUMN born INTEGER NOT NULL DEFAULT 0;
    """,
    """
    ALTER TABLE configs ADD COLUMN access TEXT;
    CREATE INDEX configs_with_access ON configs (ns, entity_id, resource) WHERE access IS NOT NULL;
    """,
    """
    CREATE TABLE leases (
        ns INTEGER NOT NULL,
        id TEXT NOT NULL,
        entity_id TEXT NOT NULL,
        state TEXT NOT NULL,
        version INTEGER NOT NULL,
        expires_ms INTEGER NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (ns, id)
    ) WITHOUT ROWID;
    CREATE INDEX leases_by_entity ON leases (ns, entity_id, id);
    CREATE INDEX leases_by_expiry ON leases (expires_ms);
    """,
    """
    CREATE TABLE pulses (
        ns INTEGER NOT NULL,
        process TEXT NOT NULL,
        expires_ms INTEGER NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (ns, process)
    ) WITHOUT ROWID;
    CREATE INDEX pulses_by_expiry ON pulses (ns, expires_ms);
    """,
)
VERSION = len(UPGRADES)


def prepare(connection: sqlite3.Connection, path: str, now: int) -> None:
    """Bring the file to this layout; refuse one that is not ours or is newer."""
    if version_of(connection, path) == VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = version_of(connection, path)  # another process may have been faster
        for number, script in enumerate(UPGRADES[found:], start=found + 1):
            for statement in script.split(";"):
                if statement.strip():
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
        if found == 0:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute("INSERT INTO namespaces (name, created_ms) VALUES (?, ?)", (DEFAULT_NAMESPACE, now))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite may have rolled back already
            connection.execute("ROLLBACK")
        raise


def version_of(connection: sqlite3.Connection, path: str) -> int:
    """The layout of the file: 0 for an empty one."""
    # In one statement: another process may be making the file at this moment.
    version: int
    application, version, objects = connection.execute(
        "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)"
        " FROM pragma_application_id, pragma_user_version"
    ).fetchone()
    if application == APPLICATION_ID:
        if version > VERSION:
            raise VersionError(
                f"{path} has layout {version}, and this version of zae-limiter knows up to {VERSION}; "
                "upgrade the library"
            )
        return version
    if application or version or objects:
        raise VersionError(f"{path} is a database of another program; name another file")
    return 0
