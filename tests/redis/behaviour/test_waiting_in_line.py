"""Callers of several processes wait in one line: real processes, on one server, beside others that never wait."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from engines.redis_servers import RedisCluster, RedisServer, flush
from support.redis_stores import limiter_on
from zae_limiter import Limit, RateLimitExceeded
from zae_limiter.stores.redis.store import RedisSpace

RATE = 100
LIMITS = [Limit.per_second("rpm", RATE, burst=50)]
AMOUNTS = (40, 10, 30)

CHILD = """
import asyncio, signal, sys, time
from urllib.parse import urlsplit
from zae_limiter import AccessBlocked, RateLimiter, RateLimitExceeded, SyncRateLimiter
from zae_limiter.repository.repository import Repository
from zae_limiter.repository.sync_repository import SyncRepository
from zae_limiter.stores.redis.store import RedisSpace, RedisStore
from zae_limiter.stores.redis.urls import servers_of

url, what, amount, patience, claims = sys.argv[1:]
if claims == "no":
    RedisSpace.claims_for_ms = None
store = RedisStore(servers_of(urlsplit(url)), deadline=20.0)
limiter = SyncRateLimiter(SyncRepository(store))

async def waits_in_a_loop():
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, asyncio.current_task().cancel)
    try:
        async with RateLimiter(Repository(store)).acquire("key", "gpt", {"rpm": int(amount)}, timeout=float(patience)):
            print(time.time(), flush=True)
    except asyncio.CancelledError:
        print("cancelled", flush=True)

limiter.available("key", "gpt")
print("ready", flush=True)
sys.stdin.readline()
ends = time.time() + float(patience)
if what == "greedy":
    while time.time() < ends:
        try:
            with limiter.acquire("key", "gpt", {"rpm": int(amount)}):
                pass
        except RateLimitExceeded:
            time.sleep(0.001)
elif what == "awaits":
    asyncio.run(waits_in_a_loop())
else:
    try:
        with limiter.acquire("key", "gpt", {"rpm": int(amount)}, timeout=float(patience)):
            print(time.time(), flush=True)
    except RateLimitExceeded:
        print("gave up", flush=True)
    except KeyboardInterrupt:
        print("cancelled", flush=True)
    except AccessBlocked:
        print("blocked", flush=True)
"""


@contextmanager
def child(url: str, what: str, amount: int, patience: float, claims: bool = True) -> Iterator[subprocess.Popen[str]]:
    """A process that is ready, and begins with the next line that it is sent."""
    run = [sys.executable, "-c", CHILD, url, what, str(amount), str(patience), "yes" if claims else "no"]
    with subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def told(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


CLAIMS = """
local ids = {}
for n, claim in ipairs(cmsgpack.unpack(redis.call('GET', KEYS[1]))) do ids[n] = claim[1] end
return ids
"""


def claims_on(server: RedisServer) -> list[bytes]:
    """Who claims something."""
    keys = [key for key in server.ask("KEYS", "*") if b"}q#" in key]
    return [claim for key in keys for claim in server.ask("EVAL", CLAIMS, 1, key)]


def await_claims(server: RedisServer, count: int) -> None:
    while len(claims_on(server)) < count:
        time.sleep(0.01)


def served(servers: RedisServer | RedisCluster, amounts: tuple[int, ...], patience: float, claims: bool) -> list[str]:
    """When waiters that come one after the other were served, beside two processes that take what they can."""
    flush(servers.nodes if isinstance(servers, RedisCluster) else [servers])
    limiter = limiter_on(servers)
    limiter.set_system_defaults(LIMITS)
    with ExitStack() as open_children:
        greedy = [open_children.enter_context(child(servers.url, "greedy", 1, 30, claims)) for _ in range(2)]
        waiters = [
            open_children.enter_context(child(servers.url, "waits", amount, patience, claims)) for amount in amounts
        ]
        with limiter.acquire("key", "gpt", {"rpm": 50}):
            pass
        for process in greedy:
            go(process)
        for waiter in waiters:
            go(waiter)
            time.sleep(0.1)
        answers = [told(waiter) for waiter in waiters]
    limiter.repository.close()
    return answers


@pytest.mark.parametrize("server", ["redis_6_2", "valkey_cluster"])
def test_waiters_of_several_processes_are_served_in_the_order_they_came(
    server: str, request: pytest.FixtureRequest
) -> None:
    answers = served(request.getfixturevalue(server), AMOUNTS, 20, claims=True)
    assert "gave up" not in answers
    assert [float(answer) for answer in answers] == sorted(float(answer) for answer in answers)


def test_without_claims_a_caller_that_wants_much_is_never_served(redis_6_2: RedisServer) -> None:
    assert served(redis_6_2, (45,), 2, claims=False) == ["gave up"]


def test_a_caller_that_was_killed_holds_up_the_others_for_a_moment_only(redis_6_2: RedisServer) -> None:
    flush([redis_6_2])
    limiter = limiter_on(redis_6_2)
    limiter.set_system_defaults([Limit.per_minute("rpm", 60)])
    with limiter.acquire("key", "gpt", {"rpm": 58}):
        pass
    with child(redis_6_2.url, "waits", 5, 30) as waiter:
        go(waiter)
        await_claims(redis_6_2, 1)
        with pytest.raises(RateLimitExceeded) as refused, limiter.acquire("key", "gpt", {"rpm": 1}):
            pass
        assert 2 <= refused.value.retry_after_seconds <= 4, "six tokens have to come: those five are claimed"
    assert RedisSpace.claims_for_ms is not None
    with limiter.acquire("key", "gpt", {"rpm": 1}, timeout=2 * RedisSpace.claims_for_ms / 1000):
        pass
    for key in [key for key in redis_6_2.ask("KEYS", "*") if b"}q#" in key]:
        assert redis_6_2.ask("PTTL", key) <= RedisSpace.claims_for_ms, "its claim is gone soon"
    limiter.repository.close()


@pytest.mark.parametrize("what", ["waits", "awaits"])
def test_a_caller_that_is_cancelled_takes_its_claim_back_and_no_other(redis_6_2: RedisServer, what: str) -> None:
    flush([redis_6_2])
    limiter = limiter_on(redis_6_2)
    limiter.set_system_defaults([Limit.per_minute("rpm", 60)])
    with limiter.acquire("key", "gpt", {"rpm": 40}):
        pass
    with child(redis_6_2.url, what, 30, 60) as first, child(redis_6_2.url, "waits", 25, 60) as second:
        go(first)
        await_claims(redis_6_2, 1)
        go(second)
        await_claims(redis_6_2, 2)
        for waiter, left in ((first, 1), (second, 0)):
            waiter.send_signal(signal.SIGINT)
            assert told(waiter) == "cancelled"
            assert len(claims_on(redis_6_2)) == left
        with limiter.acquire("key", "gpt", {"rpm": 1}):
            pass
    limiter.repository.close()


def test_a_caller_that_is_blocked_while_it_waits_takes_its_claim_back(redis_6_2: RedisServer) -> None:
    flush([redis_6_2])
    limiter = limiter_on(redis_6_2)
    limiter.set_system_defaults([Limit.per_minute("rpm", 60)])
    with limiter.acquire("key", "gpt", {"rpm": 40}):
        pass
    with child(redis_6_2.url, "waits", 50, 60) as waiter:
        go(waiter)
        await_claims(redis_6_2, 1)
        limiter.set_access("block", entity_id="key")
        assert told(waiter) == "blocked"
        assert not claims_on(redis_6_2)
    limiter.repository.close()


def test_a_waiter_that_asks_for_too_much_claims_nothing(redis_6_2: RedisServer) -> None:
    flush([redis_6_2])
    limiter = limiter_on(redis_6_2)
    limiter.set_system_defaults([Limit.per_minute("rpm", 60)])
    with limiter.acquire("key", "gpt", {"rpm": 50}):
        pass
    for amount, timeout in ((61, 5), (60, 0.2)):
        with pytest.raises(RateLimitExceeded), limiter.acquire("key", "gpt", {"rpm": amount}, timeout=timeout):
            pass
    assert not claims_on(redis_6_2)
    limiter.repository.close()
