"""The streaming example charges what was received, whichever way a stream ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import llm_streaming
import pytest
from llm_streaming import LIMITS, Client, fake_model

from zae_limiter import RateLimiter, RateLimitExceeded
from zae_limiter.testing import FakeClock, memory_limiter


async def charged(limiter: RateLimiter) -> tuple[int, int]:
    left = await limiter.available("key-1", "model")
    return 1_000 - left["requests"], 2_000 - left["tokens"]


def on_a_model(scenario: Callable[[Client], Awaitable[None]]) -> tuple[int, int]:
    """Play a scenario with a client; the requests and tokens that were charged."""

    async def play() -> tuple[int, int]:
        limiter = memory_limiter(LIMITS, clock=FakeClock())
        async with fake_model() as port:
            await scenario(Client(limiter, port))
        return await charged(limiter)

    return asyncio.run(play())


def test_a_stream_that_ends_is_charged_with_its_usage() -> None:
    async def scenario(client: Client) -> None:
        pieces = [piece async for piece in client.stream("key-1", "hello", max_tokens=600, pieces=12)]
        assert len(pieces) == 12

    assert on_a_model(scenario) == (1, 1 + 12 * llm_streaming.TOKENS_PER_PIECE)


def test_a_reader_that_goes_away_is_charged_with_what_it_got() -> None:
    async def scenario(client: Client) -> None:
        async with aclosing(client.stream("key-1", "hello", max_tokens=600, pieces=100)) as stream:
            await anext(stream)
            await anext(stream)
            assert await charged(client.limiter) == (1, 601)

    assert on_a_model(scenario) == (1, 1 + 2 * llm_streaming.TOKENS_PER_PIECE)


def test_a_model_that_breaks_off_is_charged_with_what_came() -> None:
    async def scenario(client: Client) -> None:
        with pytest.raises(ConnectionError):
            [piece async for piece in client.stream("key-1", "hello", max_tokens=600, pieces=9, breaks_after=5)]

    assert on_a_model(scenario) == (1, 1 + 5 * llm_streaming.TOKENS_PER_PIECE)


def test_a_model_that_cannot_be_reached_costs_a_request_and_the_prompt() -> None:
    async def scenario(client: Client) -> None:
        client.port = 1  # no server listens there
        with pytest.raises(ConnectionError):
            [piece async for piece in client.stream("key-1", "hello", max_tokens=600, pieces=9)]

    assert on_a_model(scenario) == (1, 1)


def test_an_answer_longer_than_estimated_is_charged_in_full() -> None:
    async def scenario(client: Client) -> None:
        [piece async for piece in client.stream("key-1", "hello", max_tokens=10, pieces=9)]

    assert on_a_model(scenario) == (1, 1 + 9 * llm_streaming.TOKENS_PER_PIECE)


def test_what_does_not_fit_is_refused_before_anything_is_sent() -> None:
    async def scenario(client: Client) -> None:
        client.port = 1
        with pytest.raises(RateLimitExceeded):
            await anext(client.stream("key-1", "hello", max_tokens=2_000, pieces=9))

    assert on_a_model(scenario) == (0, 0)
