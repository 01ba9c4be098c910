"""Acquires on an engine, its own stream records through the processor, and usage that equals what was taken."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import pytest
from usage_model import limiter_on, read_all

from engines.servers import Engine
from engines.streams import records_in_stream
from zae_limiter.exceptions import RateLimitExceeded
from zae_limiter.limiter.sync_limiter import SyncRateLimiter
from zae_limiter.models.limit import Limit
from zae_limiter.running.clocks import machine_clock
from zae_limiter.running.sync_driver import SyncDriver
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.dynamodb.transport.protocol import Target
from zae_limiter.testing.clock import FakeClock
from zae_limiter_aggregator.follower import Follower, Position
from zae_limiter_aggregator.processor import Processor

RPM, TPM = Limit.per_minute("rpm", 1_000), Limit.per_minute("tpm", 100_000)
HOUR = 3_600
TABLES = count()
SECONDS = 20.0


class Deployment:
    """One table on an engine, its stream, and what was taken, by entity, resource and hour."""

    def __init__(self, engine: Engine) -> None:
        self._target = Target(engine.region, engine.endpoint_url)
        self._table = f"usage-{os.getpid()}-{next(TABLES)}"
        self.clock = FakeClock()
        self.store = self.open()
        self.driver = SyncDriver(machine_clock, self.store.perform)
        self.limiter = limiter_on(self.store, self.clock, create=True)
        self.limiter.set_system_defaults([RPM, TPM])
        self.taken: dict[tuple[str, str, int], Counter[str]] = {}

    def open(self) -> DynamoStore:
        return DynamoStore(self._table, self._target, deadline=SECONDS)

    def remove(self) -> None:
        self.driver.run(self.store.destroy())
        self.store.close()

    def take(self, entity_id: str, resource: str, rpm: int, tpm: int) -> None:
        with self.limiter.acquire(entity_id, resource, {"rpm": rpm}) as lease:
            lease.adjust(tpm=tpm)
        self.note(entity_id, resource, rpm, tpm)

    def note(self, entity_id: str, resource: str, rpm: int, tpm: int) -> None:
        hour = (self.clock() - self.clock.start) // (HOUR * 1_000)
        tally = self.taken.setdefault((entity_id, resource, hour), Counter())
        tally.update(events=1, rpm=rpm, tpm=tpm)

    def records(self) -> list[dict[str, Any]]:
        """Everything the stream has, as the engine says it."""
        return records_in_stream(self.call, self._table)

    def call(self, operation: str, **params: Any) -> Any:
        return self.store._calls.transport().call(operation, params, SECONDS)

    def process(self, batches: Sequence[Sequence[dict[str, Any]]]) -> None:
        for batch in batches:
            assert self.driver.run(Processor(self.store.client).process(batch)).failures == ()

    def usage(self, **query: Any) -> dict[tuple[str, str, int], Counter[str]]:
        windows, _ = read_all(self.limiter, page_size=3, window_type="hourly", **query)
        return {
            (window.entity_id, window.resource, self.hour_of(window)): Counter(
                events=window.total_events, **window.counters
            )
            for window in windows
        }

    def hour_of(self, window: Any) -> int:
        return (round(window.window_start.timestamp()) - self.clock.start // 1_000) // HOUR

    def check(self) -> None:
        """What is read equals what was taken: by entity, by resource, by both."""
        for place in ("a", "b", "parent"):
            assert self.usage(entity_id=place) == self.expected(0, place)
        for place in ("gpt", "claude"):
            assert self.usage(resource=place) == self.expected(1, place)
            assert self.usage(entity_id="a", resource=place) == {
                key: tally for key, tally in self.expected(1, place).items() if key[0] == "a"
            }

    def expected(self, part: int, name: str) -> dict[tuple[str, str, int], Counter[str]]:
        return {key: tally for key, tally in self.taken.items() if key[part] == name}


@pytest.fixture
def deployment(engine: Engine) -> Iterator[Deployment]:
    deployment = Deployment(engine)
    yield deployment
    deployment.remove()


def live(deployment: Deployment) -> None:
    """Three hours of many things: taken, corrected, given back, refused, cascaded, reconfigured, begun anew."""
    limiter = deployment.limiter
    limiter.create_entity("parent")
    for hour in range(3):
        for number in range(3):
            deployment.take("a", "gpt", 1 + hour, 10 + number)
            deployment.take("b", "claude", 2, number)
            deployment.clock.advance(5)
        with pytest.raises(ZeroDivisionError), limiter.acquire("a", "claude", {"rpm": 5, "tpm": 50}):
            raise ZeroDivisionError
        deployment.note("a", "claude", 0, 0)
        with pytest.raises(RateLimitExceeded), limiter.acquire("b", "gpt", {"rpm": 2_000}):
            pass
        if hour == 0:
            limiter.create_entity("child", parent_id="parent", cascade=True)
        for _ in range(2):
            with limiter.acquire("child", "gpt", {"rpm": 3}):
                pass
            for entity_id in ("child", "parent"):
                deployment.note(entity_id, "gpt", 3, 0)
        limiter.set_system_defaults([RPM, TPM] if hour else [RPM, TPM, Limit.per_day("extra", 10)])
        if hour == 1:
            limiter.create_entity("b")
            limiter.delete_entity("b")
        deployment.take("b", "claude", 1, 1)
        deployment.clock.advance(HOUR - 15)


def cut(records: Sequence[dict[str, Any]], size: int) -> list[Sequence[dict[str, Any]]]:
    return [records[start : start + size] for start in range(0, len(records), size)]


def as_delivered(records: list[dict[str, Any]]) -> list[Sequence[dict[str, Any]]]:
    return cut(records, 1_000)


def twice_in_reversed_batches(records: list[dict[str, Any]]) -> list[Sequence[dict[str, Any]]]:
    again = [record for record in records for _ in range(2)]
    return cut(again[::-1], 7) + cut(again, 11)[::-1]


def one_by_one_backwards(records: list[dict[str, Any]]) -> list[Sequence[dict[str, Any]]]:
    return cut(records[::-1], 1)


@pytest.mark.parametrize("deliver", [as_delivered, twice_in_reversed_batches, one_by_one_backwards])
def test_usage_equals_what_was_taken(deployment: Deployment, deliver: Any) -> None:
    live(deployment)
    records = deployment.records()
    deployment.process(deliver(records))
    deployment.check()
    deployment.process(twice_in_reversed_batches(records))
    deployment.check()


def test_the_follower_counts_what_came_since_the_last_time(deployment: Deployment) -> None:
    follower = Follower(deployment.store.client, empty_pages=2)
    stream = deployment.driver.run(follower.stream())
    positions: dict[str, Position] = {}
    for number in range(3):
        deployment.take("a", "gpt", 1, number)
        deployment.take("b", "claude", 2, 0)
        progress = deployment.driver.run(follower.catch_up(stream, positions))
        assert (progress.poisonous, progress.trimmed) == ((), ())
        assert progress.snapshots == 2
        deployment.check()
        deployment.clock.advance(1_200)
    assert deployment.driver.run(follower.catch_up(stream, positions)).records == 0


def test_hours_of_clients_whose_clocks_differ_add_up_to_what_the_bucket_counted(deployment: Deployment) -> None:
    """Threads take at the same time around the full hour, each by a clock of its own."""
    stores = [deployment.open() for _ in range(4)]
    taken = Counter[str]()
    lock = threading.Lock()

    def work(limiter: SyncRateLimiter, clock: FakeClock) -> None:
        for number in range(12):
            with limiter.acquire("a", "gpt", {"rpm": 1}) as lease:
                lease.adjust(tpm=number)
            with lock:
                taken.update(events=1, rpm=1, tpm=number)
            clock.advance(milliseconds=900)

    threads = []
    for place, store in enumerate(stores):
        clock = FakeClock(deployment.clock.start + HOUR * 1_000 - 6_000 + place * 1_500)
        threads.append(threading.Thread(target=work, args=(limiter_on(store, clock), clock)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()
    for store in stores:
        store.close()
    records = deployment.records()
    for deliver in (one_by_one_backwards, twice_in_reversed_batches):
        deployment.process(deliver(records))
        hours = deployment.usage(entity_id="a")
        assert sum(hours.values(), Counter()) == taken
        assert {hour for _, _, hour in hours} <= {0, 1}
        assert deployment.usage(resource="gpt") == hours
