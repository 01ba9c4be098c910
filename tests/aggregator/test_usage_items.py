"""Snapshots as they lie in the table, and how they are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest
from usage_model import (
    EPOCH_S,
    TABLE,
    ModelTransport,
    empty_model,
    limiter_on,
    process,
    read_all,
    records_of,
    snapshot_items,
)

from simulation.model import Model
from zae_limiter.limiter.sync_limiter import SyncRateLimiter
from zae_limiter.models.limit import Limit
from zae_limiter.stores.dynamodb.schema import decode_item
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.dynamodb.usage_items import Edge, Life, Span, used_by_hour
from zae_limiter.stores.windows import HOUR_MS, Counters
from zae_limiter.testing.clock import NEW_YEAR_2026_MS, FakeClock

RPM, TPM = Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 1_000)


class Watched(ModelTransport):
    """Carries calls to a model, notes them, and reads two items at a time."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.calls: list[tuple[str, Mapping[str, Any]]] = []

    def call(self, operation: str, params: Mapping[str, Any], seconds: float) -> Any:
        self.calls.append((operation, params))
        if operation == "Query":
            params = {"Limit": 2, **params}
        return super().call(operation, params, seconds)


class Place:
    """A limiter on a model, and what lies behind it."""

    def __init__(self) -> None:
        self.model = empty_model()
        self.clock = FakeClock()
        self.transport = Watched(self.model)
        self.store = DynamoStore(TABLE, transport=self.transport, deadline=60.0)
        self.limiter: SyncRateLimiter = limiter_on(self.store, self.clock, create=True)
        self.limiter.set_system_defaults([RPM, TPM])

    def take(self, entity_id: str = "key", resource: str = "gpt", rpm: int = 1) -> None:
        with self.limiter.acquire(entity_id, resource, {"rpm": rpm}):
            pass

    def count(self) -> None:
        assert process(self.model, records_of(self.model.changes(TABLE))).failures == ()
        self.transport.calls.clear()

    def ns(self) -> str:
        return self.limiter.repository.get_namespace("default").id


@pytest.fixture
def place() -> Iterator[Place]:
    place = Place()
    yield place
    place.limiter.close()


def test_a_snapshot_has_both_edges_and_stands_in_the_indexes(place: Place) -> None:
    place.take()
    place.clock.advance(milliseconds=HOUR_MS + 1)
    place.take(rpm=2)
    place.take(rpm=3)
    bucket = [change for change in place.model.changes(TABLE) if change.key[1] == "#STATE"]
    place.count()
    ns = place.ns()
    item = decode_item(snapshot_items(place.model).popitem()[1])
    index4 = item.pop("GSI4PK")
    assert index4.startswith(f"{ns}/")
    assert item == {
        "PK": f"{ns}/ENTITY#key",
        "SK": f"#USAGE#gpt#hourly#2026-01-01T01#0#{decode_item(bucket[0].new or {})['inc']}",
        "GSI2PK": f"{ns}/RESOURCE#gpt",
        "GSI2SK": "USAGE#hourly#2026-01-01T01#key#0",
        "GSI4SK": "USAGE",
        "entity_id": "key",
        "resource": "gpt",
        "fs": bucket[1].sequence.zfill(40),
        "ls": bucket[2].sequence.zfill(40),
        "ev_st": 1,
        "ev": 3,
        "st_rpm": 1_000,
        "tc_rpm": 6_000,
        "st_tpm": 0,
        "tc_tpm": 0,
        "lw": decode_item(bucket[2].new or {})["w0"],
        "ttl": EPOCH_S + 90 * 86_400,
    }


def test_usage_goes_when_its_namespace_is_purged(place: Place) -> None:
    place.take()
    place.count()
    assert len(snapshot_items(place.model)) == 1
    place.limiter.repository.delete_namespace("default")
    place.limiter.repository.purge_namespace("default")
    assert snapshot_items(place.model) == {}


def test_usage_of_an_entity_is_read_consistently_and_only_the_hours_that_are_needed(place: Place) -> None:
    for _ in range(12):
        place.take()
        place.clock.advance(milliseconds=HOUR_MS)
    place.count()
    start, end = NEW_YEAR_2026_MS + 4 * HOUR_MS, NEW_YEAR_2026_MS + 6 * HOUR_MS
    query = {"entity_id": "key", "resource": "gpt", "window_type": "hourly", "start_time": start, "end_time": end}
    windows, _ = read_all(place.limiter, **query)
    assert [window.counters["rpm"] for window in windows] == [1, 1]
    queries = [params for operation, params in place.transport.calls if operation == "Query"]
    assert len(queries) in (2, 3)  # four hours, two at a time
    for params in queries:
        assert params["ConsistentRead"] is True
        keys = [
            value["S"].split("#")[4] for name, value in params["ExpressionAttributeValues"].items() if name != ":pk"
        ]
        assert keys == ["2026-01-01T03", "2026-01-01T06\U0010ffff"]


@pytest.mark.parametrize("page_size", [1, 3, 100])
def test_partitions_and_indexes_are_followed_to_their_end(place: Place, page_size: int) -> None:
    for hour in range(4):
        for entity_id in ("a", "b", "c"):
            for resource in ("gpt", "claude"):
                place.take(entity_id, resource, 1 + hour)
        place.clock.advance(milliseconds=HOUR_MS)
    place.count()
    for query in ({"entity_id": "b"}, {"resource": "gpt"}, {"entity_id": "b", "resource": "gpt"}):
        windows, _ = read_all(place.limiter, page_size, **query, window_type="hourly")
        wanted = [
            (entity_id, resource, 1 + hour)
            for entity_id in "abc"
            for resource in ("claude", "gpt")
            for hour in range(4)
            if query.get("entity_id", entity_id) == entity_id and query.get("resource", resource) == resource
        ]
        assert [(w.entity_id, w.resource, w.counters["rpm"]) for w in windows] == wanted
        (day,) = {w.counters["rpm"] for w in read_all(place.limiter, page_size, **query, window_type="daily")[0]}
        assert day == 10


@pytest.mark.parametrize(
    ("start", "end"), [(0, 1), (NEW_YEAR_2026_MS, NEW_YEAR_2026_MS), (10**14, 1), (2 * 10**14, 2 * 10**14 + 1)]
)
def test_times_in_which_nothing_can_be_have_nothing(place: Place, start: int, end: int) -> None:
    place.take()
    place.count()
    for query in ({"entity_id": "key"}, {"resource": "gpt"}, {"entity_id": "key", "resource": "gpt"}):
        assert read_all(place.limiter, **query, start_time=start, end_time=end) == ([], [])


# Hours that overlap


def edge(place: int, grants: int, **milli: int) -> Edge:
    return Edge(f"{place:040}", Counters(grants, milli))


def used(spans: Iterable[Span]) -> list[tuple[int, int, dict[str, int]]]:
    return [(hour, used.events, dict(used.milli)) for hour, used in used_by_hour(spans)]


LIFE = Life("n", "key", "gpt", 0, "i")


def test_what_clocks_that_differ_put_into_two_hours_counts_once() -> None:
    """Changes 1 to 6, of hours 0 0 1 0 1 1: from the third on everything belongs to the second hour."""
    spans = [
        Span(LIFE, 0, edge(1, 0), edge(4, 4, rpm=40)),
        Span(LIFE, HOUR_MS, edge(3, 2, rpm=20), edge(6, 6, rpm=60)),
    ]
    assert used(spans) == [(0, 2, {"rpm": 20}), (HOUR_MS, 4, {"rpm": 40})]


def test_an_hour_within_a_later_one_has_nothing_left() -> None:
    """Changes 1 to 3, of hours 1 0 1; and 4 to 6, of hours 1 0 0."""
    first = Span(LIFE, HOUR_MS, edge(1, 0), edge(3, 3, rpm=30))
    assert used([Span(LIFE, 0, edge(2, 1, rpm=10), edge(2, 2, rpm=20)), first]) == [(HOUR_MS, 3, {"rpm": 30})]
    second = Span(LIFE, HOUR_MS, edge(4, 0), edge(4, 1, rpm=10))
    assert used([Span(LIFE, 0, edge(5, 1, rpm=10), edge(6, 3, rpm=30)), second]) == [(HOUR_MS, 3, {"rpm": 30})]


def test_shards_and_lives_are_added_up_and_never_mixed() -> None:
    spans = [
        Span(LIFE, 0, edge(1, 0), edge(9, 5, rpm=50)),
        Span(LIFE._replace(shard=1), 0, edge(2, 7, rpm=70), edge(3, 8, rpm=75, tpm=1)),
        Span(LIFE._replace(inc="j"), 0, edge(10, 0), edge(11, 1, tpm=3)),
    ]
    assert used(spans) == [(0, 7, {"rpm": 55, "tpm": 4})]


def test_an_hour_in_which_everything_came_back_is_not_listed() -> None:
    assert used([Span(LIFE, 0, edge(1, 3, rpm=30), edge(2, 3, rpm=30))]) == []
