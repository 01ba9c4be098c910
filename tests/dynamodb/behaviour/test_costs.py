"""What an acquire costs: round trips by counting calls, capacity as dynoxide measures it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from engines.servers import Engine
from support.dynamodb.counting_transport import Counting
from support.item_sizes import size_of
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter.running.sync_driver import SyncDriver
from zae_limiter.stores.dynamodb import namespace
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.dynamodb.transport.botocore_fallback import BotocoreTransport
from zae_limiter.stores.dynamodb.transport.protocol import Target
from zae_limiter.testing import FakeClock

RPM = Limit.per_minute("rpm", 100)
TPM = Limit.per_minute("tpm", 10_000)
ENTITY = "0f8fad5b-d9cb-469f-a165-70867728950e"
RESOURCE = "gpt-4.1-mini-2025-04"
TABLES = count()


class Measured:
    """A limiter with a clock in hand and its calls counted."""

    def __init__(self, endpoint_url: str, table: str) -> None:
        target = Target("us-east-1", endpoint_url)
        self.clock = FakeClock()
        self.calls = Counting(BotocoreTransport(target))
        self.repository = SyncRepository(
            DynamoStore(table, target, transport=self.calls, deadline=20), clock=self.clock
        )
        self.limiter = SyncRateLimiter(self.repository)


@pytest.fixture
def table(dynoxide: Engine) -> Iterator[str]:
    name = f"costs-{next(TABLES)}"
    with SyncRepository.open(f"dynamodb://{name}?region=us-east-1&endpoint_url={dynoxide.endpoint_url}", create=True):
        yield name


@pytest.fixture
def measured(dynoxide: Engine, table: str) -> Iterator[Measured]:
    world = Measured(dynoxide.endpoint_url, table)
    world.limiter.set_system_defaults([RPM, TPM])
    yield world
    world.repository.close()


def take(world: Measured, entity: str = ENTITY, **amounts: int) -> None:
    with world.limiter.acquire(entity, RESOURCE, amounts):
        pass


def test_a_grant_on_a_warm_client_is_one_call_and_one_write_unit(measured: Measured) -> None:
    take(measured, rpm=1, tpm=100)
    for _ in range(20):
        measured.calls.reset()
        measured.clock.advance(milliseconds=700)
        take(measured, rpm=1, tpm=100)
        assert measured.calls.operations == {"UpdateItem": 1}
        assert (measured.calls.consumed, measured.calls.of_indexes) == (1.0, 0.0)


OF_OTHER_KINDS = {
    "calendar": Limit.per_month("usd", 500, tz="Europe/Berlin"),
    "in flight": Limit.concurrent("calls", 20),
    "watching": Limit.per_minute("usd", 500, enforce=False),
}


@pytest.mark.parametrize("kind", OF_OTHER_KINDS)
def test_a_limit_of_another_kind_beside_two_even_ones_is_one_call_and_one_write_unit(
    kind: str, measured: Measured, dynoxide: Engine, table: str
) -> None:
    limit = OF_OTHER_KINDS[kind]
    measured.limiter.set_system_defaults([RPM, TPM, limit])
    take(measured, rpm=1, tpm=100, **{limit.name: 1})
    for _ in range(20):
        measured.clock.advance(milliseconds=97_700)  # over due times, and refills
        measured.calls.reset()
        with measured.limiter.acquire(ENTITY, RESOURCE, {"rpm": 1, "tpm": 100, limit.name: 1}):
            assert measured.calls.operations == {"UpdateItem": 1}
            assert measured.calls.consumed == 1.0
        assert measured.calls.operations == {"UpdateItem": 1 + limit.is_held}  # what is held comes back
        assert measured.calls.consumed == 1.0 + limit.is_held
    (item,) = buckets_in(dynoxide, table)
    assert size_of(item) <= 1024


def test_slots_come_back_with_the_settlement(measured: Measured) -> None:
    measured.limiter.set_system_defaults([RPM, TPM, Limit.concurrent("calls", 20)])
    take(measured, rpm=1, calls=1)
    measured.calls.reset()
    with measured.limiter.acquire(ENTITY, RESOURCE, {"tpm": 100, "calls": 1}) as lease:
        lease.settle(tpm=70)
    assert measured.calls.operations == {"UpdateItem": 2}


def test_a_renewal_is_one_write_for_all_calls_of_a_process_in_one_bucket(measured: Measured) -> None:
    measured.limiter.set_system_defaults([RPM, TPM, Limit.concurrent("calls", 20, ttl=60)])
    take(measured, rpm=1, calls=1)
    leases = [measured.limiter.acquire(ENTITY, RESOURCE, {"calls": 1}) for _ in range(5)]
    holds = [hold for lease in leases for hold in lease.__enter__().holds]
    measured.clock.advance(40)
    measured.calls.reset()
    space = measured.repository._core.space
    lost = SyncDriver(measured.clock, measured.repository._core.store.perform).run(
        space.renew(holds, measured.clock())
    )
    assert not lost
    assert measured.calls.operations == {"UpdateItem": 1}
    assert measured.calls.consumed == 1.0


def test_a_total_is_one_more_call_and_one_more_write_unit_for_who_has_one(measured: Measured) -> None:
    measured.limiter.set_limits("acme", [Limit.per_day("usd", 500)], resource="*")
    take(measured, "acme", rpm=1, usd=1)
    take(measured, rpm=1)
    for entity, amounts, calls in (("acme", {"rpm": 1, "usd": 1}, 2), (ENTITY, {"rpm": 1}, 1)):
        measured.calls.reset()
        take(measured, entity, **amounts)
        assert measured.calls.operations == {"UpdateItem": calls}
        assert measured.calls.consumed == calls


def test_the_config_of_a_warm_client_costs_nothing(measured: Measured) -> None:
    take(measured, rpm=1)
    take(measured, "another", rpm=1)
    measured.calls.reset()
    for _ in range(3):
        take(measured, rpm=1)
        take(measured, "another", rpm=1)
    assert measured.calls.operations == {"UpdateItem": 6}
    assert measured.repository.get_cache_stats().hits >= 6


def test_a_cascade_of_two_is_two_calls_and_two_write_units(measured: Measured) -> None:
    measured.limiter.create_entity("org")
    measured.limiter.create_entity(ENTITY, parent_id="org", cascade=True)
    take(measured, rpm=1, tpm=100)
    measured.calls.reset()
    take(measured, rpm=1, tpm=100)
    assert measured.calls.operations == {"UpdateItem": 2}
    assert (measured.calls.consumed, measured.calls.of_indexes) == (2.0, 0.0)


def test_a_denial_costs_a_call_and_its_repetition_none(measured: Measured) -> None:
    take(measured, rpm=100)
    measured.clock.advance(milliseconds=10)
    measured.calls.reset()
    with pytest.raises(RateLimitExceeded):
        take(measured, rpm=50)
    assert sum(measured.calls.operations.values()) == 1
    measured.calls.reset()
    for _ in range(5):
        measured.clock.advance(milliseconds=40)
        with pytest.raises(RateLimitExceeded) as caught:
            take(measured, rpm=50)
    assert measured.calls.operations == {}
    assert caught.value.retry_after_seconds == pytest.approx(30 - 0.21)
    measured.clock.advance(caught.value.retry_after_seconds or 0)
    take(measured, rpm=50)


def test_a_denial_by_an_ancestor_is_remembered_too(measured: Measured) -> None:
    measured.limiter.create_entity("org")
    measured.limiter.create_entity(ENTITY, parent_id="org", cascade=True)
    measured.limiter.set_limits("org", [Limit.per_minute("rpm", 1)])
    take(measured, rpm=1)
    with pytest.raises(RateLimitExceeded):
        take(measured, rpm=1)
    measured.calls.reset()
    with pytest.raises(RateLimitExceeded) as caught:
        take(measured, rpm=1)
    assert measured.calls.operations == {}
    assert [status.entity_id for status in caught.value.violations] == ["org"]


def test_acquire_and_adjust_are_two_calls(measured: Measured) -> None:
    take(measured, rpm=1, tpm=500)
    measured.calls.reset()
    with measured.limiter.acquire(ENTITY, RESOURCE, {"rpm": 1, "tpm": 500}) as lease:
        lease.adjust(tpm=-123)
    assert measured.calls.operations == {"UpdateItem": 2}
    assert (measured.calls.consumed, measured.calls.of_indexes) == (2.0, 0.0)


def test_a_first_acquire_is_told_in_full(measured: Measured) -> None:
    take(measured, "warm", rpm=1)
    measured.calls.reset()
    take(measured, rpm=1)
    assert measured.calls.operations == {"BatchGetItem": 2, "PutItem": 1}


def test_a_bucket_with_two_limits_fits_into_one_kilobyte(dynoxide: Engine, table: str, measured: Measured) -> None:
    for _ in range(5):
        take(measured, rpm=1, tpm=1_000)
    (item,) = buckets_in(dynoxide, table)
    assert size_of(item) <= 1024 - 60, "the second write unit per acquire begins at 1024 bytes"


def buckets_in(engine: Engine, table: str) -> list[dict[str, Any]]:
    transport = BotocoreTransport(Target("us-east-1", engine.endpoint_url))
    items = transport.call("Scan", {"TableName": table}, 10)["Items"]
    transport.close()
    return [item for item in items if item["SK"]["S"] == "#STATE"]


def test_denials_ride_on_the_next_write_and_cost_nothing(measured: Measured) -> None:
    take(measured, rpm=100)
    for _ in range(3):
        with pytest.raises(RateLimitExceeded):
            take(measured, rpm=1)
    measured.clock.advance(30)
    measured.calls.reset()
    take(measured, rpm=1)
    assert measured.calls.operations == {"UpdateItem": 1}
    assert measured.calls.consumed == 1.0
    (bucket,) = measured.limiter.get_status(ENTITY, RESOURCE).buckets
    assert {level.limit_name: level.denials for level in bucket.limits} == {"rpm": 3, "tpm": 0}
    measured.calls.reset()
    measured.repository.close()
    assert measured.calls.operations == {}


def test_a_bucket_that_only_denies_has_its_denials_written_in_place_of_a_refused_write(
    measured: Measured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespace, "WRITTEN_EVERY_MS", 0)
    take(measured, rpm=100, tpm=1)
    written = []
    for number in range(1, 4):
        measured.clock.advance(6)  # longer than a denial is remembered
        measured.calls.reset()
        with pytest.raises(RateLimitExceeded):
            take(measured, rpm=100)
        assert measured.calls.operations == {"UpdateItem": 1}
        (bucket,) = measured.limiter.get_status(ENTITY, RESOURCE).buckets
        written.append(bucket.limits[0].denials)
        assert written[-1] <= number
    assert written == [0, 1, 2]


def test_a_bucket_that_descendants_take_from_stays_within_a_kilobyte(measured: Measured) -> None:
    parent = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
    measured.limiter.create_entity(parent)
    measured.limiter.create_entity(ENTITY, parent_id=parent, cascade=True)
    for _ in range(3):
        take(measured, rpm=30, tpm=3_000)
        with pytest.raises(RateLimitExceeded):
            take(measured, rpm=100)
        measured.clock.advance(30)
    take(measured, rpm=30, tpm=3_000)
    measured.calls.reset()
    measured.clock.advance(1)
    take(measured, rpm=1, tpm=1)
    assert measured.calls.operations == {"UpdateItem": 2}
    assert measured.calls.consumed == 2.0
