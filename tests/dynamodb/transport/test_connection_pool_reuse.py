"""Connections of our own transports: used again, replaced when they are old, and never used after they lied."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.scripted_server import Heard, Server, always, http, reply, reset, serving
from support.transports import OWN_WORLDS, SECONDS, get
from zae_limiter.stores.dynamodb.requests import NoAnswer
from zae_limiter.stores.dynamodb.transport import asyncio_connection, connection_pool
from zae_limiter.stores.dynamodb.transport.asyncio_transport import AsyncioTransport
from zae_limiter.stores.dynamodb.transport.sync_transport import SocketTransport

pytestmark = pytest.mark.usefixtures("no_credentials_here")

FINE = reply({"Item": {"PK": {"S": "a"}}})
ASKED = get("t", "a")


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(always(FINE)) as running:
        yield running


# Used again


@OWN_WORLDS
def test_calls_one_after_the_other_share_a_connection(asking: Any, server: Server) -> None:
    with asking(server.target) as ask:
        for _ in range(10):
            assert ask("GetItem", ASKED) == {"Item": {"PK": {"S": "a"}}}
    assert [heard.connection for heard in server.heard] == [0] * 10


@OWN_WORLDS
def test_a_large_call_and_a_large_reply_come_through(asking: Any, server: Server) -> None:
    large = {"Item": {"S": "x" * 5_000_000}}
    server.script = always(reply(large))
    with asking(server.target) as ask:
        for _ in range(2):
            assert ask("PutItem", {"Item": {"S": "y" * 3_000_000}}) == large
    assert [len(heard.body) for heard in server.heard] == [len(b'{"Item":{"S":""}}') + 3_000_000] * 2
    assert len(server.connections) == 1


@OWN_WORLDS
def test_a_connection_the_server_closed_while_it_was_idle_is_replaced(asking: Any, server: Server) -> None:
    with asking(server.target) as ask:
        for _ in range(3):
            ask("GetItem", ASKED)
            server.close_connections()
    assert [heard.connection for heard in server.heard] == [0, 1, 2]


@OWN_WORLDS
def test_a_connection_that_says_more_than_it_was_asked_is_replaced(asking: Any, server: Server) -> None:
    server.script = always(FINE + b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    with asking(server.target) as ask:
        for _ in range(2):
            assert ask("GetItem", ASKED) == {"Item": {"PK": {"S": "a"}}}
            time.sleep(0.05)
    assert [heard.connection for heard in server.heard] == [0, 1]


@OWN_WORLDS
@pytest.mark.parametrize("answer", [http("200 OK", b"{}", Connection="close"), b"HTTP/1.0 200 OK\r\n\r\n{}"])
def test_a_server_that_wants_to_close_is_obeyed(asking: Any, server: Server, answer: bytes) -> None:
    def say_and_close(heard: Heard, connection: socket.socket) -> None:
        connection.sendall(answer)
        connection.shutdown(socket.SHUT_WR)

    server.script = say_and_close
    with asking(server.target) as ask:
        for _ in range(2):
            assert ask("GetItem", ASKED) == {}
    assert [heard.connection for heard in server.heard] == [0, 1]


@OWN_WORLDS
@pytest.mark.parametrize("seconds", [21.0, 900.0, -900.0])
def test_a_connection_that_was_idle_long_is_not_trusted(
    asking: Any, server: Server, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a frozen Lambda, whose connections look open and are dead. Clocks may also be set back."""
    with asking(server.target) as ask:
        ask("GetItem", ASKED)
        monkeypatch.setattr(connection_pool, "time", lambda: time.time() + seconds)
        ask("GetItem", ASKED)
        ask("GetItem", ASKED)
    assert [heard.connection for heard in server.heard] == [0, 1, 1]


def test_connections_that_are_idle_too_long_are_closed_when_another_is_put_back(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.script = lambda heard, connection: (time.sleep(0.1), FINE)[1]
    transport = SocketTransport(server.target)
    threads = [threading.Thread(target=transport.call, args=("GetItem", ASKED, SECONDS)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (channel,) = transport._process._channels.values()
    idle: Any = channel._idle  # type: ignore[attr-defined]
    assert len(idle._connections) == 4
    first = idle._connections[-1]
    idle._connections[-1] = (first[0] + 100, first[1])
    monkeypatch.setattr(connection_pool, "time", lambda: time.time() + 100)
    for left in (3, 2, 1, 1):
        transport.call("GetItem", ASKED, SECONDS)
        assert len(idle._connections) == left
    transport.close()


# Broken at the worst moment


@OWN_WORLDS
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "new"])
@pytest.mark.parametrize("how", ["closed", "reset"])
def test_a_connection_that_ends_after_the_call_was_sent_may_mean_done(
    asking: Any, server: Server, kept: bool, how: str
) -> None:
    def end(heard: Heard, connection: socket.socket) -> None:
        connection.shutdown(socket.SHUT_RDWR) if how == "closed" else reset(connection)

    with asking(server.target) as ask:
        if kept:
            ask("GetItem", ASKED)
        server.script = end
        with pytest.raises(NoAnswer) as caught:
            ask("UpdateItem", ASKED)
    assert caught.value.sent is True
    assert [heard.operation for heard in server.heard].count("UpdateItem") == 1


class ResetWhenRead:
    """A script that resets the connection once its first answer was read, while the client does not read."""

    def __init__(self) -> None:
        self._read, self._reset = threading.Event(), threading.Event()

    def __call__(self, heard: Heard, connection: socket.socket) -> bytes | None:
        if heard.operation != "GetItem":
            return FINE
        connection.sendall(FINE)
        assert self._read.wait(SECONDS)
        reset(connection)
        self._reset.set()
        return None

    def reset_now(self) -> None:
        """The answer was read: wait until the connection is reset."""
        self._read.set()
        assert self._reset.wait(SECONDS)


@pytest.fixture
def taken_for_silent(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Connections that were taken for silent whatever they were, as if the reset came just after the look."""
    taken: list[Any] = []

    def news_of(descriptor: int) -> Any:
        return lambda timeout_ms: taken.append(descriptor)

    for module in (connection_pool, asyncio_connection):
        monkeypatch.setattr(module, "news_of", news_of)
    return taken


def test_a_call_that_could_not_be_sent_whole_is_sent_again_once(server: Server, taken_for_silent: list[Any]) -> None:
    server.script = script = ResetWhenRead()
    transport = SocketTransport(server.target)
    transport.call("GetItem", ASKED, SECONDS)
    script.reset_now()
    assert transport.call("UpdateItem", ASKED, SECONDS) == {"Item": {"PK": {"S": "a"}}}
    assert [(heard.operation, heard.connection) for heard in server.heard] == [("GetItem", 0), ("UpdateItem", 1)]
    assert len(taken_for_silent) == 1
    transport.close()


def test_a_call_that_could_not_be_sent_whole_is_sent_again_once_in_a_loop(
    server: Server, taken_for_silent: list[Any]
) -> None:
    async def main() -> None:
        transport = AsyncioTransport(server.target)
        await transport.call("GetItem", ASKED, SECONDS)
        script.reset_now()  # the loop does not get to see it
        assert await transport.call("UpdateItem", ASKED, SECONDS) == {"Item": {"PK": {"S": "a"}}}
        await transport.close()

    server.script = script = ResetWhenRead()
    asyncio.run(main())
    assert [(heard.operation, heard.connection) for heard in server.heard] == [("GetItem", 0), ("UpdateItem", 1)]
    assert len(taken_for_silent) == 1


@OWN_WORLDS
def test_a_redirect_is_not_followed(asking: Any, server: Server) -> None:
    server.script = always(http("307 Temporary Redirect", b"", Location=server.url))
    with asking(server.target) as ask, pytest.raises(NoAnswer):
        ask("GetItem", ASKED)
    assert len(server.heard) == 1


# Answers that come late


@OWN_WORLDS
@pytest.mark.parametrize("part", [FINE, b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n" * 40])
def test_an_answer_that_trickles_in_does_not_take_longer_than_allowed(
    asking: Any, server: Server, part: bytes
) -> None:
    came: list[int] = []

    def trickle(heard: Heard, connection: socket.socket) -> None:
        for byte in part[:-1]:
            connection.sendall(bytes([byte]))
            came.append(byte)
            time.sleep(4 / len(part))  # less than the call may take, and all of them much more

    with asking(server.target) as ask:
        ask("GetItem", ASKED)
        server.script = trickle
        with pytest.raises(NoAnswer) as caught:
            ask("GetItem", ASKED, 0.3)
        assert len(came) < len(part) - 1
    assert caught.value.sent is True


class LateAnswer:
    """A script that answers a ``PutItem`` when the test says so, and everything else at once."""

    def __init__(self, heard: Callable[[], object] = lambda: None) -> None:
        """``heard`` is called in the thread of the server, when the call has arrived."""
        self._heard, self._comes, self._sent = heard, threading.Event(), threading.Event()

    def __call__(self, heard: Heard, connection: socket.socket) -> bytes | None:
        if heard.operation != "PutItem":
            return reply({"to": heard.operation})
        self._heard()
        assert self._comes.wait(SECONDS)
        with contextlib.suppress(OSError):  # the client may have closed it
            connection.sendall(reply({"to": heard.operation}))
        self._sent.set()
        return None

    def comes(self) -> None:
        """Let the answer come, and wait until it was sent."""
        self._comes.set()
        assert self._sent.wait(SECONDS)


@OWN_WORLDS
def test_a_late_answer_is_never_given_to_the_next_caller(asking: Any, server: Server) -> None:
    late = LateAnswer()
    with asking(server.target) as ask:
        ask("GetItem", ASKED)
        server.script = late
        with pytest.raises(NoAnswer):
            ask("PutItem", ASKED, 0.3)
        late.comes()
        assert ask("GetItem", ASKED) == {"to": "GetItem"}


def test_an_interrupted_call_leaves_nothing_for_the_next(server: Server) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    server.script = late = LateAnswer(lambda: os.kill(os.getpid(), signal.SIGUSR1))
    transport = SocketTransport(server.target)
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            transport.call("PutItem", ASKED, SECONDS)
    finally:
        signal.signal(signal.SIGUSR1, before)
    late.comes()
    assert transport.call("GetItem", ASKED, SECONDS) == {"to": "GetItem"}
    transport.close()


def test_a_cancelled_call_leaves_nothing_for_the_next(server: Server) -> None:
    async def main() -> None:
        heard = asyncio.Event()
        loop = asyncio.get_running_loop()
        server.script = late = LateAnswer(lambda: loop.call_soon_threadsafe(heard.set))
        transport = AsyncioTransport(server.target)
        task = asyncio.create_task(transport.call("PutItem", ASKED, SECONDS))
        await heard.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(late.comes)
        assert await transport.call("GetItem", ASKED, SECONDS) == {"to": "GetItem"}
        await transport.close()

    asyncio.run(main())


# Nothing left behind


def connections_to(server: Server) -> int:
    """How many connections of this process to the server are open."""
    table = Path("/proc/self/net/tcp").read_text().splitlines()[1:]
    there = f":{server.port:04X}"
    return sum(line.split()[2].endswith(there) and line.split()[3] == "01" for line in table)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at /proc")
@OWN_WORLDS
def test_closing_leaves_no_socket_open(asking: Any, server: Server) -> None:
    with asking(server.target) as ask:
        ask("GetItem", ASKED)
        assert connections_to(server) == 1
    assert connections_to(server) == 0


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at /proc")
def test_a_transport_that_is_forgotten_closes_its_sockets(server: Server) -> None:
    transport = SocketTransport(server.target)
    transport.call("GetItem", ASKED, SECONDS)
    assert connections_to(server) == 1
    del transport
    gc.collect()
    assert connections_to(server) == 0
