"""What plans are told when no answer comes, or none that can be read."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from support.transports import WORLDS, get
from zae_limiter.stores.dynamodb.requests import NoAnswer, Refused
from zae_limiter.stores.dynamodb.transport.botocore_fallback import failure_from_botocore
from zae_limiter.stores.dynamodb.transport.protocol import Credentials, Target

pytestmark = pytest.mark.usefixtures("no_credentials_here")


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def server_that(answers: Callable[[socket.socket], object]) -> Iterator[Target]:
    """A server that treats each connection in its own way: in threads, until the test is over."""
    over = threading.Event()
    connections: list[socket.socket] = []

    def serve(listener: socket.socket) -> None:
        while not over.is_set():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            connections.append(connection)
            if connection.recv(65536):
                answers(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.01)
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            yield Target("us-east-1", f"http://127.0.0.1:{listener.getsockname()[1]}")
        finally:
            over.set()
            thread.join(5)
            for connection in connections:
                connection.close()


def says(status: str, body: bytes, *, length: int | None = None, **headers: str) -> Callable[[socket.socket], None]:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    raw = "\r\n".join(lines).encode() + b"\r\n\r\n" + body

    def answer(connection: socket.socket) -> None:
        connection.sendall(raw)
        connection.shutdown(socket.SHUT_WR)

    return answer


def resets(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()


@WORLDS
def test_a_refused_connection_was_never_sent(asking: Any) -> None:
    with asking(Target("us-east-1", f"http://127.0.0.1:{closed_port()}")) as ask, pytest.raises(NoAnswer) as caught:
        ask("GetItem", get("t", "a"))
    assert caught.value.sent is False
    assert caught.value.__cause__ is not None


@WORLDS
def test_an_unknown_host_was_never_sent(asking: Any) -> None:
    target = Target("us-east-1", "http://no.such.host.invalid", Credentials("a", "b"))
    with asking(target) as ask, pytest.raises(NoAnswer) as caught:
        ask("GetItem", get("t", "a"))
    assert caught.value.sent is False


@WORLDS
def test_missing_credentials_were_never_sent(asking: Any) -> None:
    with (
        asking(Target("us-east-1", "http://192.0.2.1")) as ask,
        pytest.raises(NoAnswer, match="credentials") as caught,
    ):
        ask("GetItem", get("t", "a"))
    assert caught.value.sent is False


@WORLDS
def test_a_missing_region_was_never_sent(asking: Any) -> None:
    with asking(Target(credentials=Credentials("a", "b"))) as ask, pytest.raises(NoAnswer, match="region") as caught:
        ask("GetItem", get("t", "a"))
    assert caught.value.sent is False


@contextmanager
def server_that_accepts_no_connection() -> Iterator[Target]:
    """A server whose queue of connections is full, so that the next one waits for ever."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for connection in waiting:
            connection.setblocking(False)
            connection.connect_ex(listener.getsockname())
        try:
            yield Target("us-east-1", f"http://127.0.0.1:{listener.getsockname()[1]}")
        finally:
            for connection in waiting:
                connection.close()


@WORLDS
@pytest.mark.skipif(sys.platform != "linux", reason="others refuse instead of letting wait")
def test_a_connection_that_takes_too_long_was_never_sent(asking: Any) -> None:
    with server_that_accepts_no_connection() as target, asking(target) as ask, pytest.raises(NoAnswer) as caught:
        ask("GetItem", get("t", "a"), 3.0)
    assert type(caught.value.__cause__).__name__ in ("ConnectTimeoutError", "TimeoutError")
    assert caught.value.sent is False


BOTOCORES_OWN_S = 60
"""How long botocore waits for an answer if it is not told otherwise; the transports have no time of their own."""


@WORLDS
def test_silence_may_mean_done_and_ends_in_time(asking: Any) -> None:
    with server_that(lambda connection: None) as target, asking(target) as ask:
        with pytest.raises(NoAnswer):
            ask("GetItem", get("t", "a"), 2.0)  # makes the client
        began = time.monotonic()
        with pytest.raises(NoAnswer) as caught:
            ask("GetItem", get("t", "a"), 0.5)
        assert time.monotonic() - began < BOTOCORES_OWN_S / 2
    assert caught.value.sent is True
    assert caught.value.__cause__ is not None


OTHER_SILENCES: dict[str, Callable[[socket.socket], object]] = {
    "reset": resets,
    "closed": lambda connection: connection.shutdown(socket.SHUT_RDWR),
    "500": says("500 Internal Server Error", b'{"__type":"com.amazonaws.dynamodb.v20120810#InternalServerError"}'),
    "503": says("503 Service Unavailable", b"<html>busy</html>"),
    "408": says("408 Request Timeout", b""),
    "302": says("302 Found", b""),
    "cut off": says("200 OK", b'{"Item": {"PK": {"S"', length=50),
    "cut off, without a word": says("200 OK", b"", length=50),
    "not json": says("200 OK", b"<html>welcome to our network</html>"),
    "nothing": says("200 OK", b""),
    "wrong checksum": says("200 OK", b'{"Item": {"PK": {"S": "a"}}}', x_amz_crc32="1"),
    "no http": lambda connection: connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"),
}


@WORLDS
@pytest.mark.parametrize("answers", OTHER_SILENCES.values(), ids=OTHER_SILENCES)
def test_a_broken_answer_may_mean_done(asking: Any, answers: Callable[[socket.socket], object]) -> None:
    with server_that(answers) as target, asking(target) as ask, pytest.raises(NoAnswer) as caught:
        ask("GetItem", get("t", "a"), 2.0)
    assert caught.value.sent is True


REFUSALS = ["ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded"]


@WORLDS
@pytest.mark.parametrize("code", REFUSALS)
def test_throttles_are_refusals_and_not_repeated(asking: Any, code: str) -> None:
    calls: list[int] = []
    body = f'{{"__type":"com.amazonaws.dynamodb.v20120810#{code}","message":"slow down"}}'.encode()

    def answers(connection: socket.socket) -> None:
        calls.append(1)
        says("400 Bad Request", body)(connection)

    with server_that(answers) as target, asking(target) as ask, pytest.raises(Refused) as caught:
        ask("GetItem", get("t", "a"))
    assert caught.value.code == code
    assert caught.value.message == "slow down"
    assert caught.value.by_throttling
    assert len(calls) == 1


def test_a_bug_of_ours_is_not_taken_for_an_outage() -> None:
    assert failure_from_botocore(TypeError("a bug")) is None
