"""For how many days usage is kept is a matter of the URL; what buckets count is not."""

from __future__ import annotations

import pytest

from engines.redis_servers import RedisServer, flush
from support.redis_stores import consumed, has_no_gaps, store_at
from zae_limiter import Limit, SyncRateLimiter
from zae_limiter.repository.sync_repository import SyncRepository

DAY_MS = 86_400_000


def used(server: RedisServer, query: str) -> SyncRateLimiter:
    flush([server])
    limiter = SyncRateLimiter(SyncRepository(store_at(f"{server.url}{query}")))
    limiter.set_system_defaults([Limit.per_day("rpd", 100), Limit.concurrent("calls", 5)])
    with limiter.acquire("key", "gpt", {"rpd": 3, "calls": 1}) as lease:
        lease.adjust(rpd=2)
        lease.renew()
    assert consumed(limiter, "key") == 5
    assert has_no_gaps(limiter, "key")
    return limiter


@pytest.mark.parametrize(("query", "days"), [("", 90), ("?usage_days=90", 90), ("?usage_days=7", 7)])
def test_usage_expires_after_the_days_that_the_url_says(redis_6_2: RedisServer, query: str, days: int) -> None:
    limiter = used(redis_6_2, query)
    assert [row.counters["rpd"] for row in limiter.get_usage_snapshots(entity_id="key").items] == [5, 5, 5]
    (key,) = [key for key in redis_6_2.ask("KEYS", "*") if b"}u#" in key]
    assert days * DAY_MS < redis_6_2.ask("PTTL", key) <= (days + 20) * DAY_MS, "rows are kept in chunks of twenty days"
    limiter.repository.close()


def test_no_days_count_none(redis_6_2: RedisServer) -> None:
    limiter = used(redis_6_2, "?usage_days=0")
    assert not limiter.get_usage_snapshots(entity_id="key").items
    assert not [key for key in redis_6_2.ask("KEYS", "*") if b"}u#" in key]
    assert limiter.get_status("key").buckets[0].total_events == 1
    limiter.repository.close()
