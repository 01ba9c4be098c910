"""``open(limits=…)``: limits of one client, for what no level has limits for."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from engines.servers import Engine
from zae_limiter import Limit, RateLimiter, RateLimitExceeded, SyncRateLimiter, ValidationError

OWN = [Limit.per_hour("rpm", 3)]
STORED = [Limit.per_hour("rpm", 100)]
NUMBERS = count()


def sqlite(request: pytest.FixtureRequest) -> str:
    folder: Path = request.getfixturevalue("tmp_path")
    return f"sqlite:///{folder}/limits.db"


def dynamodb(request: pytest.FixtureRequest) -> str:
    engine: Engine = request.getfixturevalue("dynoxide")
    return f"dynamodb://own-{os.getpid()}-{next(NUMBERS)}?region=us-east-1&endpoint_url={engine.endpoint_url}"


STORES: dict[str, Callable[[pytest.FixtureRequest], str]] = {
    "memory": lambda request: "memory://",
    "sqlite": sqlite,
    "dynamodb": dynamodb,
}


@pytest.mark.parametrize("store", STORES)
def test_they_hold_where_no_level_has_limits_and_are_stored_nowhere(
    store: str, request: pytest.FixtureRequest
) -> None:
    with SyncRateLimiter.open(STORES[store](request), create=True, limits=OWN, deadline=20) as limiter:
        assert limiter.available("key", "gpt") == {"rpm": 3}
        for left in (2, 1, 0):
            with limiter.acquire("key", "gpt", {"rpm": 1}) as lease:
                assert lease.statuses[0].available == left
        with pytest.raises(RateLimitExceeded), limiter.acquire("key", "gpt", {"rpm": 1}):
            pass
        found = limiter.check("key", "gpt", {"rpm": 1})
        assert not found.fits
        assert limiter.get_system_defaults() == ([], None)
        assert limiter.repository.resolve_limits("key", "gpt").limits is None
        limiter.set_system_defaults(STORED)
        with limiter.acquire("other", "gpt", {"rpm": 50}) as lease:
            assert lease.statuses[0].limit == STORED[0]


def test_a_client_without_any_is_told_that_nothing_is_configured() -> None:
    with (
        SyncRateLimiter.open("memory://") as limiter,
        pytest.raises(ValidationError, match="no limits are configured"),
        limiter.acquire("key", "gpt", {"rpm": 1}),
    ):
        pass


def test_they_are_checked_when_a_client_is_opened() -> None:
    with pytest.raises(ValidationError, match="at least one Limit"):
        SyncRateLimiter.open("memory://", limits=[])


def test_tasks_have_them_too() -> None:
    async def acquiring() -> None:
        async with RateLimiter.open("memory://", limits=OWN) as limiter:
            async with limiter.acquire("key", "gpt", {"rpm": 3}):
                pass
            assert await limiter.available("key", "gpt") == {"rpm": 0}

    asyncio.run(acquiring())
