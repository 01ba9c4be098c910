"""Connecting, and how many connections there are: late ones are kept, and no caller waits longer than allowed."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from support.scripted_server import Heard, Server, always, reply, serving
from support.transports import OWN_WORLDS, SECONDS, get
from zae_limiter.stores.dynamodb.requests import NoAnswer
from zae_limiter.stores.dynamodb.transport import asyncio_transport, connection_pool
from zae_limiter.stores.dynamodb.transport.asyncio_transport import AsyncioTransport
from zae_limiter.stores.dynamodb.transport.sync_transport import SocketTransport

pytestmark = pytest.mark.usefixtures("no_credentials_here")

FINE = reply({"Item": {"PK": {"S": "a"}}})
ASKED = get("t", "a")


class Held:
    """A script that answers a ``PutItem`` when the test lets it go, and everything else at once."""

    def __init__(self) -> None:
        self.heard, self.let_go = threading.Event(), threading.Event()

    def __call__(self, heard: Heard, connection: socket.socket) -> bytes:
        if heard.operation == "PutItem":
            self.heard.set()
            assert self.let_go.wait(SECONDS)
        return FINE


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(always(FINE)) as running:
        yield running


# Not too many


def test_fifty_connections_serve_more_threads(server: Server) -> None:
    server.script = lambda heard, connection: (time.sleep(0.02), FINE)[1]
    transport = SocketTransport(server.target)
    answers: list[Any] = []
    threads = [
        threading.Thread(target=lambda: answers.append(transport.call("GetItem", ASKED, 20.0))) for _ in range(80)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    transport.close()
    assert len(answers) == 80
    assert len(server.connections) <= 50


def test_fifty_connections_serve_more_tasks(server: Server) -> None:
    async def main() -> int:
        transport = AsyncioTransport(server.target)
        answers = await asyncio.gather(*(transport.call("GetItem", ASKED, 20.0) for _ in range(200)))
        await transport.close()
        return len(answers)

    server.script = lambda heard, connection: (time.sleep(0.02), FINE)[1]
    assert asyncio.run(main()) == 200
    assert len(server.connections) <= 50


def test_a_thread_that_finds_every_connection_busy_gives_up_in_time(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_pool, "CONNECTIONS", 1)
    server.script = held = Held()
    transport = SocketTransport(server.target)
    busy = threading.Thread(target=transport.call, args=("PutItem", ASKED, SECONDS))
    busy.start()
    assert held.heard.wait(SECONDS)
    with pytest.raises(NoAnswer, match="busy") as caught:
        transport.call("GetItem", ASKED, 0.1)
    assert caught.value.sent is False
    held.let_go.set()
    busy.join()
    transport.call("GetItem", ASKED, SECONDS)
    transport.close()
    assert [heard.operation for heard in server.heard] == ["PutItem", "GetItem"]


def test_a_task_that_finds_every_connection_busy_gives_up_in_time(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        transport = AsyncioTransport(server.target)
        busy = asyncio.create_task(transport.call("PutItem", ASKED, SECONDS))
        assert await asyncio.to_thread(held.heard.wait, SECONDS)
        with pytest.raises(NoAnswer, match="busy") as caught:
            await transport.call("GetItem", ASKED, 0.1)
        assert caught.value.sent is False
        held.let_go.set()
        await busy
        await transport.call("GetItem", ASKED, SECONDS)
        await transport.close()

    monkeypatch.setattr(asyncio_transport, "CONNECTIONS", 1)
    server.script = held = Held()
    asyncio.run(main())
    assert [heard.operation for heard in server.heard] == ["PutItem", "GetItem"]


# Connecting


def test_a_connection_that_comes_too_late_is_there_for_the_next_thread(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(self: Any) -> Any:
        assert given_up.wait(SECONDS)
        return connect(self)

    given_up = threading.Event()
    connect = connection_pool.ConnectionPool._connect
    monkeypatch.setattr(connection_pool.ConnectionPool, "_connect", slowly)
    monkeypatch.setattr(connection_pool, "CONNECTIONS", 1)
    transport = SocketTransport(server.target)
    with pytest.raises(NoAnswer) as caught:
        transport.call("PutItem", ASKED, 0.1)
    assert caught.value.sent is False
    given_up.set()
    transport.call("GetItem", ASKED, SECONDS)
    transport.close()
    assert [(heard.operation, heard.connection) for heard in server.heard] == [("GetItem", 0)]


def test_a_connection_that_comes_too_late_is_there_for_the_next_task(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slowly(self: Any, loop: Any) -> Any:
        await given_up.wait()
        return await connect(self, loop)

    async def main() -> None:
        transport = AsyncioTransport(server.target)
        with pytest.raises(NoAnswer) as caught:
            await transport.call("PutItem", ASKED, 0.1)
        assert caught.value.sent is False
        given_up.set()
        await transport.call("GetItem", ASKED, SECONDS)
        await transport.close()

    given_up = asyncio.Event()
    connect = asyncio_transport.LoopConnectionPool._connect
    monkeypatch.setattr(asyncio_transport.LoopConnectionPool, "_connect", slowly)
    monkeypatch.setattr(asyncio_transport, "CONNECTIONS", 1)
    asyncio.run(main())
    assert [(heard.operation, heard.connection) for heard in server.heard] == [("GetItem", 0)]


def test_closing_while_others_connect_and_wait_tells_them_so(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    async def slowly(self: Any, loop: Any) -> Any:
        connecting.append(loop)
        await closed.wait()
        return await connect(self, loop)

    async def main() -> list[Any]:
        transport = AsyncioTransport(server.target)
        await transport.call("GetItem", ASKED, SECONDS)
        monkeypatch.setattr(asyncio_transport.LoopConnectionPool, "_connect", slowly)
        server.script = held
        calls = [asyncio.create_task(transport.call("PutItem", ASKED, SECONDS)) for _ in range(3)]
        assert await asyncio.to_thread(held.heard.wait, SECONDS)
        assert len(connecting) == 2
        await transport.close()
        closed.set()
        failures = await asyncio.gather(*calls, return_exceptions=True)
        held.let_go.set()
        return failures

    connecting: list[Any] = []
    closed = asyncio.Event()
    held = Held()
    connect = asyncio_transport.LoopConnectionPool._connect
    failures = asyncio.run(main())
    assert [type(failure) for failure in failures] == [NoAnswer] * 3
    assert sorted(failure.sent for failure in failures) == [False, False, True]


@OWN_WORLDS
def test_the_second_address_of_a_host_is_tried_too(
    asking: Any, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def both(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        return [(*kind, ("127.0.0.2", port)), (*kind, ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    target = server.target._replace(endpoint_url=f"http://two.example:{server.port}")
    with asking(target) as ask:
        assert ask("GetItem", ASKED) == {"Item": {"PK": {"S": "a"}}}
    assert server.heard[0].headers["host"] == f"two.example:{server.port}"


@OWN_WORLDS
def test_a_name_that_is_looked_up_for_ever_costs_one_deadline(
    asking: Any, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    in_vain: list[bool] = []

    def silent(*_: Any, **__: Any) -> list[Any]:
        in_vain.append(over.wait(60))
        raise socket.gaierror("no answer")

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    target = server.target._replace(endpoint_url="http://silent.example")
    with asking(target) as ask:
        try:
            with pytest.raises(NoAnswer) as caught:
                ask("GetItem", ASKED, 0.3)
            assert in_vain == [], "the caller did not wait for the end of it"
        finally:
            over.set()
    assert caught.value.sent is False
