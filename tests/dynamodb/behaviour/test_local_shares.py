"""DynamoDB goes away and comes back: a process grants from its share meanwhile, and books that exactly once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pytest

from engines.servers import Engine
from support.hostile_proxy import Proxy, hostile
from zae_limiter import Limit, RateLimiter, RateLimiterUnavailable, RateLimitExceeded, SyncRateLimiter

TABLES = count()
BUDGET = Limit.custom("tpd", 1_000, 1, 86_400)
DEADLINE_S = 1.0


@contextmanager
def behind_a_proxy(dynoxide: Engine) -> Iterator[tuple[SyncRateLimiter, Proxy, str]]:
    """An operator that reaches the table, and a way to it that may be cut."""
    table = f"local-{next(TABLES)}"
    direct = f"dynamodb://{table}?region=us-east-1&endpoint_url={dynoxide.endpoint_url}"
    with SyncRateLimiter.open(direct, create=True) as operator, hostile(dynoxide.endpoint_url, 1) as proxy:
        operator.set_system_defaults([BUDGET])
        operator.create_entity("org")
        operator.create_entity("key", parent_id="org", cascade=True)
        proxy.forced = "fine"
        yield operator, proxy, f"dynamodb://{table}?region=us-east-1&endpoint_url={proxy.url}"


def books(operator: SyncRateLimiter, entity_id: str) -> tuple[int, int]:
    (bucket,) = operator.get_status(entity_id).buckets
    return bucket.limits[0].total_consumed, bucket.limits[0].available


def test_what_was_granted_while_the_table_was_away_is_booked_once_though_answers_are_lost(dynoxide: Engine) -> None:
    with (
        behind_a_proxy(dynoxide) as (operator, proxy, url),
        SyncRateLimiter.open(url, deadline=DEADLINE_S, on_unavailable="local", local_share=1) as limiter,
    ):
        for _ in range(3):
            with limiter.acquire("key", "gpt", {"tpd": 10}) as lease:
                assert not lease.local
        proxy.forced = "500 before"
        for _ in range(5):
            with limiter.acquire("key", "gpt", {"tpd": 20}) as lease:
                assert lease.local
                lease.adjust(tpd=1)
        with pytest.raises(RateLimitExceeded), limiter.acquire("key", "gpt", {"tpd": 900}):
            pass
        proxy.forced = "500 after"  # what is sent is done, and no answer comes
        for _ in range(3):
            with limiter.acquire("key", "gpt", {"tpd": 1}) as lease:
                assert lease.local
        proxy.forced = "fine"
        back = 0
        while lease.local and back < 200:  # the breaker notices it with its next probe
            with limiter.acquire("key", "gpt", {"tpd": 1}) as lease:
                back += 1
            time.sleep(0.05)
        assert not lease.local
        limiter.repository._driver.run(limiter.repository._finish())
        for entity_id in ("key", "org"):
            taken, left = books(operator, entity_id)
            assert taken == 30 + 5 * 21 + 3 + back
            assert left == 1_000 - taken
        for entity_id in ("key", "org"):
            assert not any(chain.gaps for chain in operator.repository.verify_usage(entity_id).chains)
        assert not operator.list_leases().items


def test_tasks_grant_from_their_share_too_and_close_books(dynoxide: Engine) -> None:
    with behind_a_proxy(dynoxide) as (operator, proxy, url):

        async def through_an_outage() -> None:
            options = {"deadline": DEADLINE_S, "on_unavailable": "local", "local_share": 0.5}
            async with RateLimiter.open(url, **options) as limiter:
                async with limiter.acquire("key", "gpt", {"tpd": 100}):
                    pass
                proxy.forced = "500 before"
                granted = 0
                for _ in range(60):
                    try:
                        async with limiter.acquire("key", "gpt", {"tpd": 10}) as lease:
                            assert lease.local
                            granted += 10
                    except RateLimitExceeded:
                        break
                assert granted == 450
                with pytest.raises(RateLimiterUnavailable):
                    async with limiter.acquire("unknown", "gpt", {"tpd": 10}):
                        pass
                proxy.forced = "fine"
                for _ in range(200):  # the breaker notices it with its next probe
                    async with limiter.acquire("other", "gpt", {"tpd": 1}, on_unavailable="allow") as lease:
                        pass
                    if not lease.degraded:
                        break
                    await asyncio.sleep(0.05)
                assert not lease.degraded

        asyncio.run(through_an_outage())
        assert books(operator, "key") == (550, 450)
        assert books(operator, "org") == (550, 450)
