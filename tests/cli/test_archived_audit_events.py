"""Audit events that left the table are found again: a table, the Lambda's handler, a bucket, and ``audit list``."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from cli_runner import PATIENCE_S, CommandRunner, Kept

from engines.servers import HOST, Engine
from zae_limiter import SyncRepository
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.dynamodb.transport.protocol import Target
from zae_limiter_aggregator import handler as entry

NAMES = count()
EXPIRY = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
"""What DynamoDB adds to the record of an item that expired. No engine does."""


class Place:
    """A table and its archive, and time that passes for both."""

    def __init__(self, engine: Engine, archive: str) -> None:
        name = f"audit-{os.getpid()}-{next(NAMES)}"
        self.archive = archive
        self.url = f"dynamodb://{name}?region={engine.region}&endpoint_url={engine.endpoint_url}"
        self.store = DynamoStore(name, Target(engine.region, engine.endpoint_url), deadline=PATIENCE_S)
        self.runner = CommandRunner(lambda: Kept(self.store), url=self.url)
        self.environment = {
            "ZAEL_TABLE": name,
            "ZAEL_ARCHIVE": archive,
            "AWS_REGION": engine.region,
            "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_ENDPOINT_URL_DYNAMODB": engine.endpoint_url,
        }
        self._table = name

    def call(self, operation: str, **params: Any) -> Any:
        return self.store._calls.transport().call(operation, params, PATIENCE_S)

    def expire(self) -> list[dict[str, Any]]:
        """Let every audit event expire; what the stream says of that, as Lambda is told."""
        for item in self.call("Scan", TableName=self._table)["Items"]:
            if item["SK"]["S"].startswith("#AUDIT#"):
                self.call("DeleteItem", TableName=self._table, Key={"PK": item["PK"], "SK": item["SK"]})
        stream = self.call("DescribeTable", TableName=self._table)["Table"]["LatestStreamArn"]
        shard = self.call("DescribeStream", StreamArn=stream)["StreamDescription"]["Shards"][0]["ShardId"]
        where = {"StreamArn": stream, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"}
        iterator = self.call("GetShardIterator", **where)["ShardIterator"]
        records = self.call("GetRecords", ShardIterator=iterator)["Records"]
        return [{**record, "userIdentity": EXPIRY} for record in records if record["eventName"] == "REMOVE"]

    def events(self, *words: str) -> list[dict[str, Any]]:
        ran = self.runner.run("audit", "list", "--json", *words)
        assert (ran.code, ran.err) == (0, "")
        found: list[dict[str, Any]] = json.loads(ran.out)["events"]
        return found

    def archived(self, *words: str) -> list[dict[str, Any]]:
        return self.events("--archived", "--archive", self.archive, *words)


@pytest.fixture(params=["bucket", "folder"])
def place(
    request: pytest.FixtureRequest, ministack: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    archive = bucket_on(ministack) if request.param == "bucket" else str(tmp_path / "archive")
    found = Place(ministack, archive)
    repository = SyncRepository.open(found.url, create=True, deadline=PATIENCE_S)
    for name, value in found.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(entry, "_kept", {})
    monkeypatch.setattr(entry, "_archives", {})
    yield found
    for store in entry._kept.values():
        store.close()
    found.store.close()
    repository.delete_table()
    repository.close()


def bucket_on(engine: Engine) -> str:
    """A new bucket, as an archive is named."""
    name = f"audit-{os.getpid()}-{next(NAMES)}"
    connection = http.client.HTTPConnection(HOST, engine.port, timeout=PATIENCE_S)
    signed = "AWS4-HMAC-SHA256 Credential=local/20200101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=00"
    connection.request("PUT", f"/{name}", headers={"Authorization": signed})
    assert connection.getresponse().status == 200
    connection.close()
    return f"s3://{name}?region={engine.region}&endpoint_url={engine.endpoint_url}"


def live(runner: CommandRunner) -> None:
    """A few changes over forty days, of two namespaces."""
    runner.run("system", "set-defaults", "-l", "rpd:100/day")
    runner.run("namespace", "register", "other")
    for number in range(4):
        runner.run("entity", "create", f"key-{number}")
        runner.run("entity", "create", f"key-{number}", "--namespace", "other")
        runner.clock.advance(10 * 86_400)


def test_the_whole_trail_is_read_back_in_order_whatever_came_twice(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = place.runner
    live(runner)
    before, others = place.events(), place.events("--namespace", "other")
    assert len(before) >= 5
    records = place.expire()
    assert len(records) == len(before) + len(others)
    for batch in (records, records[:3], records[2:], records):
        assert entry.handler({"Records": batch}, None) == {"batchItemFailures": []}
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["ArchivedEvents"] for line in told] == [len(records), 3, len(records) - 2, len(records)]

    assert place.events() == []
    assert place.archived() == before
    assert place.archived("--namespace", "other") == others
    runner.run("entity", "create", "key-9")
    (newest,) = place.events()
    assert place.archived() == [newest, *before]
    assert place.archived("--subject", "key-1") == [event for event in before if event["entity_id"] == "key-1"]
    since, until = before[3]["timestamp"], before[0]["timestamp"]
    assert place.archived("--since", since, "--until", until) == [
        event for event in before if since <= event["timestamp"] < until
    ]
    assert place.archived("--limit", "2") == [newest, before[0]]
    ran = runner.run("audit", "list", "--archived", "--archive", place.archive, "--limit", "2")
    assert ran.err == "stopped at 2; there are more\n"
    assert place.archived("--limit", str(1 + len(before))) == [newest, *before]


def test_an_archive_that_is_away_fails_the_records_that_were_to_go_there(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place.runner.run("entity", "create", "key-1")
    records = place.expire()
    (tmp_path / "a file").touch()
    monkeypatch.setenv("ZAEL_ARCHIVE", str(tmp_path / "a file"))
    failed = entry.handler({"Records": records}, None)["batchItemFailures"]
    assert {failure["itemIdentifier"] for failure in failed} == {
        record["dynamodb"]["SequenceNumber"] for record in records
    }
    *errors, numbers = map(json.loads, capsys.readouterr().out.splitlines())
    assert (len(errors), numbers["UnwrittenRecords"], numbers["ArchivedEvents"]) == (len(records), len(records), 0)


def test_without_an_archive_it_says_what_is_missing(runner: CommandRunner) -> None:
    ran = runner.run("audit", "list", "--archived", environment={"ZAEL_ARCHIVE": ""})
    assert (ran.code, "--archive" in ran.err) == (2, True)
    ran = runner.run("audit", "list", "--archived", "--archive", "s3://NO")
    assert (ran.code, "must be a folder, or s3://BUCKET" in ran.err) == (2, True)


def test_an_object_that_is_damaged_is_named(runner: CommandRunner, tmp_path: Path) -> None:
    runner.run("entity", "create", "key-1")
    day = tmp_path / "audit/year=2025/month=12/day=31"
    day.mkdir(parents=True)
    (day / "notes.txt").write_text("somebody's")
    assert runner.run("audit", "list", "--archived", "--archive", str(tmp_path)).code == 0
    (day / "1-x.jsonl.gz").write_bytes(b"not gzip")
    ran = runner.run("audit", "list", "--archived", "--archive", str(tmp_path))
    assert ran.code == 1
    assert "audit/year=2025/month=12/day=31/1-x.jsonl.gz in the archive cannot be read" in ran.err


def test_an_archive_on_the_command_line_or_in_the_environment(runner: CommandRunner, tmp_path: Path) -> None:
    runner.run("entity", "create", "key-1")
    for words, environment in ((["--archive", str(tmp_path)], {}), ([], {"ZAEL_ARCHIVE": str(tmp_path)})):
        ran = runner.run("audit", "list", "--archived", *words, environment=environment)
        assert (ran.code, "key-1" in ran.out) == (0, True)
