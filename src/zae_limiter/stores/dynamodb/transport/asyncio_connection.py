"""One connection of an event loop, and a call in flight over it.

Nearly every call is sent at once, before its caller waits, so that no task is needed to wait for one: the service is
known, and a connection is idle. The caller gets a future of the reply (:class:`CallInFlight`), which is decoded as
soon as it has come. What needs more than one exchange (credentials that have expired, a clock that is off) is sent
again by the ordinary way; nothing was done when DynamoDB refused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol, TypeAlias, cast

from zae_limiter.running.async_driver import InFlight
from zae_limiter.stores.dynamodb.requests import NoAnswer, Refused, Reply
from zae_limiter.stores.dynamodb.transport.failures import told
from zae_limiter.stores.dynamodb.transport.http_replies import Answer, Garbled, ReplyReader, read_at_once
from zae_limiter.stores.dynamodb.transport.protocol import Credentials
from zae_limiter.stores.dynamodb.transport.service import BADLY_SIGNED, EXPIRED, Line, Signed


class NothingSent(Exception):
    """A connection broke before the system had taken the whole call."""


class Caller(Protocol):
    """Who is told, once, what became of a call."""

    def hear(self, answer: Answer) -> None:
        """The answer is there."""

    def miss(self, error: Exception) -> None:
        """There will be none: an ``OSError``, or :class:`Garbled`."""


class LoopConnection(asyncio.Protocol):
    """One connection.

    A call has to be answered by its time. There is one timer for all calls of a connection, which nearly always finds
    that the call it was set for was answered long ago.
    """

    __slots__ = ("_caller", "_give_up_at", "_loop", "_lost", "_open", "_reader", "_timer", "_transport")

    def __init__(self, opened: set[LoopConnection]) -> None:
        self._open = opened
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._reader: ReplyReader | None = None
        self._caller: Caller | None = None
        self._give_up_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._lost: asyncio.Future[None] = self._loop.create_future()

    # What asyncio tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._open.add(self)

    def data_received(self, data: bytes) -> None:
        caller = self._caller
        if caller is None:
            self.close()  # nobody asked
            return
        try:
            answer = read_at_once(data) if self._reader is None else None
            if answer is None:
                self._reader = self._reader or ReplyReader()
                answer = self._reader.feed(data)
        except Garbled as error:
            self._miss(error)
        else:
            if answer is not None:
                self._reader = self._caller = None
                caller.hear(answer)

    def eof_received(self) -> None:
        self.data_received(b"")

    def connection_lost(self, error: Exception | None) -> None:
        self._open.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if not self._lost.done():
            self._lost.set_result(None)
        self._miss(error or ConnectionResetError("the connection was lost"))

    # What is asked of it

    def fileno(self) -> int:
        if self._transport.is_closing():
            return -1
        found = self._transport.get_extra_info("socket")
        descriptor: int = -1 if found is None else found.fileno()
        return descriptor

    def close(self) -> None:
        self._transport.abort()

    def end(self) -> asyncio.Future[None]:
        """Close it, and tell when it is."""
        self._transport.abort()
        return self._lost

    def send(self, request: bytes, give_up_at: float, caller: Caller) -> None:
        """Send a call, and tell the caller what becomes of it. Raises :class:`NothingSent`."""
        self._transport.write(request)
        if self._transport.is_closing():
            raise NothingSent
        self._caller = caller
        self._give_up_at = give_up_at
        timer = self._timer
        if timer is None or timer.when() > give_up_at:
            if timer is not None:
                timer.cancel()
            self._timer = self._loop.call_at(give_up_at, self._look_at_the_time)

    async def exchange(self, request: bytes, give_up_at: float) -> Answer:
        """The answer to a call. Raises ``NoAnswer``, or :class:`NothingSent`."""
        if give_up_at <= self._loop.time():
            raise NoAnswer("there was no time left to ask", sent=False)
        waiting = _Waiting(self._loop)
        self.send(request, give_up_at, waiting)
        try:
            return await waiting.answer
        except (OSError, Garbled) as error:
            raise no_answer(error) from error
        finally:
            self._reader = self._caller = None

    def _miss(self, error: Exception) -> None:
        caller, self._reader, self._caller = self._caller, None, None
        if caller is not None:
            caller.miss(error)

    def _look_at_the_time(self) -> None:
        self._timer = None
        if self._caller is None:
            return
        if self._loop.time() < self._give_up_at:
            self._timer = self._loop.call_at(self._give_up_at, self._look_at_the_time)
        else:
            self._miss(TimeoutError("the time is up"))


class _Waiting:
    """A caller that awaits the answer."""

    __slots__ = ("answer",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.answer: asyncio.Future[Answer] = loop.create_future()

    def hear(self, answer: Answer) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)

    def miss(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


def no_answer(error: Exception) -> NoAnswer:
    """What it means to a plan that there will be no answer."""
    return NoAnswer(f"no answer: {told(error)}")


Note: TypeAlias = Callable[[Refused | NoAnswer | None], None]
"""Is told what became of a call: nothing, if it was answered well."""

Again: TypeAlias = Callable[[float, tuple[Refused, Signed]], Coroutine[Any, Any, Reply]]

_ASKED_AGAIN: set[asyncio.Task[Any]] = set()


class Pool(Protocol):
    """Where a connection comes from, and goes when its call is over."""

    def let_go(self, connection: LoopConnection, *, reusable: bool) -> None: ...


class CallInFlight(InFlight):
    """The reply to a call that was sent over a connection."""

    def __init__(
        self,
        line: Line,
        credentials: Credentials,
        offset_s: float,
        sent_at: float,
        pool: Pool,
        connection: LoopConnection,
        give_up_at: float,
        again: Again,
        note: Note,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """``again`` asks in the ordinary way, and is given seconds, and how the call was refused."""
        super().__init__(loop=loop)
        self._line = line
        self._credentials = credentials
        self._offset_s = offset_s
        self._sent_at = sent_at
        self._pool = pool
        self._connection = connection
        self._give_up_at = give_up_at
        self._again = again
        self._note = note

    # What the connection tells

    def hear(self, answer: Answer) -> None:
        self._pool.let_go(self._connection, reusable=answer.reusable)
        try:
            reply = self._line.understood(answer, self._credentials, self._sent_at)
        except Refused as refusal:
            if refusal.code in EXPIRED or refusal.code in BADLY_SIGNED:
                self._ask_again(refusal)
            else:
                self._end(refusal)
        except NoAnswer as silence:
            self._end(silence)
        else:
            self._note(None)
            self.set_result(reply)

    def miss(self, error: Exception) -> None:
        self._pool.let_go(self._connection, reusable=False)
        failure = no_answer(error)
        failure.__cause__ = error
        self._end(failure)

    def _end(self, failure: Refused | NoAnswer) -> None:
        self._note(failure)
        self.set_exception(failure)

    def _ask_again(self, refusal: Refused) -> None:
        loop = self.get_loop()
        refused = refusal, Signed(self._credentials, self._offset_s)
        task = loop.create_task(self._again(max(self._give_up_at - loop.time(), 0.0), refused))
        _ASKED_AGAIN.add(task)
        task.add_done_callback(self._heard_again)

    def _heard_again(self, task: asyncio.Task[Reply]) -> None:
        _ASKED_AGAIN.discard(task)
        error = ConnectionAbortedError("the loop was closed") if task.cancelled() else task.exception()
        if error is None:
            self._note(None)
            self.set_result(task.result())
        elif isinstance(error, (Refused, NoAnswer)):
            self._end(error)
        elif isinstance(error, OSError):
            self._end(no_answer(error))
        else:
            self.set_exception(error)


class Seats:
    """So many at a time. Who finds all of them taken waits, and nobody overtakes.

    (asyncio's semaphore can only be acquired by waiting for it, even if there is nothing to wait for.)
    """

    __slots__ = ("_free", "_waiting")

    def __init__(self, count: int) -> None:
        self._free = count  # none, while anybody waits
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take_at_once(self) -> bool:
        """Whether one was free; then it is taken."""
        if not self._free:
            return False
        self._free -= 1
        return True

    async def take(self) -> None:
        """Take one, when it is this one's turn."""
        if self.take_at_once():
            return
        seat: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(seat)
        try:
            await seat
        except BaseException:
            if seat.done() and not seat.cancelled():
                self.give_back()  # it came in the same moment
            else:
                with suppress(ValueError):
                    self._waiting.remove(seat)
            raise

    def give_back(self) -> None:
        """Leave it to whoever has waited longest."""
        while self._waiting:
            seat = self._waiting.popleft()
            if not seat.done():
                seat.set_result(None)
                return
        self._free += 1
