"""The table comes, is recognised, and goes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.dynamodb.plan_driver import Driver, Store, World, interleaved, lose_next_reply, world_by
from support.transports import Ask
from zae_limiter.exceptions import ConfigurationError, RateLimiterUnavailable, VersionError
from zae_limiter.stores.dynamodb.namespace import LAYOUT, MINOR
from zae_limiter.stores.dynamodb.operations.namespaces import key_schema, table_params
from zae_limiter.stores.dynamodb.requests import Refused
from zae_limiter.stores.dynamodb.schema import INDEXES
from zae_limiter.stores.dynamodb.table_client import TableClient
from zae_limiter.stores.dynamodb.write_ids import WriteIds
from zae_limiter.stores.protocol import Scope
from zae_limiter.version import __version__


@pytest.fixture
def world(ask: Ask) -> Iterator[World]:
    with world_by(ask, created=False) as world:
        yield world


def test_the_table_is_on_demand_with_four_indexes_of_keys_a_stream_and_expiry(world: World) -> None:
    world.run(world.store.create(5))
    table = world.ask("DescribeTable", {"TableName": world.table})["Table"]
    assert table["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    assert table["StreamSpecification"] == {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
    assert {
        index["IndexName"]: (index["KeySchema"], index["Projection"]["ProjectionType"])
        for index in table["GlobalSecondaryIndexes"]
    } == {name: (key_schema(f"{name}PK", f"{name}SK"), "KEYS_ONLY") for name in INDEXES}
    expiry = world.ask("DescribeTimeToLive", {"TableName": world.table})["TimeToLiveDescription"]
    assert (expiry["TimeToLiveStatus"], expiry["AttributeName"]) == ("ENABLED", "ttl")


def test_creating_sets_up_the_layout_and_the_default_namespace_without_a_trace(world: World) -> None:
    world.run(world.store.create(5))
    version = world.item("_/SYSTEM#", "#VERSION")
    assert version is not None
    assert (version["layout_version"], version["library_version"]) == (LAYOUT, __version__)
    assert len(world.items()) == 3
    assert world.run(world.store.get_namespace("default")).deleted_at is None


def test_creating_again_changes_nothing(world: World) -> None:
    world.run(world.store.create(5))
    before = world.items()
    world.run(Store(world.table_client()).create(99))
    assert world.items() == before


@pytest.mark.parametrize("seed", range(10))
def test_any_number_of_clients_may_create_at_once(world: World, seed: int) -> None:
    stores = [Store(world.table_client()) for _ in range(3)]
    assert interleaved([store.create(5) for store in stores], world.driver, seed) == [None, None, None]
    assert len(world.items()) == 3


@pytest.mark.parametrize("operation", ["CreateTable", "UpdateTimeToLive", "TransactWriteItems"])
def test_a_lost_reply_while_creating_does_no_harm(world: World, operation: str) -> None:
    lose_next_reply(world.driver, operation)
    world.run(world.store.create(5))
    assert len(world.items()) == 3


@pytest.mark.parametrize(("indexes", "words"), [(0, "not made by zae-limiter"), (3, "lacks the index GSI4")])
def test_a_table_that_is_none_of_ours_is_refused_untouched(world: World, indexes: int, words: str) -> None:
    foreign = table_params(world.table)
    foreign["GlobalSecondaryIndexes"] = foreign["GlobalSecondaryIndexes"][:indexes]
    foreign["AttributeDefinitions"] = foreign["AttributeDefinitions"][: 2 + 2 * indexes]
    if not indexes:
        del foreign["GlobalSecondaryIndexes"]
    world.ask("CreateTable", foreign)
    for plan in (world.store.create(5), world.store.destroy()):
        with pytest.raises(VersionError, match=words):
            world.run(plan)
    assert world.items() == []
    world.ask("DeleteTable", {"TableName": world.table})


def test_another_layout_is_refused(world: World) -> None:
    world.run(world.store.create(5))
    world.put({"PK": "_/SYSTEM#", "SK": "#VERSION", "layout_version": LAYOUT + 1, "library_version": "9.0"})
    for plan in (world.store.create(5), world.store.ping()):
        with pytest.raises(VersionError, match=rf"layout {LAYOUT + 1} \(of zae-limiter 9.0\).*newer one"):
            world.run(plan)


def test_a_record_that_only_lacks_additions_is_told_of_them(world: World) -> None:
    world.run(world.store.create(5))
    world.put({"PK": "_/SYSTEM#", "SK": "#VERSION", "layout_version": LAYOUT, "created_at": 5})
    world.run(world.store.ping())
    world.run(world.client().get_config(Scope()))
    assert "layout_minor" not in (world.item("_/SYSTEM#", "#VERSION") or {})
    world.run(world.store.create(9))
    record = world.item("_/SYSTEM#", "#VERSION")
    assert record is not None
    assert (record["layout_minor"], record["library_version"], record["created_at"]) == (MINOR, __version__, 5)


@pytest.mark.parametrize("place", ["SYSTEM#", "_/SYSTEM#"])
def test_an_old_table_is_not_taken_for_a_new_one(world: World, place: str) -> None:
    world.ask("CreateTable", table_params(world.table))
    world.put({"PK": place, "SK": "#VERSION", "schema_version": "0.8.0"})
    with pytest.raises(VersionError, match=rf"layout 1;.*zae-limiter migrate --url dynamodb://{world.table}"):
        world.run(world.store.create(5))
    assert len(world.items()) == 1


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"layout_version": LAYOUT + 1}, "Install a newer one"),
        ({"layout_version": LAYOUT - 1}, "Bring it here with: zae-limiter migrate"),
        ({"layout_version": LAYOUT - 1, "migration": "x"}, "is being migrated"),
        ({}, "layout 1;"),
    ],
)
def test_the_first_use_refuses_another_layout_in_the_call_that_reads_the_namespace(
    world: World, record: dict[str, Any], words: str
) -> None:
    world.run(world.store.create(5))
    world.put({"PK": "_/SYSTEM#", "SK": "#VERSION", **record})
    client = world.client()
    world.driver.calls.clear()
    with pytest.raises(VersionError, match=words):
        world.run(client.get_config(Scope()))
    assert world.driver.operations() == ["BatchGetItem"]


def test_a_layout_that_fits_is_looked_at_once(world: World) -> None:
    world.run(world.store.create(5))
    client = world.client()
    world.driver.calls.clear()
    for _ in range(2):
        world.run(client.get_config(Scope()))
    assert world.driver.operations() == ["BatchGetItem", "GetItem", "GetItem", "GetItem"]


def test_a_ping_says_why_it_fails(world: World) -> None:
    with pytest.raises(ConfigurationError, match="create=True"):
        world.run(world.store.ping())
    world.ask("CreateTable", table_params(world.table))
    with pytest.raises(VersionError, match="not set up"):
        world.run(world.store.ping())
    world.run(world.store.create(5))
    world.run(world.store.ping())


def test_destroying_removes_the_table_and_may_be_repeated(world: World) -> None:
    world.run(world.store.create(5))
    for _ in range(2):
        world.run(world.store.destroy())
        with pytest.raises(Refused):
            world.ask("DescribeTable", {"TableName": world.table})


# What no engine shows: tables that take their time


class Slow:
    """Answers from a script: per operation, one answer after the other, the last one for ever."""

    def __init__(self, **answers: list[Any]) -> None:
        self.answers = answers

    def __call__(self, operation: str, params: Any) -> Any:
        script = self.answers[operation]
        answer = script.pop(0) if len(script) > 1 else script[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


MISSING = Refused("ResourceNotFoundException")
IN_USE = Refused("ResourceInUseException")


def described(status: str, index_status: str = "ACTIVE", **more: Any) -> dict[str, Any]:
    params = table_params("limits")
    indexes = [index | {"IndexStatus": index_status} for index in params["GlobalSecondaryIndexes"]]
    return {"Table": params | {"TableStatus": status, "GlobalSecondaryIndexes": indexes} | more}


def slow_world(answers: Slow) -> tuple[Driver, Store]:
    return Driver(answers), Store(TableClient("limits", deadline_ms=2_000, write_ids=WriteIds("1")))


def slow_creation(**answers: list[Any]) -> Slow:
    usual: dict[str, list[Any]] = {
        "DescribeTable": [described("ACTIVE")],
        "DescribeTimeToLive": [{"TimeToLiveDescription": {"TimeToLiveStatus": "ENABLED"}}],
        "BatchGetItem": [{}],
        "GetItem": [{}],
        "Scan": [{"Items": []}],
        "TransactWriteItems": [{}],
    }
    return Slow(**(usual | answers))


def test_creating_waits_for_the_table_and_for_every_index() -> None:
    descriptions = [MISSING, MISSING, described("CREATING"), described("ACTIVE", "CREATING"), described("ACTIVE")]
    driver, store = slow_world(slow_creation(DescribeTable=descriptions, CreateTable=[IN_USE]))
    driver.run(store.create(5))
    assert driver.operations()[:6] == ["DescribeTable", "CreateTable", *["DescribeTable"] * 4]
    assert driver.backoffs == 3
    assert {call.give_up_at for call in driver.calls[:6]} == {120_001}


def test_a_table_that_never_comes_is_given_up() -> None:
    driver, store = slow_world(slow_creation(DescribeTable=[described("CREATING")]))
    driver.most_backoffs = 20
    with pytest.raises(RateLimiterUnavailable, match="still being made"):
        driver.run(store.create(5))


def test_expiry_that_another_client_has_just_switched_on_is_fine() -> None:
    off, on = ({"TimeToLiveDescription": {"TimeToLiveStatus": status}} for status in ("DISABLED", "ENABLING"))
    taken = Refused("ValidationException", "TimeToLive is already enabled")
    driver, store = slow_world(slow_creation(DescribeTimeToLive=[off, on], UpdateTimeToLive=[taken]))
    driver.run(store.create(5))
    driver, store = slow_world(slow_creation(DescribeTimeToLive=[off], UpdateTimeToLive=[taken]))
    driver.most_backoffs = 5
    with pytest.raises(ConfigurationError, match="already enabled"):
        driver.run(store.create(5))


def test_a_table_with_replicas_is_refused() -> None:
    driver, store = slow_world(slow_creation(DescribeTable=[described("ACTIVE", Replicas=[{"RegionName": "x"}])]))
    with pytest.raises(VersionError, match="replicas"):
        driver.run(store.create(5))


def test_destroying_waits_until_the_table_is_gone() -> None:
    descriptions = [described("CREATING"), described("ACTIVE"), described("ACTIVE"), described("DELETING"), MISSING]
    driver, store = slow_world(Slow(DescribeTable=descriptions, DeleteTable=[{}, IN_USE]))
    driver.run(store.destroy())
    assert driver.operations().count("DeleteTable") == 2
    driver, store = slow_world(Slow(DescribeTable=[described("DELETING")]))
    driver.most_backoffs = 20
    with pytest.raises(RateLimiterUnavailable, match="still there"):
        driver.run(store.destroy())
