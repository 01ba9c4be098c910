"""Applications on servers of their own, on free ports of 127.0.0.1."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import uvicorn


@contextmanager
def asgi_server(app: Any) -> Iterator[str]:
    """An ASGI application on uvicorn; where it listens."""
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, log_level="error", lifespan="off", ws="none", proxy_headers=False
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    give_up = time.monotonic() + 20
    while not server.started:
        assert time.monotonic() < give_up, "uvicorn does not start"
        time.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the name is that of the base)
        """No access log."""


class _Server(WSGIServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves is no error."""


@contextmanager
def wsgi_server(app: Any) -> Iterator[str]:
    """A WSGI application on the server of the standard library; where it listens."""
    server = make_server("127.0.0.1", 0, app, server_class=_Server, handler_class=_Quiet)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(20)
