"""The ASGI application: the table of routes, as Starlette serves it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from zae_limiter.service.backend import Backend
from zae_limiter.service.endpoint import Endpoint
from zae_limiter.service.guard import Guard
from zae_limiter.service.operations import Operation
from zae_limiter.service.problems import Reply, problem, reply_to_error
from zae_limiter.service.routes import OPERATIONS


def create_app(
    backend: Backend,
    guard: Guard | None = None,
    *,
    operations: Sequence[Operation] = OPERATIONS,
    pages: Sequence[BaseRoute] = (),
) -> Starlette:
    """The service on a backend, which the caller closes.

    ``operations``: the table of routes, for a process that has more of them. ``pages``: routes that are none of the
    API, such as those of the dashboard. They guard themselves: they show nothing that needs a token.
    """
    return ServiceApp(
        routes=[*_routes(operations, backend, guard or Guard()), *pages],
        exception_handlers={HTTPException: _http_problem, Exception: _failure},
    )


class ServiceApp(Starlette):
    """Starlette's, with a short cut to paths that have no parameters: an endpoint answers every error itself."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._endpoints = {
            route.path: route.endpoint
            for route in self.routes
            if isinstance(route, Route) and isinstance(route.endpoint, Endpoint) and not route.param_convertors
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        endpoint = self._endpoints.get(scope.get("path", ""))
        if endpoint is None or scope["type"] != "http":
            await super().__call__(scope, receive, send)
        else:
            await endpoint(scope, receive, send)


def _routes(operations: Iterable[Operation], backend: Backend, guard: Guard) -> list[Route]:
    """A route for each path; the methods of a path stand together, so that a wrong one is told the right ones."""
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, {})[operation.method] = operation
    return [Route(path, Endpoint(methods, backend, guard)) for path, methods in by_path.items()]


async def _http_problem(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return _response(problem(status, "there is no such path" if status == 404 else "this cannot be answered"))


async def _failure(request: Request, error: Exception) -> Response:
    return _response(reply_to_error(error, ""))


def _response(reply: Reply) -> Response:
    headers = {name.decode(): value.decode() for name, value in reply.headers}
    return Response(reply.body, reply.status, headers)
