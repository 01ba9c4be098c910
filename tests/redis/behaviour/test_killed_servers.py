"""A server that is killed, stopped, full or emptied of its scripts: books stay equal, deadlines are kept."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable

import pytest

from engines.redis_servers import RedisServer, flush
from engines.servers import HOST
from support.redis_stores import consumed, events, has_no_gaps, limiter_on, store_at
from zae_limiter import Limit, RateLimiter, RateLimiterUnavailable, SyncRateLimiter
from zae_limiter.repository.repository import Repository
from zae_limiter.repository.sync_repository import SyncRepository
from zae_limiter.stores.circuit_breaker import FAILURES_TO_OPEN

QUOTA = [Limit.per_day("rpd", 10**9)]
KILLS = 3
DEADLINE_S = 0.4


def test_a_server_that_is_killed_forgets_nothing_with_its_log(valkey_9_1: RedisServer) -> None:
    with RedisServer(valkey_9_1.kind, "--appendonly", "yes", "--appendfsync", "always") as server:
        limiter = limiter_on(server)
        limiter.set_system_defaults(QUOTA)
        told = [0] * 3
        stop = threading.Event()

        def work(place: int) -> None:
            mine = limiter_on(server)
            while not stop.is_set():
                with mine.acquire("key", "gpt", {"rpd": 1}) as lease:
                    lease.adjust(rpd=1)
                told[place] += 2
            mine.repository.close()

        threads = [threading.Thread(target=work, args=(place,)) for place in range(len(told))]
        for thread in threads:
            thread.start()
        for _ in range(KILLS):
            before = sum(told)
            while sum(told) < before + 100:
                time.sleep(0.01)
            server.kill()
            server.restart()
        stop.set()
        for thread in threads:
            thread.join(30)
        assert consumed(limiter, "key") == sum(told)
        assert events(limiter, "key") * 2 == sum(told)
        assert has_no_gaps(limiter, "key")
        limiter.repository.close()


def test_a_server_that_forgot_its_scripts_is_told_them_again(redis_6_2: RedisServer) -> None:
    flush([redis_6_2])
    limiter = limiter_on(redis_6_2)
    limiter.set_system_defaults(QUOTA)
    for _ in range(5):
        with limiter.acquire("key", "gpt", {"rpd": 1}) as lease:
            lease.adjust(rpd=1)
            redis_6_2.ask("SCRIPT", "FLUSH")
        limiter.set_limits("other", QUOTA)
    assert consumed(limiter, "key") == 10
    limiter.repository.close()


@pytest.mark.parametrize("kind", ["redis-6.2", "valkey-8.1", "valkey-9.1"])
@pytest.mark.usefixtures("redis_6_2", "valkey_9_1", "valkey_cluster")
def test_a_server_without_memory_refuses_and_books_nothing(kind: str) -> None:
    with RedisServer(kind, "--maxmemory-policy", "noeviction") as server:
        limiter = limiter_on(server)
        limiter.set_system_defaults(QUOTA)
        for _ in range(5):
            with limiter.acquire("key", "gpt", {"rpd": 1}):
                pass
        server.ask("CONFIG", "SET", "maxmemory", 1)
        for _ in range(5):
            with pytest.raises(RateLimiterUnavailable, match="maxmemory"), limiter.acquire("key", "gpt", {"rpd": 1}):
                pass
        server.ask("CONFIG", "SET", "maxmemory", 0)
        with limiter.acquire("key", "gpt", {"rpd": 1}):
            pass
        assert consumed(limiter, "key") == 6
        limiter.repository.close()


def test_a_server_that_is_stopped_costs_one_deadline_and_takes_nothing_later(valkey_9_1: RedisServer) -> None:
    flush([valkey_9_1])
    limiter = limiter_on(valkey_9_1, DEADLINE_S)
    limiter.set_system_defaults(QUOTA)
    with limiter.acquire("key", "gpt", {"rpd": 1}):
        pass
    valkey_9_1.freeze()
    try:
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(RateLimiterUnavailable, match="no answer"), limiter.acquire("key", "gpt", {"rpd": 1}):
                pass
            assert time.monotonic() - began > DEADLINE_S * 0.5
        time.sleep(DEADLINE_S)
    finally:
        valkey_9_1.thaw()
    time.sleep(0.2)  # what hung in its socket is read, and refused: its callers have gone
    assert consumed(limiter_on(valkey_9_1), "key") == 1
    limiter.repository.close()


def test_no_server_at_all_is_said_with_what_to_do() -> None:
    limiter = SyncRateLimiter(SyncRepository(store_at(f"redis://{HOST}:1", 0.2)))
    with pytest.raises(RateLimiterUnavailable, match=rf"no answer from Redis at {HOST}:1 within 0.2 s.*is the server"):
        limiter.check()


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_outage_is_told_at_once_after_a_while_and_its_end_is_noticed(mode: str, valkey_9_1: RedisServer) -> None:
    flush([valkey_9_1])
    limiter_on(valkey_9_1).set_system_defaults(QUOTA)

    async def through_an_outage() -> None:
        async with Repository(store_at(valkey_9_1.url, 0.15)) as repository:
            limiter = RateLimiter(repository)

            async def once() -> None:
                async with limiter.acquire("key", "gpt", {"rpd": 1}):
                    pass

            await wait_for(once)
            valkey_9_1.freeze()
            try:
                for _ in range(FAILURES_TO_OPEN + 1):
                    with pytest.raises(RateLimiterUnavailable):
                        await once()
                with pytest.raises(RateLimiterUnavailable, match="was not asked"):
                    await once()
            finally:
                valkey_9_1.thaw()
            await wait_for(once)

    async def wait_for(once: Callable[[], Awaitable[None]]) -> None:
        give_up_at = time.monotonic() + 20
        while time.monotonic() < give_up_at:
            try:
                await once()
                return
            except RateLimiterUnavailable:
                await asyncio.sleep(0.05)
        raise AssertionError("it was never noticed that the server answers again")

    def through_it_in_a_thread() -> None:
        store = store_at(valkey_9_1.url, 0.15)
        limiter = SyncRateLimiter(SyncRepository(store))

        def once() -> None:
            with limiter.acquire("key", "gpt", {"rpd": 1}):
                pass

        until_answered(once)
        valkey_9_1.freeze()
        try:
            for _ in range(FAILURES_TO_OPEN + 1):
                with pytest.raises(RateLimiterUnavailable):
                    once()
            with pytest.raises(RateLimiterUnavailable, match="was not asked"):
                once()
        finally:
            valkey_9_1.thaw()
        until_answered(once)

    def until_answered(once: Callable[[], None]) -> None:
        give_up_at = time.monotonic() + 20
        while time.monotonic() < give_up_at:
            try:
                return once()
            except RateLimiterUnavailable:
                time.sleep(0.05)
        raise AssertionError("it was never noticed that the server answers again")

    if mode == "sync":
        through_it_in_a_thread()
    else:
        asyncio.run(through_an_outage())
