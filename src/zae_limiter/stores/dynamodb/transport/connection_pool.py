"""Connections to one endpoint, for threads. (Idle connections are kept in the same way for event loops.)

Connecting is done in a thread of its own, because looking up a name cannot be given a time; a connection that comes
too late for its caller is there for the next. On a connection one call at a time is sent and its answer read, every
step with the time that is left.

What was not handed over to the system whole, DynamoDB cannot have done: a call is signed over its length and its whole
body. So a connection that breaks while sending (a server closes one that was idle) is replaced, once. One that breaks
afterwards may have brought the call there, and is not.
"""

from __future__ import annotations

import select
import socket
import weakref
from collections import deque
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from time import monotonic, time
from typing import Final, Generic, Protocol, TypeVar

from zae_limiter.stores.dynamodb.requests import NoAnswer
from zae_limiter.stores.dynamodb.transport.credentials import begun
from zae_limiter.stores.dynamodb.transport.failures import told
from zae_limiter.stores.dynamodb.transport.http_replies import Answer, Garbled, ReplyReader, read_at_once
from zae_limiter.stores.dynamodb.transport.service import CONNECT_S, IDLE_S, Access
from zae_limiter.stores.dynamodb.transport.settings import CONNECTIONS

PIECE: Final = 65536

NEARLY_S: Final = 0.002
"""Two times to wait that differ by less are the same: a system waits no more precisely."""


class Restful(Protocol):
    """A connection."""

    def fileno(self) -> int: ...

    def close(self) -> object: ...


Connection = TypeVar("Connection", bound=Restful)


class Resting(Generic[Connection]):
    """The connections that nobody uses now. Safe to share between threads.

    Age is told by the wall clock: where a machine was frozen, only that one goes on. A connection with something
    to read before anything was asked has been closed by the other side, or is not in order.
    """

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._connections: deque[tuple[float, Connection]] = deque()

    def put(self, connection: Connection) -> None:
        """Let one rest. Another one that has rested too long is closed."""
        connections, now = self._connections, time()
        connections.append((now, connection))
        try:
            if abs(now - connections[0][0]) > self._longest_s:
                connections.popleft()[1].close()
        except IndexError:
            pass  # other threads have taken them all

    def take(self) -> Connection | None:
        """The one that rested least, if it is in order."""
        while True:
            try:
                since, connection = self._connections.pop()
            except IndexError:
                return None
            if abs(time() - since) <= self._longest_s and is_quiet(connection):
                return connection
            connection.close()

    def take_all(self) -> list[Connection]:
        """All of them."""
        taken = []
        while self._connections:
            try:
                taken.append(self._connections.pop()[1])
            except IndexError:
                break
        return taken


def is_quiet(connection: Restful) -> bool:
    """Whether there is nothing to read, not even the end."""
    descriptor = connection.fileno()
    if descriptor < 0:
        return False
    try:
        poll = select.poll()
    except AttributeError:  # Windows
        return not select.select([descriptor], [], [], 0)[0]
    poll.register(descriptor, select.POLLIN)
    return not poll.poll(0)


class NothingSent(Exception):
    """A connection broke before the system had taken the whole call."""


class Connections:
    """Connections to one place, at most 50 at a time. The one that rested least is used next."""

    def __init__(self, access: Access) -> None:
        place = access.line.place
        self._address = (place.host, place.port)
        self._trusted = access.trusted
        self._resting: Resting[_Connection] = Resting(IDLE_S)
        self._free: SimpleQueue[None] = SimpleQueue()
        """A place for every connection that may be in use beside those that are."""
        for _ in range(CONNECTIONS):
            self._free.put(None)
        weakref.finalize(self, _close_all, self._resting)

    def exchange(self, request: bytes, give_up_at: float) -> Answer:
        """The answer to a call. Raises ``NoAnswer``."""
        try:
            self._free.get(timeout=max(give_up_at - monotonic(), 0))
        except Empty:
            raise NoAnswer("every connection was busy until there was no time left", sent=False) from None
        holding = True
        try:
            connection = self._resting.take()
            if connection is not None:
                try:
                    return self._exchange(connection, request, give_up_at)
                except NothingSent:
                    pass
            holding = False
            connection = self._connected(give_up_at)
            holding = True
            try:
                return self._exchange(connection, request, give_up_at)
            except NothingSent as broken:
                raise NoAnswer(f"nothing could be sent: {broken}", sent=False) from broken.__cause__
        finally:
            if holding:
                self._free.put(None)

    def close(self) -> None:
        _close_all(self._resting)

    def _exchange(self, connection: _Connection, request: bytes, give_up_at: float) -> Answer:
        reusable = False
        try:
            answer = connection.exchange(request, give_up_at)
            reusable = answer.reusable
            return answer
        finally:
            if reusable:
                self._resting.put(connection)
            else:
                connection.close()

    def _connected(self, give_up_at: float) -> _Connection:
        """A new connection. While it is being made, the one who makes it holds the caller's place."""
        connecting = begun(self._connect, "zae-limiter-connecting")
        try:
            return connecting.result(max(min(give_up_at - monotonic(), CONNECT_S), 0))
        except BaseException as error:
            connecting.add_done_callback(self._keep)
            if isinstance(error, OSError):
                raise NoAnswer(f"no connection to {self._address[0]}: {told(error)}", sent=False) from error
            raise

    def _keep(self, connecting: Future[_Connection]) -> None:
        """A connection that nobody waits for any more."""
        self._free.put(None)
        if connecting.exception() is None:
            self._resting.put(connecting.result())

    def _connect(self) -> _Connection:
        connected = socket.create_connection(self._address, CONNECT_S)
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self._trusted is not None:
                connected = self._trusted.wrap_socket(connected, server_hostname=self._address[0])
        except BaseException:
            connected.close()
            raise
        return _Connection(connected)


class _Connection:
    """One connection."""

    __slots__ = ("_patience", "_socket")

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._patience = -1.0

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def exchange(self, request: bytes, give_up_at: float) -> Answer:
        connection = self._socket
        try:
            self._wait_at_most(max(give_up_at - monotonic(), 0.001))
            connection.sendall(request)
        except OSError as error:
            raise NothingSent(told(error)) from error
        reader: ReplyReader | None = None
        try:
            while True:
                left = give_up_at - monotonic()
                if left <= 0:
                    raise TimeoutError("the time is up")
                self._wait_at_most(left)
                piece = connection.recv(PIECE)
                answer = read_at_once(piece) if reader is None else None
                if answer is None:
                    reader = reader or ReplyReader()
                    answer = reader.feed(piece)
                if answer is not None:
                    return answer
        except (OSError, Garbled) as error:
            raise NoAnswer(f"no answer: {told(error)}") from error

    def _wait_at_most(self, seconds: float) -> None:
        """Tell the system how long the next step may take, unless that is what it was told last, or nearly."""
        if not -NEARLY_S <= self._patience - seconds <= NEARLY_S:
            self._socket.settimeout(seconds)
            self._patience = seconds


def _close_all(resting: Resting[_Connection]) -> None:
    for connection in resting.take_all():
        connection.close()
