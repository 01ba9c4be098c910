"""Calls carried over sockets, for threads.

Connecting is done by the standard library (through a proxy: by urllib3), in a thread of its own, because looking
up a name cannot be given a time; a connection that comes too late for its caller is there for the next. On a
connection one call at a time is sent and its answer read, every step with the time that is left.

What was not handed over to the system whole, DynamoDB cannot have done: a call is signed over its length and
its whole body. So a connection that breaks while sending (a server closes one that rested) is replaced, once. One that
breaks afterwards may have brought the call there, and is not.
"""

from __future__ import annotations

import os
import socket
import time
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Final, Protocol, TypeVar

from zae_limiter.stores.dynamodb.requests import NoAnswer, Refused, Reply
from zae_limiter.stores.dynamodb.transport.access import (
    CONNECT_S,
    IDLE_S,
    NOT_IN_TIME,
    Access,
    Entrance,
    Signed,
    not_begun,
    not_renewed,
)
from zae_limiter.stores.dynamodb.transport.errands import begun
from zae_limiter.stores.dynamodb.transport.failures import told
from zae_limiter.stores.dynamodb.transport.http_replies import Answer, Garbled, ReplyReader, read_at_once
from zae_limiter.stores.dynamodb.transport.protocol import Target
from zae_limiter.stores.dynamodb.transport.resting import Resting
from zae_limiter.stores.dynamodb.transport.settings import CONNECTIONS, service_of
from zae_limiter.stores.dynamodb.transport.wire import encoded

PIECE: Final = 65536

NEARLY_S: Final = 0.002
"""Two times to wait that differ by less are the same: a system waits no more precisely."""

Result = TypeVar("Result")


class SocketTransport:
    """Carries calls, signed and understood by ourselves."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._process = _Process(target)

    def __repr__(self) -> str:
        return "SocketTransport()"

    @property
    def last_date_skew_s(self) -> float | None:
        """By how much this machine's clock is behind DynamoDB's, to a second; unknown before the first reply."""
        return self._process.entrance.date_skew_s

    def call(self, operation: str, params: Mapping[str, Any], seconds: float) -> Reply:
        """DynamoDB's reply, in its own JSON. Raises ``Refused`` or ``NoAnswer``, after ``seconds`` at the latest."""
        give_up_at = monotonic() + seconds
        process = self._process
        if process.entrance.pid != os.getpid():
            process = self._process = _Process(self._target)
        service = service_of(operation)
        access = process.entrance.access(service) or _waited(process.entrance.making_ready(service), give_up_at)
        carrier = process.carrier(service, access)
        body = encoded(params)
        mended = False
        while True:
            credentials = access.keeper.current() or _waited(access.keeper.fetching(), give_up_at)
            offset_s, sent_at = access.line.offset_s, time.time()
            try:
                request = access.line.put(operation, body, credentials)
            except ValueError as error:
                raise NoAnswer(str(error), sent=False) from None
            answer = carrier.exchange(request, give_up_at)
            try:
                return access.line.understood(answer, credentials, sent_at)
            except Refused as refusal:
                if mended or not _mended(access, refusal, Signed(credentials, offset_s), give_up_at):
                    raise
                mended = True

    def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        if self._process.entrance.pid == os.getpid():
            self._process.close()


class Carrier(Protocol):
    """Brings calls to one place, and the answers back."""

    def exchange(self, request: bytes, give_up_at: float) -> Answer:
        """The answer to a call. Raises ``NoAnswer``."""
        ...

    def close(self) -> None: ...


class _Process:
    """What one process has. A forked child begins anew: its parent's sockets are not its own."""

    def __init__(self, target: Target) -> None:
        self.entrance = Entrance(target)
        self._carriers: dict[str, Carrier] = {}

    def carrier(self, service: str, access: Access) -> Carrier:
        carrier = self._carriers.get(service)
        if carrier is None:
            carrier = self._carriers.setdefault(service, carrier_for(access))
        return carrier

    def close(self) -> None:
        for carrier in list(self._carriers.values()):
            carrier.close()


def carrier_for(access: Access) -> Carrier:
    """Who carries calls there."""
    if access.proxy is None:
        return Connections(access)
    from zae_limiter.stores.dynamodb.transport.over_urllib3 import ProxiedCarrier

    return ProxiedCarrier(access.line.place, access.proxy, access.ca_bundle)


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


def _mended(access: Access, refusal: Refused, signed: Signed, give_up_at: float) -> bool:
    """Whether it is worth asking again. Nothing was done when DynamoDB refused. Raises ``Refused`` with a reason."""
    if access.mended_by_now(refusal, signed):
        return True
    mending = access.mending(refusal)
    if mending is None:
        return False
    try:
        _waited(mending, give_up_at)
    except NoAnswer as failure:
        raise not_renewed(refusal, failure) from failure
    return access.mended_by_now(refusal, signed)


def _waited(future: Future[Result], give_up_at: float) -> Result:
    try:
        return future.result(max(give_up_at - monotonic(), 0))
    except Exception as error:
        if isinstance(error, TimeoutError) and not future.done():
            raise NoAnswer(NOT_IN_TIME, sent=False) from error
        raise not_begun(error) from error


def _close_all(resting: Resting[_Connection]) -> None:
    for connection in resting.take_all():
        connection.close()
