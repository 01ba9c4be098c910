"""Replies are lost and requests come late: what clients were told is what the buckets counted, to the token."""

from __future__ import annotations

import asyncio
import random

import pytest

from engines.redis_servers import RedisServer, flush
from support.lossy_redis_proxy import lossy
from support.redis_stores import consumed, events, has_no_gaps, limiter_on, store_at
from zae_limiter import Limit, RateLimiter, SyncRateLimiter
from zae_limiter.repository.repository import Repository
from zae_limiter.repository.sync_repository import SyncRepository
from zae_limiter.stores.redis import requests, scripts

LEASES = 600
QUOTA = [Limit.per_day("rpd", 10**9)]


def set_up(server: RedisServer) -> SyncRateLimiter:
    flush([server])
    limiter = limiter_on(server)
    limiter.set_system_defaults(QUOTA)
    limiter.create_entity("org")
    limiter.create_entity("key", parent_id="org", cascade=True)
    return limiter


def use(limiter: SyncRateLimiter, rng: random.Random) -> int:
    """Some leases; what they took, by what they were told."""
    told = 0
    for _ in range(LEASES):
        adjusted = rng.choice((0, 0, 3, -1))
        try:
            with limiter.acquire("key", "gpt", {"rpd": 2}) as lease:
                lease.adjust(rpd=adjusted)
                if rng.random() < 0.1:
                    raise ZeroDivisionError
            told += 2 + adjusted
        except ZeroDivisionError:
            pass
    return told


def test_nothing_is_taken_twice_and_nothing_is_forgotten(redis_6_2: RedisServer) -> None:
    straight = set_up(redis_6_2)
    with lossy(redis_6_2.port, 1) as proxy:
        limiter = SyncRateLimiter(SyncRepository(store_at(proxy.url)))
        limiter.available("key", "gpt")
        proxy.harmless = False
        told = use(limiter, random.Random(1))
        limiter.repository.close()
    assert proxy.fates["reply lost"] > 5
    assert proxy.fates["request late"] > 5
    assert consumed(straight, "key") == consumed(straight, "org") == told
    assert events(straight, "key") == LEASES
    assert has_no_gaps(straight, "key")
    straight.repository.close()


def test_neither_by_many_tasks_on_one_connection(valkey_9_1: RedisServer) -> None:
    straight = set_up(valkey_9_1)

    async def one(limiter: RateLimiter) -> int:
        taken = 0
        for _ in range(40):
            async with limiter.acquire("key", "gpt", {"rpd": 2}) as lease:
                await lease.adjust(rpd=1)
            taken += 3
        return taken

    async def all_of_them(url: str) -> int:
        async with Repository(store_at(url)) as repository:
            limiter = RateLimiter(repository)
            await limiter.available("key", "gpt")
            proxy.harmless = False
            return sum(await asyncio.gather(*(one(limiter) for _ in range(12))))

    with lossy(valkey_9_1.port, 2) as proxy:
        told = asyncio.run(all_of_them(proxy.url))
    assert sum(proxy.fates.values()) > proxy.fates["fine"], "something was lost on the way"
    assert consumed(straight, "key") == consumed(straight, "org") == told
    straight.repository.close()


@pytest.mark.parametrize(
    "mutation",
    {
        "no mark is looked at": (b"call('GETBIT', marks, mark) == 1", b"false"),
        "only a repeat looks": (b"call('SETBIT', marks, mark, 1) == 0", b"(call('SETBIT', marks, mark, 1) or 0) >= 0"),
    }.items(),
    ids=lambda mutation: mutation[0],
)
def test_without_marks_too_much_is_taken(
    mutation: tuple[str, tuple[bytes, bytes]], redis_6_2: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = scripts.Script("draw")
    assert mutation[1][0] in draw.text
    draw.text = draw.text.replace(*mutation[1])
    short = b"call('SETBIT', KEYS[#KEYS], ARGV[5], 1) == 0"  # on the short way of most draws
    assert short in draw.text
    draw.text = draw.text.replace(short, short.replace(b"==", b">="))
    if mutation[0].startswith("no"):
        draw.text = draw.text.replace(b"call('SETBIT', marks, mark, 1) == 0", b"call('SETBIT', marks, mark, 1) >= 0")
    draw.sha = scripts.sha1(draw.text).hexdigest().encode()
    monkeypatch.setattr("zae_limiter.stores.redis.bucket_verbs.DRAW", draw)
    monkeypatch.setitem(requests.BY_DIGEST, draw.sha, draw)
    straight = set_up(redis_6_2)
    with lossy(redis_6_2.port, 1) as proxy:
        limiter = SyncRateLimiter(SyncRepository(store_at(proxy.url)))
        limiter.available("key", "gpt")
        proxy.harmless = False
        told = use(limiter, random.Random(1))
        limiter.repository.close()
    assert consumed(straight, "key") > told
    straight.repository.close()
