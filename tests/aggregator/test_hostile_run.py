"""Processes take, aggregators are killed at any moment, and in the end usage is proven to be what was taken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from engines.servers import Engine
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter_aggregator.verifying import verify_usage

COMMAND = str(Path(sys.executable).parent / "zae-limiter")
SECONDS = 60.0
WRITERS, GRANTS = 3, 100
KILLED = 3
TABLES = count()

WRITER = """
import sys
from zae_limiter import SyncRateLimiter
url, number, grants = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with SyncRateLimiter.open(url, deadline=20.0) as limiter:
    for step in range(grants):
        try:
            with limiter.acquire(f"key-{step % 2}", "gpt", {"rpd": 1}) as lease:
                lease.adjust(tpd=number + step)
                if step % 10 == 9:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            pass
"""


@pytest.fixture
def limiter(dynoxide: Engine) -> Iterator[tuple[str, SyncRateLimiter]]:
    url = (
        f"dynamodb://hostile-{os.getpid()}-{next(TABLES)}"
        f"?region={dynoxide.region}&endpoint_url={dynoxide.endpoint_url}"
    )
    with SyncRepository.open(url, create=True, deadline=SECONDS) as repository:
        found = SyncRateLimiter(repository)
        found.set_system_defaults([Limit.per_day("rpd", 100_000), Limit.per_day("tpd", 1_000_000)])
        yield url, found
        repository.delete_table()


def aggregator(url: str, *options: str) -> subprocess.Popen[str]:
    words = [COMMAND, "aggregate", "--url", url, "--json", *options]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def test_usage_is_proven_after_aggregators_were_killed(limiter: tuple[str, SyncRateLimiter]) -> None:
    url, reader = limiter
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, url, str(number), str(GRANTS)]) for number in range(WRITERS)
    ]
    steady = aggregator(url, "--interval", "0.05")
    killed_at_work = 0
    try:
        for _ in range(KILLED):
            victim = aggregator(url, "--interval", "0.05")
            time.sleep(0.9)
            victim.kill()
            killed_at_work += victim.communicate(timeout=SECONDS)[0].count("records")
        assert [writer.wait(SECONDS) for writer in writers] == [0] * WRITERS
    finally:
        for process in (*writers, steady):
            process.kill()
        killed_at_work += steady.communicate(timeout=SECONDS)[0].count("records")
    assert killed_at_work
    last = aggregator(url, "--once")
    out, _ = last.communicate(timeout=SECONDS)
    assert last.returncode == 0
    assert (json.loads(out)["poisonous"], json.loads(out)["trimmed"]) == (0, 0)

    proven = Counter[str]()
    repository = reader.repository
    for entity_id in ("key-0", "key-1"):
        proof = repository._driver.run(verify_usage(repository._core.space, entity_id))
        assert proof.holds
        assert {link.behind for link in proof.links} == {0}
        for link in proof.links:
            proven[link.limit_name or "events"] += link.counted
        usage = reader.get_usage_summary(entity_id)
        assert {"events": usage.total_events, **usage.total} == {
            link.limit_name or "events": link.counted for link in proof.links
        }
    kept = [step for step in range(GRANTS) if step % 10 != 9]
    assert proven["events"] == WRITERS * GRANTS
    assert proven["rpd"] == WRITERS * len(kept)
    assert proven["tpd"] == sum(number + step for number in range(WRITERS) for step in range(GRANTS)) - given_back()


def given_back() -> int:
    """What was adjusted in calls that failed comes back with the rest."""
    return sum(number + step for number in range(WRITERS) for step in range(GRANTS) if step % 10 == 9)
