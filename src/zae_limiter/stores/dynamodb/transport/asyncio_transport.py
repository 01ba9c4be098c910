"""The transport for event loops.

Connections belong to the loop they were opened in, so every loop has some of its own. They live inside an
asynchronous generator that is never resumed: a loop that ends (as ``asyncio.run`` ends one) closes the generators it
knows, and with this one the connections. So a transport need not be closed in every loop that used it.

What was not handed over to the system whole, DynamoDB cannot have done; see ``connection_pool.py``. Through a proxy,
requests are sent by threads, as in ``sync_transport.py``.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from types import AsyncGeneratorType
from typing import Any, Final, TypeVar, cast

from zae_limiter.running.async_driver import InFlight
from zae_limiter.stores.dynamodb.requests import NoAnswer, Refused, Reply
from zae_limiter.stores.dynamodb.transport.asyncio_connection import (
    CallInFlight,
    LoopConnection,
    Note,
    NothingSent,
    Seats,
)
from zae_limiter.stores.dynamodb.transport.connection_pool import Resting
from zae_limiter.stores.dynamodb.transport.failures import told
from zae_limiter.stores.dynamodb.transport.http_replies import Answer
from zae_limiter.stores.dynamodb.transport.protocol import Target
from zae_limiter.stores.dynamodb.transport.service import (
    CONNECT_S,
    IDLE_S,
    NOT_IN_TIME,
    Access,
    Entrance,
    Signed,
    encoded,
    not_begun,
    not_renewed,
)
from zae_limiter.stores.dynamodb.transport.settings import CONNECTIONS, service_of

CLOSING_S: Final = 1.0

Result = TypeVar("Result")


class AsyncioTransport:
    """Carries calls, signed and understood by ourselves."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._process = _Process(target)

    def __repr__(self) -> str:
        return "AsyncioTransport()"

    @property
    def last_date_skew_s(self) -> float | None:
        """By how much this machine's clock is behind DynamoDB's, to a second; unknown before the first reply."""
        return self._process.entrance.date_skew_s

    async def call(
        self, operation: str, params: Mapping[str, Any], seconds: float, refused: tuple[Refused, Signed] | None = None
    ) -> Reply:
        """DynamoDB's reply, in its own JSON. Raises ``Refused`` or ``NoAnswer``, after ``seconds`` at the latest.

        ``refused`` is how the same call was refused before: it is sent only if the reason is mended.
        """
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + seconds
        process = self._process_of_this()
        service = service_of(operation)
        access = process.entrance.access(service, quick=True)
        if access is None:
            access = await _waited(process.entrance.making_ready(service), give_up_at, NOT_IN_TIME)
        body = encoded(params)
        carrier = await process.carrier(loop, service, access)
        mended = False
        if refused is not None:
            if not await _mended(access, *refused, give_up_at):
                raise refused[0]
            mended = True
        while True:
            credentials = access.keeper.current()
            if credentials is None:
                credentials = await _waited(access.keeper.fetching(), give_up_at, NOT_IN_TIME)
            offset_s, sent_at = access.line.offset_s, time.time()
            try:
                request = access.line.put(operation, body, credentials)
            except ValueError as error:
                raise NoAnswer(str(error), sent=False) from None
            answer = await carrier.exchange(request, give_up_at)
            try:
                return access.line.understood(answer, credentials, sent_at)
            except Refused as refusal:
                if mended or not await _mended(access, refusal, Signed(credentials, offset_s), give_up_at):
                    raise
                mended = True

    def begin(self, operation: str, params: Mapping[str, Any], seconds: float, note: Note) -> InFlight | None:
        """The reply to come, of a call that is under way by now. Nothing, if something has to be waited for first.

        ``note`` is told what became of it.
        """
        loop = asyncio.get_running_loop()
        process, service = self._process, service_of(operation)
        pool = process.connections(loop, service)
        if pool is None or process.entrance.pid != os.getpid():
            return None
        access = process.entrance.access(service, quick=True)
        credentials = None if access is None else access.keeper.current()
        connection = None if credentials is None else pool.take_at_once()
        if access is None or credentials is None or connection is None:
            return None
        line, give_up_at, again = access.line, loop.time() + seconds, partial(self.call, operation, params)
        flight = CallInFlight(
            line, credentials, line.offset_s, time.time(), pool, connection, give_up_at, again, note, loop
        )
        try:
            connection.send(line.put(operation, encoded(params), credentials), give_up_at, flight)
        except (ValueError, NothingSent):  # the ordinary way knows what to do
            pool.let_go(connection, reusable=False)
            return None
        except BaseException:
            pool.let_go(connection, reusable=False)
            raise
        return flight

    async def close(self) -> None:
        """Close the connections of this loop, and of others that are running. A later call opens new ones."""
        await self._process_of_this().close()

    def _process_of_this(self) -> _Process:
        process = self._process
        if process.entrance.pid != os.getpid():
            _LEFT_TO_PARENTS.append(process)
            process = self._process = _Process(self._target)
        return process


_LEFT_TO_PARENTS: Final[list[object]] = []
"""Connections that a forked child found. Even forgetting them would touch the loops and sockets of its parent."""


class _Process:
    """What one process has: an entrance, and in each loop connections to each service."""

    def __init__(self, target: Target) -> None:
        self.entrance = Entrance(target)
        self._lives: dict[tuple[asyncio.AbstractEventLoop, str], _Life] = {}

    async def carrier(self, loop: asyncio.AbstractEventLoop, service: str, access: Access) -> Connections | _Proxied:
        life = self._lives.get((loop, service))
        if life is None or life.is_over():
            for other in [other for other in self._lives if other[0].is_closed()]:
                del self._lives[other]
            life = self._lives[loop, service] = _Life(access)
            await life.begin()
        return life.carrier

    def connections(self, loop: asyncio.AbstractEventLoop, service: str) -> Connections | None:
        """The connections there are, if calls go over some of ours."""
        life = self._lives.get((loop, service))
        carrier = None if life is None or life.is_over() else life.carrier
        return carrier if isinstance(carrier, Connections) else None

    async def close(self) -> None:
        lives, self._lives = self._lives, {}
        here = asyncio.get_running_loop()
        for (loop, _), life in lives.items():
            if loop is here:
                await life.end()
            elif loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(life.end(), loop))


class _Life:
    """Connections to one service, from the first call in a loop to the end of the loop."""

    def __init__(self, access: Access) -> None:
        self.carrier: Connections | _Proxied = Connections(access) if access.proxy is None else _Proxied(access)
        self._generator = cast("AsyncGeneratorType[None, None]", _living(self.carrier))

    async def begin(self) -> None:
        await anext(self._generator)

    def is_over(self) -> bool:
        return self._generator.ag_frame is None

    async def end(self) -> None:
        await self._generator.aclose()


async def _living(carrier: Connections | _Proxied) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await carrier.close()


class _Proxied:
    """Calls through a proxy, in threads."""

    def __init__(self, access: Access) -> None:
        from zae_limiter.stores.dynamodb.transport.sync_transport import ProxiedCarrier

        self._carrier = ProxiedCarrier(access.line.place, access.proxy or "", access.ca_bundle)

    async def exchange(self, request: bytes, give_up_at: float) -> Answer:
        seconds = max(give_up_at - asyncio.get_running_loop().time(), 0.001)
        carrying = self._carrier.carrying(request, seconds)
        return await _waited(carrying, give_up_at, "no answer through the proxy in time", sent=True)

    async def close(self) -> None:
        self._carrier.close()


class Connections:
    """Connections of one loop to one place, at most 50 at a time. The one that rested least is used next."""

    def __init__(self, access: Access) -> None:
        place = access.line.place
        self._address = (place.host, place.port)
        self._trusted = access.trusted
        self._resting: Resting[LoopConnection] = Resting(IDLE_S)
        self._seats = Seats(CONNECTIONS)
        self._open: set[LoopConnection] = set()
        self._connecting: set[asyncio.Task[LoopConnection]] = set()
        self._closed = False

    async def exchange(self, request: bytes, give_up_at: float) -> Answer:
        """The answer to a call. Raises ``NoAnswer``."""
        if not self._seats.take_at_once():
            await self._wait_for_a_place(give_up_at)
        holding = True
        try:
            connection = self._resting.take()
            if connection is not None:
                try:
                    return await self._exchange(connection, request, give_up_at)
                except NothingSent:
                    pass
            holding = False
            connection = await self._connected(give_up_at)
            holding = True
            try:
                return await self._exchange(connection, request, give_up_at)
            except NothingSent:
                raise NoAnswer("the connection was lost before anything could be sent", sent=False) from None
        finally:
            if holding:
                self._seats.give_back()

    def take_at_once(self) -> LoopConnection | None:
        """A connection that rested, if one does; :meth:`let_go` it after the call."""
        if not self._seats.take_at_once():
            return None
        connection = self._resting.take()
        if connection is None:
            self._seats.give_back()
        return connection

    def let_go(self, connection: LoopConnection, *, reusable: bool) -> None:
        """Its call is over."""
        if reusable:
            self._let_rest(connection)
        else:
            connection.close()
        self._seats.give_back()

    async def close(self) -> None:
        """Close them, and wait until they are."""
        self._closed = True
        for connecting in self._connecting:
            connecting.cancel()
        closing: list[asyncio.Future[Any]] = [*self._connecting, *(connection.end() for connection in self._open)]
        if closing:
            await asyncio.wait(closing, timeout=CLOSING_S)

    async def _wait_for_a_place(self, give_up_at: float) -> None:
        try:
            async with asyncio.timeout_at(give_up_at):
                await self._seats.take()
        except TimeoutError as error:
            raise NoAnswer("every connection was busy until there was no time left", sent=False) from error

    async def _exchange(self, connection: LoopConnection, request: bytes, give_up_at: float) -> Answer:
        try:
            answer = await connection.exchange(request, give_up_at)
        except BaseException:
            connection.close()
            raise
        if answer.reusable:
            self._let_rest(connection)
        else:
            connection.close()
        return answer

    def _let_rest(self, connection: LoopConnection) -> None:
        if self._closed:
            connection.close()
        else:
            self._resting.put(connection)

    async def _connected(self, give_up_at: float) -> LoopConnection:
        """A new connection. While it is being made, the one who makes it holds the caller's place."""
        loop = asyncio.get_running_loop()
        if self._closed:
            self._seats.give_back()
            raise NoAnswer("the connections were closed", sent=False)
        connecting = loop.create_task(self._connect(loop))
        self._connecting.add(connecting)
        connecting.add_done_callback(self._connecting.discard)
        try:
            await asyncio.wait((connecting,), timeout=max(min(give_up_at - loop.time(), CONNECT_S), 0))
            if connecting.cancelled():
                raise ConnectionAbortedError("the connections were closed")
            if connecting.done():
                return connecting.result()
            raise TimeoutError("the time is up")
        except BaseException as error:
            connecting.add_done_callback(self._keep)
            if isinstance(error, OSError):
                raise NoAnswer(f"no connection to {self._address[0]}: {told(error)}", sent=False) from error
            raise

    def _keep(self, connecting: asyncio.Task[LoopConnection]) -> None:
        """A connection that nobody waits for any more."""
        self._seats.give_back()
        if not connecting.cancelled() and connecting.exception() is None:
            self._let_rest(connecting.result())

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> LoopConnection:
        """One address after the other. (Several at a time, as asyncio can, leak sockets when cancelled.)"""
        host, port = self._address
        failure: OSError = OSError(f"{host} has no address")
        for address in await self._addresses(loop):
            connection: LoopConnection
            try:
                async with asyncio.timeout(CONNECT_S):
                    _, connection = await loop.create_connection(
                        lambda: LoopConnection(self._open),
                        address,
                        port,
                        ssl=self._trusted,
                        server_hostname=None if self._trusted is None else host,
                    )
            except OSError as error:
                failure = error
            else:
                return connection
        raise failure

    async def _addresses(self, loop: asyncio.AbstractEventLoop) -> Sequence[str]:
        host, port = self._address
        if ":" in host or host.replace(".", "").isdigit():
            return (host,)
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return [str(address[0]) for *_, address in found]


async def _mended(access: Access, refusal: Refused, signed: Signed, give_up_at: float) -> bool:
    """Whether it is worth asking again. Nothing was done when DynamoDB refused. Raises ``Refused`` with a reason."""
    if access.mended_by_now(refusal, signed):
        return True
    mending = access.mending(refusal)
    if mending is None:
        return False
    try:
        await _waited(mending, give_up_at, NOT_IN_TIME)
    except NoAnswer as failure:
        raise not_renewed(refusal, failure) from failure
    return access.mended_by_now(refusal, signed)


async def _waited(future: Future[Result], give_up_at: float, too_late: str, *, sent: bool = False) -> Result:
    try:
        async with asyncio.timeout_at(give_up_at):
            return await asyncio.wrap_future(future)
    except Exception as error:
        if isinstance(error, TimeoutError) and not future.done():
            raise NoAnswer(too_late, sent=sent) from error
        raise not_begun(error) from error
