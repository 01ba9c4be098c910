"""Servers that answer badly, or not at all."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answering = Callable[[str, dict[str, Any]], tuple[int, dict[str, Any]]]
"""From an operation and its parameters to a status and a body."""


@contextmanager
def server(answer: Answering) -> Iterator[str]:
    """A server that answers every call as told. Its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            operation = self.headers["X-Amz-Target"].rpartition(".")[2]
            status, reply = answer(operation, body)
            content = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: object) -> None:
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.daemon_threads = True
    thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{running.server_port}"
    finally:
        running.shutdown()
        running.server_close()


def refusing(status: int, code: str, message: str = "no") -> Answering:
    """Refuse everything in the same way."""
    return lambda operation, params: (
        status,
        {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message},
    )


@contextmanager
def black_hole() -> Iterator[str]:
    """Accepts connections, and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextmanager
def no_server() -> Iterator[str]:
    """An address where no server listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
    yield f"http://127.0.0.1:{port}"


@contextmanager
def no_tls() -> Iterator[str]:
    """A server that does not speak TLS, addressed as if it did."""
    with server(refusing(400, "ValidationException")) as url:
        yield url.replace("http://", "https://")
