"""``zae-limiter aggregate`` counts what the stream of a table tells, on an engine, and ends when it is told to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from importlib.resources import files
from itertools import count
from pathlib import Path

import jsonschema
import pytest
from cli_runner import PATIENCE_S, CommandRunner, Kept
from pseudo_terminal import COMMAND, CTRL_C, terminal

from engines.servers import Engine
from zae_limiter import Limit, RateLimiterUnavailable, SyncRateLimiter, SyncRepository
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.dynamodb.transport.protocol import Target

TABLES = count()
SCHEMA = json.loads(files("zae_limiter.cli").joinpath("schemas/aggregation.json").read_text(encoding="utf-8"))


@pytest.fixture
def table(dynoxide: Engine) -> Iterator[CommandRunner]:
    """A stage on a table whose usage is not counted."""
    name = f"aggregate-{os.getpid()}-{next(TABLES)}"
    url = f"dynamodb://{name}?region={dynoxide.region}&endpoint_url={dynoxide.endpoint_url}"
    repository = SyncRepository.open(url, create=True, deadline=PATIENCE_S)
    store = DynamoStore(name, Target(dynoxide.region, dynoxide.endpoint_url), deadline=PATIENCE_S)
    runner = CommandRunner(lambda: Kept(store), url=url)
    with runner.limiter() as limiter:
        limiter.set_system_defaults([Limit.per_day("rpd", 100)])
    yield runner
    store.close()
    repository.delete_table()
    repository.close()


def take(runner: CommandRunner, times: int) -> None:
    with runner.limiter() as limiter:
        for _ in range(times):
            with limiter.acquire("key-1", "gpt-4", {"rpd": 1}):
                pass


def grants(runner: CommandRunner) -> int:
    with runner.limiter() as limiter:
        return limiter.get_usage_summary("key-1").total_events


def test_once_counts_what_is_there_and_ends(table: CommandRunner) -> None:
    take(table, 3)
    assert grants(table) == 0
    ran = table.run("aggregate", "--once")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("3 changes counted into 1 window, ")
    assert grants(table) == 3
    take(table, 2)
    assert table.run("aggregate", "--once").out.startswith("2 changes")
    assert table.run("aggregate", "--once").out == "0 changes counted into 0 windows\n"
    assert grants(table) == 5


@pytest.mark.parametrize("report", ["list", "summary", "plot"])
def test_an_operator_who_finds_no_usage_because_it_was_not_counted_is_told_what_counts_it(
    table: CommandRunner, report: str
) -> None:
    asked = ("usage", report, "--entity", "key-1")
    assert table.run(*asked).err == ""
    take(table, 1)
    ran = table.run(*asked)
    assert ran.code == 0
    assert "no usage in this period" in ran.out
    assert "key-1 has used something that is not counted yet" in ran.err
    assert "'zae-limiter aggregate'" in ran.err
    assert table.run(*asked, "--json").err == ""
    assert "'zae-limiter aggregate'" in table.run("usage", report, "--resource", "gpt-4").err
    table.run("aggregate", "--once")
    assert table.run(*asked, "--until", "2025-01-01").err == ""
    assert table.run("usage", report, "--resource", "gpt-4").err == ""


def test_a_hint_that_cannot_be_had_spoils_no_answer(table: CommandRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*words: str | None) -> None:
        raise RateLimiterUnavailable("not allowed to read buckets")

    monkeypatch.setattr(SyncRateLimiter, "verify_usage", refused)
    ran = table.run("usage", "list", "--entity", "key-1")
    assert (ran.code, ran.out, ran.err) == (0, "no usage in this period\n", "")


def test_for_programs_it_is_a_document(table: CommandRunner) -> None:
    take(table, 3)
    found = json.loads(table.run("aggregate", "--once", "--json").out)
    jsonschema.Draft202012Validator({**SCHEMA, "$ref": "#/$defs/aggregated"}).validate(found)
    assert (found["records"], found["snapshots"], found["poisonous"], found["trimmed"]) == (3, 1, 0, 0)


def test_on_a_terminal_it_goes_on_until_ctrl_c(table: CommandRunner) -> None:
    take(table, 1)
    assert table.url is not None
    with terminal(COMMAND, "aggregate", "--url", table.url, "--interval", "0.1") as screen:
        screen.wait_for("1 change counted")
        take(table, 2)
        screen.wait_for("3 changes counted")
        screen.type(CTRL_C)
        assert screen.end() == 0
    assert "Traceback" not in screen.shown
    assert grants(table) == 3
    assert table.run("aggregate", "--once").out.startswith("0 changes")


def test_in_a_container_it_prints_lines_until_it_is_stopped(table: CommandRunner) -> None:
    take(table, 2)
    assert table.url is not None
    words = [COMMAND, "aggregate", "--url", table.url, "--interval", "0.1", "--json"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["records"] == 2
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait(PATIENCE_S)
    assert (process.returncode, err) == (0, "ending\n")
    assert table.run("aggregate", "--once").out.startswith("0 changes")


def test_two_at_the_same_time_count_everything_once(table: CommandRunner) -> None:
    take(table, 20)
    assert table.url is not None
    words = [COMMAND, "aggregate", "--url", table.url, "--once"]
    working = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.wait(PATIENCE_S) for process in working] == [0, 0]
    for process in working:
        assert process.stdout is not None
        process.stdout.close()
    assert grants(table) == 20


def test_an_embedded_store_is_told_that_it_counts_by_itself(runner: CommandRunner) -> None:
    ran = runner.run("aggregate", "--once")
    assert ran.code == 2
    assert "counts usage by itself" in ran.err


def test_a_table_that_is_not_there_is_a_misconfiguration(dynoxide: Engine) -> None:
    store = DynamoStore("nowhere", Target(dynoxide.region, dynoxide.endpoint_url), deadline=PATIENCE_S)
    ran = CommandRunner(lambda: store).run("aggregate", "--once")
    assert ran.code == 78
    assert "ResourceNotFoundException" in ran.err


def test_an_archive_is_opened_and_kept_out_of_the_way_until_something_expires(
    table: CommandRunner, tmp_path: Path
) -> None:
    take(table, 3)
    ran = table.run("aggregate", "--once", "--archive", str(tmp_path / "archive"))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("3 changes counted")
    assert not (tmp_path / "archive").exists()
    ran = table.run("aggregate", "--once", "--archive", "ftp://nowhere")
    assert ran.code == 2
    assert "must be a folder, or s3://BUCKET" in ran.err
