"""The Lambda: a batch in, what to bring again out, and everything told as lines of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from scripted_streams import record

from engines.servers import Engine
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.stores.dynamodb.requests import NoAnswer
from zae_limiter.stores.dynamodb.transport.protocol import Target
from zae_limiter.stores.dynamodb.transport.sync_transport import SocketTransport
from zae_limiter.stores.dynamodb.usage_items import Life
from zae_limiter_aggregator import handler as entry
from zae_limiter_aggregator.lambda_output import METRICS, batch_response, log_lines
from zae_limiter_aggregator.proactive_split import Load
from zae_limiter_aggregator.processor import Processed
from zae_limiter_aggregator.stream_records import Failure, PoisonousRecord

SECONDS = 20.0
TABLES = count()
THIRD_PARTY = {"boto3", "botocore", "click", "matplotlib", "rich", "urllib3", "yaml"}


class Context:
    aws_request_id = "request-1"


class Deployed:
    """A table on an engine, in an environment like Lambda's."""

    def __init__(self, engine: Engine) -> None:
        self.table = f"handler-{os.getpid()}-{next(TABLES)}"
        self.environment = {
            "ZAEL_TABLE": self.table,
            "AWS_REGION": engine.region,
            "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_SESSION_TOKEN": "token",
            "AWS_ENDPOINT_URL_DYNAMODB": engine.endpoint_url,
        }
        url = f"dynamodb://{self.table}?region={engine.region}&endpoint_url={engine.endpoint_url}"
        self._transport = SocketTransport(Target(engine.region, engine.endpoint_url))
        self.repository = SyncRepository.open(url, create=True, deadline=SECONDS)
        self.limiter = SyncRateLimiter(self.repository)
        self.limiter.set_system_defaults([Limit.per_day("rpd", 1_000)])

    def close(self) -> None:
        self.repository.delete_table()
        self.repository.close()
        self._transport.close()

    def take(self, times: int) -> None:
        for _ in range(times):
            with self.limiter.acquire("a", "gpt", {"rpd": 2}):
                pass

    def records(self) -> list[dict[str, Any]]:
        """The stream as Lambda delivers it: times are numbers there."""

        def call(operation: str, **params: Any) -> Any:
            return self._transport.call(operation, params, SECONDS)

        stream = call("DescribeTable", TableName=self.table)["Table"]["LatestStreamArn"]
        shard = call("DescribeStream", StreamArn=stream)["StreamDescription"]["Shards"][0]["ShardId"]
        where = {"StreamArn": stream, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"}
        found = call("GetRecords", ShardIterator=call("GetShardIterator", **where)["ShardIterator"])["Records"]
        text = json.dumps(found, default=lambda moment: moment.timestamp())
        records: list[dict[str, Any]] = json.loads(text)
        return records

    def usage(self) -> tuple[int, int]:
        total = self.limiter.get_usage_summary("a")
        return total.total_events, total.total.get("rpd", 0)


@pytest.fixture
def deployed(dynoxide: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployed]:
    found = Deployed(dynoxide)
    for name, value in found.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(entry, "_kept", {})
    yield found
    for store in entry._kept.values():
        store.close()
    found.close()


def test_a_batch_is_counted_and_told(deployed: Deployed, capsys: pytest.CaptureFixture[str]) -> None:
    deployed.take(3)
    records = deployed.records()
    for _ in range(2):
        assert entry.handler({"Records": records}, Context()) == {"batchItemFailures": []}
        assert deployed.usage() == (3, 6)
    (line, _) = capsys.readouterr().out.splitlines()
    told = json.loads(line)
    assert (told["Records"], told["Snapshots"], told["PoisonousRecords"], told["UnwrittenRecords"]) == (
        3,
        1,
        0,
        0,
    )
    assert (told["Table"], told["request_id"], told["level"]) == (deployed.table, "request-1", "INFO")
    assert told["Lag"] >= 0


def test_poison_is_brought_again_alone_and_the_rest_counts(
    deployed: Deployed, capsys: pytest.CaptureFixture[str]
) -> None:
    deployed.take(2)
    broken = record(7)
    del broken["dynamodb"]["NewImage"]
    records = [broken, *deployed.records(), {"eventName": "MODIFY"}]
    sequence = broken["dynamodb"]["SequenceNumber"]
    assert entry.handler({"Records": records}, None) == {"batchItemFailures": [{"itemIdentifier": sequence}]}
    assert deployed.usage() == (2, 4)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["level"] for line in lines] == ["ERROR", "ERROR", "INFO"]
    assert lines[0]["sequence"] == sequence
    assert lines[-1]["PoisonousRecords"] == 2


@pytest.fixture
def archived(deployed: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the function keeps what leaves the stream."""
    folder = tmp_path / "archive"
    monkeypatch.setenv("ZAEL_ARCHIVE", str(folder))
    monkeypatch.setattr(entry, "_archives", {})
    return folder


NUMBERS = [record(number)["dynamodb"]["SequenceNumber"] for number in (7, 8, 9)]


def poison() -> list[dict[str, Any]]:
    """Records under keys that an acquire may write, of items that are no buckets, and one that tells nothing."""
    broken, foreign, deep = record(7), record(8), record(9)
    del broken["dynamodb"]["NewImage"]
    foreign["dynamodb"]["Keys"]["PK"] = {"S": "n/BUCKET#" + "x" * 1_500 + "#gpt#0"}
    deep["dynamodb"]["NewImage"]["inc"] = {"S": "i" * 2_000}
    return [broken, foreign, deep, {"eventName": "MODIFY"}]


def test_poison_leaves_the_stream_at_once_and_is_put_aside_once(
    deployed: Deployed, archived: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deployed.take(2)
    records = [*poison(), *deployed.records()]
    for _ in range(3):
        assert entry.handler({"Records": records}, None) == {"batchItemFailures": []}
    assert deployed.usage() == (2, 4)
    (kept,) = [path for path in archived.rglob("*") if path.is_file()]
    assert kept.parent == archived / "aws" / "lambda" / "poisonous"
    lines = [json.loads(line) for line in kept.read_text().splitlines()]
    assert sorted(line["sequence"] for line in lines) == ["", *NUMBERS]
    assert [line["record"] for line in lines if line["sequence"] == NUMBERS[0]] == [poison()[0]]
    assert all(line["error"] for line in lines)
    numbers = [json.loads(line) for line in capsys.readouterr().out.splitlines() if "PoisonousRecords" in line]
    assert [line["PoisonousRecords"] for line in numbers] == [4, 4, 4]


def test_poison_that_cannot_be_put_aside_is_brought_again(deployed: Deployed, archived: Path) -> None:
    archived.write_text("in the way")
    answer = entry.handler({"Records": poison()}, None)
    assert [failure["itemIdentifier"] for failure in answer["batchItemFailures"]] == NUMBERS
    archived.unlink()
    assert entry.handler({"Records": poison()}, None) == {"batchItemFailures": []}


def test_what_no_snapshot_can_hold_is_put_aside_and_holds_up_no_other_record(
    deployed: Deployed, archived: Path
) -> None:
    """An item of almost 400 KB, most of it counters: the snapshot would have each of them twice."""
    deployed.take(1)
    huge = record(7)
    counters = {f"b_{'x' * 50}{number}_tc": {"N": "1" + "0" * 20} for number in range(4_500)}
    huge["dynamodb"]["NewImage"].update(counters)
    records = [huge, *deployed.records()]
    assert entry.handler({"Records": records}, None) == {"batchItemFailures": []}
    assert deployed.usage() == (1, 2)
    (kept,) = archived.rglob("*.jsonl")
    (line,) = kept.read_text().splitlines()
    assert json.loads(line)["sequence"] == NUMBERS[0]


def test_an_empty_event_is_fine(deployed: Deployed) -> None:
    assert entry.handler({}, None) == {"batchItemFailures": []}


def test_without_a_table_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZAEL_TABLE", raising=False)
    with pytest.raises(ZAELimiterError, match="ZAEL_TABLE"):
        entry.handler({"Records": []}, None)


# What is told


def test_what_could_not_be_written_is_to_be_brought_again_once_each() -> None:
    failures = (Failure("2", NoAnswer("lost")), Failure("3", NoAnswer("lost")))
    processed = Processed(5, 1, (Failure("2", PoisonousRecord("2", "odd")),), failures)
    assert batch_response(processed) == {"batchItemFailures": [{"itemIdentifier": "2"}, {"itemIdentifier": "3"}]}


def test_the_numbers_are_in_the_embedded_metric_format() -> None:
    life = Life("n", "key", "gpt", 3, "i")
    loads = (Load(life, 4, 0, 0, -50_000, 1_000_000), Load(life._replace(shard=0), 4, 0, 0, 999_000, 1_000_000))
    processed = Processed(5, 2, (), (Failure("3", NoAnswer("lost")),), 7, loads, 1)
    written = {"dynamodb": {"ApproximateCreationDateTime": 1_800_000_000.0}}
    error, hot, numbers = map(json.loads, log_lines("limits", [written], processed, 1_800_000_000_250, None))
    assert (error["message"], error["error"]) == ("record not counted yet", "lost")
    assert (hot["message"], hot["level"], hot["pressure_percent"]) == ("hot shard", "WARN", 105)
    assert (hot["namespace_id"], hot["entity_id"], hot["resource"], hot["shard"]) == ("n", "key", "gpt", 3)
    told = numbers["_aws"]
    assert told["Timestamp"] == 1_800_000_000_250
    (metrics,) = told["CloudWatchMetrics"]
    assert metrics["Namespace"] == "zae-limiter"
    assert metrics["Dimensions"] == [["Table"]]
    assert {metric["Name"]: metric["Unit"] for metric in metrics["Metrics"]} == METRICS
    assert [numbers[name] for name in METRICS] == [5, 2, 0, 1, 7, 1, [105, 0], 250]


def test_a_line_has_no_more_values_than_cloudwatch_takes_and_does_not_tell_of_every_hot_shard() -> None:
    loads = tuple(Load(Life("n", f"key-{x}", "gpt", 0, "i"), 1, 0, 0, 0, 1_000_000) for x in range(300))
    *hot, numbers = map(json.loads, log_lines("limits", [], Processed(0, 0, (), (), 0, loads), 0, None))
    assert (len(hot), numbers["ShardPressure"]) == (10, [100] * 100)


# What is loaded

SCRIPT = """
import json, sys
from zae_limiter_aggregator.handler import handler
loaded = [sorted({name.partition(".")[0] for name in sys.modules})]
answer = handler({"Records": json.load(sys.stdin)}, None)
loaded.append(sorted({name.partition(".")[0] for name in sys.modules}))
print(json.dumps([answer, *loaded]))
"""


def test_neither_importing_nor_running_it_loads_anything_third_party(deployed: Deployed) -> None:
    deployed.take(2)
    finished = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps(deployed.records()),
        env={**deployed.environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    answer, imported, ran = json.loads(finished.stdout.splitlines()[-1])
    assert answer == {"batchItemFailures": []}
    assert set(imported) & (THIRD_PARTY | {"socket", "ssl", "asyncio"}) == set()
    assert set(ran) & THIRD_PARTY == set()
    assert deployed.usage() == (2, 4)
