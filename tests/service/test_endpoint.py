"""Waiting for bodies: at once where they are there, with a bound where they are not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from zae_limiter.service.endpoint import at_once_or_within


async def awaited(coroutine: Any, seconds: float = 10.0) -> Any:
    return await at_once_or_within(coroutine, seconds)


def test_what_is_there_needs_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio, "timeout", None)

    async def there() -> str:
        return "there"

    assert asyncio.run(awaited(there())) == "there"


def test_what_comes_later_is_waited_for() -> None:
    async def later() -> str:
        for _ in range(3):
            await asyncio.sleep(0.01)
        return "later"

    assert asyncio.run(awaited(later())) == "later"


@pytest.mark.parametrize("pauses", [0, 1])
def test_what_never_comes_is_given_up_and_told_so(pauses: int) -> None:
    ended: list[str] = []

    async def never() -> None:
        try:
            for _ in range(pauses):
                await asyncio.sleep(0)
            await asyncio.Event().wait()
        finally:
            ended.append("told")

    with pytest.raises(TimeoutError):
        asyncio.run(awaited(never(), 0.05))
    assert ended == ["told"]


def test_a_task_that_is_cancelled_gives_up_what_it_waits_for() -> None:
    async def scenario() -> list[str]:
        ended: list[str] = []

        async def never() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.sleep(0)  # it may have something to clean up
                ended.append("told")
                raise

        task = asyncio.create_task(awaited(never()))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return ended

    assert asyncio.run(scenario()) == ["told"]


def test_an_error_is_raised_as_it_is() -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise LookupError

    with pytest.raises(LookupError):
        asyncio.run(awaited(fails()))
