"""An application behind Envoy: says what it was asked with, and what its answer cost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Application(ThreadingHTTPServer):
    """Answers every request, and remembers its headers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[dict[str, str]] = []

    @property
    def port(self) -> int:
        """Where it answers."""
        return int(self.server_address[1])


class Handler(BaseHTTPRequestHandler):
    """One connection of Envoy's."""

    protocol_version = "HTTP/1.1"
    server: Application

    def do_GET(self) -> None:
        """Answer; the cost is what the client asked it to be."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.seen.append(headers)
        self.send_response(200)
        self.send_header("content-length", "3")
        if "x-cost" in headers:
            self.send_header("x-tokens", headers["x-cost"])
        self.end_headers()
        self.wfile.write(b"hi\n")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Not in the output of the tests."""


@contextmanager
def serving() -> Iterator[Application]:
    """An application that answers in threads of its own."""
    application = Application()
    thread = threading.Thread(target=application.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield application
    finally:
        application.shutdown()
        thread.join()
        application.server_close()
