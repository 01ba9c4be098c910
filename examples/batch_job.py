"""A batch job that waits in the queue: sixty documents, eight workers, and a provider that allows so many tokens.

The workers do not sleep, poll or guess. Each asks with a timeout, and is let in when its tokens are due, in order. The
job takes as long as the limit says, and not much longer.
"""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

from zae_limiter import Limit, RateLimiter, RateLimitExceeded

TOKENS = Limit.per_second("tokens", 40_000, burst=10_000)
CALLS = Limit.per_second("calls", 100)
WORKERS = 8
PATIENCE = 30.0  # seconds a document may wait for its turn before it is put aside


class Document(NamedTuple):
    """A piece of work, and what it will cost."""

    number: int
    tokens: int


class Report(NamedTuple):
    """How the job went."""

    done: list[int]
    put_aside: list[int]
    tokens: int
    seconds: float


async def summarise(document: Document) -> None:
    """Stands in for the call of a provider."""
    await asyncio.sleep(0.002)


async def work(limiter: RateLimiter, documents: asyncio.Queue[Document], report: Report) -> int:
    """Take documents until there are none; the tokens they cost."""
    spent = 0
    while not documents.empty():
        document = documents.get_nowait()
        wanted = {"calls": 1, "tokens": document.tokens}
        try:
            async with limiter.acquire("batch", "summaries", wanted, timeout=PATIENCE):
                await summarise(document)
        except RateLimitExceeded:
            report.put_aside.append(document.number)
        else:
            report.done.append(document.number)
            spent += document.tokens
    return spent


async def run(limiter: RateLimiter, batch: list[Document]) -> Report:
    """The whole batch, by a few workers, each of which waits in the queue."""
    await limiter.set_limits("batch", [CALLS, TOKENS], resource="summaries")
    documents = asyncio.Queue[Document]()
    for document in batch:
        documents.put_nowait(document)
    report = Report([], [], 0, 0.0)
    started = time.monotonic()
    async with asyncio.TaskGroup() as workers:
        tasks = [workers.create_task(work(limiter, documents, report)) for _ in range(WORKERS)]
    return report._replace(tokens=sum(task.result() for task in tasks), seconds=time.monotonic() - started)


async def main() -> None:
    """Sixty documents, one of them too large for the limit at any time."""
    batch = [Document(number, 400 + 37 * number % 900) for number in range(60)]
    batch.append(Document(60, 10_001))
    async with await RateLimiter.open("memory://") as limiter:
        report = await run(limiter, batch)
    at_least = (report.tokens - TOKENS.burst) / TOKENS.refill_amount
    print(f"{len(report.done)} documents, {report.tokens:,} tokens in {report.seconds:.2f} s")
    print(f"the limit allows it in {at_least:.2f} s at the earliest")
    print(f"put aside, because larger than the burst: {report.put_aside}")
    assert report.seconds >= at_least - 0.002


if __name__ == "__main__":
    asyncio.run(main())
