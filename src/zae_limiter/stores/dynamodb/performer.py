"""Performs what plans ask of DynamoDB, for threads and for event loops: calls, pauses, the time.

A call is carried by a transport, which is made when it is first needed, and goes through a circuit breaker: after a
few calls in a row without an answer it is *open*, and calls fail at once instead of each waiting to find that out.
From time to time one of them sends a probe beside its own failing; the first answer, to the probe or to anything else,
closes it. The clock is told the ``Date`` of every reply.

This is all that plans need which are of no namespace, as those of the aggregator.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, cast

from zae_limiter.running.clocks import machine_clock, machine_timer
from zae_limiter.running.plan import NOT_YET, Request
from zae_limiter.stores.circuit_breaker import CircuitBreaker, Permission
from zae_limiter.stores.dynamodb.requests import (
    Answer,
    AwaitNews,
    Backoff,
    Call,
    CheckedClock,
    CircuitOpen,
    DeadlineOver,
    NoAnswer,
    ReadMachineTime,
    Refused,
    Reply,
    Together,
)
from zae_limiter.stores.dynamodb.table_client import TTL_MARGIN_S, TableClient
from zae_limiter.stores.dynamodb.transport.protocol import (
    AsyncTransport,
    Target,
    Transport,
    TransportFactories,
    TransportKind,
    transports_for,
)
from zae_limiter.stores.dynamodb.write_ids import WriteIds
from zae_limiter.stores.dynamodb.write_load import PARTITION_WCU

if TYPE_CHECKING:
    from zae_limiter.stores.dynamodb.transport.sync_transport import SentCall

logger = logging.getLogger("zae_limiter")

LONGEST_CALL_S: Final = 3_600.0


class CallExecutor:
    """Executes the calls to one table: by a transport, through a circuit breaker."""

    def __init__(
        self,
        make: TransportFactories,
        *,
        transport: Transport | None = None,
        async_transport: AsyncTransport | None = None,
        probe: tuple[str, dict[str, Any], float],
        clock: CheckedClock,
    ) -> None:
        """``probe`` finds out whether DynamoDB answers again; ``clock`` is told the dates of replies."""
        self._make = make
        self._transport = transport
        self._async_transport = async_transport
        self._probe_call = probe
        self._breaker = CircuitBreaker()
        self._last_failure: NoAnswer | None = None
        self._probing: set[Any] = set()
        self._clock = clock
        self._last_skew_s: float | None = None

    def call(self, call: Call) -> Reply:
        """The reply, for a thread that waits for it."""
        seconds = (call.give_up_at - machine_timer()) / 1000
        if seconds <= 0:
            raise DeadlineOver
        if self._breaker.is_open and not self._may_call():
            raise CircuitOpen(self._last_failure)
        transport = self._transport or self.transport()
        try:
            reply = transport.call(call.operation, call.params, min(seconds, LONGEST_CALL_S))
        except (NoAnswer, Refused) as failure:
            self._note_failure(failure, transport)
            raise
        skew_s = getattr(transport, "last_date_skew_s", None)
        if self._breaker.failures or skew_s is None or skew_s is not self._last_skew_s:
            self._note_answer(transport)
        return reply

    def send(self, call: Call) -> SentCall | None:
        """A call that is sent by now, for a thread; nothing, if it has to be made by :meth:`call`."""
        begin = getattr(self._transport or self.transport(), "begin", None)
        if begin is None or self._breaker.is_open:
            return None
        sent: SentCall | None = begin(call.operation, call.params, _seconds_left(call))
        return sent

    def answer_to(self, sent: SentCall) -> Answer:
        """The answer to a call that was sent, for a thread that waits for it."""
        transport = self._transport
        try:
            reply = sent.reply()
        except (NoAnswer, Refused) as failure:
            self._note_failure(failure, transport)
            return failure
        self._note_answer(transport)
        return reply

    async def call_async(self, call: Call) -> Reply:
        """The reply, for a task that awaits it."""
        seconds = _seconds_left(call)
        if self._breaker.is_open and not self._may_call(in_loop=True):
            raise CircuitOpen(self._last_failure)
        transport = self.async_transport()
        try:
            reply = await transport.call(call.operation, call.params, seconds)
        except (NoAnswer, Refused) as failure:
            self._note_failure(failure, transport)
            raise
        self._note_answer(transport)
        return reply

    def begin(self, call: Call) -> Any:
        """The reply to come, of a call that is sent by now; nothing, if it has to be awaited (:meth:`call_async`)."""
        begin = getattr(self._async_transport or self.async_transport(), "begin", None)
        if begin is None or self._breaker.is_open:
            return None
        seconds = (call.give_up_at - machine_timer()) / 1000
        if seconds <= 0:
            raise DeadlineOver
        return begin(call.operation, call.params, min(seconds, LONGEST_CALL_S), self._ended)

    def begin_together(self, calls: Sequence[Call]) -> Any:
        """The answers to come, errors as values, of calls of which at least one is sent by now; else ``NOT_YET``."""
        begun: list[Any] = []
        for call in calls:
            try:
                begun.append(self.begin(call))
            except NoAnswer as failure:
                begun.append(failure)
        if all(one is None or isinstance(one, NoAnswer) for one in begun):
            return NOT_YET
        from zae_limiter.stores.dynamodb.transport.asyncio_connection import AnswersInFlight

        return AnswersInFlight(
            [self.call_async(call) if one is None else one for call, one in zip(calls, begun, strict=True)]
        )

    def _ended(self, failure: NoAnswer | Refused | None) -> None:
        """A call that was begun has ended."""
        transport = self._async_transport
        if failure is not None:
            self._note_failure(failure, transport)
            return
        skew_s = getattr(transport, "last_date_skew_s", None)
        if self._breaker.failures or skew_s is None or skew_s is not self._last_skew_s:
            self._note_answer(transport)

    def _note_answer(self, transport: Any) -> None:
        if self._breaker.failures:
            self._breaker.answered()
        skew_s = getattr(transport, "last_date_skew_s", None)
        if skew_s is None or skew_s is not self._last_skew_s:  # else the reply is of the same second as the last
            self._compare_clocks(skew_s)

    def _note_failure(self, failure: NoAnswer | Refused, transport: Any) -> None:
        if isinstance(failure, Refused):
            self._note_answer(transport)  # a refusal is an answer too
        else:
            self._last_failure = failure
            self._breaker.unanswered(machine_timer())

    def _compare_clocks(self, skew_s: float | None) -> None:
        """Replies carry the time, to the second. A machine's clock that is far off is reported once, and corrected."""
        self._last_skew_s = skew_s
        error = self._clock.hear(None if skew_s is None else round(skew_s * 1000), machine_clock(), machine_timer())
        if error is not None:
            logger.warning(
                "this machine's clock differs from DynamoDB's by %.0f s; it is corrected for the buckets", error / 1000
            )

    def _may_call(self, *, in_loop: bool = False) -> bool:
        permission = self._breaker.permission(machine_timer())
        if permission is Permission.FAIL_AND_PROBE:
            if in_loop:
                self._probe_in_loop()
            else:
                threading.Thread(target=self._probe, name="zae-limiter-probe", daemon=True).start()
        return permission is Permission.GO

    def _probe(self) -> None:
        """Find out whether DynamoDB answers again; a refusal is an answer too."""
        try:
            self.transport().call(*self._probe_call)
        except NoAnswer:
            return
        except Refused:
            pass
        self._breaker.answered()

    def _probe_in_loop(self) -> None:
        import asyncio

        async def probe() -> None:
            try:
                await self.async_transport().call(*self._probe_call)
            except NoAnswer:
                return
            except Refused:
                pass
            self._breaker.answered()

        task = asyncio.get_running_loop().create_task(probe(), name="zae-limiter-probe")
        self._probing.add(task)
        task.add_done_callback(self._probing.discard)

    def transport(self) -> Transport:
        """The transport for threads."""
        if self._transport is None:
            self._transport = self._make.sync()
        return self._transport

    def async_transport(self) -> AsyncTransport:
        """The transport for event loops."""
        if self._async_transport is None:
            self._async_transport = self._make.asynchronous()
        return self._async_transport

    def close(self) -> None:
        """Close the connections of threads."""
        if self._transport is not None:
            self._transport.close()

    async def aclose(self) -> None:
        """Close the connections of this loop."""
        import asyncio

        for task in [task for task in self._probing if task.get_loop() is asyncio.get_running_loop()]:
            task.cancel()
            await asyncio.wait((task,))
        if self._async_transport is not None:
            await self._async_transport.close()


def _seconds_left(call: Call) -> float:
    left = (call.give_up_at - machine_timer()) / 1000
    if left <= 0:
        raise DeadlineOver
    return left if left < LONGEST_CALL_S else LONGEST_CALL_S


SHORTEST_PAUSE_MS, LONGEST_PAUSE_MS = 5, 200
CALLS_AT_ONCE = 16


LOCAL_SETTINGS = Target()
"""Region, endpoint and credentials as this machine's settings have them."""


class RequestPerformer:
    """Performs the requests of plans on one table."""

    def __init__(
        self,
        table: str,
        target: Target = LOCAL_SETTINGS,
        *,
        deadline: float = 2.0,
        transport: Transport | None = None,
        async_transport: AsyncTransport | None = None,
        how: TransportKind = "own",
        write_ids: WriteIds | None = None,
        ttl_margin_s: int = TTL_MARGIN_S,
        wcu: int = PARTITION_WCU,
    ) -> None:
        """``how`` calls are carried: by ourselves, or by botocore. ``transport`` and ``async_transport`` stand in.

        ``wcu``: how many writes a second one shard of a bucket takes before it is split.
        """
        self.client = TableClient(
            table,
            deadline_ms=round(deadline * 1000),
            write_ids=write_ids or WriteIds(),
            ttl_margin_s=ttl_margin_s,
            wcu=wcu,
        )
        self._clock = CheckedClock()
        self._calls = CallExecutor(
            transports_for(target, how),
            transport=transport,
            async_transport=async_transport,
            probe=("DescribeTable", {"TableName": table}, deadline),
            clock=self._clock,
        )
        self._workers: tuple[int, ThreadPoolExecutor | None] = (0, None)  # threads do not survive a fork

    def attempt(self, request: Request[Any], /) -> Any:
        kind = type(request)
        if kind is ReadMachineTime:
            return self._clock.machine_time(machine_clock(), machine_timer())
        if kind is Call:
            return self._calls.begin(request) or NOT_YET  # type: ignore[arg-type]
        return self._calls.begin_together(request.calls) if isinstance(request, Together) else NOT_YET

    def perform(self, request: Request[Any], /) -> Any:
        if isinstance(request, Call):
            return self._calls.call(request)
        if isinstance(request, ReadMachineTime):
            return self._clock.machine_time(machine_clock(), machine_timer())
        if isinstance(request, Together):
            return self._call_together(request.calls)
        if isinstance(request, Backoff):
            return time.sleep(_pause(request))
        if isinstance(request, AwaitNews):
            return _await_news(request)
        return self._clock.machine_time(machine_clock(), machine_timer())

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
        return self._clock.machine_time(machine_clock(), machine_timer())

    def _call_together(self, calls: Sequence[Call]) -> Sequence[Answer]:
        """The answers to several calls that are made at the same time.

        All are sent before any is waited for. Of those that cannot be sent at once, the first is made in this thread
        and the others beside it.
        """
        answers: list[Answer | None] = [None] * len(calls)
        sent: dict[int, SentCall] = {}
        try:
            for place, call in enumerate(calls):
                try:
                    one = self._calls.send(call)
                except NoAnswer as failure:
                    answers[place] = failure
                else:
                    if one is not None:
                        sent[place] = one
            if len(sent) < len(calls):
                self._make(calls, answers, sent)
            while sent:
                place, one = sent.popitem()
                answers[place] = self._calls.answer_to(one)
        finally:
            for one in sent.values():
                one.abandon()
        return cast("list[Answer]", answers)

    def _make(self, calls: Sequence[Call], answers: list[Answer | None], sent: Mapping[int, object]) -> None:
        """Make the calls that are neither sent nor answered: the first in this thread, the others beside it."""
        places = [place for place, answer in enumerate(answers) if answer is None and place not in sent]
        pid, workers = self._workers
        if len(places) > 1 and (workers is None or pid != os.getpid()):
            workers = ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix="zae-limiter-call")
            self._workers = (os.getpid(), workers)
        others = [workers.submit(self._answer, calls[place]) for place in places[1:]] if workers else []
        if places:
            answers[places[0]] = self._answer(calls[places[0]])
        for place, other in zip(places[1:], others, strict=True):
            answers[place] = other.result()

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
    request.wake_up.listen(event.set)
    event.wait(max(request.give_up_at - machine_timer(), 0) / 1000)
    request.wake_up.listen(None)


async def _await_news_async(request: AwaitNews) -> None:
    import asyncio

    loop, event = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(event.set)

    request.wake_up.listen(wake)
    try:
        async with asyncio.timeout(max(request.give_up_at - machine_timer(), 0) / 1000):
            await event.wait()
    except TimeoutError:
        pass
    finally:
        request.wake_up.listen(None)


def _only_answers(answers: Sequence[Any]) -> Sequence[Answer]:
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, (Refused, NoAnswer)):
            raise answer
    return answers
