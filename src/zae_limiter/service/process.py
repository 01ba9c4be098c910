"""The parts of the service put together: what the command runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from starlette.routing import BaseRoute

from zae_limiter.service.app import create_app
from zae_limiter.service.backend import Backend
from zae_limiter.service.guard import Guard
from zae_limiter.service.operations import Operation
from zae_limiter.service.routes import OPERATIONS
from zae_limiter.service.server import Bind, Companion, check_bind, listen, serve
from zae_limiter.service.tokens import TokenFile


class Extension(NamedTuple):
    """What a process serves besides the table of routes."""

    operations: Sequence[Operation] = ()
    pages: Sequence[BaseRoute] = ()


async def run(
    url: str | None,
    namespace: str,
    bind: Bind,
    token_file: Path | None = None,
    *,
    drain_seconds: float = 0.0,
    on_start: Callable[[str], object] = lambda address: None,
    companions: Callable[[Backend, Guard], Sequence[Companion]] = lambda backend, guard: (),
    extend: Callable[[Backend], Extension] = lambda backend: Extension(),
) -> None:
    """Serve a namespace of a store until a signal comes.

    ``companions`` makes servers for other protocols, which work on the same backend, let the same clients in, and end
    with this one. ``extend`` adds operations and pages, such as those of the dashboard.
    """
    tokens = None if token_file is None else TokenFile(token_file)
    check_bind(bind, has_tokens=tokens is not None)
    if tokens is not None:
        tokens.load()
    listener = listen(bind)
    backend = Backend.open(url, namespace)
    guard = Guard(tokens)
    more = extend(backend)
    app = create_app(backend, guard, operations=[*OPERATIONS, *more.operations], pages=more.pages)
    await serve(
        app,
        backend,
        listener,
        drain_seconds=drain_seconds,
        companions=companions(backend, guard),
        on_start=on_start,
    )
    sys.stdout.flush()
