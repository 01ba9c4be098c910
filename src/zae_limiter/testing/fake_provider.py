"""A provider of language models that bills and answers nothing of use: for tests of limits.

It speaks enough of three APIs for their clients: OpenAI (chat, responses, embeddings), Anthropic (messages) and Gemini
(generateContent). A token is four characters of text; every piece of an answer is two tokens, and is billed when it is
written. :attr:`FakeProvider.books` has what was billed, to be compared with what a limiter charged.
"""

from __future__ import annotations

import gzip
import json
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from zae_limiter.testing.provider_dialects import PIECE, StreamedConversation, conversation

LONGEST_HANG_S = 60.0


@dataclass(slots=True)
class Books:
    """What a provider has billed. ``left`` counts the answers whose readers left before their end."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    left: int = 0

    @property
    def total_tokens(self) -> int:
        """Input and output."""
        return self.input_tokens + self.output_tokens


@dataclass(slots=True)
class Fault:
    """What is to happen to one request instead of a plain answer.

    ``status`` and ``headers`` of the answer; ``hang``: seconds before it; ``pieces``: so many pieces of a stream, and
    then nothing more until its reader leaves; ``cut``: the connection is closed after them.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    hang: float = 0.0
    pieces: int | None = None
    cut: bool = False


class FakeProvider:
    """A server on a free port of 127.0.0.1, for the length of a ``with`` block.

    >>> from zae_limiter.testing import FakeProvider
    >>> with FakeProvider() as provider:
    ...     provider.refuse(retry_after_ms=200)     # the next request gets a 429
    ...     provider.fail(500, times=2)             # and the two after it an error
    ...     provider.url.startswith("http://127.0.0.1:")
    True

    ``gzip``: compress whole answers for clients that accept it. ``stream_usage=False``: refuse ``stream_options`` with
    a 400, as some servers do. ``interval``: seconds between the pieces of a stream.
    """

    def __init__(self, *, gzip: bool = True, stream_usage: bool = True, interval: float = 0.0) -> None:
        self.books = Books()
        self.seen: list[dict[str, Any]] = []
        self.gzip = gzip
        self.stream_usage = stream_usage
        self.interval = interval
        self._faults: deque[Fault] = deque()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.provider = self

    @property
    def url(self) -> str:
        """Where it listens, without a path: ``http://127.0.0.1:PORT``."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def fail(self, status: int = 500, *, times: int = 1, headers: Mapping[str, str] | None = None) -> None:
        """Answer the next requests with an error. They count as requests, and no tokens are billed."""
        self._faults.extend(Fault(status, headers or {}) for _ in range(times))

    def refuse(self, *, retry_after_ms: int, times: int = 1) -> None:
        """Answer the next requests with a 429."""
        self.fail(429, times=times, headers={"retry-after-ms": str(retry_after_ms)})

    def tell(self, headers: Mapping[str, str]) -> None:
        """Answer the next request with these headers too."""
        self._faults.append(Fault(headers=headers))

    def hang(self, seconds: float) -> None:
        """Let the next request wait for its answer. Its input is billed at once."""
        self._faults.append(Fault(hang=seconds))

    def pause_stream(self, pieces: int) -> None:
        """Let the next stream stop after so many pieces, until its reader leaves."""
        self._faults.append(Fault(pieces=pieces))

    def cut_stream(self, pieces: int) -> None:
        """Close the connection of the next stream after so many pieces."""
        self._faults.append(Fault(pieces=pieces, cut=True))

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()

    def next_fault(self) -> Fault:
        """What is to happen to the request that has just come, which is billed as one."""
        with self._lock:
            self.books.requests += 1
            return self._faults.popleft() if self._faults else Fault()

    def bill(self, *, input_tokens: int = 0, output_tokens: int = 0, left: int = 0) -> None:
        """Add to the books."""
        with self._lock:
            self.books.input_tokens += input_tokens
            self.books.output_tokens += output_tokens
            self.books.left += left

    def wait(self, seconds: float) -> None:
        """Wait, or until the provider is closed."""
        self._over.wait(min(seconds, LONGEST_HANG_S))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    provider: FakeProvider

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves is no error."""


class _Left(Exception):
    """The reader of a stream has left."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        provider = self.server.provider
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        provider.seen.append(body)
        fault = provider.next_fault()
        talk = conversation(self.path, body)
        if talk is None:
            self._answer(404, {"error": {"message": f"no such path: {self.path}"}})
        elif fault.status >= 400:
            self._answer(fault.status, talk.error(fault.status), fault.headers)
        elif "stream_options" in body and not provider.stream_usage:
            self._answer(400, talk.error(400), fault.headers)
        else:
            provider.bill(input_tokens=talk.input_tokens)
            if fault.hang:
                provider.wait(fault.hang)
            if isinstance(talk, StreamedConversation) and talk.streams:
                self._stream(talk, fault)
            else:
                provider.bill(output_tokens=talk.output_tokens)
                self._answer(200, talk.document(), fault.headers)

    def do_GET(self) -> None:
        self._answer(200, {"object": "list", "data": []})

    def _answer(self, status: int, document: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        if self.server.provider.gzip and "gzip" in self.headers.get("accept-encoding", ""):
            content = gzip.compress(content, 1)
            self.send_header("content-encoding", "gzip")
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, talk: StreamedConversation, fault: Fault) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        for name, value in fault.headers.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            for event in self._events(talk, fault):
                self._write(event)
            self.wfile.write(b"0\r\n\r\n")
        except (OSError, _Left):
            self.server.provider.bill(left=1)
            self.close_connection = True

    def _events(self, talk: StreamedConversation, fault: Fault) -> Iterator[bytes]:
        provider = self.server.provider
        yield from talk.opening()
        for number in range(talk.pieces):
            if number == fault.pieces:
                if not fault.cut:
                    self._wait_until_left()
                raise _Left
            event = talk.piece(number)
            provider.bill(output_tokens=len(PIECE) // 4)
            yield event
            if provider.interval:
                time.sleep(provider.interval)
        yield from talk.closing()

    def _write(self, event: bytes) -> None:
        self.wfile.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")

    def _wait_until_left(self) -> None:
        give_up = time.monotonic() + LONGEST_HANG_S
        while time.monotonic() < give_up and not self.server.provider._over.is_set():
            readable, _, _ = select.select([self.connection], [], [], 0.05)
            try:
                if readable and not self.connection.recv(1, socket.MSG_PEEK):
                    return
            except OSError:
                return

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the name is that of the base)
        """A test has no use for an access log."""
