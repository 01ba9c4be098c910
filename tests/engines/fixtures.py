"""One running engine of each kind for the whole test run, started by the first test that asks for it.

Tests share the engines, so each uses tables of its own, or a Redis server that it has emptied. All keep everything in
memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import pytest

from engines.redis_servers import RedisCluster, RedisServer
from engines.servers import Engine, dynoxide_engine, ministack_engine


def _running(engine: Engine) -> Iterator[Engine]:
    missing = engine.why_not_here()
    if missing:
        pytest.skip(missing)  # a failure where CI is set: support/no_skips_in_ci.py
    with engine:
        yield engine


Servers = TypeVar("Servers", RedisServer, RedisCluster)


def _serving(servers: Servers) -> Iterator[Servers]:
    missing = servers.why_not_here()
    if missing:
        pytest.skip(missing)  # a failure where CI is set: support/no_skips_in_ci.py
    with servers:
        yield servers


@pytest.fixture(scope="session")
def ministack() -> Iterator[Engine]:
    """MiniStack: most of AWS, forgiving."""
    yield from _running(ministack_engine())


@pytest.fixture(scope="session")
def dynoxide() -> Iterator[Engine]:
    """dynoxide: DynamoDB only, strict, with exact capacity figures."""
    yield from _running(dynoxide_engine())


@pytest.fixture(scope="session")
def redis_6_2() -> Iterator[RedisServer]:
    """Redis 6.2, the oldest that is supported."""
    yield from _serving(RedisServer("redis-6.2"))


@pytest.fixture(scope="session")
def valkey_9_1() -> Iterator[RedisServer]:
    """Valkey 9.1."""
    yield from _serving(RedisServer("valkey-9.1"))


@pytest.fixture(scope="session")
def valkey_cluster() -> Iterator[RedisCluster]:
    """Three servers of Valkey 8.1."""
    yield from _serving(RedisCluster("valkey-8.1"))


@pytest.fixture(scope="session", params=["ministack", "dynoxide"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Every engine, one after the other."""
    running: Engine = request.getfixturevalue(request.param)
    return running
