"""Callers with a timeout wait in the queue and are served in order; one without does not overtake them."""

from __future__ import annotations

import asyncio
import time

from zae_limiter import Limit, RateLimiter, RateLimitExceeded

STARTED = time.monotonic()


def say(words: str) -> None:
    """With the time, so that the order can be seen."""
    print(f"{time.monotonic() - STARTED:4.1f} s  {words}")


async def patient(limiter: RateLimiter, name: str, amount: int) -> None:
    """Waits for its turn."""
    async with limiter.acquire("printer", "pages", {"pages": amount}, timeout=5):
        say(f"{name} prints {amount}")


async def hasty(limiter: RateLimiter, amount: int) -> None:
    """Wants it now or not at all."""
    try:
        async with limiter.acquire("printer", "pages", {"pages": amount}):
            say(f"hasty prints {amount}")
    except RateLimitExceeded as refused:
        wait = refused.retry_after_seconds or 0
        say(f"hasty is refused {amount}: what is there, others wait for. Try again in {wait:.1f} s")


async def main() -> None:
    """A printer that does ten pages per second, and three documents in its queue."""
    async with await RateLimiter.open("memory://") as limiter:
        await limiter.set_system_defaults([Limit.per_second("pages", 10)])
        await patient(limiter, "the first", 10)
        say("the tray is empty; three join the queue")
        async with asyncio.TaskGroup() as callers:
            for name, amount in (("a long document", 10), ("a note", 1), ("a letter", 3)):
                callers.create_task(patient(limiter, name, amount))
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.5)
            await hasty(limiter, 1)
        await asyncio.sleep(0.2)
        await hasty(limiter, 1)


if __name__ == "__main__":
    asyncio.run(main())
