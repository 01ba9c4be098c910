"""Limit calls of a model by requests and tokens: estimate before, settle after, come back when told."""

from __future__ import annotations

import asyncio
import random
from typing import NamedTuple

from zae_limiter import Limit, RateLimiter, RateLimitExceeded

LIMITS = [Limit.per_minute("rpm", 600, burst=10), Limit.per_minute("tpm", 240_000, burst=4_000)]


class Answer(NamedTuple):
    """What a provider sends back."""

    text: str
    total_tokens: int


async def fake_model(prompt: str) -> Answer:
    """Stands in for your provider: slow, and its cost is known only afterwards."""
    await asyncio.sleep(0.05)
    return Answer(f"about {prompt}", random.randint(300, 1_200))


async def ask(limiter: RateLimiter, key: str, prompt: str) -> Answer:
    """One limited call."""
    estimate = 600
    async with limiter.acquire(key, "fake-model", {"rpm": 1, "tpm": estimate}) as lease:
        answer = await fake_model(prompt)
        await lease.settle(tpm=answer.total_tokens)
    return answer


async def main() -> None:
    """Ten questions, as fast as the limits allow."""
    random.seed(1)
    async with await RateLimiter.open("memory://") as limiter:
        await limiter.set_system_defaults(LIMITS)
        for number in range(10):
            while True:
                try:
                    answer = await ask(limiter, "key-1", f"topic {number}")
                    break
                except RateLimitExceeded as refused:
                    print(f"  refused: {refused}")
                    await asyncio.sleep(refused.retry_after_seconds or 0)
            left = await limiter.available("key-1", "fake-model")
            print(f"{answer.text}: {answer.total_tokens} tokens, {left['tpm']} left")


if __name__ == "__main__":
    asyncio.run(main())
