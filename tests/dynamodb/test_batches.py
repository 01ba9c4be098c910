"""Writes of one process to one bucket are joined: fewer calls, and to every caller its own exact result."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from engines.servers import Engine
from support.dynamodb.watched_store import PATIENCE_S, Watched, until, until_async
from zae_limiter import Limit, RateLimiter, RateLimiterUnavailable, RateLimitExceeded, SyncRateLimiter
from zae_limiter.repository.repository import Repository
from zae_limiter.repository.sync_repository import SyncRepository
from zae_limiter.running.clocks import machine_clock
from zae_limiter.running.sync_driver import SyncDriver
from zae_limiter.stores.dynamodb.batches import batch_of
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot
from zae_limiter.stores.dynamodb.transport.protocol import Target

TABLES = count()


def budget(name: str, tokens: int) -> Limit:
    """So many tokens, and hardly any refill while a test runs."""
    return Limit.custom(name, tokens, 1, 86_400)


Opening = Callable[..., Watched]


@pytest.fixture
def open_store(engine: Engine) -> Iterator[Opening]:
    """Opens clients of one new table."""
    table = f"joined-{os.getpid()}-{next(TABLES)}"
    opened: list[Watched] = []

    def opening(**options: Any) -> Watched:
        options = {"deadline": PATIENCE_S, **options}
        store = Watched(table, Target("us-east-1", engine.endpoint_url), **options)
        if not opened:
            SyncDriver(machine_clock, store.perform).run(store.create(0))
        opened.append(store)
        return store

    yield opening
    SyncDriver(machine_clock, opened[0].perform).run(opened[0].destroy())
    for store in opened:
        store.close()


def limiters(store: Watched, *limits: Limit) -> tuple[SyncRateLimiter, RateLimiter]:
    """One of each kind on one store, whose bucket of ``key`` exists and is known."""
    sync, over_loop = SyncRateLimiter(SyncRepository(store)), RateLimiter(Repository(store))
    sync.set_system_defaults(list(limits))
    with sync.acquire("key", "gpt", {limits[0].name: 0}):
        pass
    store.calls.clear()
    return sync, over_loop


def totals(limiter: SyncRateLimiter, entity_id: str = "key") -> tuple[dict[str, int], dict[str, int], int]:
    """What is left, what was taken, and how many grants there were."""
    bucket = limiter.get_status(entity_id, "gpt").buckets[0]
    left = {level.limit_name: level.available for level in bucket.limits}
    return left, {level.limit_name: level.total_consumed for level in bucket.limits}, bucket.total_events


def finish(store: Watched, work: Any) -> Any:
    """Run a coroutine, and close what it opened on its loop."""

    async def whole() -> Any:
        try:
            return await work
        finally:
            await store._calls.aclose()

    return asyncio.run(whole())


async def taken(limiter: RateLimiter, entity_id: str = "key", **consume: int) -> bool:
    """Whether it was granted."""
    try:
        async with limiter.acquire(entity_id, "gpt", consume):
            return True
    except RateLimitExceeded:
        return False


def test_four_hundred_tasks_cost_a_few_writes_and_get_exactly_the_budget(open_store: Opening) -> None:
    store = open_store()
    sync, limiter = limiters(store, budget("rpd", 300), budget("tpd", 10_000))
    denials: list[RateLimitExceeded] = []

    async def one() -> bool:
        try:
            async with limiter.acquire("key", "gpt", {"rpd": 1, "tpd": 10}):
                return True
        except RateLimitExceeded as denial:
            denials.append(denial)
            return False

    async def all_of_them() -> list[bool]:
        return await asyncio.gather(*(one() for _ in range(400)))

    granted = finish(store, all_of_them())
    assert granted == [True] * 300 + [False] * 100, "first come, first served"
    assert store.calls["UpdateItem"] < 20
    assert totals(sync) == ({"rpd": 0, "tpd": 7_000}, {"rpd": 300, "tpd": 3_000}, 301)
    for denial in denials:
        statuses = {status.limit_name: (status.available, status.exceeded) for status in denial.statuses}
        assert statuses == {"rpd": (0, True), "tpd": (7_000, False)}


def test_without_coalescing_every_caller_writes(open_store: Opening) -> None:
    store = open_store(coalesce=False)
    sync, limiter = limiters(store, budget("rpd", 300))

    async def all_of_them() -> list[bool]:
        return await asyncio.gather(*(taken(limiter, rpd=1) for _ in range(40)))

    assert all(finish(store, all_of_them()))
    assert store.calls["UpdateItem"] >= 40
    assert totals(sync)[1] == {"rpd": 40}


def test_threads_join_the_next_write(open_store: Opening) -> None:
    store = open_store()
    limiter, _ = limiters(store, budget("rpd", 20))
    granted: Counter[bool] = Counter()

    def take() -> None:
        try:
            with limiter.acquire("key", "gpt", {"rpd": 1}):
                granted[True] += 1
        except RateLimitExceeded:
            granted[False] += 1

    store.hold_next_write()
    threads = [threading.Thread(target=take, daemon=True) for _ in range(30)]
    for thread in threads:
        thread.start()
    until(lambda: store.waiting_in_queue() == 29)
    store.let_go()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert granted == {True: 20, False: 10}
    assert store.calls["UpdateItem"] == 2
    assert totals(limiter) == ({"rpd": 0}, {"rpd": 20}, 21)


def test_threads_and_tasks_join_each_other(open_store: Opening) -> None:
    store = open_store()
    sync, limiter = limiters(store, budget("rpd", 100))
    granted: list[bool] = []

    def take() -> None:
        with sync.acquire("key", "gpt", {"rpd": 2}):
            granted.append(True)

    store.hold_next_write()
    threads = [threading.Thread(target=take, daemon=True) for _ in range(5)]

    async def tasks() -> list[bool]:
        tasks = [asyncio.create_task(taken(limiter, rpd=1)) for _ in range(20)]
        await until_async(lambda: store.waiting_in_queue() == 19)
        for thread in threads:
            thread.start()
        await until_async(lambda: store.waiting_in_queue() == 24)
        store.let_go()
        return list(await asyncio.gather(*tasks))

    assert all(finish(store, tasks()))
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(granted) == 5
    assert store.calls["UpdateItem"] == 2
    assert totals(sync) == ({"rpd": 70}, {"rpd": 30}, 26)


def test_the_parent_leg_of_many_children_is_joined(open_store: Opening) -> None:
    store = open_store()
    sync, limiter = limiters(store, budget("rpd", 1_000))
    sync.create_entity("org")
    sync.set_limits("org", [budget("rpd", 25)])
    children = [f"child-{number}" for number in range(40)]
    for name in children:
        sync.create_entity(name, parent_id="org", cascade=True)
        with sync.acquire(name, "gpt", {"rpd": 0}):
            pass
    store.calls.clear()

    async def all_of_them() -> list[bool]:
        return await asyncio.gather(*(taken(limiter, name, rpd=1) for name in children))

    granted = finish(store, all_of_them())
    assert sum(granted) == 25
    assert totals(sync, "org")[:2] == ({"rpd": 0}, {"rpd": 25})
    for name, was_granted in zip(children, granted, strict=True):
        assert totals(sync, name)[1] == {"rpd": int(was_granted)}
    assert store.calls["UpdateItem"] < 40 + 15 + 10, "the children's own, those given back, and a few for the parent"


def test_settlements_and_give_backs_join_too(open_store: Opening) -> None:
    store = open_store()
    sync, limiter = limiters(store, budget("tpd", 10_000))

    async def lease(number: int) -> None:
        with suppress(ZeroDivisionError):
            async with limiter.acquire("key", "gpt", {"tpd": 100}) as held:
                if number % 3 == 0:
                    raise ZeroDivisionError
                if number % 3 == 1:
                    await held.adjust(tpd=50)
                else:
                    await held.adjust(tpd=-30)

    async def all_of_them() -> None:
        await asyncio.gather(*(lease(number) for number in range(60)))

    finish(store, all_of_them())
    used = 20 * 150 + 20 * 70
    assert totals(sync)[:2] == ({"tpd": 10_000 - used}, {"tpd": used})
    assert store.calls["UpdateItem"] < 30


def test_what_was_written_for_a_cancelled_caller_comes_back(open_store: Opening) -> None:
    store = open_store()
    sync, limiter = limiters(store, budget("rpd", 100))

    async def story() -> None:
        store.hold_next_write()
        leader = asyncio.create_task(taken(limiter, rpd=1))
        await until_async(store.held.is_set)
        others = [asyncio.create_task(taken(limiter, rpd=1)) for _ in range(5)]
        await until_async(lambda: store.waiting_in_queue() == 5)
        for task in others[:3]:
            task.cancel()
        await asyncio.sleep(0.01)
        store.let_go()
        results = await asyncio.gather(leader, *others, return_exceptions=True)
        assert [result is True for result in results] == [True, False, False, False, True, True]
        assert all(isinstance(result, asyncio.CancelledError) for result in results[1:4])

    finish(store, story())
    assert totals(sync)[:2] == ({"rpd": 97}, {"rpd": 3})


def test_a_cancelled_leader_writes_for_the_others_and_gives_its_own_share_back(open_store: Opening) -> None:
    store = open_store()
    sync, limiter = limiters(store, budget("rpd", 100))

    async def story() -> None:
        store.hold_next_write()
        first = asyncio.create_task(taken(limiter, rpd=1))
        await until_async(store.held.is_set)
        leader = asyncio.create_task(taken(limiter, rpd=10))
        await until_async(lambda: store.waiting_in_queue() == 1)
        others = [asyncio.create_task(taken(limiter, rpd=1)) for _ in range(4)]
        await until_async(lambda: store.waiting_in_queue() == 5)
        store.let_go()
        assert await first
        store.hold_next_write()
        await until_async(store.held.is_set)
        leader.cancel()
        leader.cancel()
        await asyncio.sleep(0.01)
        store.let_go()
        results = await asyncio.gather(leader, *others, return_exceptions=True)
        assert isinstance(results[0], asyncio.CancelledError)
        assert results[1:] == [True] * 4

    finish(store, story())
    assert totals(sync)[:2] == ({"rpd": 95}, {"rpd": 5})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks are for POSIX")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_does_not_wait_for_a_leader_that_was_not_forked(open_store: Opening) -> None:
    store = open_store()
    limiter, _ = limiters(store, budget("rpd", 10))

    def take() -> None:
        with limiter.acquire("key", "gpt", {"rpd": 1}):
            pass

    store.hold_next_write()
    leading = threading.Thread(target=take, daemon=True)
    leading.start()
    until(store.held.is_set)
    child = os.fork()
    if not child:
        code = 1
        with suppress(BaseException):
            take()
            code = 0
        os._exit(code)
    ended = os.waitpid(child, 0)[1]
    assert ended == 0
    store.let_go()
    leading.join(PATIENCE_S)
    assert totals(limiter)[1] == {"rpd": 2}


def test_a_loop_that_stops_while_leading_holds_no_caller_up_for_long(open_store: Opening) -> None:
    open_store()
    store = open_store(deadline=0.4)
    sync, limiter = limiters(store, budget("rpd", 10))
    loop = asyncio.new_event_loop()
    store.hold_next_write()
    leader = loop.create_task(taken(limiter, rpd=1))

    async def begin() -> None:
        await until_async(store.held.is_set)

    loop.run_until_complete(begin())  # and never again: the leader stays where it is
    began = time.monotonic()
    tries = 0
    while True:
        tries += 1
        try:
            with sync.acquire("key", "gpt", {"rpd": 1}):
                break
        except RateLimiterUnavailable:
            assert time.monotonic() < began + PATIENCE_S
    assert time.monotonic() - began < 5
    store.let_go()
    assert loop.run_until_complete(_outcome(leader)) in ("granted", "unavailable")
    loop.run_until_complete(store._calls.aclose())
    loop.close()
    assert totals(sync)[1]["rpd"] in (1, 2)


async def _outcome(task: asyncio.Task[bool]) -> str:
    try:
        return "granted" if await task else "denied"
    except RateLimiterUnavailable:
        return "unavailable"


def test_one_write_counts_once_in_the_write_load(open_store: Opening) -> None:
    store = open_store()
    _, limiter = limiters(store, budget("rpd", 1_000))
    space = store.space("default", corrected=True)

    def write_load() -> int:
        (cached,) = space.cache.buckets.values()
        return cached.snapshot.load_level

    before = write_load()

    async def all_of_them() -> None:
        await asyncio.gather(*(taken(limiter, rpd=1) for _ in range(200)))

    finish(store, all_of_them())
    assert before - write_load() == store.calls["UpdateItem"] * 1_000


@pytest.mark.parametrize("shards", [1, 2])
def test_a_batch_of_nothing_is_empty(shards: int) -> None:
    """As when a refusal brings a bucket that none of those who wait can be joined to any more."""
    snapshot = BucketSnapshot("key", "gpt", rf=0, cv="1", inc="a", balances={}, shards=shards)
    assert batch_of(snapshot, [], 0, {}).writes == []
