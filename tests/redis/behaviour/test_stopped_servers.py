"""A server that is stopped and started again: processes grant from their share meanwhile, and book that once."""

from __future__ import annotations

import asyncio
import time

import pytest

from engines.redis_servers import RedisServer
from support.redis_stores import consumed, has_no_gaps, limiter_on
from zae_limiter import Limit, RateLimiter, RateLimitExceeded, SyncRateLimiter

QUOTA = Limit.custom("rpd", 1_000, 1, 86_400)
DEADLINE_S = 0.3
PATIENCE_S = 20.0


@pytest.mark.parametrize("kind", ["redis-6.2", "valkey-9.1"])
@pytest.mark.usefixtures("redis_6_2", "valkey_9_1")
def test_a_server_that_is_killed_and_started_again_finds_what_was_granted(kind: str) -> None:
    with RedisServer(kind, "--appendonly", "yes", "--appendfsync", "always") as server:
        operator = limiter_on(server)
        operator.set_system_defaults([QUOTA])
        operator.create_entity("org")
        operator.create_entity("key", parent_id="org", cascade=True)
        two = [SyncRateLimiter.open(server.url, deadline=DEADLINE_S, on_unavailable="local") for _ in range(2)]
        for _ in range(3):
            for limiter, amount in zip(two, (30, 10), strict=True):
                with limiter.acquire("key", "gpt", {"rpd": amount}):
                    time.sleep(0.3)  # a share is measured over a second at least
        server.kill()
        granted = [0, 0]
        for place, limiter in enumerate(two):
            for _ in range(100):
                try:
                    with limiter.acquire("key", "gpt", {"rpd": 10}) as lease:
                        assert lease.local
                        assert lease.degraded
                        granted[place] += 10
                except RateLimitExceeded:
                    break
        assert sum(granted) <= 1_000 - 120
        assert granted[0] > 1.5 * granted[1] > 0
        server.restart()
        give_up_at = time.monotonic() + PATIENCE_S
        back = 0
        for limiter in two:
            while time.monotonic() < give_up_at:
                try:
                    with limiter.acquire("key", "gpt", {"rpd": 1}) as lease:
                        back += 1
                    if not lease.local:
                        break
                except RateLimitExceeded:
                    pass
                time.sleep(0.05)
        assert not lease.local
        for limiter in two:
            limiter.close()
        fresh = limiter_on(server)
        assert consumed(fresh, "key") == consumed(fresh, "org") == 120 + sum(granted) + back
        assert fresh.available("key", "gpt") == {"rpd": 1_000 - 120 - sum(granted) - back}
        assert has_no_gaps(fresh, "key")
        assert not fresh.list_leases().items
        fresh.repository.close()
        operator.repository.close()


def test_tasks_grant_from_a_share_while_a_server_hangs(valkey_9_1: RedisServer) -> None:
    with RedisServer(valkey_9_1.kind) as server:
        limiter_on(server).set_system_defaults([QUOTA])

        async def through_an_outage() -> int:
            async with RateLimiter.open(
                server.url, deadline=DEADLINE_S, on_unavailable="local", local_share=0.1
            ) as limiter:
                async with limiter.acquire("key", "gpt", {"rpd": 1}):
                    pass
                server.freeze()
                granted = 0
                try:
                    for _ in range(40):
                        try:
                            async with limiter.acquire("key", "gpt", {"rpd": 9}) as lease:
                                assert lease.local
                                granted += 9
                        except RateLimitExceeded:
                            break
                finally:
                    server.thaw()
                assert granted == 99  # a tenth of 999
                for _ in range(200):  # the breaker notices it with its next probe
                    async with limiter.acquire("other", "gpt", {"rpd": 1}, on_unavailable="allow") as lease:
                        pass
                    if not lease.degraded:
                        break
                    await asyncio.sleep(0.05)
                assert not lease.degraded
                return granted

        granted = asyncio.run(through_an_outage())
        assert consumed(limiter_on(server), "key") == 1 + granted
