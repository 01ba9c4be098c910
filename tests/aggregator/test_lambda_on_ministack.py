"""The Lambda itself, from its zip: MiniStack runs it behind the table's stream, and it counts, proves and archives."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from botocore.session import get_session
from expired_events import expired

from engines.servers import Engine
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.infra.lambda_builder import HANDLER, build_lambda_package
from zae_limiter_aggregator.archived_events import EventFilter, read_events
from zae_limiter_aggregator.archives import open_archive

NAMES = count()
SECONDS = 30.0


class Deployed:
    """A table, a function behind its stream, and a bucket, on MiniStack."""

    def __init__(self, engine: Engine, package: bytes) -> None:
        self.name = f"lambda-{os.getpid()}-{next(NAMES)}"
        self._settings = {
            "region_name": engine.region,
            "endpoint_url": engine.endpoint_url,
            "aws_access_key_id": "local",
            "aws_secret_access_key": "local",
        }
        self._session = get_session()
        self._clients: list[Any] = []
        url = f"dynamodb://{self.name}?region={engine.region}&endpoint_url={engine.endpoint_url}"
        self.limiter = SyncRateLimiter(SyncRepository.open(url, create=True, deadline=SECONDS))
        self.limiter.set_system_defaults([Limit.per_day("rpd", 10_000), Limit.per_day("tpd", 1_000_000)])
        self.archive = open_archive(f"s3://{self.name}?region={engine.region}&endpoint_url={engine.endpoint_url}")
        self.client("s3").create_bucket(Bucket=self.name)
        self.dynamodb, self.function = self.client("dynamodb"), self.client("lambda")
        environment = {
            "ZAEL_TABLE": self.name,
            "ZAEL_ARCHIVE": f"s3://{self.name}",
            "AWS_ENDPOINT_URL_DYNAMODB": engine.endpoint_url,
            "AWS_ENDPOINT_URL_S3": engine.endpoint_url,
        }
        self.function.create_function(
            FunctionName=self.name,
            Runtime="python3.12",
            Role="arn:aws:iam::000000000000:role/aggregator",
            Handler=HANDLER,
            Code={"ZipFile": package},
            Timeout=60,
            Environment={"Variables": environment},
        )

    def client(self, service: str) -> Any:
        made = self._session.create_client(service, **self._settings)
        self._clients.append(made)
        return made

    def listen(self) -> None:
        """Put the function behind the stream."""
        stream = self.dynamodb.describe_table(TableName=self.name)["Table"]["LatestStreamArn"]
        mapping = self.function.create_event_source_mapping(
            FunctionName=self.name,
            EventSourceArn=stream,
            StartingPosition="TRIM_HORIZON",
            BatchSize=100,
            FunctionResponseTypes=["ReportBatchItemFailures"],
        )
        self._mapping: str | None = mapping["UUID"]

    _mapping: str | None = None

    def invoke(self, records: list[Any]) -> Any:
        answer = self.function.invoke(FunctionName=self.name, Payload=json.dumps({"Records": records}))
        assert "FunctionError" not in answer, answer["Payload"].read()
        return json.loads(answer["Payload"].read())

    def log(self) -> list[dict[str, Any]]:
        """What the function has logged, as far as it is JSON."""
        logs, group = self.client("logs"), f"/aws/lambda/{self.name}"
        lines = [
            event["message"]
            for stream in logs.describe_log_streams(logGroupName=group)["logStreams"]
            for event in logs.get_log_events(logGroupName=group, logStreamName=stream["logStreamName"])["events"]
        ]
        return [json.loads(line) for line in lines if line.startswith("{")]

    def remove(self) -> None:
        if self._mapping is not None:
            self.function.delete_event_source_mapping(UUID=self._mapping)
        self.function.delete_function(FunctionName=self.name)
        for client in self._clients:
            client.close()
        self.limiter.repository.delete_table()
        self.limiter.close()


@pytest.fixture(scope="module")
def package() -> bytes:
    return build_lambda_package()


@pytest.fixture
def deployed(ministack: Engine, package: bytes) -> Iterator[Deployed]:
    found = Deployed(ministack, package)
    yield found
    found.remove()


def soon(is_so: Callable[[], bool]) -> bool:
    """Whether it becomes so, within a while."""
    give_up_at = time.monotonic() + SECONDS
    while not is_so():
        if time.monotonic() > give_up_at:
            return False
        time.sleep(0.1)
    return True


def test_it_counts_what_is_taken_while_it_runs(deployed: Deployed) -> None:
    limiter = deployed.limiter
    taken = {"key-0": 0, "key-1": 0}

    def take(times: int) -> None:
        for number in range(times):
            entity_id = f"key-{number % 2}"
            with limiter.acquire(entity_id, "gpt", {"rpd": 1}) as lease:
                lease.adjust(tpd=number)
            taken[entity_id] += number

    def all_counted() -> bool:
        return all(limiter.get_usage_summary(name).total.get("tpd", 0) == tokens for name, tokens in taken.items())

    take(20)
    deployed.listen()
    assert soon(all_counted)
    take(20)
    assert soon(all_counted)
    for entity_id in taken:
        proof = limiter.verify_usage(entity_id)
        assert proof.holds
        assert {chain.limit_name: (chain.counted, chain.behind) for chain in proof.chains} == {
            None: (20, 0),
            "rpd": (20, 0),
            "tpd": (taken[entity_id], 0),
        }
    assert soon(lambda: sum(line.get("Records", 0) for line in deployed.log()) >= 40)
    told = deployed.log()
    assert {line["level"] for line in told} == {"INFO"}
    assert {line["Table"] for line in told} == {deployed.name}
    assert {line["PoisonousRecords"] + line["UnwrittenRecords"] for line in told} == {0}
    assert all(line["_aws"]["CloudWatchMetrics"][0]["Namespace"] == "zae-limiter" for line in told)
    assert any(0 <= pressure < 80 for line in told for pressure in line.get("ShardPressure", ()))


def test_it_archives_what_expires_and_puts_aside_what_makes_no_sense(deployed: Deployed) -> None:
    """Its records are made by hand: no engine tells its stream of an item that expired."""
    limiter = deployed.limiter
    for number in range(3):
        limiter.create_entity(f"key-{number}")
    before = list(limiter.get_audit_events().items)
    found = deployed.dynamodb.scan(TableName=deployed.name)["Items"]
    items = [item for item in found if item["SK"]["S"].startswith("#AUDIT#")]
    records = [expired(item, number) for number, item in enumerate(items, 100)]
    broken = expired({**items[0], "details": {"S": "{"}}, 999)
    for _ in range(2):
        assert deployed.invoke([*records, broken]) == {"batchItemFailures": []}
    (kept,) = deployed.archive.inside("aws/lambda/poisonous/")
    (line,) = map(json.loads, deployed.archive.read(kept).splitlines())
    assert (line["sequence"], line["record"]) == ("999", broken)
    namespace_id = limiter.repository.get_namespace("default").id
    archived = list(read_events(deployed.archive, EventFilter(namespace_id)))
    assert [event for event in archived if event in before] == before
    assert [line["ArchivedEvents"] for line in deployed.log() if "ArchivedEvents" in line] == [len(records)] * 2
