"""A fleet in the simulator, with everything that goes wrong there, and an aggregator beside it: what it counts is what
every life of every bucket ended with."""

from __future__ import annotations

import random
from typing import Any

import pytest
from usage_model import records_of

from simulation.clients import TABLE
from simulation.profiles import PROFILES
from simulation.schedule import Schedule
from zae_limiter.stores.dynamodb.operations.usage import LiveBucket, chains_from
from zae_limiter.stores.dynamodb.table_client import TableClient
from zae_limiter.stores.dynamodb.usage_items import Life, span_of, used_by_hour
from zae_limiter.stores.dynamodb.write_ids import WriteIds
from zae_limiter_aggregator.processor import Processor
from zae_limiter_aggregator.stream_records import parse_record

SEED = 30_000
SCHEDULES = 4
EVERY_MS = 100


def without_judgement(*words: Any) -> None:
    pass


class AggregatedSchedule:
    """One run, whose stream is read meanwhile: some of it, in pieces, again and again.

    Whether what was written is right is judged elsewhere; here it only has to be counted.
    """

    def __init__(self, profile: str, seed: int) -> None:
        self.schedule = Schedule(PROFILES[profile], seed)
        self.fleet = self.schedule.fleet
        self.batches = 0
        self._read = 0
        self._records: list[dict[str, Any]] = []
        self._chance = random.Random(seed)
        self._processor = Processor(TableClient(TABLE, deadline_ms=2_000, write_ids=WriteIds("0ffffffe")))
        self.fleet.model.tables[TABLE].streaming = True
        self.fleet.oracle.changed = without_judgement  # type: ignore[method-assign]
        self.schedule._every(EVERY_MS, self._aggregate)

    def run(self) -> None:
        self.fleet.run()
        records = self.records()
        self._chance.shuffle(records)
        while records:
            size = self._chance.randint(1, 40)
            batch, records = records[:size], records[size:]
            self._count(batch)

    def records(self) -> list[dict[str, Any]]:
        """What the stream has by now of buckets."""
        new = self.fleet.model.changes(TABLE)[self._read :]
        self._read += len(new)
        self._records += records_of(change for change in new if change.key[1] == "#STATE")
        return list(self._records)

    def _aggregate(self) -> None:
        before = len(self._records)
        records = self.records()
        if len(records) > before:
            start = self._chance.randrange(len(records))
            self._count(records[start : start + self._chance.randint(1, 30)])

    def _count(self, batch: list[dict[str, Any]]) -> None:
        assert self.fleet.at_once(self._processor.process(batch)).failures == ()
        self.batches += 1

    def ends(self) -> dict[Life, LiveBucket]:
        """What every life of every bucket had counted at its end."""
        found: dict[Life, LiveBucket] = {}
        for record in self.records():
            parsed = parse_record(record)
            if parsed is not None:
                found[parsed.life] = LiveBucket(parsed.after, parsed.mark)
        return found


@pytest.mark.parametrize(
    "profile", ["contention", "cascade", "losses", "families", "crashes", "expiry", "skew", "everything"]
)
def test_what_is_counted_is_what_every_life_ended_with(profile: str) -> None:
    lives = batches = 0
    for seed in range(SEED, SEED + SCHEDULES):
        told = AggregatedSchedule(profile, seed)
        told.run()
        ends = told.ends()
        spans = [span_of(item) for place, item in told.fleet.items.items() if place[1].startswith("#USAGE#")]
        chains = chains_from(spans, ends, told.fleet.now)
        assert {chain.gaps for chain in chains} == {()}, seed
        assert {chain.behind for chain in chains} == {0}, seed
        taken = sum(bucket.counters.events for bucket in ends.values())
        assert sum(hour.used.events for hour in used_by_hour(spans)) == taken, seed
        for life, bucket in ends.items():
            used = used_by_hour(span for span in spans if span.life == life)
            for name, milli in bucket.counters.milli.items():
                assert sum(hour.used.milli.get(name, 0) for hour in used) == milli, (seed, life, name)
            for name, milli in bucket.counters.cascaded.items():
                assert sum(hour.used.cascaded.get(name, 0) for hour in used) == milli, (seed, life, name)
            for name, number in bucket.counters.denials.items():
                assert sum(hour.used.denials.get(name, 0) for hour in used) == number, (seed, life, name)
        lives, batches = lives + len(ends), batches + told.batches
    assert lives >= SCHEDULES
    assert batches > SCHEDULES
