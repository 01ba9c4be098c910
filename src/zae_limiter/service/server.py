"""The service as a process: it listens, and it ends gracefully.

On SIGTERM or SIGINT the process says that it is not ready (``/readyz``), goes on as before for a moment so that load
balancers look away, then takes no new connections and answers what it has, waiting acquires too. A second signal ends
it at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import uvicorn

from zae_limiter import ConfigurationError, RateLimiterUnavailable, ValidationError
from zae_limiter.service.backend import Backend
from zae_limiter.service.guard import is_loopback_address
from zae_limiter.service.schemas import MOST_TIMEOUT_SECONDS

logger = logging.getLogger("zae_limiter.service")

DEFAULT_BIND = "127.0.0.1:8080"
BACKLOG = 2_048
GRACE_SECONDS = MOST_TIMEOUT_SECONDS + 5
"""So long requests that are under way may take after a signal: an acquire may wait for a minute."""


GARBAGE_THRESHOLDS = (10_000, 20, 50)
"""After so many objects, and so many looks at the young ones, the collector looks."""


class Bind(NamedTuple):
    """Where the service listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Companion(Protocol):
    """Another server in the same process, such as one for another protocol. It ends with this one."""

    async def start(self) -> None:
        """Listen."""

    async def stop(self, grace_seconds: float) -> None:
        """Take nothing new, answer what there is, and end."""


def parse_bind(text: str) -> Bind:
    """``host:port``. Raises ``ValidationError``."""
    host, colon, port = text.rpartition(":")
    name = host.removeprefix("[").removesuffix("]")
    if not colon or not name or not port.isdecimal() or int(port) > 65_535 or (":" in name and "[" not in host):
        raise ValidationError("bind", text, "must be HOST:PORT, like 127.0.0.1:8080 or [::1]:8080")
    return Bind(name, int(port))


def check_bind(bind: Bind, *, has_tokens: bool) -> None:
    """Refuse to be reached by other machines without tokens: every one of them could take, and change limits."""
    if not has_tokens and not is_loopback_address(bind.host):
        raise ConfigurationError(
            f"the service would be reachable at {bind} by clients without a token",
            hint="name a token file (--token-file; zae-limiter token create makes one), or bind to 127.0.0.1",
        )


def listen(bind: Bind) -> socket.socket:
    """A socket that listens there. Port 0 means any that is free."""
    family = socket.AF_INET6 if ":" in bind.host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(bind)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigurationError(f"cannot listen on {bind}: {error.strerror or error}") from None
    return listener


class _Server(uvicorn.Server):
    """uvicorn's, without its handlers of signals: it would stop to listen before it says that it is not ready."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    app: Any,
    backend: Backend,
    listener: socket.socket,
    *,
    drain_seconds: float = 0.0,
    companions: Sequence[Companion] = (),
    on_start: Callable[[str], object] = lambda address: None,
) -> None:
    """Serve until a signal comes, then end gracefully. Closes the backend.

    ``drain_seconds``: how long to go on as before after the signal, while ``/readyz`` says no.
    """
    config = uvicorn.Config(
        app,
        http="httptools",
        proxy_headers=False,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        lifespan="off",
    )
    server = _Server(config)
    ending = asyncio.Event()
    try:
        await _check_store(backend)
        with _signals(ending, server):
            for companion in companions:
                await companion.start()
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            _calm_garbage_collection()
            host, port = listener.getsockname()[:2]
            on_start(f"http://{Bind(host, port)}")
            await _either(ending.wait(), serving)
            backend.is_ending = True
            await asyncio.sleep(0 if serving.done() else drain_seconds)
            backend.events.close()
            server.should_exit = True
            await asyncio.gather(serving, *(companion.stop(GRACE_SECONDS) for companion in companions))
    finally:
        listener.close()
        await backend.close()


def _calm_garbage_collection() -> None:
    """Look seldom for cycles: requests leave none, and what was loaded until now stays."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)


async def _check_store(backend: Backend) -> None:
    """A store that cannot be used as it is set up ends the process; one that is away may come back."""
    try:
        await backend.check()
    except RateLimiterUnavailable as error:
        logger.warning("the store does not answer yet: %s", error)


async def _either(first: Awaitable[Any], second: asyncio.Task[None]) -> None:
    waiting = asyncio.ensure_future(first)
    await asyncio.wait({waiting, second}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


@contextlib.contextmanager
def _signals(ending: asyncio.Event, server: uvicorn.Server) -> Iterator[None]:
    """Let the first signal begin the end, and the second one end it at once."""
    loop = asyncio.get_running_loop()

    def note() -> None:
        if ending.is_set():
            server.force_exit = True
        ending.set()

    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, note)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
