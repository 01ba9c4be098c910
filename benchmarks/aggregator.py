"""What counting usage costs: records per second and core, and snapshot writes per thousand acquires.

    .venv/bin/python benchmarks/aggregator.py [--quick]

Acquires are made on dynoxide, each by one of 1, 100 or 10,000 entities at random, and what its stream says of them is
counted in batches of 100 (what Lambda brings by default) and of 1,000 (what a page of the stream has at most). The
engine is another process, and what is measured is the CPU time of this one: how many records one core counts in a
second. Then every batch is counted again, in several rounds, against the answers that were given, to see what deciding
alone costs, without a network.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from measuring import Spread, spread_of
from presenting import OUT, circumstances

from zae_limiter import Limit, RateLimiter, Repository
from zae_limiter.running.clocks import machine_clock
from zae_limiter.running.plan import Request
from zae_limiter.running.sync_driver import SyncDriver
from zae_limiter.stores.dynamodb.requests import Call, MachineTime, ReadMachineTime, Refused, Together
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.dynamodb.transport.protocol import Credentials, Target, transports_for
from zae_limiter_aggregator.processor import Processor

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from engines.servers import Engine, dynoxide_engine

REGION = "us-east-1"
KEYS = Credentials("AKIDBENCHMARK", "not-a-secret-at-all-but-long-enough-to-be-one")
LIMITS = [Limit.per_minute("rpm", 10**9), Limit.per_minute("tpm", 10**12)]
AMOUNTS = {"rpm": 1, "tpm": 500}
ENTITIES = (1, 100, 10_000)
BATCHES = (100, 1_000)
AT_ONCE = 32
SECONDS = 60.0

Record = Mapping[str, Any]
Answers = dict[tuple[str, str], list[Any]]


class Counted(NamedTuple):
    """How it went for some entities and a size of batches."""

    entities: int
    batch: int
    records: int
    acquires: int
    writes: int
    per_second: float
    deciding_per_second: Spread

    @property
    def writes_per_thousand(self) -> float:
        """Snapshot writes per thousand acquires."""
        return self.writes * 1_000 / self.acquires

    def as_dict(self) -> dict[str, Any]:
        """A row for programs."""
        return {
            "entities": self.entities,
            "batch": self.batch,
            "records": self.records,
            "acquires": self.acquires,
            "snapshot_writes": self.writes,
            "snapshot_writes_per_thousand_acquires": round(self.writes_per_thousand, 2),
            "records_per_second_and_core": round(self.per_second),
            "records_per_second_and_core_deciding_alone": self.deciding_per_second._asdict(),
        }


# The stream


async def take(opened: DynamoStore, entities: int, acquires: int) -> None:
    """So many acquires over so many entities, some at once."""
    limiter = RateLimiter(Repository(opened))
    await limiter.set_system_defaults(LIMITS)
    chance = random.Random(entities)
    ahead = iter([f"key-{chance.randrange(entities)}" for _ in range(acquires)])

    async def work() -> None:
        for entity_id in ahead:
            async with limiter.acquire(entity_id, "gpt-4", AMOUNTS):
                pass

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    await opened.aclose()


def records_in(call: Callable[..., Any], table: str) -> list[Record]:
    """What the stream says of buckets."""
    stream = call("DescribeTable", {"TableName": table}, SECONDS)["Table"]["LatestStreamArn"]
    found: list[Record] = []
    for shard in call("DescribeStream", {"StreamArn": stream}, SECONDS)["StreamDescription"]["Shards"]:
        where = {"StreamArn": stream, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
        iterator = call("GetShardIterator", where, SECONDS).get("ShardIterator")
        while iterator is not None:
            page = call("GetRecords", {"ShardIterator": iterator}, SECONDS)
            found += [record for record in page["Records"] if "/BUCKET#" in record["dynamodb"]["Keys"]["PK"]["S"]]
            iterator = page.get("NextShardIterator") if page["Records"] else None
    return found


def cut(records: Sequence[Record], size: int) -> Iterator[Sequence[Record]]:
    return (records[start : start + size] for start in range(0, len(records), size))


# Counting


def place_of(params: Mapping[str, Any]) -> tuple[str, str]:
    """Which item a call is about."""
    key = params["Key"]
    return key["PK"]["S"], key["SK"]["S"]


class Recorder:
    """Carries calls to a table, and notes what was answered, item by item: several are asked for at once."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.answers: Answers = {}

    def call(self, operation: str, params: Mapping[str, Any], seconds: float) -> Any:
        try:
            answer = self._transport.call(operation, params, seconds)
        except Refused as refusal:
            self.answers.setdefault(place_of(params), []).append(refusal)
            raise
        self.answers.setdefault(place_of(params), []).append(answer)
        return answer

    def close(self) -> None:
        self._transport.close()


def count_on(target: Target, table: str, batches: Sequence[Sequence[Record]]) -> tuple[float, int, list[Answers]]:
    """CPU seconds, snapshot writes, and what was answered in each batch."""
    recorder = Recorder(transports_for(target).sync())
    opened = DynamoStore(table, target, deadline=SECONDS, transport=recorder)
    driver = SyncDriver(machine_clock, opened.perform)
    answers = []
    cpu = 0.0
    for batch in batches:
        recorder.answers = {}
        began = time.process_time()
        processed = driver.run(Processor(opened.client).process(batch))
        cpu += time.process_time() - began
        assert processed.failures == ()
        answers.append(recorder.answers)
    opened.close()
    writes = sum(len(said) for each in answers for said in each.values())
    return cpu, writes, answers


def decide_on(asking: Any, batches: Sequence[Sequence[Record]], answers: Sequence[Answers]) -> float:
    """CPU seconds of counting the same when every answer is there at once."""
    cpu = 0.0
    for batch, ready in zip(batches, answers, strict=True):
        perform = Answering(ready).perform
        began = time.process_time()
        SyncDriver(machine_clock, perform).run(Processor(asking).process(batch))
        cpu += time.process_time() - began
    return cpu


class Answering:
    """Says what was said before."""

    def __init__(self, answers: Answers) -> None:
        self._answers = {place: iter(said) for place, said in answers.items()}

    def perform(self, request: Request[Any], /) -> Any:
        if isinstance(request, ReadMachineTime):
            return MachineTime(0, 1_800_000_000)
        if isinstance(request, Together):
            return [self._answer(call) for call in request.calls]
        assert isinstance(request, Call), request
        answer = self._answer(request)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _answer(self, call: Call) -> Any:
        return next(self._answers[place_of(call.params)])


def measure(engine: Engine, acquires: int, rounds: int, tell: Callable[[str], None]) -> list[Counted]:
    """All sizes."""
    rows = []
    target = Target(REGION, engine.endpoint_url, KEYS)
    for entities in ENTITIES:
        tell(f"{acquires:,} acquires over {entities:,} entities")
        table = f"aggregator-benchmark-{entities}"
        opened = DynamoStore(table, target, deadline=SECONDS)
        driver = SyncDriver(machine_clock, opened.perform)
        driver.run(opened.create(0))
        asyncio.run(take(DynamoStore(table, target, deadline=SECONDS), entities, acquires))
        transport = transports_for(target).sync()
        records = records_in(transport.call, table)
        for size in BATCHES:
            batches = list(cut(records, size))
            tell(f"{entities:,} entities, batches of {size:,}")
            forget_snapshots(transport, table)
            cpu, writes, answers = count_on(target, table, batches)
            alone = [len(records) / decide_on(opened.client, batches, answers) for _ in range(rounds)]
            rows.append(Counted(entities, size, len(records), acquires, writes, len(records) / cpu, spread_of(alone)))
        driver.run(opened.destroy())
        transport.close()
        opened.close()
    return rows


def forget_snapshots(transport: Any, table: str) -> None:
    """Remove what was counted, so that the next round begins anew."""
    start: Any = None
    while True:
        params = {
            "TableName": table,
            "ProjectionExpression": "PK, SK",
            **({"ExclusiveStartKey": start} if start else {}),
        }
        page = transport.call("Scan", params, SECONDS)
        keys = [item for item in page["Items"] if item["SK"]["S"].startswith("#USAGE#")]
        for begin in range(0, len(keys), 25):
            requests = [{"DeleteRequest": {"Key": key}} for key in keys[begin : begin + 25]]
            transport.call("BatchWriteItem", {"RequestItems": {table: requests}}, SECONDS)
        start = page.get("LastEvaluatedKey")
        if start is None:
            return


# Showing


COLUMNS = (
    "entities",
    "in a batch",
    "records per 1,000 acquires",
    "snapshot writes per 1,000 acquires",
    "records per second and core",
    "deciding alone (middle half)",
)


def cells(row: Counted) -> tuple[str, ...]:
    alone = row.deciding_per_second
    return (
        f"{row.entities:,}",
        f"{row.batch:,}",
        f"{row.records * 1_000 / row.acquires:,.1f}",
        f"{row.writes_per_thousand:,.1f}",
        f"{row.per_second:,.0f}",
        f"{alone.median:,.0f} ({alone.low:,.0f} to {alone.high:,.0f})",
    )


def show(rows: Sequence[Counted], about: Mapping[str, Any]) -> None:
    lines = [COLUMNS, *map(cells, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    for line in lines:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))
    print(
        f"CPU of the counting process, dynoxide beside it. {about['python']}, {about['processor']}, "
        f"{about['cores']} cores, load {about['load'][0]}. Commit {about['commit']}."
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--quick", action="store_true", help="fewer acquires, fewer rounds")
    quick = arguments.parse_args().quick
    shows = sys.stderr.isatty()

    def tell(text: str) -> None:
        if shows:
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    with dynoxide_engine() as engine:
        rows = measure(engine, 1_000 if quick else 4_000, 3 if quick else 7, tell)
    tell("")
    about = circumstances(["zae-limiter"])
    show(rows, about)
    OUT.mkdir(exist_ok=True)
    path = OUT / "aggregator.json"
    report = {**about, "rows": [row.as_dict() for row in rows]}
    path.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    print(f"written: {path}")


if __name__ == "__main__":
    main()
