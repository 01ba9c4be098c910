"""The tightest buckets: one that was split is one bucket, with what all its shards have left."""

from __future__ import annotations

from itertools import count

from engines.servers import Engine
from support.transports import sync_asking
from zae_limiter import Limit, SyncRateLimiter
from zae_limiter.stores.dynamodb.transport.protocol import Target
from zae_limiter.testing import FakeClock

TABLES = count()
AMOUNTS = {"hot": 1, "tighter": 40, "looser": 20}


def shards_of(entity_id: str, table: str, engine: Engine) -> int:
    with sync_asking(Target("us-east-1", engine.endpoint_url)) as ask:
        items = ask("Scan", {"TableName": table})["Items"]
    return sum(f"/BUCKET#{entity_id}#" in item["PK"]["S"] for item in items)


def test_a_split_bucket_is_ranked_as_a_whole(dynoxide: Engine) -> None:
    table = f"tightest-{next(TABLES)}"
    url = f"dynamodb://{table}?region=us-east-1&endpoint_url={dynoxide.endpoint_url}"
    clock = FakeClock()
    with SyncRateLimiter.open(url, create=True, clock=clock, wcu=2, deadline=20) as limiter:
        limiter.set_system_defaults([Limit.per_day("rpd", 100)])
        for entity_id, grants in (("hot", 30), ("tighter", 1), ("looser", 1)):
            for _ in range(grants):
                with limiter.acquire(entity_id, "gpt", {"rpd": AMOUNTS[entity_id]}):
                    pass
                clock.advance(milliseconds=100)
        assert shards_of("hot", table, dynoxide) > 1
        tightest = limiter.get_tightest_buckets()
        assert [bucket.entity_id for bucket in tightest] == ["tighter", "hot", "looser"]
        assert limiter.get_status("hot").buckets == (tightest[1],)
        assert tightest[1].total_events == 30
        assert limiter.list_active_entities() == ["hot", "looser", "tighter"]
        limiter.repository.delete_table()
