"""Many at once on real engines: what is admitted is exact, and every counter adds up."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from engines.servers import Engine
from zae_limiter import Limit, SyncRateLimiter

CROWD = Path(__file__).parents[2] / "support" / "dynamodb" / "crowd.py"
PROCESSES, THREADS = 4, 2
TABLES = count()


def budget(name: str, tokens: int) -> Limit:
    """So many tokens, and hardly any refill while a test runs."""
    return Limit.custom(name, tokens, 1, 86_400)


@pytest.fixture
def url(engine: Engine) -> str:
    url = f"dynamodb://crowd-{next(TABLES)}?region=us-east-1&endpoint_url={engine.endpoint_url}"
    with SyncRateLimiter.open(url, create=True):
        pass
    return url


def crowded(url: str, entities: list[str], calls: int) -> dict[str, int]:
    """The sums over all processes."""
    tasks = [
        json.dumps({"url": url, "entities": entities, "threads": THREADS, "calls": calls, "place": place})
        for place in range(PROCESSES)
    ]
    processes = [
        subprocess.Popen([sys.executable, str(CROWD), task], stdout=subprocess.PIPE, text=True) for task in tasks
    ]
    tallies = []
    for process in processes:
        output, _ = process.communicate(timeout=100)
        assert process.returncode == 0
        tallies.append(json.loads(output))
    return {name: sum(tally[name] for tally in tallies) for name in tallies[0]}


@pytest.mark.timeout(180)
def test_processes_and_threads_on_one_bucket(url: str) -> None:
    with SyncRateLimiter.open(url) as limiter:
        limiter.set_system_defaults([budget("rpd", 150), budget("tpd", 100_000)])
        tally = crowded(url, ["key"], calls=40)
        status = limiter.get_status("key", "gpt").buckets[0]
    assert (tally["unavailable"], tally["unresolved"]) == (0, 0)
    used = {level.limit_name: level.total_consumed for level in status.limits}
    left = {level.limit_name: level.available for level in status.limits}
    assert used["tpd"] == tally["kept"]
    assert status.total_events == tally["granted"]
    assert left == {"rpd": 150 - used["rpd"], "tpd": 100_000 - used["tpd"]}
    assert tally["denied"] > 0
    assert left["rpd"] == 0


@pytest.mark.timeout(180)
def test_one_parent_with_fifty_children(url: str) -> None:
    with SyncRateLimiter.open(url, deadline=20) as limiter:
        limiter.create_entity("org")
        children = [f"key-{number}" for number in range(50)]
        for child in children:
            limiter.create_entity(child, parent_id="org", cascade=True)
        limiter.set_system_defaults([budget("rpd", 1_000), budget("tpd", 10_000)])
        limiter.set_limits("org", [budget("rpd", 120), budget("tpd", 1_000_000)])
        tally = crowded(url, children, calls=30)
        org = {level.limit_name: level for level in limiter.get_status("org", "gpt").buckets[0].limits}
        below: dict[str, int] = {"rpd": 0, "tpd": 0}
        events = 0
        for child in children:
            for bucket in limiter.get_status(child, "gpt").buckets:
                events += bucket.total_events
                for level in bucket.limits:
                    below[level.limit_name] += level.total_consumed
        total = limiter.get_status("org", "gpt").buckets[0].total_events
    assert (tally["unavailable"], tally["unresolved"]) == (0, 0)
    assert {name: level.total_consumed for name, level in org.items()} == below
    assert below["tpd"] == tally["kept"]
    assert total == events == tally["granted"]
    assert org["rpd"].available == 0
    assert tally["denied"] > 0
