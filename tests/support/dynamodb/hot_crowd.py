"""One process of a crowd at one entity: tasks that acquire, and what they kept. Run by ``test_crowds_that_split``."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from zae_limiter import RateLimiter, RateLimiterUnavailable, RateLimitExceeded

PATIENCE_S = 60.0


async def crowd(url: str, tasks: int, seconds: float, wcu: int) -> dict[str, int]:
    """Let tasks acquire ``rpd`` 1 and ``tpd`` 10 until time is over; 0 seconds: until they are denied."""
    tally = dict.fromkeys(("granted", "denied", "rpd", "tpd", "unavailable", "unresolved"), 0)
    async with await RateLimiter.open(url, deadline=PATIENCE_S, wcu=wcu, coalesce=False) as limiter:
        give_up_at = time.monotonic() + (seconds or PATIENCE_S)

        async def work(place: int) -> None:
            turn = place
            while time.monotonic() < give_up_at:
                turn += 1
                try:
                    async with limiter.acquire("key", "gpt", {"rpd": 1, "tpd": 10}) as lease:
                        tally["granted"] += 1
                        if seconds and turn % 5 == 0:
                            raise ZeroDivisionError
                        if turn % 5 == 1:
                            await lease.adjust(tpd=7)
                        if turn % 5 == 2:
                            await lease.adjust(tpd=-3)
                    tally["rpd"] += 1
                    tally["tpd"] += lease.consumed["tpd"]
                except ZeroDivisionError:
                    pass
                except RateLimitExceeded as denial:
                    tally["denied"] += 1
                    if not seconds and (denial.retry_after_seconds or 0) > 1:
                        return
                except RateLimiterUnavailable:
                    tally["unavailable"] += 1

        await asyncio.gather(*(work(place) for place in range(tasks)))
        tally["unresolved"] = limiter.repository.unresolved
    return tally


if __name__ == "__main__":
    task: dict[str, Any] = json.loads(sys.argv[1])
    print(json.dumps(asyncio.run(crowd(**task))))
