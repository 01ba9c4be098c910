"""One connection of an event loop: a call is sent, and the pieces of its answer are put together."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from zae_limiter.stores.dynamodb.requests import NoAnswer
from zae_limiter.stores.dynamodb.transport.failures import told
from zae_limiter.stores.dynamodb.transport.http_replies import Answer, Garbled, ReplyReader, read_at_once


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
