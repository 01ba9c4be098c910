"""The contract on buckets that are split: every row about buckets, with every bucket under pressure.

A write load without any capacity is below zero from the first write on, so every bucket is split by the draw that
creates it, and again with every second that passes: into at most four shards here, which is enough to go wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from engines.servers import Engine
from support.dynamodb.aggregated_store import Aggregated
from zae_limiter import Limit, SyncRateLimiter
from zae_limiter.repository.sync_repository import SyncRepository
from zae_limiter.running.clocks import machine_clock
from zae_limiter.running.sync_driver import SyncDriver
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.dynamodb.transport.protocol import Target
from zae_limiter.testing.contract import CASES, Case, Mode, OpenStore, play

TABLES = count()
PATIENCE_S = 20.0
MOST_SHARDS = 4

CHAPTERS = (
    "calendar_limits",
    "calls_in_flight",
    "concurrency",
    "config_changes",
    "extra_credits",
    "grants",
    "hierarchy",
    "lease_records",
    "lowered_levels",
    "settlement",
    "status_reports",
    "totals",
    "wait_timeouts",
    "watching_limits",
)
CENTRAL = ("grants", "settlement", "concurrency", "calls_in_flight")
EXACT_ONLY_UNDIVIDED = {"a_watching_limit_counts_what_its_twin_refuses"}
"""A limit that only watches is judged by the shard that is drawn from: of a divided bucket it may report too much."""


def cases_of(chapters: tuple[str, ...]) -> Iterator[Any]:
    """The cases of these chapters."""
    found = {case.play.__module__.rpartition(".")[2] for case in CASES}
    assert found.issuperset(chapters), set(chapters) - found
    for case in CASES:
        if case.play.__module__.rpartition(".")[2] in chapters and str(case) not in EXACT_ONLY_UNDIVIDED:
            yield pytest.param(case, id=str(case))


@pytest.fixture(autouse=True)
def few_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 64 an engine beside the tests spends its time on nothing else."""
    monkeypatch.setattr("zae_limiter.stores.dynamodb.write_load.MOST_SHARDS", MOST_SHARDS)


def pressed_table(engine: Engine, request: pytest.FixtureRequest) -> OpenStore:
    """A table on which every bucket is split at once."""
    table = f"sharded-{next(TABLES)}"

    def open_store() -> DynamoStore:
        return DynamoStore(table, Target("us-east-1", engine.endpoint_url), deadline=PATIENCE_S, wcu=0)

    store = open_store()
    driver = SyncDriver(machine_clock, store.perform)
    driver.run(store.create(0))

    def remove() -> None:
        driver.run(store.destroy())
        store.close()

    request.addfinalizer(remove)
    return lambda: Aggregated(open_store())


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("case", list(cases_of(CHAPTERS)))
def test_sharded_buckets_keep_the_contract(
    case: Case, mode: Mode, dynoxide: Engine, request: pytest.FixtureRequest
) -> None:
    play(case, mode, pressed_table(dynoxide, request))


@pytest.mark.parametrize("case", list(cases_of(CENTRAL)))
def test_sharded_buckets_keep_the_central_rows_on_ministack(
    case: Case, ministack: Engine, request: pytest.FixtureRequest
) -> None:
    play(case, "async", pressed_table(ministack, request))


def test_a_bucket_without_capacity_is_split_by_its_first_draw(engine: Engine, request: pytest.FixtureRequest) -> None:
    opened = pressed_table(engine, request)()
    limiter = SyncRateLimiter(SyncRepository(opened))
    limiter.set_system_defaults([Limit.per_minute("rpm", 10)])
    with limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    space = opened.space("default", corrected=True)
    (first,) = space.cache.sharded
    assert len(space.cache.shards_of(first)) == 2
    assert len(space.cache.family(first)) == 2
    opened.close()
