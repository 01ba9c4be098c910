"""Random programs on memory and on Redis: every answer is the same."""

from __future__ import annotations

import time

import pytest
from redis_programs import play_on

from engines.redis_servers import RedisServer

SECONDS = 5.0

KEPT_SEEDS = (
    783,  # once, on a busy machine
    30163,  # a limit that had ended was settled in a later hour, and counted from nothing
)


@pytest.mark.parametrize("server", ["redis_6_2", "valkey_9_1"])
def test_redis_answers_as_memory_does(server: str, request: pytest.FixtureRequest) -> None:
    there: RedisServer = request.getfixturevalue(server)
    give_up_at = time.monotonic() + SECONDS
    seed = 0 if server == "redis_6_2" else 100_000
    played = 0
    while time.monotonic() < give_up_at or played < 3:
        assert play_on(there, seed + played, with_credits=played % 2 == 1) is None
        played += 1


@pytest.mark.parametrize("seed", KEPT_SEEDS)
def test_programs_that_once_differed_do_not(redis_6_2: RedisServer, seed: int) -> None:
    assert play_on(redis_6_2, seed) is None
