"""What is found about a server, and what is to be done about it."""

from __future__ import annotations

import pytest

from engines.redis_servers import RedisServer
from zae_limiter.stores.redis.server_report import facts_in, findings_in

FIT = {
    "redis_version": "7.2.4",
    "role": "master",
    "maxmemory": "1000000",
    "maxmemory_policy": "noeviction",
    "aof_enabled": "1",
    "used_memory": "1000",
}


def advice(**facts: str) -> dict[str, str]:
    return {finding.what: finding.advice for finding in findings_in(FIT | facts) if finding.advice}


def test_nothing_is_to_be_done_about_a_server_that_is_fit() -> None:
    assert advice() == {}


@pytest.mark.parametrize(
    ("what", "facts", "words"),
    [
        ("version", {"redis_version": "6.0.16"}, "6.2 or later"),
        ("role", {"role": "slave"}, "name its master"),
        ("eviction", {"maxmemory_policy": "allkeys-lru"}, "noeviction"),
        ("persistence", {"aof_enabled": "0"}, "appendonly yes"),
        ("persistence", {"aof_last_write_status": "err"}, "disk"),
        ("memory", {"used_memory": "950000"}, "nearly full"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(what: str, facts: dict[str, str], words: str) -> None:
    said = advice(**facts)
    assert list(said) == [what]
    assert words in said[what]


def test_valkey_is_new_enough_whatever_redis_it_says_it_is() -> None:
    assert advice(redis_version="7.2.4", valkey_version="9.1.2") == {}


def test_without_a_maximum_nothing_is_evicted() -> None:
    assert advice(maxmemory="0", maxmemory_policy="allkeys-lru") == {}


def test_a_real_server_says_all_of_it(redis_6_2: RedisServer) -> None:
    facts = facts_in(redis_6_2.ask("INFO").decode())
    assert facts.keys() >= {"redis_version", "role", "maxmemory_policy", "aof_enabled", "used_memory_human"}
