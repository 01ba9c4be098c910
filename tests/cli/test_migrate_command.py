"""``zae-limiter migrate`` brings a table of an older layout here, and says what it did."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files

import jsonschema
import pytest
from cli_runner import PATIENCE_S, CommandRunner, Kept
from pseudo_terminal import COMMAND, terminal

from engines.servers import Engine
from migrations.old_tables import NOW, OldTable, Was, composite, config, entity, old_table, separate_items, usage
from zae_limiter import Limit
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.dynamodb.transport.protocol import Target

RPM = Limit.per_minute("rpm", 100)
SCHEMA = json.loads(files("zae_limiter.cli").joinpath("schemas/migration.json").read_text(encoding="utf-8"))


@pytest.fixture
def old(dynoxide: Engine) -> Iterator[tuple[OldTable, CommandRunner]]:
    with old_table(dynoxide) as table:
        store = DynamoStore(table.name, Target(dynoxide.region, dynoxide.endpoint_url), deadline=PATIENCE_S)
        table.put(
            config("SYSTEM#", "#CONFIG", RPM),
            composite("key", "gpt-4", {"rpm": Was(RPM, 50_000, 7_000, NOW)}),
            *separate_items("key", "gpt-5", {"rpm": Was(RPM, 99_000, 1_000, NOW)}),
        )
        runner = CommandRunner(lambda: Kept(store), url=table.url)
        runner.clock.advance((NOW - runner.clock()) / 1000)
        yield table, runner
        store.close()


def test_it_asks_and_says_what_it_did(old: tuple[OldTable, CommandRunner]) -> None:
    table, runner = old
    assert "add --yes" in runner.run("migrate").err
    ran = runner.run("migrate", "--yes")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "an item per limit → one per bucket: 1 item converted",
        "  before  1 configs, 2 limits; 8.000 tokens counted, 51.000 tokens missing",
        "  after   1 configs, 2 limits; 8.000 tokens counted, 51.000 tokens missing",
        "buckets beside their entity → a partition of their own: 3 items converted",
        "  before  1 configs, 2 limits; 8.000 tokens counted, 51.000 tokens missing",
        "  after   1 configs, 2 limits; 8.000 tokens counted, 51.000 tokens missing",
        f"table {table.name} has layout 3 now",
    ]
    assert runner.run("migrate", "--yes").out == f"table {table.name} has layout 3 already, nothing changed\n"
    assert "50" in runner.run("available", "key", "gpt-4").out


def test_a_dry_run_tells_what_there_is_and_changes_nothing(old: tuple[OldTable, CommandRunner]) -> None:
    table, runner = old
    before = table.items()
    ran = runner.run("migrate", "--dry-run")
    assert ran.out.splitlines() == [
        f"table {table.name} has layout 1; this version uses 3",
        "to convert:",
        "  1 old bucket",
        "  1 old config",
        "  1 old limit",
        "altogether: 1 configs, 2 limits; 8.000 tokens counted, 51.000 tokens missing",
    ]
    assert table.items() == before


def test_a_dry_run_counts_in_words(old: tuple[OldTable, CommandRunner]) -> None:
    table, runner = old
    hours = [usage("key", "gpt-4", "hourly", f"2026-01-01T0{hour}:00:00Z", rpm=1) for hour in range(2)]
    table.put(entity("org"), entity("key"), *hours)
    lines = runner.run("migrate", "--dry-run").out.splitlines()
    assert "  2 old entities" in lines
    assert "  2 old usage windows" in lines


def test_for_programs_it_is_a_document(old: tuple[OldTable, CommandRunner]) -> None:
    table, runner = old
    valid = jsonschema.Draft202012Validator({**SCHEMA, "$ref": "#/$defs/migrated"})
    valid.validate(json.loads(runner.run("migrate", "--dry-run", "--json").out))
    found = json.loads(runner.run("migrate", "--yes", "--json").out)
    valid.validate(found)
    assert (found["table"], found["before_layout"], found["after_layout"], found["dry_run"]) == (
        table.name,
        1,
        3,
        False,
    )
    assert [(part["converted"], part["before"]["consumed"]) for part in found["migrations"]] == [
        (1, 8_000),
        (3, 8_000),
    ]
    assert found["unreadable"] == []


def test_what_cannot_be_read_is_named(old: tuple[OldTable, CommandRunner]) -> None:
    table, runner = old
    table.put({"PK": "ENTITY#bad", "SK": "#BUCKET#gpt-4", "b_rpm_tk": 1})
    assert "could not be read, and stays as it is:\n  ENTITY#bad #BUCKET#gpt-4\n" in runner.run("migrate", "--yes").out


def test_data_that_was_written_later_is_looked_for(old: tuple[OldTable, CommandRunner]) -> None:
    table, runner = old
    runner.run("migrate", "--yes")
    table.put(composite("new", "gpt-4", {"rpm": Was(RPM, 50_000, 7_000, NOW)}))
    assert "1 item converted" in runner.run("migrate", "--yes", "--from-layout", "2").out


def test_on_a_terminal_there_is_a_bar(old: tuple[OldTable, CommandRunner]) -> None:
    table, _ = old
    with terminal(COMMAND, "migrate", "--url", table.url) as screen:
        screen.wait_for("[y/N]")
        screen.type(b"y\n")
        assert screen.end() == 0
    assert "has layout 3 now" in screen.shown
    assert "Traceback" not in screen.shown


def test_other_stores_see_to_it_themselves(runner: CommandRunner) -> None:
    ran = runner.run("migrate", "--yes")
    assert ran.code == 2
    assert "only dynamodb://" in ran.err
