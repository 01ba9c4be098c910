"""A server between us and an engine that behaves badly, by chance but by seed: it delays, resets before and after
forwarding, answers 500, throttles, truncates, garbles, and closes connections it kept alive."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

FATES = {
    "fine": 800,
    "slow": 20,
    "reset before": 12,
    "reset after": 12,
    "500 before": 12,
    "500 after": 12,
    "503 after": 6,
    "throttled": 12,
    "truncated": 8,
    "bad crc": 8,
    "malformed": 8,
    "huge": 4,
    "closed after": 20,
    "conflict": 6,
}
"""What happens to a call, and how often beside the others."""


class Proxy:
    """Where it listens, and what it did so far."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.fates: Counter[str] = Counter()
        self.forced: str | None = None
        """The fate of every call, instead of one by chance."""


@contextmanager
def hostile(endpoint_url: str, seed: int) -> Iterator[Proxy]:
    """A hostile server before an engine."""
    rng, lock = random.Random(seed), threading.Lock()
    there = urlsplit(endpoint_url)
    names, weights = list(FATES), list(FATES.values())

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # head and body are two writes: the second would wait for an acknowledgement

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                fate = proxy.forced or rng.choices(names, weights)[0]
                proxy.fates[fate] += 1
            if fate == "reset before":
                return self._reset()
            if fate == "500 before":
                return self._send(500, b"{}")
            if fate in ("throttled", "conflict"):
                code = "ThrottlingException" if fate == "throttled" else "TransactionConflictException"
                return self._send(400, b'{"__type":"%s","message":"later"}' % code.encode())
            if fate == "slow":
                time.sleep(0.05)
            status, reply, crc = self._forward(body)
            if fate == "reset after":
                return self._reset()
            if fate in ("500 after", "503 after"):
                return self._send(int(fate[:3]), b"{}")
            if fate == "truncated":
                return self._send(status, reply, length=len(reply) + 10, close=True)
            if fate == "bad crc":
                return self._send(status, reply, crc="1234567890")
            if fate == "malformed":
                return self._send(status, b'{"Attributes": {')
            if fate == "huge":
                return self._send(status, b'{"x": "' + b"y" * 300_000 + b'"')
            return self._send(status, reply, crc=crc, close=fate == "closed after")

        def _forward(self, body: bytes) -> tuple[int, bytes, str | None]:
            connection = HTTPConnection(there.hostname or "", there.port, timeout=20)
            try:
                kept = ("Content-Type", "X-Amz-Target", "Authorization", "X-Amz-Date")
                headers = {name: self.headers[name] for name in kept if self.headers[name]}
                connection.request("POST", "/", body, headers)
                answer = connection.getresponse()
                return answer.status, answer.read(), answer.getheader("x-amz-crc32")
            finally:
                connection.close()

        def _send(
            self, status: int, body: bytes, *, length: int | None = None, crc: str | None = None, close: bool = False
        ) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            self.send_header("Content-Length", str(len(body) if length is None else length))
            if crc is not None:
                self.send_header("x-amz-crc32", crc)
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(body)
            self.close_connection = self.close_connection or close

        def _reset(self) -> None:
            self.close_connection = True
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

        def log_message(self, *args: object) -> None:
            pass

        def handle(self) -> None:
            with suppress(OSError):
                super().handle()

        def finish(self) -> None:
            with suppress(OSError, ValueError):
                super().finish()

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, *args: Any) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    proxy = Proxy(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
