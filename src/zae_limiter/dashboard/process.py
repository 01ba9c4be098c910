"""The dashboard as a part of the service, and as a process of its own."""

from __future__ import annotations

from collections.abc import Callable

from zae_limiter.dashboard.pages import pages
from zae_limiter.dashboard.routes import DashboardRoutes
from zae_limiter.dashboard.session import Session
from zae_limiter.service.app import create_app
from zae_limiter.service.backend import Backend
from zae_limiter.service.guard import Guard
from zae_limiter.service.process import Extension
from zae_limiter.service.routes import OPERATIONS
from zae_limiter.service.server import Bind, listen, serve

LOOPBACK = "127.0.0.1"


def with_dashboard(backend: Backend) -> Extension:
    """What the dashboard adds to the service on a backend."""
    return Extension(DashboardRoutes(backend).operations, pages())


async def run(
    url: str | None,
    namespace: str,
    session: Session,
    *,
    port: int = 0,
    on_start: Callable[[str], object] = lambda address: None,
) -> None:
    """Show a namespace of a store, on this machine, until a signal comes. ``on_start`` is told the address."""
    listener = listen(Bind(LOOPBACK, port))
    backend = Backend.open(url, namespace)
    more = with_dashboard(backend)
    operations = [*OPERATIONS, *more.operations, session.operation]
    app = create_app(backend, Guard(session), operations=operations, pages=more.pages)
    await serve(app, backend, listener, on_start=lambda address: on_start(f"{address}/#once={session.code}"))
