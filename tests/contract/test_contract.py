"""Every row of the contract, on every store, in both worlds."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from engines.redis_servers import RedisCluster, RedisServer, flush
from engines.servers import Engine
from support.dynamodb.aggregated_store import Aggregated
from zae_limiter.running.clocks import machine_clock
from zae_limiter.running.sync_driver import SyncDriver
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.dynamodb.transport.protocol import Target
from zae_limiter.stores.memory.store import MemoryStore
from zae_limiter.stores.redis.store import RedisStore
from zae_limiter.stores.redis.urls import servers_of
from zae_limiter.stores.sqlite.store import SqliteStore
from zae_limiter.testing.contract import CASES, Case, Mode, OpenStore, play

TABLES = count()
PATIENCE_S = 20.0
"""An engine beside the tests on a busy machine may take its time; that is not what is tested here."""


def memory(request: pytest.FixtureRequest) -> OpenStore:
    store = MemoryStore()
    return lambda: store


def sqlite(request: pytest.FixtureRequest) -> OpenStore:
    folder: Path = request.getfixturevalue("tmp_path")
    return lambda: SqliteStore(str(folder / "limits.db"))


def dynamodb_on(name: str) -> Callable[[pytest.FixtureRequest], OpenStore]:
    def open_table(request: pytest.FixtureRequest) -> OpenStore:
        engine: Engine = request.getfixturevalue(name)
        table = f"contract-{next(TABLES)}"

        def open_store() -> DynamoStore:
            return DynamoStore(table, Target("us-east-1", engine.endpoint_url), deadline=PATIENCE_S)

        store = open_store()
        driver = SyncDriver(machine_clock, store.perform)
        driver.run(store.create(0))

        def remove() -> None:
            driver.run(store.destroy())
            store.close()

        request.addfinalizer(remove)
        return lambda: Aggregated(open_store())

    return open_table


def redis_on(name: str) -> Callable[[pytest.FixtureRequest], OpenStore]:
    def open_servers(request: pytest.FixtureRequest) -> OpenStore:
        servers: RedisServer | RedisCluster = request.getfixturevalue(name)
        flush(servers.nodes if isinstance(servers, RedisCluster) else [servers])
        return lambda: RedisStore(servers_of(urlsplit(servers.url)), deadline=PATIENCE_S)

    return open_servers


STORES: dict[str, Callable[[pytest.FixtureRequest], OpenStore]] = {
    "memory": memory,
    "sqlite": sqlite,
    "dynamodb-on-dynoxide": dynamodb_on("dynoxide"),
    "dynamodb-on-ministack": dynamodb_on("ministack"),
    "redis-6.2": redis_on("redis_6_2"),
    "valkey-9.1": redis_on("valkey_9_1"),
    "valkey-8.1-cluster": redis_on("valkey_cluster"),
}


PLAYED = [(case, store) for case in CASES for store in STORES]


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize(("case", "store"), PLAYED, ids=str)
def test_the_contract_is_kept(case: Case, store: str, mode: Mode, request: pytest.FixtureRequest) -> None:
    play(case, mode, STORES[store](request))
