"""Four processes split one entity into eight shards and more: what is admitted is exact, and everything adds up."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from engines.servers import Engine
from support.dynamodb.aggregated_store import drain
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter
from zae_limiter.bucket import share
from zae_limiter.running.clocks import machine_clock
from zae_limiter.running.sync_driver import SyncDriver
from zae_limiter.stores.dynamodb.schema import decode_item
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.dynamodb.transport.protocol import Target

CROWD = Path(__file__).parents[2] / "support" / "dynamodb" / "hot_crowd.py"
PROCESSES, TASKS, WCU = 4, 4, 5
BUDGET = {"rpd": 100_000, "tpd": 10_000_000}
LAST = 500
TABLES = count()


def crowded(url: str, seconds: float) -> dict[str, int]:
    """The sums over all processes."""
    task = json.dumps({"url": url, "tasks": TASKS, "seconds": seconds, "wcu": WCU})
    processes = [
        subprocess.Popen([sys.executable, str(CROWD), task], stdout=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    tallies = []
    for process in processes:
        output, _ = process.communicate(timeout=150)
        assert process.returncode == 0
        tallies.append(json.loads(output))
    sums = {name: sum(tally[name] for tally in tallies) for name in tallies[0]}
    assert (sums["unavailable"], sums["unresolved"]) == (0, 0)
    return sums


def items_of(store: DynamoStore) -> list[dict[str, Any]]:
    """The shards as they are in the table."""
    reply = store.perform(_scan(store))
    assert "LastEvaluatedKey" not in reply
    return [item for item in map(decode_item, reply["Items"]) if "/BUCKET#key#gpt#" in item["PK"]]


def _scan(store: DynamoStore) -> Any:
    from zae_limiter.running.clocks import machine_timer
    from zae_limiter.stores.dynamodb.requests import Call

    return Call("Scan", {"TableName": store.client.table, "ConsistentRead": True}, machine_timer() + 20_000)


@pytest.mark.timeout(400)
def test_four_processes_split_an_entity_and_get_exactly_its_budget(dynoxide: Engine) -> None:
    table = f"hot-crowd-{next(TABLES)}"
    url = f"dynamodb://{table}?region=us-east-1&endpoint_url={dynoxide.endpoint_url}"
    store = DynamoStore(table, Target("us-east-1", dynoxide.endpoint_url), deadline=20)
    with SyncRateLimiter.open(url, create=True, deadline=20, wcu=WCU) as limiter:
        limiter.set_system_defaults([Limit.custom(name, tokens, 1, 86_400) for name, tokens in BUDGET.items()])
        hot = crowded(url, seconds=4.5)
        for _ in range(5):  # a busy machine needs longer
            if len(items_of(store)) >= 8:
                break
            more = crowded(url, seconds=4.5)
            hot = {name: hot[name] + more[name] for name in hot}
        items = items_of(store)
        assert len(items) >= 8
        check_shares(items)
        assert taken_from(items) == {"rpd": hot["rpd"], "tpd": hot["tpd"]}

        # A request larger than any share leaves a little, and four processes race for that.
        rest = BUDGET["rpd"] - hot["rpd"] - LAST
        with limiter.acquire("key", "gpt", {"rpd": rest}):
            assert rest > max(item["b_rpd_tk"] for item in items_of(store)) // 1000
        last = crowded(url, seconds=0)
        status = limiter.get_status("key", "gpt").buckets[0]
        used = {level.limit_name: level.total_consumed for level in status.limits}
        left = {level.limit_name: level.available for level in status.limits}
        items = items_of(store)
        check_shares(items)
        assert last["rpd"] == LAST
        assert used == {"rpd": BUDGET["rpd"], "tpd": hot["tpd"] + last["tpd"]}
        assert taken_from(items) == used
        assert left == {"rpd": 0, "tpd": BUDGET["tpd"] - used["tpd"]}
        # What was granted and given back counts as a grant no more.
        assert status.total_events == sum(item["ev"] for item in items)
        with pytest.raises(RateLimitExceeded) as denied:
            limiter.acquire("key", "gpt", {"rpd": 1}).__enter__()
        assert denied.value.primary_violation.available == 0

        SyncDriver(machine_clock, store.perform).run(drain(store))
        proof = limiter.repository.verify_usage("key", "gpt")
        assert proof.holds
        assert not any(chain.behind for chain in proof.chains)
        hours = limiter.get_usage_snapshots("key", "gpt", "hourly").items
        for name, amount in used.items():
            assert sum(hour.counters[name] for hour in hours) == amount
            counted = [chain.counted for chain in proof.chains if chain.limit_name == name]
            assert abs(sum(counted) - amount) <= len(counted), "each shard is told in whole tokens"
        assert all(hour.counters.keys() == BUDGET.keys() for hour in hours)
    SyncDriver(machine_clock, store.perform).run(store.destroy())
    store.close()


def check_shares(items: list[dict[str, Any]]) -> None:
    """Every shard has its share of the ceiling, and the shares add up to it; no shard expires by itself."""
    for name, tokens in BUDGET.items():
        burst = tokens * 1000
        shares = [share(burst, int(item["PK"].rpartition("#")[2]), item["shard_count"]) for item in items]
        assert sum(shares) == burst
        assert {item[f"b_{name}_bx"] for item in items} == {burst}
    assert not [item for item in items if "ttl" in item]


def taken_from(items: list[dict[str, Any]]) -> dict[str, int]:
    """What all shards have counted, in whole tokens."""
    sums = {name: sum(item[f"b_{name}_tc"] for item in items) for name in BUDGET}
    assert all(amount % 1000 == 0 for amount in sums.values())
    return {name: amount // 1000 for name, amount in sums.items()}
