"""The migration of a table: count everything, convert what is old, count again and compare.

Each of the three goes page by page, and the checkpoint moves with every page. A run that was killed is continued from
there: the page it was at is done again, where steps that were done find nothing to do. Only when everything adds up
does the version record name the next layout; until then clients of today's layout are refused.

A table that has today's layout already is *in use*: its clients go on while data of an older layout is looked for. Its
version record stays as it is, and its sums change all the time, so they are not compared. Every step is exact by
itself: it demands that what it moves, and what it joins it with, has not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from zae_limiter.exceptions import VersionError
from zae_limiter.migrations.census import Census, census_of, compare
from zae_limiter.migrations.conversions import MigrationContext
from zae_limiter.migrations.history import Conversion, Migration, migrations_from
from zae_limiter.migrations.item_kinds import Kind, kind_of
from zae_limiter.migrations.migration_checkpoint import (
    CHECKPOINT_KEY,
    CONVERT,
    SURVEY,
    VERIFY,
    Position,
    beginning,
    load,
    removal,
    save,
    take_over,
)
from zae_limiter.migrations.old_buckets import Unreadable, where
from zae_limiter.migrations.table_indexes import IndexReport, TableIndexes, index_report
from zae_limiter.naming import DEFAULT_NAMESPACE
from zae_limiter.running.plan import READ_CLOCK, Plan
from zae_limiter.stores.dynamodb.expressions import EXISTING, NEW, put, update
from zae_limiter.stores.dynamodb.items import BrokenItem, address, key_of
from zae_limiter.stores.dynamodb.namespace import (
    LAYOUT,
    MINOR,
    OLDEST_LAYOUT,
    VERSION_KEYS,
    check_layout,
    layout_of,
    record_among,
)
from zae_limiter.stores.dynamodb.operations.namespaces import Namespaces, Table
from zae_limiter.stores.dynamodb.operations.paging import side_by_side
from zae_limiter.stores.dynamodb.requests import Item
from zae_limiter.stores.dynamodb.schema import Key, version_key
from zae_limiter.stores.dynamodb.table_client import Deadline, Overtaken, TableClient, commit, persist, verb
from zae_limiter.version import __version__

PAGE = 250
STEPS_AT_ONCE = 16
INDEXES = "indexes"
"""The phase before the others, on a table whose indexes are not those of today."""
NAMED_AT_MOST = 20
"""How many items that could not be read are named."""


class Progress(NamedTuple):
    """How far a migration is. ``total`` is a guess while the table is first counted."""

    title: str
    phase: str
    seen: int
    total: int
    converted: int

    def __str__(self) -> str:
        doing = {INDEXES: "waiting", SURVEY: "counting", CONVERT: "converting", VERIFY: "comparing"}[self.phase]
        return f"{self.title}: {doing}, {self.seen:,} items seen, {self.converted:,} converted"


class MigrationResult(NamedTuple):
    """What one migration did: how many items it converted, and what the table held before and after."""

    migration: Migration
    converted: int
    before: Census
    after: Census
    expired: int


class Report(NamedTuple):
    """What was found and done. In a dry run nothing is ``done``, and ``census`` says what would be."""

    table: str
    before_layout: int
    after_layout: int
    census: Census
    done: tuple[MigrationResult, ...]
    unreadable: tuple[str, ...]
    current_layout: int = LAYOUT
    """The layout that this version of the library uses."""
    indexes: IndexReport = IndexReport()


OnProgress = Callable[[Progress], None]


class TableMigration:
    """The migrations of one table."""

    def __init__(self, client: TableClient, *, on_progress: OnProgress | None = None, page: int = PAGE) -> None:
        self.client = client
        self._namespaces = Namespaces(client)
        self._table = Table(client, self._namespaces)
        self._on_progress = on_progress or (lambda progress: None)
        self._page = page
        self._run = client.write_ids.token()
        self._in_use = False
        self._unreadable: dict[str, None] = {}

    @verb
    def survey(self, *, from_layout: int | None = None) -> Plan[Report]:
        """What a migration would find. Nothing is written."""
        layout = min((yield from self._layout()), from_layout or LAYOUT)
        indexes = index_report(self.client.table, (yield from self._description()))
        at = yield from READ_CLOCK
        total = yield from self._size()
        census, after = Census(), None
        while True:
            items, after = yield from self._scan(after)
            census += census_of(items, at)
            self._note_unreadable(items, at)
            self._on_progress(Progress("what there is", SURVEY, census.items, total, 0))
            if after is None:
                unreadable = tuple(self._unreadable)
                return Report(self.client.table, layout, layout, census, (), unreadable, indexes=indexes)

    @verb
    def migrate(self, *, from_layout: int | None = None, replace_indexes: bool = False) -> Plan[Report]:
        """Bring the table to today's layout, its indexes first. Nothing to do is fine."""
        found = yield from self._layout()
        indexes = yield from TableIndexes(self.client, self._table, on_wait=self._note_indexes).complete(
            replace=replace_indexes
        )
        self._in_use = found == LAYOUT
        layout = min(found, from_layout or LAYOUT)
        done: list[MigrationResult] = []
        for migration in migrations_from(layout):
            done.append((yield from self._run_one(migration)))
        census = done[0].before if done else Census()
        unreadable = tuple(self._unreadable)
        return Report(self.client.table, layout, LAYOUT, census, tuple(done), unreadable, indexes=indexes)

    # What the table is

    def _layout(self) -> Plan[int]:
        """The layout that the table has. Refuses tables that are none of ours, or newer."""
        index_report(self.client.table, (yield from self._description()))
        until = yield from self.client.new_deadline()
        record = record_among((yield from self.client.get_all(VERSION_KEYS, until)).values())
        found = OLDEST_LAYOUT if record is None else layout_of(record)
        if found > LAYOUT:
            check_layout(self.client.table, record)
        return found

    def _description(self) -> Plan[Mapping[str, Any]]:
        until = yield from self.client.new_deadline()
        description = yield from self._table.describe(until)
        if description is None:
            raise VersionError(f"there is no table {self.client.table!r}; check the name, the region and the endpoint")
        return description

    def _size(self) -> Plan[int]:
        return int((yield from self._description()).get("ItemCount", 0))

    def _note_indexes(self, which: str) -> None:
        self._on_progress(Progress(f"index {which}", INDEXES, 0, 0, 0))

    # One migration

    def _run_one(self, migration: Migration) -> Plan[MigrationResult]:
        position = yield from self._begin(migration)
        namespace = yield from persist(
            self.client, lambda until: self._namespaces.register(DEFAULT_NAMESPACE, None, position.at, until)
        )
        context = MigrationContext(self.client, CHECKPOINT_KEY, namespace.id, position.at)
        total = position.before.items or (yield from self._size())
        while True:
            items, after = yield from self._scan(position.after)
            position = yield from self._process_page(migration, context, position, items)
            position = position._replace(after=after, seen=position.seen + len(items))
            self._on_progress(Progress(migration.title, position.phase, position.seen, total, position.converted))
            if after is None:
                if position.phase == VERIFY:
                    return (yield from self._finish(migration, position))
                total = position.before.items
                position = position._replace(phase=self._next_phase(migration, position), seen=0)
            until = yield from self.client.new_deadline()
            yield from save(self.client, position, self._run, until)

    def _next_phase(self, migration: Migration, position: Position) -> str:
        needed = position.phase == SURVEY and position.before.old_of(migration.conversions) > 0
        return CONVERT if needed else VERIFY

    def _begin(self, migration: Migration) -> Plan[Position]:
        """Continue where a migration was cut short, or begin: from now on the version record says so, unless the
        table is in use."""
        until = yield from self.client.new_deadline()
        saved = yield from load(self.client, until)
        if saved is not None and saved.position.before_layout == migration.before:
            position = saved.position
        else:
            position = Position(migration.before, (yield from READ_CLOCK))
        if not self._in_use:
            yield from persist(self.client, lambda until: self._mark(migration, position.at, until))
        yield from take_over(self.client, position, self._run, until)
        return position

    def _mark(self, migration: Migration, now: int, until: Deadline) -> Plan[None]:
        table, key = self.client.table, version_key()
        record = yield from self.client.get(key, until)
        marked = {"layout_version": migration.before, "migration": self._run}
        if record is None:
            write = put(table, key, {**marked, "created_at": now}, NEW)
        else:
            write = update(table, key, EXISTING, sets=marked)
        yield from commit(self.client, [write], until)

    def _finish(self, migration: Migration, position: Position) -> Plan[MigrationResult]:
        """Compare, and name the next layout."""
        until = yield from self.client.new_deadline()
        saved = yield from load(self.client, until)
        joined = {} if saved is None else saved.joined
        before = position.verified if self._in_use else position.before
        found = compare(before, position.verified, {} if self._in_use else joined, migration.conversions)
        if found.mismatches:
            yield from self._discard_checkpoint(until)
            raise VersionError(f"table {self.client.table!r} is not migrated: {'; '.join(found.mismatches)}")
        yield from self._name_layout(migration, position, until)
        return MigrationResult(migration, position.converted, position.before, position.verified, found.expired)

    def _name_layout(self, migration: Migration, position: Position, until: Deadline) -> Plan[None]:
        """The table has the next layout. What follows from there follows at the same moment of bucket time."""
        sets: dict[str, Any] = {"layout_version": migration.after}
        if migration.after == LAYOUT:
            sets |= {"migration": None, "layout_minor": MINOR, "library_version": __version__}
            onward = removal(self.client, self._run)
        else:
            onward = beginning(self.client, Position(migration.after, position.at), self._run)
        named = update(self.client.table, version_key(), {"layout_version": migration.before}, sets=sets)
        try:
            yield from commit(self.client, [onward] if self._in_use else [named, onward], until)
        except Overtaken:
            raise VersionError(
                f"another process has taken over the migration of table {self.client.table!r}; this one ends"
            ) from None

    def _discard_checkpoint(self, until: Deadline) -> Plan[None]:
        """Forget how far it came: the next run counts and converts what is there by then."""
        with suppress(Overtaken):
            yield from commit(self.client, [removal(self.client, self._run)], until)

    # One page

    def _scan(self, after: Key | None) -> Plan[tuple[Sequence[Item], Key | None]]:
        params: dict[str, Any] = {"TableName": self.client.table, "Limit": self._page, "ConsistentRead": True}
        if after is not None:
            params["ExclusiveStartKey"] = address(after)
        until = yield from self.client.new_deadline()
        reply = yield from self.client.ask("Scan", params, until, repeatable=True)
        last = reply.get("LastEvaluatedKey")
        return reply.get("Items", ()), None if last is None else key_of(last)

    def _process_page(
        self, migration: Migration, context: MigrationContext, position: Position, items: Sequence[Item]
    ) -> Plan[Position]:
        if position.phase == SURVEY:
            self._note_unreadable(items, context.at)
            return position._replace(before=position.before + census_of(items, context.at))
        if position.phase == VERIFY:
            return position._replace(verified=position.verified + census_of(items, context.at))
        converted = position.converted
        for kind, convert in migration.conversions.items():
            some = list(_one_of_each(item for item in items if kind_of(item) is kind))
            for start in range(0, len(some), STEPS_AT_ONCE):
                steps = [self._step(context, convert, item) for item in some[start : start + STEPS_AT_ONCE]]
                converted += sum((yield from side_by_side(steps)))
                self._on_progress(Progress(migration.title, CONVERT, position.seen, position.before.items, converted))
        return position._replace(converted=converted)

    def _step(self, context: MigrationContext, convert: Conversion, item: Item) -> Plan[int]:
        try:
            return (yield from convert(context, item))
        except (Unreadable, BrokenItem):
            return 0

    def _note_unreadable(self, items: Iterable[Item], at: int) -> None:
        for item in items:
            if len(self._unreadable) < NAMED_AT_MOST and census_of([item], at).unreadable:
                self._unreadable[where(item)] = None


def _one_of_each(items: Iterable[Item]) -> Iterable[Item]:
    """Of the limits of one bucket only the first: one step converts them all."""
    seen: set[tuple[str, str]] = set()
    for item in items:
        sort_key = item["SK"]["S"]
        group = sort_key.rpartition("#")[0] if kind_of(item) is Kind.OLD_LIMIT else sort_key
        if (item["PK"]["S"], group) not in seen:
            seen.add((item["PK"]["S"], group))
            yield item
