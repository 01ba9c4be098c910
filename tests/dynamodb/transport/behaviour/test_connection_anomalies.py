"""After anything unusual a connection is not used again, and the next call gets its own answer."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from typing import Any

import pytest

from support.scripted_server import Heard, always, http, reply, serving
from support.strange_replies import STRANGE
from support.transports import OWN_WORLDS, get
from zae_limiter.stores.dynamodb.requests import NoAnswer
from zae_limiter.stores.dynamodb.transport.asyncio_transport import AsyncioTransport

pytestmark = pytest.mark.usefixtures("no_credentials_here")

ASKED = get("t", "a")
FINE = reply({"Item": {"PK": {"S": "mine"}}})
OTHER = reply({"Item": {"PK": {"S": "of another call"}}})
MINE = {"Item": {"PK": {"S": "mine"}}}
HALF = FINE[: len(FINE) - 10]


def first(script: Any) -> Any:
    """Answer the first call as told, and all others well."""
    asked: list[Heard] = []

    def answer(heard: Heard, connection: socket.socket) -> bytes | None:
        asked.append(heard)
        return script(heard, connection) if len(asked) == 1 else FINE  # type: ignore[no-any-return]

    return answer


@OWN_WORLDS
@pytest.mark.parametrize("raw", STRANGE.values(), ids=STRANGE)
def test_a_connection_with_a_strange_reply_is_closed(asking: Any, raw: bytes) -> None:
    def strangely(heard: Heard, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection.sendall(raw)

    with serving(first(strangely)) as server, asking(server.target) as ask:
        with pytest.raises(NoAnswer) as caught:
            ask("GetItem", ASKED)
        assert caught.value.sent
        assert ask("GetItem", ASKED) == MINE
        assert [heard.connection for heard in server.heard] == [0, 1]


CLOSING = {
    "another reply after it": FINE + OTHER,
    "a line end after it": FINE + b"\r\n",
    "a trailer": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nA: b\r\n\r\n",
    "two ways to tell its length": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2\r\n{}\r\n0\r\n\r\n",
    "an older protocol": FINE.replace(b"HTTP/1.1", b"HTTP/1.0"),
    "closed in one header of two": FINE.replace(
        b"content-length", b"connection: close\r\nconnection: keep-alive\r\ncontent-length"
    ),
}


@OWN_WORLDS
@pytest.mark.parametrize("raw", CLOSING.values(), ids=CLOSING)
def test_a_connection_is_closed_after_a_reply_with(asking: Any, raw: bytes) -> None:
    with serving(first(always(raw))) as server, asking(server.target) as ask:
        assert ask("GetItem", ASKED) in (MINE, {})
        assert ask("GetItem", ASKED) == MINE
        assert [heard.connection for heard in server.heard] == [0, 1]


@OWN_WORLDS
def test_a_second_reply_to_one_call_is_dropped_with_its_connection(asking: Any) -> None:
    read, sent = threading.Event(), threading.Event()

    def twice(heard: Heard, connection: socket.socket) -> None:
        connection.sendall(FINE)
        assert read.wait(10)
        connection.sendall(OTHER)
        sent.set()

    with serving(first(twice)) as server, asking(server.target) as ask:
        assert ask("GetItem", ASKED) == MINE
        read.set()
        assert sent.wait(10)
        assert ask("GetItem", ASKED) == MINE
        assert [heard.connection for heard in server.heard] == [0, 1]


@OWN_WORLDS
@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
def test_the_body_of_a_reply_that_may_have_none_is_not_the_next_reply(asking: Any, status: str) -> None:
    def with_a_body(heard: Heard, connection: socket.socket) -> None:
        head, _, body = http(status, OTHER).partition(b"\r\n\r\n")
        connection.sendall(head + b"\r\n\r\n")
        time.sleep(0.1)
        with contextlib.suppress(OSError):
            connection.sendall(body)

    with serving(first(with_a_body)) as server, asking(server.target) as ask:
        with pytest.raises(NoAnswer):
            ask("GetItem", ASKED)
        assert ask("GetItem", ASKED) == MINE
        assert [heard.connection for heard in server.heard] == [0, 1]


@OWN_WORLDS
def test_interim_replies_are_passed_over(asking: Any) -> None:
    def after_others(heard: Heard, connection: socket.socket) -> bytes:
        for interim in (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 2"):
            connection.sendall(interim)
            time.sleep(0.05)
        return FINE.removeprefix(b"HTTP/1.1 2")

    with serving(first(after_others)) as server, asking(server.target) as ask:
        for _ in range(2):
            assert ask("GetItem", ASKED) == MINE
        assert [heard.connection for heard in server.heard] == [0, 0]


@OWN_WORLDS
def test_a_connection_whose_call_ran_out_of_time_in_the_body_is_closed(asking: Any) -> None:
    with serving(first(always(HALF))) as server, asking(server.target) as ask:
        with pytest.raises(NoAnswer) as caught:
            ask("GetItem", ASKED, 0.3)
        assert caught.value.sent
        assert ask("GetItem", ASKED) == MINE
        assert [heard.connection for heard in server.heard] == [0, 1]


def test_a_connection_whose_call_was_cancelled_in_the_body_is_closed() -> None:
    async def main(transport: AsyncioTransport) -> Any:
        call = asyncio.ensure_future(transport.call("GetItem", ASKED, 5.0))
        while not server.heard:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        try:
            return await transport.call("GetItem", ASKED, 5.0)
        finally:
            await transport.close()

    with serving(first(always(HALF))) as server:
        assert asyncio.run(main(AsyncioTransport(server.target))) == MINE
        assert [heard.connection for heard in server.heard] == [0, 1]
