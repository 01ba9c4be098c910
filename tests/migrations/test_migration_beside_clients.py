"""A table of today's layout stays open while data of an older one is looked for, and its clients go on."""

from __future__ import annotations

import pytest
from old_tables import NOW, OldTable, Was, composite, config, entity, separate_items

from zae_limiter import Limit, SyncRateLimiter, VersionError
from zae_limiter.migrations import migrate
from zae_limiter.migrations.table_migration import Progress
from zae_limiter.stores.dynamodb.namespace import LAYOUT

RPM = Limit.per_minute("rpm", 100)


class InUse:
    """A table with clients, who do something whenever a migration says how far it is."""

    def __init__(self, table: OldTable, limiter: SyncRateLimiter) -> None:
        self.table = table
        self.limiter = limiter
        self.taken = 0

    def on_progress(self, progress: Progress) -> None:
        """A client takes one, and another opens the table for the first time."""
        with self.limiter.acquire("busy", "gpt-4", {"rpm": 1}):
            self.taken += 1
        with self.table.limiter() as another:
            assert another.available("busy", "gpt-4") == {"rpm": 100 - self.taken}


@pytest.fixture
def in_use(table: OldTable) -> InUse:
    table.put(config("SYSTEM#", "#CONFIG", RPM))
    migrate(table.url, clock=lambda: NOW)
    with table.limiter() as limiter:
        with limiter.acquire("key", "gpt-4", {"rpm": 30}):
            pass
        return InUse(table, limiter)


def layout_in(table: OldTable) -> int:
    return int(table.items()["_/SYSTEM#", "#VERSION"]["layout_version"])


@pytest.mark.parametrize("from_layout", [1, 2])
def test_a_table_in_use_stays_open_and_takes_in_what_is_old(in_use: InUse, from_layout: int) -> None:
    table = in_use.table
    table.put(composite("key", "gpt-4", {"rpm": Was(RPM, 80_000, 20_000, NOW)}), entity("org"))
    if from_layout == 1:
        table.put(*separate_items("late", "gpt-4", {"rpm": Was(RPM, 90_000, 10_000, NOW)}))
    with table.limiter() as in_use.limiter:
        report = migrate(table.url, clock=lambda: NOW, from_layout=from_layout, on_progress=in_use.on_progress, page=3)
    assert in_use.taken > 5
    assert sum(done.converted for done in report.done) == (4 if from_layout == 1 else 2)
    with table.limiter() as limiter:
        assert limiter.available("key", "gpt-4") == {"rpm": 50}
        assert limiter.available("busy", "gpt-4") == {"rpm": 100 - in_use.taken}
        assert limiter.get_entity("org").id == "org"
        if from_layout == 1:
            assert limiter.available("late", "gpt-4") == {"rpm": 90}
    assert layout_in(table) == LAYOUT
    assert "migration" not in table.items()["_/SYSTEM#", "#VERSION"]
    assert ("_/SYSTEM#", "#MIGRATION") not in table.items()


def test_a_table_in_use_without_anything_old_stays_as_it_is(in_use: InUse) -> None:
    table = in_use.table
    with table.limiter() as in_use.limiter:
        report = migrate(table.url, clock=lambda: NOW, from_layout=1, on_progress=in_use.on_progress)
    assert in_use.taken > 1
    assert [done.converted for done in report.done] == [0, 0]
    assert layout_in(table) == LAYOUT


def test_a_run_that_ends_half_way_leaves_it_open_and_is_continued(in_use: InUse) -> None:
    table = in_use.table
    table.put(composite("key", "gpt-4", {"rpm": Was(RPM, 80_000, 20_000, NOW)}), entity("org"))

    class Killed(Exception):
        pass

    def until_one_is_converted(progress: Progress) -> None:
        if progress.converted:
            raise Killed

    with pytest.raises(Killed):
        migrate(table.url, clock=lambda: NOW, from_layout=2, on_progress=until_one_is_converted, page=3)
    with table.limiter() as in_use.limiter:
        assert in_use.limiter.available("busy", "gpt-4") == {"rpm": 100}
        migrate(table.url, clock=lambda: NOW, from_layout=2, on_progress=in_use.on_progress, page=3)
    with table.limiter() as limiter:
        assert limiter.available("key", "gpt-4") == {"rpm": 50}
    assert ("_/SYSTEM#", "#MIGRATION") not in table.items()


def test_old_clients_that_go_on_are_told_of_and_close_nothing(in_use: InUse) -> None:
    table = in_use.table

    def write_again(progress: Progress) -> None:
        if progress.phase == "convert" or progress.converted == 0:
            table.put(composite("key", "gpt-4", {"rpm": Was(RPM, 90_000, 10_000, NOW)}))

    table.put(composite("key", "gpt-4", {"rpm": Was(RPM, 90_000, 10_000, NOW)}))
    with pytest.raises(VersionError, match="stop the clients that do"):
        migrate(table.url, clock=lambda: NOW, from_layout=2, on_progress=write_again)
    assert layout_in(table) == LAYOUT
    with table.limiter() as limiter:
        assert limiter.available("busy", "gpt-4") == {"rpm": 100}
