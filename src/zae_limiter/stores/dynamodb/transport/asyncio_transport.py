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
from collections.abc import AsyncGenerator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from types import AsyncGeneratorType
from typing import Any, Final, TypeVar, cast

from zae_limiter.running.async_driver import InFlight
from zae_limiter.stores.dynamodb.requests import NoAnswer, Refused, Reply
from zae_limiter.stores.dynamodb.transport.asyncio_connection import (
    CallInFlight,
    LoopConnection,
    LoopSemaphore,
    OutcomeListener,
)
from zae_limiter.stores.dynamodb.transport.connection_pool import BUSY, CONNECT_S, IdleConnections, NothingSent
from zae_limiter.stores.dynamodb.transport.http_replies import HttpReply
from zae_limiter.stores.dynamodb.transport.protocol import Target
from zae_limiter.stores.dynamodb.transport.service import (
    SETTINGS_TOO_LATE,
    Service,
    Services,
    SignedRequest,
    error_before_sending,
    never_connected,
    refresh_failed,
)
from zae_limiter.stores.dynamodb.transport.settings import CONNECTIONS, service_of

CLOSE_TIMEOUT_S: Final = 1.0

Result = TypeVar("Result")


class AsyncioTransport:
    """Carries the calls of tasks."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._process = _Process(target)

    def __repr__(self) -> str:
        return "AsyncioTransport()"

    @property
    def last_date_skew_s(self) -> float | None:
        """By how much this machine's clock is behind DynamoDB's, to a second; unknown before the first reply."""
        service = self._process.services.known.get("dynamodb")
        return None if service is None else service.date_skew_s

    async def call(
        self,
        operation: str,
        params: Mapping[str, Any],
        seconds: float,
        refused: tuple[Refused, SignedRequest] | None = None,
    ) -> Reply:
        """DynamoDB's reply, in its own JSON. Raises ``Refused`` or ``NoAnswer``, after ``seconds`` at the latest.

        ``refused`` is how the same call was refused before: it is sent only if it can be signed anew.
        """
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + seconds
        channel = await self._own_process().channel(loop, service_of(operation), give_up_at)
        service = channel.service
        if refused is not None and not await _can_be_signed_anew(service, *refused, give_up_at):
            raise refused[0]
        was_refused = refused is not None
        while True:
            credentials = service.credentials.current()
            if credentials is None:
                credentials = await _result(service.credentials.fetching(), give_up_at)
            request = service.sign(operation, params, credentials)
            reply = await channel.exchange(request.data, give_up_at)
            try:
                return service.decode(reply, request)
            except Refused as refusal:
                if was_refused or not await _can_be_signed_anew(service, refusal, request, give_up_at):
                    raise
                was_refused = True

    def begin(
        self, operation: str, params: Mapping[str, Any], seconds: float, listener: OutcomeListener
    ) -> InFlight | None:
        """The reply to come, of a call that is sent by now. Nothing, if something has to be waited for first.

        ``listener`` is told what became of it.
        """
        loop = asyncio.get_running_loop()
        process = self._process
        channel = process.open_channel(loop, service_of(operation))
        if not isinstance(channel, LoopConnectionPool) or process.pid != os.getpid():
            return None
        service = channel.service
        credentials = service.credentials.current()
        connection = None if credentials is None else channel.take_idle()
        if credentials is None or connection is None:
            return None
        try:
            give_up_at = loop.time() + seconds
            request = service.sign(operation, params, credentials)
            resend = partial(self.call, operation, params)
            call = CallInFlight(service, request, channel, connection, give_up_at, resend, listener, loop)
            connection.send(request.data, give_up_at, call)
        except (NoAnswer, NothingSent):  # the ordinary way finds the same, and tells the caller
            channel.give_back(connection, reusable=False)
            return None
        except BaseException:
            channel.give_back(connection, reusable=False)
            raise
        return call

    async def close(self) -> None:
        """Close the connections of this loop, and of others that are running. A later call opens new ones."""
        await self._own_process().close()

    def _own_process(self) -> _Process:
        process = self._process
        if process.pid != os.getpid():
            _OF_PARENT_PROCESSES.append(process)
            process = self._process = _Process(self._target)
        return process


_OF_PARENT_PROCESSES: Final[list[object]] = []
"""Connections that a forked child inherited. Even forgetting them would touch the loops and sockets of its parent."""


class _Process:
    """The services of one process, and in each loop a channel to each of them."""

    def __init__(self, target: Target) -> None:
        self.pid = os.getpid()
        self.services = Services(target)
        self._lifetimes: dict[tuple[asyncio.AbstractEventLoop, str], _Lifetime] = {}

    async def channel(self, loop: asyncio.AbstractEventLoop, name: str, give_up_at: float) -> Channel:
        """The channel to a service. It is opened at the first call in a loop."""
        channel = self.open_channel(loop, name)
        if channel is not None:
            return channel
        service = self.services.ready(name, quick=True)
        if service is None:
            service = await _result(self.services.preparing(name), give_up_at)
        channel = self.open_channel(loop, name)
        if channel is not None:
            return channel  # another task was faster
        for key in [key for key in self._lifetimes if key[0].is_closed()]:
            del self._lifetimes[key]
        lifetime = self._lifetimes[loop, name] = _Lifetime(service)
        await lifetime.begin()
        return lifetime.channel

    def open_channel(self, loop: asyncio.AbstractEventLoop, name: str) -> Channel | None:
        """The channel to a service, if one is open in this loop."""
        lifetime = self._lifetimes.get((loop, name))
        return None if lifetime is None or lifetime.has_ended() else lifetime.channel

    async def close(self) -> None:
        lifetimes, self._lifetimes = self._lifetimes, {}
        here = asyncio.get_running_loop()
        for (loop, _), lifetime in lifetimes.items():
            if loop is here:
                await lifetime.end()
            elif loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(lifetime.end(), loop))


class _Lifetime:
    """Of a channel: from the first call in a loop to the end of the loop."""

    def __init__(self, service: Service) -> None:
        self.channel: Channel = LoopConnectionPool(service) if service.proxy is None else LoopProxyChannel(service)
        self._generator = cast("AsyncGeneratorType[None, None]", _open_until_closed(self.channel))

    async def begin(self) -> None:
        await anext(self._generator)

    def has_ended(self) -> bool:
        return self._generator.ag_frame is None

    async def end(self) -> None:
        await self._generator.aclose()


async def _open_until_closed(channel: Channel) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await channel.close()


class LoopProxyChannel:
    """Sends the requests of one loop through a proxy, by threads."""

    def __init__(self, service: Service) -> None:
        from zae_limiter.stores.dynamodb.transport.sync_transport import ProxyChannel

        self.service = service
        self._channel = ProxyChannel(service, service.proxy or "")

    async def exchange(self, request: bytes, give_up_at: float) -> HttpReply:
        """The reply to a request. Raises ``NoAnswer``."""
        from zae_limiter.stores.dynamodb.transport.sync_transport import PROXY_TOO_LATE

        seconds = max(give_up_at - asyncio.get_running_loop().time(), 0.001)
        return await _result(self._channel.exchanging(request, seconds), give_up_at, PROXY_TOO_LATE, sent=True)

    async def close(self) -> None:
        self._channel.close()


class LoopConnectionPool:
    """Connections of one loop to one endpoint, at most 50 in use at a time. The last one used is used next."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._address = (service.endpoint.host, service.endpoint.port)
        self._idle: IdleConnections[LoopConnection] = IdleConnections()
        self._permits = LoopSemaphore(CONNECTIONS)
        self._open: set[LoopConnection] = set()
        self._connecting: set[asyncio.Task[LoopConnection]] = set()
        self._closed = False

    async def exchange(self, request: bytes, give_up_at: float) -> HttpReply:
        """The reply to a request. Raises ``NoAnswer``."""
        if not self._permits.acquire_now():
            await self._acquire(give_up_at)
        has_permit = True
        try:
            connection = self._idle.take()
            while True:
                is_new = connection is None
                if connection is None:
                    has_permit = False  # the task that connects has it
                    connection = await self._connected(give_up_at)
                    has_permit = True
                reusable = False
                try:
                    reply = await connection.exchange(request, give_up_at)
                    reusable = reply.reusable
                    return reply
                except NothingSent as broken:
                    if is_new:
                        raise NoAnswer(f"nothing could be sent: {broken}", sent=False) from None
                finally:
                    if reusable and not self._closed:
                        self._idle.put(connection)
                    else:
                        connection.close()
                connection = None
        finally:
            if has_permit:
                self._permits.release()

    def take_idle(self) -> LoopConnection | None:
        """An idle connection, if there is one. :meth:`give_back` it after the call."""
        if not self._permits.acquire_now():
            return None
        connection = self._idle.take()
        if connection is None:
            self._permits.release()
        return connection

    def give_back(self, connection: LoopConnection, *, reusable: bool) -> None:
        """The call of a connection is over."""
        if reusable and not self._closed:
            self._idle.put(connection)
        else:
            connection.close()
        self._permits.release()

    async def close(self) -> None:
        """Close all connections, and wait until they are closed."""
        self._closed = True
        for connecting in self._connecting:
            connecting.cancel()
        closing: list[asyncio.Future[Any]] = [*self._connecting, *(connection.closing() for connection in self._open)]
        if closing:
            await asyncio.wait(closing, timeout=CLOSE_TIMEOUT_S)

    async def _acquire(self, give_up_at: float) -> None:
        try:
            async with asyncio.timeout_at(give_up_at):
                await self._permits.acquire()
        except TimeoutError as error:
            raise NoAnswer(BUSY, sent=False) from error

    async def _connected(self, give_up_at: float) -> LoopConnection:
        """A new connection. If the caller stops waiting for it, its permit is released when connecting has ended."""
        loop = asyncio.get_running_loop()
        if self._closed:
            self._permits.release()
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
                raise never_connected(self._address[0], error) from error
            raise

    def _keep(self, connecting: asyncio.Task[LoopConnection]) -> None:
        """Keep a connection whose caller has stopped waiting."""
        if connecting.cancelled() or connecting.exception() is not None:
            self._permits.release()
        else:
            self.give_back(connecting.result(), reusable=True)

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> LoopConnection:
        """Try one address after the other. (Several at a time, as asyncio can, leak sockets when cancelled.)"""
        host, port = self._address
        tls = self.service.tls
        failure: OSError = OSError(f"{host} has no address")
        for address in await self._addresses(loop):
            connection: LoopConnection
            try:
                async with asyncio.timeout(CONNECT_S):
                    _, connection = await loop.create_connection(
                        lambda: LoopConnection(self._open),
                        address,
                        port,
                        ssl=tls,
                        server_hostname=None if tls is None else host,
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


Channel = LoopConnectionPool | LoopProxyChannel
"""Sends the requests of one loop to one service, and brings the replies back."""


async def _can_be_signed_anew(service: Service, refusal: Refused, request: SignedRequest, give_up_at: float) -> bool:
    """Whether a refused call is worth another signature, perhaps after waiting for other credentials.

    Nothing was done when DynamoDB refused. Raises ``Refused`` with the reason if no others can be fetched.
    """
    if service.has_other_signature(refusal, request):
        return True
    refreshing = service.refreshing(refusal)
    if refreshing is None:
        return False
    try:
        await _result(refreshing, give_up_at)
    except NoAnswer as failure:
        raise refresh_failed(refusal, failure) from failure
    return service.has_other_signature(refusal, request)


async def _result(
    future: Future[Result], give_up_at: float, too_late: str = SETTINGS_TOO_LATE, *, sent: bool = False
) -> Result:
    """The outcome of a thread's work. Raises ``NoAnswer`` if it is not there in time."""
    with suppress(Exception):  # a thread may end together with its caller's time: then its outcome counts
        async with asyncio.timeout_at(give_up_at):
            return await asyncio.wrap_future(future)
    if not future.done():
        raise NoAnswer(too_late, sent=sent)
    try:
        return future.result()
    except Exception as error:
        raise error_before_sending(error) from error
