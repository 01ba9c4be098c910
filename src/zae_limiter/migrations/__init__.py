"""From older layouts of a DynamoDB table to the one this version uses: nothing lost, however often it is cut short.

:func:`migrate` is the entry point. ``history`` lists the migrations, ``old_buckets`` and ``old_records`` know how
older layouts stored things, ``item_kinds`` tells items apart, ``conversions`` change them one by one, ``census`` knows
what must be the same before and after, ``table_indexes`` makes the indexes that are missing, ``table_migration`` goes
over the table and ``migration_checkpoint`` keeps how far it came.
"""

from __future__ import annotations

from typing import Any

from zae_limiter.exceptions import ValidationError
from zae_limiter.migrations.table_migration import PAGE, OnProgress, Report, TableMigration
from zae_limiter.running.clocks import Clock, machine_clock
from zae_limiter.running.sync_driver import SyncDriver
from zae_limiter.stores.dynamodb.table_client import table_client_of
from zae_limiter.stores.open_store import open_store

DEADLINE_S = 30.0
"""How long one page may take."""


def migrate(
    url: str | None = None,
    *,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
    clock: Clock = machine_clock,
    from_layout: int | None = None,
    replace_indexes: bool = False,
    page: int = PAGE,
) -> Report:
    """Bring the table of a ``dynamodb://`` URL to today's layout; what was found and done.

    It may be ended at any time and run again: it continues where it was. ``dry_run`` only counts. ``on_progress`` is
    called with a ``Progress`` after every page. ``from_layout`` looks for data of an older layout than the table says
    it has.

    An index that the table lacks is made. ``replace_indexes`` makes those anew that hold more than keys, one after the
    other; meanwhile what reads by that index fails, and acquires go on.

    A table that has today's layout stays open meanwhile, and its clients may go on.

    Stop all clients of the older layout first. They do not know that they should not write, and what they write while
    it goes on is found at the end: then this raises ``VersionError``, and another run takes it in.

    Raises ``VersionError`` also when the table is newer, or none of ours, or does not add up afterwards.
    """
    store = open_store(url, deadline=DEADLINE_S, config_cache_ttl=0, options={})
    try:
        return migrate_store(
            store,
            dry_run=dry_run,
            on_progress=on_progress,
            clock=clock,
            from_layout=from_layout,
            replace_indexes=replace_indexes,
            page=page,
        )
    finally:
        store.close()


def is_migratable(store: Any) -> bool:
    """Whether an open store is one that :func:`migrate_store` migrates: a DynamoDB table."""
    return table_client_of(store) is not None


def migrate_store(
    store: Any,
    *,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
    clock: Clock = machine_clock,
    from_layout: int | None = None,
    replace_indexes: bool = False,
    page: int = PAGE,
) -> Report:
    """The same for a store that is open."""
    client = table_client_of(store)
    if client is None:
        raise ValidationError("url", repr(store), "must be a dynamodb:// table; other stores migrate by themselves")
    migration = TableMigration(client, on_progress=on_progress, page=page)
    plan = (
        migration.survey(from_layout=from_layout)
        if dry_run
        else migration.migrate(from_layout=from_layout, replace_indexes=replace_indexes)
    )
    return SyncDriver(clock, store.perform).run(plan)
