"""A host whose clock is a day ahead, by real calls over real connections, whose replies have the right date."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from engines.servers import Engine
from zae_limiter import Limit, RateLimiter, SyncRateLimiter
from zae_limiter.running import clocks

TABLES = count()
DAY_S = 86_400


@pytest.fixture
def url(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    table = f"hosts-{os.getpid()}-{next(TABLES)}"
    url = f"dynamodb://{table}?region=us-east-1&endpoint_url={engine.endpoint_url}"
    with SyncRateLimiter.open(url, create=True, deadline=20) as limiter:
        limiter.set_system_defaults([Limit.per_minute("rpm", 60)])
        yield url


def set_clock(patch: pytest.MonkeyPatch, seconds: int) -> None:
    """Set this machine's clock so far ahead, for everything that asks for the time."""
    wall, nanoseconds = time.time, clocks.time_ns
    patch.setattr(time, "time", lambda: wall() + seconds)
    patch.setattr(clocks, "time_ns", lambda: nanoseconds() + seconds * 10**9)


def take_one(url: str, how: str, **options: Any) -> None:
    """One acquire of a process that has done nothing else."""
    if how == "threads":
        with SyncRateLimiter.open(url, deadline=20, **options) as limiter, limiter.acquire("key", "gpt", {"rpm": 1}):
            return

    async def in_loop() -> None:
        async with (
            await RateLimiter.open(url, deadline=20, **options) as limiter,
            limiter.acquire("key", "gpt", {"rpm": 1}),
        ):
            pass

    asyncio.run(in_loop())


@pytest.mark.parametrize("seconds", [DAY_S, -DAY_S])
@pytest.mark.parametrize("how", ["threads", "loops"])
@pytest.mark.parametrize("transport", ["own", "botocore"])
def test_one_acquire_of_a_host_whose_clock_is_wrong_takes_one_token(
    url: str, how: str, seconds: int, transport: str
) -> None:
    take_one(url, how)
    with pytest.MonkeyPatch.context() as patch:
        set_clock(patch, seconds)
        take_one(url, how, transport=transport)
    with SyncRateLimiter.open(url, deadline=20) as limiter:
        assert 57 <= limiter.available("key", "gpt")["rpm"] <= 60
        with limiter.acquire("key", "gpt", {"rpm": 57}):
            pass
