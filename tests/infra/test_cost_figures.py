"""What things cost is measured: calls counted, capacity as dynoxide tells it, and compared with the calculator."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.servers import Engine
from support.dynamodb.counting_transport import Cost, Counting
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter.infra import costs
from zae_limiter.infra.costs import Load, Prices, Units, monthly_bill, per_acquire, snapshots_per_second
from zae_limiter.infra.template import template_text
from zae_limiter.running.clocks import machine_clock
from zae_limiter.running.sync_driver import SyncDriver
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.dynamodb.transport.botocore_fallback import BotocoreTransport
from zae_limiter.stores.dynamodb.transport.protocol import Target
from zae_limiter.testing import FakeClock
from zae_limiter_aggregator.aggregation import Aggregation
from zae_limiter_aggregator.lambda_output import METRICS

ENTITY, OTHER = "0f8fad5b-d9cb-469f-a165-70867728950e", "7c9e6679-7425-40de-944b-e07fc1f90ae7"
RESOURCE = "gpt-4.1-mini-2025-04"
WRITES = {"PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems"}
TABLES = count()


class Meter:
    """A limiter on a table of its own, and what it consumes."""

    def __init__(self, engine: Engine) -> None:
        target = Target("us-east-1", engine.endpoint_url)
        self.clock = FakeClock()
        self.calls = Counting(BotocoreTransport(target))
        self.store = DynamoStore(f"bill-{os.getpid()}-{next(TABLES)}", target, transport=self.calls, deadline=20)
        self.repository = SyncRepository(self.store, clock=self.clock)
        self.limiter = SyncRateLimiter(self.repository)
        self.driver = SyncDriver(machine_clock, self.store.perform)
        self.driver.run(self.store.create(self.clock()))
        self.limiter.set_system_defaults([Limit.per_minute("rpm", 100), Limit.per_minute("tpm", 10_000)])

    def take(self, entity: str, *, settle: int = 0, **amounts: int) -> None:
        with self.limiter.acquire(entity, RESOURCE, amounts) as lease:
            if settle:
                lease.adjust(tpm=settle)

    def denied(self, entity: str, **amounts: int) -> None:
        with pytest.raises(RateLimitExceeded):
            self.take(entity, **amounts)

    def spent(self) -> Units:
        """Since it was asked last. A write whose condition failed is charged, though no engine says so."""
        made = list(self.calls.costs)
        self.calls.reset()
        return Units(
            writes=sum(map(units_of, (cost for cost in made if cost.operation in WRITES))),
            reads=sum(map(units_of, (cost for cost in made if cost.operation not in WRITES))),
        )


def units_of(cost: Cost) -> float:
    failed = cost.operation == "UpdateItem" and not cost.table
    return 1 if failed else cost.table + cost.indexes


@pytest.fixture
def meter(dynoxide: Engine) -> Iterator[Meter]:
    world = Meter(dynoxide)
    world.calls.reset()
    yield world
    world.driver.run(world.store.destroy())
    world.repository.close()


def test_one_bucket(meter: Meter) -> None:
    meter.take(ENTITY, rpm=1, tpm=100)
    assert meter.spent() == costs.NEW_BUCKET
    meter.clock.advance(1)
    meter.take(ENTITY, rpm=1, tpm=100)
    assert meter.spent() == costs.GRANT == per_acquire()
    meter.take(ENTITY, rpm=1, tpm=100, settle=20)
    assert meter.spent() == per_acquire(settled=True)
    meter.denied(ENTITY, rpm=99)
    assert meter.spent() == costs.DENIAL == per_acquire(denied=True)
    meter.denied(ENTITY, rpm=99)
    assert meter.spent() == Units()


def test_two_legs(meter: Meter) -> None:
    meter.limiter.create_entity("acme")
    meter.limiter.create_entity(ENTITY, parent_id="acme", cascade=True)
    meter.limiter.set_limits("acme", [Limit.per_minute("rpm", 3), Limit.per_minute("tpm", 10_000)])
    meter.take(ENTITY, rpm=1, tpm=1)
    meter.spent()
    meter.take(ENTITY, rpm=1, tpm=1)
    assert meter.spent() == per_acquire(legs=2)
    meter.take(ENTITY, rpm=1, tpm=1, settle=5)
    assert meter.spent() == per_acquire(legs=2, settled=True)
    meter.denied(ENTITY, rpm=1)
    assert meter.spent() == costs.DENIAL_ABOVE == per_acquire(legs=2, denied=True)


def test_limits_read_anew(meter: Meter) -> None:
    meter.take(ENTITY, rpm=1)
    meter.spent()
    meter.repository.invalidate_config_cache()
    meter.take(ENTITY, rpm=1)
    assert meter.spent() == Units(costs.GRANT.writes, costs.LIMITS.reads)


def test_snapshots(meter: Meter) -> None:
    aggregation = Aggregation(meter.store.client)
    meter.driver.run(aggregation.begin())
    for entity in (ENTITY, OTHER):
        meter.take(entity, rpm=1, tpm=10)
    meter.spent()
    meter.driver.run(aggregation.count_available())
    assert meter.spent().writes == 2 * costs.FIRST_SNAPSHOT.writes
    for _ in range(5):
        meter.take(ENTITY, rpm=1, tpm=10)
    meter.spent()
    meter.driver.run(aggregation.count_available())
    assert meter.spent().writes == costs.SNAPSHOT.writes


def test_the_template_has_as_many_alarms_as_are_charged() -> None:
    assert template_text().count("Type: AWS::CloudWatch::Alarm") == costs.ALARMS
    assert template_text().count("Namespace: AWS/DynamoDB") == costs.TABLE_ALARMS


@pytest.mark.parametrize(("aggregator", "charged"), [(True, costs.ALARMS), (False, costs.TABLE_ALARMS)])
def test_the_alarms_of_the_table_are_there_without_the_function(aggregator: bool, charged: int) -> None:
    (alarms,) = [item for item in monthly_bill(Load(1, aggregator=aggregator)).items if item.what == "alarms"]
    assert alarms.amount == charged
    assert not [item for item in monthly_bill(Load(1, alarms=False)).items if item.what == "alarms"]


def test_every_metric_of_the_function_is_charged() -> None:
    """Those that the line of a busy batch has: ``tests/aggregator/test_handler.py`` finds all of them in it."""
    (charged,) = [item for item in monthly_bill(Load(1)).items if item.what == "function metrics"]
    assert charged.amount == len(METRICS)
    assert charged.dollars == pytest.approx(len(METRICS) * Prices().custom_metric)


# The bill


def test_a_bill_adds_up() -> None:
    bill = monthly_bill(Load(1, settled=0.0, buckets=1, aggregator=False, backups=False))
    grants = bill.items[0]
    assert (grants.what, grants.amount, grants.unit) == ("grants", 730 * 3_600, "writes")
    assert bill.dollars == pytest.approx(sum(item.dollars for item in bill.items))
    assert monthly_bill(Load(0)).items[0].dollars == 0


def test_prices_can_be_replaced() -> None:
    load = Load(10)
    dear = Prices()._replace(million_writes=1.25)
    writes = sum(item.dollars for item in monthly_bill(load).items if item.unit == "writes")
    assert monthly_bill(load, dear).dollars - monthly_bill(load).dollars == pytest.approx(writes)


@given(
    writes=st.floats(0.001, 10_000),
    buckets=st.integers(1, 100_000),
    window=st.floats(0, 300),
    longer=st.floats(0, 300),
)
def test_snapshots_are_no_more_than_writes_and_fewer_in_longer_windows(
    writes: float, buckets: int, window: float, longer: float
) -> None:
    often = snapshots_per_second(writes, buckets, window)
    assert 0 < often <= writes * (1 + 1e-9)
    assert snapshots_per_second(writes, buckets, window + longer) <= often * (1 + 1e-9)
