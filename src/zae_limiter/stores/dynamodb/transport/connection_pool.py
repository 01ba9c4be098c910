"""Connections to one endpoint, for threads. (Idle connections are kept in the same way for event loops.)

Connecting is done in a thread of its own, because looking up a name cannot be given a timeout; a connection that comes
too late for its caller is there for the next. A connection carries one call at a time, every step with the time that
is left.

What was not handed over to the system whole, DynamoDB cannot have done: a request is signed over its length and its
whole body. So a connection that breaks while sending (a server closes one that was idle) is replaced, once. One that
breaks afterwards may have brought the request there, and is not.
"""

from __future__ import annotations

import select
import socket
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from time import monotonic, time
from typing import Final, Generic, Protocol, TypeVar

from zae_limiter.stores.dynamodb.requests import NoAnswer
from zae_limiter.stores.dynamodb.transport.credentials import run_in_thread
from zae_limiter.stores.dynamodb.transport.http_replies import (
    HttpReply,
    MalformedReply,
    ReplyReader,
    parse_plain_reply,
)
from zae_limiter.stores.dynamodb.transport.service import Service, described, never_connected
from zae_limiter.stores.dynamodb.transport.settings import CONNECTIONS

CONNECT_S: Final = 1.0
MAX_IDLE_S: Final = 20.0
"""An older connection may be dead without looking so, as in a frozen Lambda."""

RECEIVE_BYTES: Final = 65536

TIMEOUT_PRECISION_S: Final = 0.002
"""Two timeouts that differ by less are the same: a system waits no more precisely."""

BUSY: Final = "every connection was busy until there was no time left"


class PooledConnection(Protocol):
    """A connection."""

    def news(self, timeout_ms: int, /) -> object:
        """Nothing (what is false), if there is nothing to read within so much time, not even the end."""
        ...

    def close(self) -> object: ...


Connection = TypeVar("Connection", bound=PooledConnection)


class IdleConnections(Generic[Connection]):
    """The connections that carry no call now. Safe to share between threads.

    Age is told by the wall clock: where a machine was frozen, only that one goes on. A connection with something to
    read before anything was sent has been closed by the server, or is not in order.
    """

    def __init__(self) -> None:
        self._connections: deque[tuple[float, Connection]] = deque()

    def put(self, connection: Connection) -> None:
        """Keep a connection for later. One that has been idle too long is closed."""
        connections, now = self._connections, time()
        connections.append((now, connection))
        try:
            if abs(now - connections[0][0]) > MAX_IDLE_S:
                connections.popleft()[1].close()
        except IndexError:
            pass  # other threads have taken them all

    def take(self) -> Connection | None:
        """The connection that was used last, if it is in order."""
        while True:
            try:
                since, connection = self._connections.pop()
            except IndexError:
                return None
            if abs(time() - since) <= MAX_IDLE_S and not connection.news(0):
                return connection
            connection.close()

    def close_all(self) -> None:
        """Close every idle connection."""
        while self._connections:
            try:
                self._connections.pop()[1].close()
            except IndexError:
                break


def news_of(descriptor: int) -> Callable[[int], object]:
    """What tells the news of a connection (see :class:`PooledConnection`)."""
    try:
        poll = select.poll()
    except AttributeError:  # Windows
        return lambda timeout_ms: select.select([descriptor], [], [], timeout_ms / 1000)[0]
    poll.register(descriptor, select.POLLIN)
    return poll.poll


class NothingSent(Exception):
    """A connection broke before the system had taken the whole request."""


class ConnectionPool:
    """Connections to one endpoint, at most 50 in use at a time. The last one used is used next."""

    def __init__(self, service: Service) -> None:
        self._address = (service.endpoint.host, service.endpoint.port)
        self._tls = service.tls
        self._idle: IdleConnections[SocketConnection] = IdleConnections()
        self._permits: SimpleQueue[None] = SimpleQueue()
        """One for every connection that may be in use beside those that are."""
        for _ in range(CONNECTIONS):
            self._permits.put(None)
        weakref.finalize(self, self._idle.close_all)

    def begin(self, request: bytes, give_up_at: float) -> SocketConnection | None:
        """An idle connection over which a request was sent; nothing, if something has to be waited for first.

        :meth:`finish` it, or :meth:`abandon` it.
        """
        try:
            self._permits.get_nowait()
        except Empty:
            return None
        connection, is_sent = None, False
        try:
            connection = self._idle.take()
            if connection is not None:
                connection.send(request, give_up_at)
                is_sent = True
                return connection
        except NothingSent:  # it is replaced
            pass
        finally:
            if not is_sent:
                self.abandon(connection)
        return None

    def begin_anew(self, request: bytes, give_up_at: float) -> SocketConnection:
        """The same, after waiting for what is missing. Raises ``NoAnswer``."""
        try:
            self._permits.get(timeout=max(give_up_at - monotonic(), 0))
        except Empty:
            raise NoAnswer(BUSY, sent=False) from None
        connection, has_permit, is_sent = None, True, False
        try:
            connection = self._idle.take()
            while True:
                is_new = connection is None
                if connection is None:
                    has_permit = False  # the thread that connects has it
                    connection = self._connected(give_up_at)
                    has_permit = True
                try:
                    connection.send(request, give_up_at)
                    is_sent = True
                    return connection
                except NothingSent as broken:
                    if is_new:
                        raise NoAnswer(f"nothing could be sent: {broken}", sent=False) from broken.__cause__
                connection.close()
                connection = None
        finally:
            if has_permit and not is_sent:
                self.abandon(connection)

    def finish(self, connection: SocketConnection, give_up_at: float) -> HttpReply:
        """The reply to the request that was sent over a connection. Raises ``NoAnswer``."""
        reusable = False
        try:
            reply = connection.receive(give_up_at)
            reusable = reply.reusable
            return reply
        finally:
            if reusable:
                self._idle.put(connection)
                self._permits.put(None)
            else:
                self.abandon(connection)

    def abandon(self, connection: SocketConnection | None) -> None:
        """Close a connection whose reply is not waited for, and leave its permit to another call."""
        if connection is not None:
            connection.close()
        self._permits.put(None)

    def close(self) -> None:
        """Close the idle connections. One in use is closed after its call."""
        self._idle.close_all()

    def _connected(self, give_up_at: float) -> SocketConnection:
        """A new connection. If the caller stops waiting for it, its permit is returned when connecting has ended."""
        connecting = run_in_thread(self._connect, "zae-limiter-connecting")
        try:
            return connecting.result(max(min(give_up_at - monotonic(), CONNECT_S), 0))
        except BaseException as error:
            connecting.add_done_callback(self._keep)
            if isinstance(error, OSError):
                raise never_connected(self._address[0], error) from error
            raise

    def _keep(self, connecting: Future[SocketConnection]) -> None:
        """Keep a connection whose caller has stopped waiting."""
        self._permits.put(None)
        if connecting.exception() is None:
            self._idle.put(connecting.result())

    def _connect(self) -> SocketConnection:
        connected = socket.create_connection(self._address, CONNECT_S)
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self._tls is not None:
                connected = self._tls.wrap_socket(connected, server_hostname=self._address[0])
        except BaseException:
            connected.close()
            raise
        return SocketConnection(connected)


class SocketConnection:
    """One connection. ``close`` is the socket's own."""

    __slots__ = ("_socket", "_timeout_s", "close", "news")

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._timeout_s = -1.0
        self.close = connected.close
        self.news = news_of(connected.fileno())

    def send(self, request: bytes, give_up_at: float) -> None:
        """Hand a request over to the system. Raises :class:`NothingSent`."""
        left = max(give_up_at - monotonic(), 0.001)
        try:
            if not -TIMEOUT_PRECISION_S <= self._timeout_s - left <= TIMEOUT_PRECISION_S:
                self._allow(left)
            self._socket.sendall(request)
        except OSError as error:
            raise NothingSent(described(error)) from error

    def receive(self, give_up_at: float) -> HttpReply:
        """The reply to the request that was sent. Raises ``NoAnswer``."""
        reader: ReplyReader | None = None
        try:
            while True:
                left = give_up_at - monotonic()
                if left <= 0:
                    raise TimeoutError("the time is up")
                if not -TIMEOUT_PRECISION_S <= self._timeout_s - left <= TIMEOUT_PRECISION_S:
                    self._allow(left)
                data = self._socket.recv(RECEIVE_BYTES)
                reply = parse_plain_reply(data) if reader is None else None
                if reply is None:
                    reader = reader or ReplyReader()
                    reply = reader.feed(data)
                if reply is not None:
                    return reply
        except (OSError, MalformedReply) as error:
            raise NoAnswer(f"no answer: {described(error)}") from error

    def _allow(self, seconds: float) -> None:
        """Bound the next steps by so much time."""
        self._socket.settimeout(seconds)
        self._timeout_s = seconds
