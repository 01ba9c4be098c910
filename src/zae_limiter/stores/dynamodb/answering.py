"""Who answers requests: one table of one DynamoDB, reached from threads and from event loops.

This is all that plans need which are of no namespace, as those of the aggregator.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from zae_limiter.running.clocks import machine_clock, machine_timer
from zae_limiter.running.plan import NOT_YET, Request
from zae_limiter.stores.dynamodb.calling import Calls
from zae_limiter.stores.dynamodb.checked_clock import CheckedClock
from zae_limiter.stores.dynamodb.gauge import PARTITION_WCU
from zae_limiter.stores.dynamodb.marks import Marks
from zae_limiter.stores.dynamodb.plans.asking import TTL_MARGIN_S, Asking
from zae_limiter.stores.dynamodb.requests import (
    Answer,
    AwaitNews,
    Backoff,
    Call,
    DeadlineOver,
    MachineTime,
    NoAnswer,
    ReadMachineTime,
    Refused,
    Reply,
    Together,
)
from zae_limiter.stores.dynamodb.transport.choosing import How, transports_for
from zae_limiter.stores.dynamodb.transport.protocol import AsyncTransport, Target, Transport

SHORTEST_PAUSE_MS, LONGEST_PAUSE_MS = 5, 200
LEGS_AT_ONCE = 16


LOCAL_SETTINGS = Target()
"""Region, endpoint and credentials as this machine's settings have them."""


class AnsweringTable:
    """One table that answers what plans ask of it."""

    def __init__(
        self,
        table: str,
        target: Target = LOCAL_SETTINGS,
        *,
        deadline: float = 2.0,
        transport: Transport | None = None,
        async_transport: AsyncTransport | None = None,
        how: How = "own",
        marks: Marks | None = None,
        ttl_margin_s: int = TTL_MARGIN_S,
        wcu: int = PARTITION_WCU,
    ) -> None:
        """``how`` calls are carried: by ourselves, or by botocore. ``transport`` and ``async_transport`` stand in.

        ``wcu``: how many writes a second one shard of a bucket takes before it is divided.
        """
        self.asking = Asking(
            table, deadline_ms=round(deadline * 1000), marks=marks or Marks(), ttl_margin_s=ttl_margin_s, wcu=wcu
        )
        self._clock = CheckedClock()
        self._calls = Calls(
            transports_for(target, how),
            transport=transport,
            async_transport=async_transport,
            probe=("DescribeTable", {"TableName": table}, deadline),
            clock=self._clock,
        )
        self._workers: tuple[int, ThreadPoolExecutor | None] = (0, None)  # threads do not survive a fork

    def attempt(self, request: Request[Any], /) -> Any:
        if isinstance(request, Call):
            return self._calls.begin(request) or NOT_YET
        return self._machine_time() if isinstance(request, ReadMachineTime) else NOT_YET

    def _machine_time(self) -> MachineTime:
        wall, timer = machine_clock(), machine_timer()
        error, checked = self._clock.correction(wall, timer)
        return MachineTime(timer, (wall + error) // 1000, error, checked)

    def perform(self, request: Request[Any], /) -> Any:
        if isinstance(request, Call):
            return self._calls.call(request)
        if isinstance(request, ReadMachineTime):
            return self._machine_time()
        if isinstance(request, Together):
            return self._call_together(request.calls)
        if isinstance(request, Backoff):
            return time.sleep(_pause(request))
        if isinstance(request, AwaitNews):
            return _await_news(request)
        return self._machine_time()

    async def perform_async(self, request: Request[Any], /) -> Any:
        import asyncio

        if isinstance(request, Call):
            return await self._calls.call_async(request)
        if isinstance(request, Together):
            answers = await asyncio.gather(*map(self._calls.call_async, request.calls), return_exceptions=True)
            return _only_answers(answers)
        if isinstance(request, Backoff):
            return await asyncio.sleep(_pause(request))
        if isinstance(request, AwaitNews):
            return await _await_news_async(request)
        return self._machine_time()

    def _call_together(self, calls: Sequence[Call]) -> Sequence[Answer]:
        """The first call in this thread, the others beside it."""
        pid, workers = self._workers
        if workers is None or pid != os.getpid():
            workers = ThreadPoolExecutor(LEGS_AT_ONCE, thread_name_prefix="zae-limiter-leg")
            self._workers = (os.getpid(), workers)
        others = [workers.submit(self._answer, call) for call in calls[1:]]
        return [self._answer(calls[0]), *(other.result() for other in others)]

    def _answer(self, call: Call) -> Answer:
        reply: Reply
        try:
            reply = self.perform(call)
        except (Refused, NoAnswer) as failure:
            return failure
        return reply

    def close(self) -> None:
        self._calls.close()
        pid, workers = self._workers
        self._workers = (0, None)
        if workers is not None and pid == os.getpid():
            workers.shutdown(wait=False)

    async def aclose(self) -> None:
        await self._calls.aclose()
        self.close()


def _pause(backoff: Backoff) -> float:
    """Seconds to wait: twice as long with every try, and no two clients alike."""
    longest = min(SHORTEST_PAUSE_MS * 2**backoff.tries, LONGEST_PAUSE_MS)
    pause = random.uniform(longest / 2, longest)
    if machine_timer() + pause >= backoff.give_up_at:
        raise DeadlineOver
    return pause / 1000


def _await_news(request: AwaitNews) -> None:
    event = threading.Event()
    request.bell.listen(event.set)
    event.wait(max(request.give_up_at - machine_timer(), 0) / 1000)
    request.bell.listen(None)


async def _await_news_async(request: AwaitNews) -> None:
    import asyncio

    loop, event = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(event.set)

    request.bell.listen(wake)
    try:
        async with asyncio.timeout(max(request.give_up_at - machine_timer(), 0) / 1000):
            await event.wait()
    except TimeoutError:
        pass
    finally:
        request.bell.listen(None)


def _only_answers(answers: Sequence[Any]) -> Sequence[Answer]:
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, (Refused, NoAnswer)):
            raise answer
    return answers
