"""Processes take, aggregators are killed at any moment, records come again in any order and in other batches, buckets
are split; and in the end usage is proven to be what was taken."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from engines.servers import Engine
from engines.streams import records_in_stream
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.running.clocks import machine_clock
from zae_limiter.running.plan import Plan
from zae_limiter.running.sync_driver import SyncDriver
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.dynamodb.transport.protocol import Target
from zae_limiter_aggregator.proactive_split import ProactiveSplit
from zae_limiter_aggregator.processor import Processor
from zae_limiter_aggregator.stream_records import parse_record

COMMAND = str(Path(sys.executable).parent / "zae-limiter")
SECONDS = 60.0
WRITERS, GRANTS = 4, 100
KILLED = 3
TABLES = count()

WRITER = """
import sys
from zae_limiter import SyncRateLimiter
url, number, grants = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with SyncRateLimiter.open(url, deadline=20.0) as limiter:
    for step in range(grants):
        if step == grants // 2:
            sys.stdin.readline()
        try:
            with limiter.acquire(f"key-{step % 2}", "gpt", {"rpd": 1}) as lease:
                lease.adjust(tpd=number + step)
                if step % 10 == 9:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            pass
"""


class Place:
    """A table on an engine."""

    def __init__(self, engine: Engine) -> None:
        self.table = f"hostile-{os.getpid()}-{next(TABLES)}"
        self.url = f"dynamodb://{self.table}?region={engine.region}&endpoint_url={engine.endpoint_url}"
        self.store = DynamoStore(self.table, Target(engine.region, engine.endpoint_url), deadline=SECONDS)
        self.limiter = SyncRateLimiter(SyncRepository.open(self.url, create=True, deadline=SECONDS))
        self.limiter.set_system_defaults([Limit.per_day("rpd", 100_000), Limit.per_day("tpd", 1_000_000)])

    def close(self) -> None:
        self.store.close()
        self.limiter.repository.delete_table()
        self.limiter.close()

    def call(self, operation: str, **params: Any) -> Any:
        return self.store._calls.transport().call(operation, params, SECONDS)

    def records(self) -> list[Any]:
        """Everything the stream has by now."""
        return records_in_stream(self.call, self.table)

    def counted_by_buckets(self) -> Counter[str]:
        """What all buckets together say was taken, read as they are."""
        counted = Counter[str]()
        for item in self.call("Scan", TableName=self.table, ConsistentRead=True)["Items"]:
            if item["SK"]["S"] == "#STATE":
                counted["events"] += int(item["ev"]["N"])
                for name in ("rpd", "tpd"):
                    counted[name] += int(item[f"b_{name}_tc"]["N"]) // 1_000
        return counted


class Redelivery:
    """Brings records again and again: some of them, shuffled, in batches of any size, while others count. In between
    it splits one of the buckets, as if it were hot."""

    def __init__(self, place: Place, seed: int) -> None:
        self.batches = 0
        self.splits = 0
        self.failures: list[Any] = []
        self._place = place
        self._chance = random.Random(seed)
        self._over = threading.Event()
        self._was_split = threading.Event()
        self._thread = threading.Thread(target=self._go_on)
        self._thread.start()

    def until_split(self) -> None:
        """Wait until the bucket was split."""
        assert self._was_split.wait(SECONDS)

    def end(self) -> None:
        self._over.set()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()

    def _go_on(self) -> None:
        driver = SyncDriver(machine_clock, self._place.store.perform)
        while not self._over.wait(0.1):
            records = self._place.records()
            again = self._chance.sample(records, len(records) // 3)
            while again:
                size = self._chance.randint(1, 60)
                batch, again = again[:size], again[size:]
                self.failures += driver.run(Processor(self._place.store.client).process(batch)).failures
                self.batches += 1
            if records:
                self.splits += driver.run(self._split(records))
            if self.splits:
                self._was_split.set()

    def _split(self, records: list[Any]) -> Plan[bool]:
        """Split key-0 for the pressure that its last record would have told of."""
        parsed = [found for record in records if (found := parse_record(record)) is not None]
        loads = [found.load for found in parsed if found.load is not None and found.life.entity_id == "key-0"]
        if not loads:
            return False
        return (yield from ProactiveSplit(self._place.store.client)(loads[-1]._replace(left=0)))


@pytest.fixture
def place(dynoxide: Engine) -> Iterator[Place]:
    found = Place(dynoxide)
    yield found
    found.close()


def aggregator(url: str, *options: str) -> subprocess.Popen[str]:
    words = [COMMAND, "aggregate", "--url", url, "--json", *options]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def release(writer: subprocess.Popen[str]) -> None:
    """Let it take the second half."""
    assert writer.stdin is not None
    writer.stdin.write("go on\n")
    writer.stdin.close()


def test_usage_is_proven_after_a_hostile_run(place: Place) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, place.url, str(number), str(GRANTS)], stdin=subprocess.PIPE, text=True
        )
        for number in range(WRITERS)
    ]
    steady = aggregator(place.url, "--interval", "0.05")
    redelivery = Redelivery(place, seed=8)
    killed_at_work = 0
    try:
        redelivery.until_split()
        for writer in writers:
            release(writer)
        for _ in range(KILLED):
            victim = aggregator(place.url, "--interval", "0.05")
            time.sleep(0.9)
            victim.kill()
            killed_at_work += victim.communicate(timeout=SECONDS)[0].count("records")
        assert [writer.wait(SECONDS) for writer in writers] == [0] * WRITERS
    finally:
        redelivery.end()
        for process in (*writers, steady):
            process.kill()
            process.wait(SECONDS)
            if process.stdin is not None:
                process.stdin.close()
        killed_at_work += steady.communicate(timeout=SECONDS)[0].count("records")
    assert killed_at_work
    assert redelivery.batches
    assert redelivery.failures == []
    assert redelivery.splits
    last = aggregator(place.url, "--once")
    out, _ = last.communicate(timeout=SECONDS)
    assert last.returncode == 0
    assert (json.loads(out)["poisonous"], json.loads(out)["trimmed"]) == (0, 0)

    proven = Counter[str]()
    for entity_id in ("key-0", "key-1"):
        proof = place.limiter.verify_usage(entity_id)
        assert proof.holds
        assert {chain.behind for chain in proof.chains} == {0}
        shards = {chain.shard for chain in proof.chains if chain.counted}
        assert len(shards) == 1 if entity_id == "key-1" else len(shards) > 1
        found = Counter[str]()
        for chain in proof.chains:
            found[chain.limit_name or "events"] += chain.counted
        usage = place.limiter.get_usage_summary(entity_id)
        assert {"events": usage.total_events, **usage.total} == found
        proven += found
    assert proven == place.counted_by_buckets()
    kept = [step for step in range(GRANTS) if step % 10 != 9]
    assert proven["events"] == WRITERS * GRANTS
    assert proven["rpd"] == WRITERS * len(kept)
    assert proven["tpd"] == sum(number + step for number in range(WRITERS) for step in kept)
