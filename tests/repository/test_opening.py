"""``open`` of the async classes: awaited, entered, or both."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from zae_limiter import Limit, RateLimiter, Repository, ValidationError, __version__


async def use(limiter: RateLimiter) -> None:
    await limiter.set_system_defaults([Limit.per_minute("rpm", 3)])
    async with limiter.acquire("key", "gpt", {"rpm": 1}):
        pass
    assert await limiter.available("key", "gpt") == {"rpm": 2}


async def awaited() -> None:
    await use(await RateLimiter.open("memory://"))


async def entered() -> None:
    async with RateLimiter.open("memory://") as limiter:
        await use(limiter)


async def awaited_and_entered() -> None:
    async with await RateLimiter.open("memory://") as limiter:
        await use(limiter)


async def repository_entered() -> None:
    async with Repository.open("memory://") as repository:
        await use(RateLimiter(repository))


async def as_a_task() -> None:
    await use(await asyncio.create_task(RateLimiter.open("memory://")))


@pytest.mark.parametrize("way", [awaited, entered, awaited_and_entered, repository_entered, as_a_task])
def test_a_limiter_is_opened_by_awaiting_and_by_entering(way: object) -> None:
    asyncio.run(way())  # type: ignore[operator]


def test_opening_is_a_coroutine_to_asyncio() -> None:
    assert isinstance(asyncio.run(RateLimiter.open("memory://")), RateLimiter)


def test_what_is_entered_is_closed() -> None:
    closed: list[str] = []

    class Noted(RateLimiter):
        async def close(self) -> None:
            closed.append("closed")
            await super().close()

    async def use_it() -> None:
        async with Noted.open("memory://"):
            assert not closed

    asyncio.run(use_it())
    assert closed == ["closed"]


def test_an_option_that_no_store_has_is_named() -> None:
    with pytest.raises(ValidationError, match="deadlin"):
        RateLimiter.open("memory://", deadlin=3)  # type: ignore[call-arg]


def test_the_package_runs_as_the_command_line() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "zae_limiter", "--version"], capture_output=True, text=True, check=True
    )
    assert __version__ in ran.stdout
