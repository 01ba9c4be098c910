"""Finding out which limits hold: remembered for a while, read once by many who ask at the same time."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support.dynamodb.draw_scenarios import hierarchy
from support.dynamodb.scripted_plans import Ended, Script, Stopped
from support.dynamodb.scripted_tables import RESOURCE, Client, ModelStore, Table
from zae_limiter import (
    ConfigurationError,
    Limit,
    RateLimiter,
    RateLimitExceeded,
    Repository,
    SyncRateLimiter,
    SyncRepository,
    ValidationError,
)
from zae_limiter.bucket import MILLI
from zae_limiter.config_cache import ConfigCache
from zae_limiter.running.plan import Interrupted
from zae_limiter.stores.dynamodb.requests import AwaitNews, Refused

MANY = 50


def calls_of(table: Table, client: Client, **wanted: int) -> list[str]:
    ended = Script(table).run(client.lease("key", wanted)._begin())
    assert ended.error is None, ended.error
    return ended.operations


# The cache


def test_limits_are_remembered_for_their_time_and_then_read_again() -> None:
    table = hierarchy(1)
    client = table.client(config_cache_ttl=60)
    assert calls_of(table, client, rpd=1) == ["BatchGetItem", "BatchGetItem", "UpdateItem"]
    assert calls_of(table, client, rpd=1) == ["UpdateItem"]
    table.timer += 59_000
    assert calls_of(table, client, rpd=1) == ["UpdateItem", "GetItem"]  # a look at the access switches, beside it
    table.timer += 1_000
    assert calls_of(table, client, rpd=1) == ["BatchGetItem", "UpdateItem"]


def test_nothing_is_remembered_without_a_time() -> None:
    table = hierarchy(1)
    client = table.client(config_cache_ttl=0)
    calls_of(table, client, rpd=1)
    assert calls_of(table, client, rpd=1) == ["BatchGetItem", "UpdateItem"]
    assert client.space.cache_stats().size == 0


def test_that_there_are_no_limits_is_remembered_too() -> None:
    table = Table()
    operator = table.operator.limiter
    operator.create_entity("org")
    operator.create_entity("key", parent_id="org", cascade=True)
    client = table.client()
    given = [Limit.per_day("rpd", 10)]
    client.take("key", {"rpd": 1}, limits=given)
    ended = Script(table).run(client.lease("key", {"rpd": 1}, limits=given)._begin())
    assert ended.operations == ["UpdateItem"]


def test_what_is_forgotten_is_read_again() -> None:
    table = hierarchy(1)
    client = table.client()
    client.take("key", {"rpd": 1})
    client.space.invalidate_config_cache()
    assert calls_of(table, client, rpd=1) == ["BatchGetItem", "UpdateItem"]


def test_the_cache_is_bounded() -> None:
    cache: ConfigCache[int, int] = ConfigCache(1_000, most=10)
    for number in range(100):
        cache.put(number, number, 0)
        assert cache.stats().size <= 10
    assert cache.get(99, 0) == 99
    assert cache.get(0, 0) is None


def test_an_unknown_name_is_read_once_and_not_for_ever() -> None:
    table = hierarchy(1)
    client = table.client()
    client.take("key", {"rpd": 1})
    ended = Script(table).run(client.lease("key", {"xpd": 1})._begin())
    assert isinstance(ended.error, ValidationError)
    assert ended.operations == ["BatchGetItem"]


@pytest.mark.parametrize("left", range(2, 7))
def test_keys_that_were_left_unread_are_asked_for_again(left: int) -> None:
    table = hierarchy(1)
    client = table.client()
    script = Script(table, meanwhile={1: lambda: table.model.leave_unprocessed(left)})
    ended = script.run(client.lease("key", {"rpd": 1})._begin())
    assert ended.error is None
    assert ended.operations[:4] == ["BatchGetItem", "BatchGetItem", "BatchGetItem", "GetItem"]
    assert client.space.cache_stats().size == 1


# Buckets that are met with their limits


def met(table: Table, client: Client, meanwhile: Callable[[], object] | None = None, **wanted: int) -> Ended:
    """An acquire of a client that knows its namespace, but no bucket yet."""
    client.run(client.space.resolve("team", RESOURCE))
    script = Script(table, meanwhile={0: meanwhile} if meanwhile else {})
    return script.run(client.lease("key", wanted)._begin())


def test_a_bucket_that_was_never_met_is_read_with_its_limits() -> None:
    table = hierarchy(1)
    assert met(table, table.client(), rpd=1).operations == ["BatchGetItem", "UpdateItem"]


def test_a_bucket_that_was_never_met_and_lacks_denies_without_a_write() -> None:
    table = hierarchy(1)
    table.client().take("key", {"rpd": table.levels("key")["rpd"] // 1000})
    ended = met(table, table.client(), rpd=1)
    assert isinstance(ended.error, RateLimitExceeded)
    assert ended.operations == ["BatchGetItem"]


def test_a_bucket_that_was_left_unread_holds_up_nothing_and_is_read_alone() -> None:
    table = hierarchy(1)
    ended = met(table, table.client(), lambda: table.model.leave_unprocessed(1), rpd=1)
    assert ended.error is None
    assert ended.operations == ["BatchGetItem", "GetItem", "UpdateItem"]


def test_a_bucket_that_was_not_there_with_its_limits_is_made_at_once() -> None:
    table = hierarchy(1)
    table.remove_bucket("key")
    ended = met(table, table.client(), rpd=1)
    assert ended.operations == ["BatchGetItem", "PutItem", "BatchGetItem"]


# Many at once


def config_reads(store: ModelStore) -> int:
    """All batches but the first, which reads the namespace and the version."""
    transports: tuple[Any, Any] = (store._calls._transport, store._calls._async_transport)
    return sum(transport.calls.count("BatchGetItem") for transport in transports) - 1


def acquire_from_threads(table: Table, store: ModelStore, count: int = MANY) -> None:
    limiter = SyncRateLimiter(SyncRepository(store, clock=lambda: table.now))
    barrier = threading.Barrier(count)

    def work(number: int) -> None:
        barrier.wait()
        with limiter.acquire("key", RESOURCE, {"tpd": 1}):
            pass

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work, range(count)))


def acquire_from_tasks(table: Table, store: ModelStore, count: int = MANY) -> None:
    async def work(limiter: RateLimiter) -> None:
        async with limiter.acquire("key", RESOURCE, {"tpd": 1}):
            pass

    async def main() -> None:
        limiter = RateLimiter(Repository(store, clock=lambda: table.now))
        await asyncio.gather(*(work(limiter) for _ in range(count)))

    asyncio.run(main())


WORLDS = pytest.mark.parametrize("acquire", [acquire_from_threads, acquire_from_tasks])


@WORLDS
def test_many_callers_that_ask_at_once_read_the_limits_once(acquire: Callable[[Table, ModelStore], None]) -> None:
    table = hierarchy(1)
    store = ModelStore(table, deadline=20)
    transports: tuple[Any, Any] = (store._calls._transport, store._calls._async_transport)
    for transport in transports:
        transport.seconds = 0.02
    before = table.counters("key")["tpd"]
    acquire(table, store)
    assert table.counters("key")["tpd"] == before + MANY * 1_000
    assert config_reads(store) == 1


def test_many_callers_that_ask_at_once_for_a_new_bucket_do_not_all_read_the_limits() -> None:
    table = hierarchy(1)
    table.remove_bucket("key")
    store = ModelStore(table, deadline=20)
    acquire_from_tasks(table, store)
    assert config_reads(store) <= 5


class Interjecting(dict[Any, Any]):
    """Does something right after it was asked for a key: what another thread may do there."""

    interject: Callable[[], object] | None = None

    def get(self, key: Any, default: Any = None) -> Any:
        found = super().get(key, default)
        self._interject()
        return found

    def setdefault(self, key: Any, default: Any = None) -> Any:
        found = super().setdefault(key, default)
        self._interject()
        return found

    def _interject(self) -> None:
        work, self.interject = self.interject, None
        if work is not None:
            work()


class Reader:
    """A plan that resolves limits, driven by hand to where it reads them or waits for a caller that does."""

    def __init__(self, table: Table, client: Client) -> None:
        self.table = table
        self.plan = client.lease("key", {"rpd": 1})._begin()
        self.request: Any = next(self.plan)

    def go_on(self) -> Reader:
        """Run up to the call that reads the config, or to the wait for it."""
        while not self.is_there():
            self.request = self.plan.send(Script(self.table)._answer(self.request))
        return self

    def is_there(self) -> bool:
        return isinstance(self.request, AwaitNews) or "#CONFIG" in repr(self.request)

    def finish(self, *others: Reader) -> None:
        """Run to the end; the reader it waits for ends first."""
        while True:
            if isinstance(self.request, AwaitNews):
                for other in others:
                    other.finish()
            reply = None if isinstance(self.request, AwaitNews) else Script(self.table)._answer(self.request)
            try:
                self.request = self.plan.send(reply)
            except StopIteration:
                return


def test_two_threads_that_begin_to_read_at_the_same_time_both_succeed() -> None:
    table = hierarchy(1)
    client = table.client()
    under_way = client.space.resolver._under_way = Interjecting()
    one, other = Reader(table, client), Reader(table, client)
    under_way.interject = other.go_on
    before = table.levels("key")["rpd"]
    one.go_on()
    assert under_way.interject is None, "the other thread came in between"
    if isinstance(other.request, AwaitNews):
        other.finish(one)
    else:
        other.finish()
        one.finish()
    assert before - table.levels("key")["rpd"] == 2 * MILLI


def test_a_caller_that_joins_a_reading_that_has_just_ended_does_not_wait() -> None:
    table = hierarchy(1)
    client = table.client()
    leader = Reader(table, client).go_on()
    under_way = client.space.resolver._under_way = Interjecting(client.space.resolver._under_way)
    under_way.interject = leader.finish
    started = table.timer
    Script(table).run(client.lease("key", {"rpd": 1})._begin())
    assert table.timer - started < 1_000


def test_a_reading_that_never_ends_is_taken_over() -> None:
    """Its task was left in an event loop that was stopped: no other caller may wait for it for long, or for ever."""
    table = hierarchy(1)
    client = table.client()
    leader = Reader(table, client).go_on()
    started = table.timer
    ended = Script(table).run(client.lease("key", {"rpd": 1})._begin())
    assert ended.error is None
    assert 500 <= table.timer - started < 600
    client.space.invalidate_config_cache()
    started = table.timer
    assert Script(table).run(client.lease("key", {"rpd": 1})._begin()).error is None
    assert table.timer - started < 100  # it is known to be stuck
    leader.finish()  # the loop goes on after all
    assert not client.space.resolver._under_way


def test_a_caller_that_takes_a_reading_over_is_waited_for_in_its_place() -> None:
    table = hierarchy(1)
    client = table.client()
    stuck = Reader(table, client).go_on()
    second, third = Reader(table, client).go_on(), Reader(table, client).go_on()
    assert isinstance(second.request, AwaitNews)
    assert isinstance(third.request, AwaitNews)
    table.timer = second.request.give_up_at
    for waiting in (second, third):  # they were not woken
        waiting.request = waiting.plan.send(None)
        waiting.go_on()
    assert not isinstance(second.request, AwaitNews)
    assert isinstance(third.request, AwaitNews)
    assert third.request.give_up_at > table.timer
    third.finish(second)
    assert not client.space.resolver._under_way
    stuck.plan.close()


def test_a_caller_that_waited_for_a_reading_that_failed_reads_for_itself() -> None:
    table = hierarchy(1)
    client = table.client()
    leader, waiting = Reader(table, client).go_on(), Reader(table, client).go_on()
    assert isinstance(waiting.request, AwaitNews)
    with pytest.raises(ConfigurationError):
        leader.plan.throw(Refused("AccessDeniedException"))
    assert waiting.request.wake_up.is_set
    waiting.finish()
    assert not client.space.resolver._under_way


def test_a_caller_that_is_cancelled_while_reading_leaves_the_reading_to_others() -> None:
    table = hierarchy(1)
    client = table.client()
    leader, waiting = Reader(table, client).go_on(), Reader(table, client).go_on()
    leader.request = leader.plan.throw(Interrupted(Stopped()))
    with pytest.raises(Interrupted):
        leader.finish()
    waiting.finish()
    assert not client.space.resolver._under_way


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks on this platform")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_child_forked_during_a_reading_reads_for_itself() -> None:
    table = hierarchy(1)
    client = table.client()
    leader = Reader(table, client).go_on()
    child = os.fork()
    if child == 0:
        ended = Script(table).run(client.lease("key", {"rpd": 1})._begin())
        os._exit(0 if ended.error is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    leader.finish()


# Threads and snapshots


def test_threads_that_share_a_bucket_cache_take_exactly_what_is_there() -> None:
    table = hierarchy(1)
    store = ModelStore(table, deadline=20)
    limiter = SyncRateLimiter(SyncRepository(store, clock=lambda: table.now))
    level = table.levels("key")["rpd"] // 1_000
    granted: list[int] = []

    def work(number: int) -> None:
        for _ in range(20):
            try:
                with limiter.acquire("key", RESOURCE, {"rpd": 1}):
                    granted.append(number)
            except Exception:
                continue

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(granted) == level
    assert table.levels("key")["rpd"] // 1_000 == 0
