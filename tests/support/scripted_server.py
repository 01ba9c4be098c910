"""A server on this machine that answers as a test tells it, and remembers what it heard."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeAlias
from zlib import crc32

from zae_limiter.stores.dynamodb.transport.protocol import Credentials, Target

KEYS = Credentials("AKIDSCRIPTED", "a-secret-that-nobody-may-see", "a-token-that-nobody-may-see")


class Heard(NamedTuple):
    """One request: over which connection, its headers in small letters, and its body."""

    connection: int
    first_line: str
    headers: dict[str, str]
    body: bytes

    @property
    def operation(self) -> str:
        return self.headers["x-amz-target"].partition(".")[2]


Script: TypeAlias = Callable[[Heard, socket.socket], bytes | None]
"""What to send for a request. Nothing: the script has sent or closed by itself."""


def http(status: str, body: bytes, **headers: str) -> bytes:
    """A reply."""
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def reply(content: Any, **headers: str) -> bytes:
    """A reply as DynamoDB gives it."""
    body = json.dumps(content).encode()
    return http("200 OK", body, x_amz_crc32=str(crc32(body)), **headers)


def refusal(code: str, message: str = "no", **headers: str) -> bytes:
    """A refusal as DynamoDB gives it."""
    body = json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message}).encode()
    return http("400 Bad Request", body, x_amz_crc32=str(crc32(body)), **headers)


def always(content: bytes) -> Script:
    return lambda heard, connection: content


def reset(connection: socket.socket) -> None:
    """Break a connection as a host does that fell over."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()


class Server:
    """Listens until it is closed; each connection has a thread."""

    def __init__(self, script: Script, trusted: ssl.SSLContext | None = None) -> None:
        self.script = script
        self.heard: list[Heard] = []
        self.connections: list[socket.socket] = []
        self._trusted = trusted
        self._over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._listener.settimeout(0.05)
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._listen)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"{'http' if self._trusted is None else 'https'}://127.0.0.1:{self.port}"

    @property
    def target(self) -> Target:
        return Target("eu-west-1", self.url, KEYS)

    def close_connections(self) -> None:
        """Close what is open, as a server does with idle connections."""
        for connection in self.connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        time.sleep(0.05)

    def close(self) -> None:
        self._over.set()
        self._threads[0].join(5)
        self._listener.close()
        for connection in self.connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        for thread in self._threads[1:]:
            thread.join(5)

    def _listen(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            connection.settimeout(30)
            number = len(self.connections)
            self.connections.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection, number))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        try:
            if self._trusted is not None:
                connection = self.connections[number] = self._trusted.wrap_socket(connection, server_side=True)
            self._converse(connection, number)
        except (OSError, ValueError):
            pass
        finally:
            connection.close()

    def _converse(self, connection: socket.socket, number: int) -> None:
        buffer = b""
        while True:
            while b"\r\n\r\n" not in buffer:
                data = connection.recv(65536)
                if not data:
                    return
                buffer += data
            head, _, buffer = buffer.partition(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            length = int(headers.get("content-length", "0"))
            while len(buffer) < length:
                buffer += connection.recv(65536)
            heard = Heard(number, first, headers, buffer[:length])
            buffer = buffer[length:]
            self.heard.append(heard)
            answer = self.script(heard, connection)
            if answer is not None:
                connection.sendall(answer)


@contextmanager
def serving(script: Script, trusted: ssl.SSLContext | None = None) -> Iterator[Server]:
    server = Server(script, trusted)
    try:
        yield server
    finally:
        server.close()
