"""One connection of an event loop: a call is sent, and the pieces of its answer are put together."""

from __future__ import annotations

import asyncio
from typing import cast

from zae_limiter.stores.dynamodb.requests import NoAnswer
from zae_limiter.stores.dynamodb.transport.failures import told
from zae_limiter.stores.dynamodb.transport.http_replies import Answer, Garbled, ReplyReader


class NothingSent(Exception):
    """A connection broke before the system had taken the whole call."""


class LoopConnection(asyncio.Protocol):
    """One connection."""

    __slots__ = ("_lost", "_open", "_reader", "_transport", "_waiter")

    def __init__(self, opened: set[LoopConnection]) -> None:
        self._open = opened
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._reader: ReplyReader | None = None
        self._waiter: asyncio.Future[Answer] | None = None
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # What asyncio tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._open.add(self)

    def data_received(self, data: bytes) -> None:
        reader, waiter = self._reader, self._waiter
        if reader is None or waiter is None or waiter.done():
            self.close()  # nobody asked
            return
        try:
            answer = reader.feed(data)
        except Garbled as error:
            waiter.set_exception(error)
        else:
            if answer is not None:
                waiter.set_result(answer)

    def eof_received(self) -> None:
        self.data_received(b"")

    def connection_lost(self, error: Exception | None) -> None:
        self._open.discard(self)
        if not self._lost.done():
            self._lost.set_result(None)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error or ConnectionResetError("the connection was lost"))

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

    async def exchange(self, request: bytes, give_up_at: float) -> Answer:
        loop = asyncio.get_running_loop()
        if give_up_at <= loop.time():
            raise NoAnswer("there was no time left to ask", sent=False)
        self._reader = ReplyReader()
        waiter: asyncio.Future[Answer] = loop.create_future()
        self._waiter = waiter
        timer = loop.call_at(give_up_at, _give_up, waiter)
        try:
            self._transport.write(request)
            if self._transport.is_closing():
                raise NothingSent
            return await waiter
        except (OSError, Garbled) as error:
            raise NoAnswer(f"no answer: {told(error)}") from error
        finally:
            timer.cancel()
            self._reader = self._waiter = None


def _give_up(waiter: asyncio.Future[Answer]) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError("the time is up"))
