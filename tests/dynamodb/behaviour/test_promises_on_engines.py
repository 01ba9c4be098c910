"""What the plans promise, on real engines: warm caches, vanishing buckets, cancellation, forks, threads."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from engines.servers import Engine
from zae_limiter import (
    Limit,
    RateLimiter,
    RateLimitExceeded,
    Repository,
    SyncRateLimiter,
    SyncRepository,
    ValidationError,
)
from zae_limiter.running.clocks import machine_timer
from zae_limiter.stores.dynamodb.items import address
from zae_limiter.stores.dynamodb.requests import Call
from zae_limiter.stores.dynamodb.schema import bucket_key
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.dynamodb.transport.protocol import Target

TABLES = count()
PATIENCE_S = 20.0
"""An engine beside the tests on a busy machine may take its time; that is not what is tested here."""


def budget(name: str, tokens: int) -> Limit:
    """So many tokens, and hardly any refill while a test runs."""
    return Limit.custom(name, tokens, 1, 86_400)


LIMITS = [budget("rpd", 100), budget("tpd", 1_000)]


class World:
    """One table on an engine; every client is like a process of its own."""

    def __init__(self, engine: Engine) -> None:
        self.target = Target(engine.region, engine.endpoint_url)
        self.table = f"on-engines-{next(TABLES)}"
        self._open: list[SyncRepository] = []
        self.operator = self.client()
        repository = self.operator.repository
        repository._driver.run(repository._create())
        self.operator.set_system_defaults(LIMITS)
        self.operator.create_entity("org")
        self.operator.create_entity("key", parent_id="org", cascade=True)

    def store(self) -> DynamoStore:
        return DynamoStore(self.table, self.target, deadline=PATIENCE_S)

    def client(self) -> SyncRateLimiter:
        repository = SyncRepository(self.store())
        self._open.append(repository)
        return SyncRateLimiter(repository)

    def used(self, entity_id: str = "key") -> dict[str, int]:
        """What was ever taken, net, in whole tokens; nothing without a bucket."""
        buckets = self.operator.get_status(entity_id).buckets
        return {level.limit_name: level.total_consumed for bucket in buckets for level in bucket.limits}

    def remove_bucket(self, entity_id: str) -> None:
        """As expiry does."""
        store: Any = self.operator.repository._core.store
        ns = self.operator.repository.get_namespace("default").id
        key = address(bucket_key(ns, entity_id, "gpt"))
        store.perform(Call("DeleteItem", {"TableName": self.table, "Key": key}, machine_timer() + 20_000))

    def close(self) -> None:
        self.operator.repository.delete_table()
        for repository in self._open:
            repository.close()


@pytest.fixture
def world(engine: Engine) -> Iterator[World]:
    world = World(engine)
    yield world
    world.close()


def take(limiter: SyncRateLimiter, entity_id: str = "key", **wanted: int) -> bool:
    """Whether it is granted."""
    try:
        with limiter.acquire(entity_id, "gpt", wanted):
            return True
    except RateLimitExceeded:
        return False


# Warm caches


def test_a_warm_client_obeys_what_was_set_a_moment_ago(world: World) -> None:
    warm = world.client()
    assert take(warm, rpd=1)
    world.operator.set_system_defaults([budget("rpd", 5), budget("tpd", 1_000)])
    assert sum(take(warm, rpd=1) for _ in range(8)) == 5
    world.operator.set_limits("key", [budget("rpd", 50), budget("tpd", 1_000)], resource="gpt")
    world.operator.set_limits("org", [budget("rpd", 50), budget("tpd", 1_000)], resource="gpt")
    for entity in ("key", "org"):
        world.operator.reset(entity)
    assert take(world.client(), rpd=50)


def test_an_unknown_limit_is_looked_up_before_it_is_an_error(world: World) -> None:
    warm = world.client()
    assert take(warm, rpd=1)
    world.operator.set_system_defaults([*LIMITS, budget("wpd", 10)], propagate=False)
    assert take(warm, wpd=10)
    assert not take(warm, wpd=1)
    with pytest.raises(ValidationError):
        take(warm, xpd=1)


def test_a_moved_entity_charges_its_new_parent(world: World) -> None:
    warm = world.client()
    assert take(warm, rpd=1)
    world.operator.create_entity("other")
    world.operator.update_entity("key", parent_id="other")
    assert take(warm, rpd=2)
    assert (world.used("org")["rpd"], world.used("other")["rpd"]) == (1, 2)


# Buckets that vanish


@pytest.mark.parametrize("gone", [("key",), ("org",), ("key", "org")])
def test_a_bucket_that_is_gone_is_rebuilt_by_an_acquire(world: World, gone: tuple[str, ...]) -> None:
    warm = world.client()
    assert take(warm, rpd=10)
    for entity in gone:
        world.remove_bucket(entity)
    assert take(warm, rpd=3)
    assert {entity: world.used(entity)["rpd"] for entity in ("key", "org")} == {
        entity: 3 if entity in gone else 13 for entity in ("key", "org")
    }


@pytest.mark.parametrize("gone", [("key",), ("key", "org")])
def test_a_bucket_that_is_gone_is_rebuilt_by_a_settlement(world: World, gone: tuple[str, ...]) -> None:
    warm = world.client()
    with warm.acquire("key", "gpt", {"tpd": 10}) as lease:
        for entity in gone:
            world.remove_bucket(entity)
        lease.adjust(tpd=990)
    assert world.used("key")["tpd"] == 990
    assert world.operator.available("key", "gpt")["tpd"] == 10
    assert warm.repository.unresolved == 0


# Interrupted at any moment


@pytest.mark.timeout(180)
def test_tasks_cancelled_at_random_moments_leave_nothing_taken(world: World) -> None:
    chance = random.Random(20_240)
    rounds, width = 6, 25

    async def work(limiter: RateLimiter) -> None:
        async with limiter.acquire("key", "gpt", {"rpd": 1, "tpd": 10}) as lease:
            await lease.adjust(tpd=5)
            await asyncio.sleep(chance.random() / 50)
            raise ZeroDivisionError

    async def cancel_after(task: asyncio.Task[None], seconds: float) -> None:
        await asyncio.sleep(seconds)
        for _ in range(chance.choice((1, 1, 2, 3))):
            task.cancel()
            await asyncio.sleep(chance.random() / 500)

    async def main() -> int:
        store = world.store()
        limiter = RateLimiter(Repository(store))
        for _ in range(rounds):
            tasks = [asyncio.create_task(work(limiter)) for _ in range(width)]
            cancels = [cancel_after(task, chance.random() / 10) for task in tasks]
            await asyncio.gather(*tasks, *cancels, return_exceptions=True)
            kinds = {type(task.exception()) for task in tasks if not task.cancelled()}
            assert kinds <= {ZeroDivisionError}
        unresolved = limiter.repository.unresolved
        await store.aclose()
        return unresolved

    assert take(world.operator, rpd=1)
    before = world.used("key"), world.used("org")
    assert asyncio.run(main()) == 0
    assert (world.used("key"), world.used("org")) == before


# Threads and forks


def hammer(limiter: SyncRateLimiter, times: int) -> int:
    """How many were granted."""
    return sum(take(limiter, rpd=1) for _ in range(times))


@pytest.mark.timeout(180)
def test_threads_that_share_a_limiter_admit_the_burst_and_count_it_exactly(world: World) -> None:
    limiter = world.client()
    granted = [0] * 8

    def work(place: int) -> None:
        granted[place] = hammer(limiter, 20)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(granted))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check_admitted(world, sum(granted))


def check_admitted(world: World, granted: int) -> None:
    """Never more than the burst. The last ones may be denied while a leg of another thread is on its way back."""
    assert 90 <= granted <= 100
    assert world.used("key")["rpd"] == world.used("org")["rpd"] == granted


def in_a_fork(work: Callable[[], int]) -> Callable[[], int]:
    """Do it in a child; returns how to wait for the number it ends with."""
    child = os.fork()
    if child == 0:
        code = 255
        try:
            code = work()
        finally:
            os._exit(code)
    return lambda: os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks on this platform")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.timeout(180)
def test_a_used_limiter_is_good_in_its_parent_and_in_forked_children(world: World) -> None:
    limiter = world.client()
    assert hammer(limiter, 10) == 10
    children = [in_a_fork(lambda: hammer(limiter, 40)) for _ in range(3)]
    here = hammer(limiter, 40)
    granted = [child() for child in children]
    assert 255 not in granted
    check_admitted(world, 10 + here + sum(granted))
    assert limiter.repository.unresolved == 0
