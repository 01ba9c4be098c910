"""``limiter.limit(...)``: functions, coroutines and both kinds of generators, on both limiters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from zae_limiter import Lease, Limit, RateLimiter, RateLimitExceeded, SyncLease, SyncRateLimiter, ValidationError
from zae_limiter.testing import FakeClock, memory_limiter, sync_memory_limiter

LIMITS = [Limit.per_day("requests", 10), Limit.per_day("tpm", 1_000)]


@pytest.fixture
def limiter() -> SyncRateLimiter:
    return sync_memory_limiter(LIMITS, clock=FakeClock(auto_advance=False))


def left(limiter: SyncRateLimiter, entity: str = "ann", resource: str = "gpt") -> dict[str, int]:
    return limiter.available(entity, resource)


def test_a_function_takes_what_its_arguments_say(limiter: SyncRateLimiter) -> None:
    @limiter.limit(
        "{model}",
        {"requests": 1, "tpm": lambda prompt: len(prompt) // 4},
        entity="{user}",
        settle=lambda answer: {"tpm": answer["used"]},
    )
    def ask(user: str, prompt: str, model: str = "gpt") -> dict[str, int]:
        """Ask."""
        assert left(limiter, user, model) == {"requests": 9, "tpm": 990}
        return {"used": 123}

    assert ask("ann", prompt="x" * 40) == {"used": 123}
    assert left(limiter) == {"requests": 9, "tpm": 877}
    assert ask.__doc__ == "Ask."


def test_one_request_is_taken_if_nothing_is_said(limiter: SyncRateLimiter) -> None:
    @limiter.limit("gpt", entity=lambda user: user.lower())
    def ask(user: str) -> str:
        return user

    for _ in range(10):
        assert ask("Ann") == "Ann"
    with pytest.raises(RateLimitExceeded):
        ask("Ann")


def test_amounts_may_be_one_function(limiter: SyncRateLimiter) -> None:
    @limiter.limit("gpt", lambda n: {"requests": n}, entity="ann")
    def ask(n: int) -> int:
        return n

    ask(3)
    assert left(limiter)["requests"] == 7


def test_a_call_that_fails_gives_back(limiter: SyncRateLimiter) -> None:
    @limiter.limit("gpt", {"tpm": 500}, entity="ann")
    def ask() -> None:
        raise ZeroDivisionError

    @limiter.limit("gpt", {"tpm": 500}, entity="ann", on_error="keep")
    def keep() -> None:
        raise ZeroDivisionError

    for function, expected in ((ask, 1_000), (keep, 500)):
        with pytest.raises(ZeroDivisionError):
            function()
        assert left(limiter)["tpm"] == expected


def test_a_parameter_called_lease_gets_it(limiter: SyncRateLimiter) -> None:
    @limiter.limit("gpt", {"tpm": 100}, entity="ann")
    def ask(lease: SyncLease | None = None) -> None:
        assert lease is not None
        lease.settle(tpm=7)

    ask()
    assert left(limiter)["tpm"] == 993


def test_a_generator_takes_when_it_starts_and_ends_when_it_is_closed(limiter: SyncRateLimiter) -> None:
    closed: list[str] = []

    @limiter.limit("gpt", {"tpm": 100}, entity="{user}")
    def stream(user: str, lease: SyncLease | None = None) -> Iterator[int]:
        assert lease is not None
        try:
            for piece in range(5):
                lease.settle(tpm=10 * (piece + 1))
                yield piece
        finally:
            closed.append(user)

    unused = stream("ann")
    assert left(limiter)["tpm"] == 1_000
    del unused
    assert list(stream("ann")) == [0, 1, 2, 3, 4]
    assert left(limiter)["tpm"] == 950
    some: Any = stream("ann")
    assert [next(some), next(some)] == [0, 1]
    assert left(limiter)["tpm"] == 850
    some.close()
    assert left(limiter)["tpm"] == 930
    assert closed == ["ann", "ann"]


def test_a_generator_that_is_left_has_paid(limiter: SyncRateLimiter) -> None:
    @limiter.limit("gpt", {"tpm": 100}, entity="ann")
    def stream() -> Iterator[int]:
        yield 1
        yield 2

    some: Any = stream()
    next(some)
    some.close()
    assert left(limiter)["tpm"] == 900


def test_coroutines_and_their_leases() -> None:
    async def main() -> None:
        limiter = memory_limiter(LIMITS, clock=FakeClock(auto_advance=False))

        @limiter.limit(
            "gpt", {"requests": 1, "tpm": 100}, entity="{user}", settle=lambda answer: {"tpm": len(answer)}, timeout=1
        )
        async def ask(user: str, lease: Lease | None = None) -> str:
            assert lease is not None
            await asyncio.sleep(0)
            return "x" * 30

        await asyncio.gather(*(ask("ann") for _ in range(10)))
        assert await limiter.available("ann", "gpt") == {"requests": 0, "tpm": 700}

    asyncio.run(main())


def test_async_generators() -> None:
    async def main() -> None:
        limiter: RateLimiter = memory_limiter(LIMITS, clock=FakeClock(auto_advance=False))
        ended: list[int] = []

        @limiter.limit("gpt", {"tpm": 100}, entity="ann")
        async def stream(lease: Lease | None = None) -> AsyncIterator[int]:
            assert lease is not None
            try:
                for piece in range(5):
                    await lease.settle(tpm=10 * (piece + 1))
                    yield piece
            finally:
                ended.append(1)

        assert [piece async for piece in stream()] == [0, 1, 2, 3, 4]
        assert (await limiter.available("ann", "gpt"))["tpm"] == 950
        some: Any = stream()
        assert await some.__anext__() == 0
        await some.aclose()
        assert (await limiter.available("ann", "gpt"))["tpm"] == 940

        async def read() -> None:
            async for _ in stream():
                await asyncio.sleep(60)

        task = asyncio.create_task(read())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        assert len(ended) == 3

    asyncio.run(main())


def test_what_cannot_be_limited_is_refused_at_once(limiter: SyncRateLimiter) -> None:
    async def coroutine() -> None: ...

    def function() -> None: ...

    def generator() -> Iterator[int]:
        yield 1

    with pytest.raises(ValidationError, match="asynchronous"):
        limiter.limit("gpt", entity="ann")(coroutine)
    with pytest.raises(ValidationError, match="not asynchronous"):
        memory_limiter(LIMITS).limit("gpt", entity="ann")(function)
    with pytest.raises(ValidationError, match="yields"):
        limiter.limit("gpt", entity="ann", settle=lambda result: {})(generator)
    with pytest.raises(ValidationError, match="entity"):
        limiter.limit("gpt", entity=None)(function)  # type: ignore[arg-type]
