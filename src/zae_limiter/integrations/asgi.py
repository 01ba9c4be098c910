"""Limits for what comes into an ASGI application: Starlette, FastAPI, Litestar, Quart, Django.

::

    app.add_middleware(LimitMiddleware, limiter=limiter, key=header_key("x-api-key"))

The lease of a request ends with the body of its answer. In between a handler may settle it:
``await request.state.lease.settle(tokens=used)``.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextvars import ContextVar
from typing import Any, TypeAlias

from zae_limiter import Lease, RateLimiter, RateLimiterUnavailable, RateLimitExceeded, ValidationError
from zae_limiter.http_fields import Answer, Fields, not_a_caller, rate_limit_fields, refused, unavailable
from zae_limiter.integrations.web_rules import Rule, Rules, acquire_options, address_id, forwarded, keeps_failures

__all__ = ["LimitMiddleware", "Rule", "client_address", "current_lease", "header_key"]

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Key: TypeAlias = Callable[[Scope], str | Awaitable[str | None] | None]

_LEASE: ContextVar[Lease | None] = ContextVar("zae_limiter_lease", default=None)


def current_lease() -> Lease | None:
    """The lease of the request that is being served; ``None`` if it is not limited."""
    return _LEASE.get()


def header_key(name: str) -> Key:
    """The caller is who a header says. Only for headers that the application, or a proxy, has checked."""
    wanted = name.lower().encode("latin-1")
    return lambda scope: _header(scope, wanted)


def client_address(*, trusted_proxies: int = 0) -> Key:
    """The caller is its network address. Behind proxies, say how many: each adds one to ``X-Forwarded-For``."""

    def key(scope: Scope) -> str:
        seen = forwarded(_header(scope, b"x-forwarded-for"), trusted_proxies)
        client = scope.get("client")
        return address_id(seen or (client[0] if client else None))

    return key


class LimitMiddleware:
    """Takes the tokens of every request that a rule matches.

    ``limiter`` is a limiter, or a function that returns it where it is opened later. ``key`` says whose a request is;
    ``None`` lets it through, for the application to answer 401. ``compatible_headers`` adds ``x-ratelimit-*``. With
    ``on_error="keep"`` what fails is not free; ``"refund"`` gives back what was not settled.
    """

    def __init__(
        self,
        app: App,
        limiter: RateLimiter | Callable[[], RateLimiter],
        *,
        key: Key,
        rules: Iterable[Rule] = (Rule(),),
        on_unavailable: str | None = None,
        on_error: str = "keep",
        compatible_headers: bool = False,
    ) -> None:
        self._app = app
        self._limiter = limiter
        self._key = key
        self._rules = Rules(rules)
        self._on_unavailable = on_unavailable
        self._keeps_failures = keeps_failures(on_error)
        self._compatible = compatible_headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        rule = self._rules.matching(scope["method"], scope["path"]) if scope["type"] == "http" else None
        entity = None if rule is None else await _awaited(self._key(scope))
        if rule is None or entity is None:
            await self._app(scope, receive, send)
            return
        lease = await self._lease(rule, entity, scope)
        try:
            await lease.__aenter__()
        except (RateLimitExceeded, RateLimiterUnavailable, ValidationError) as error:
            await _send(send, self._refusal(error, entity))
            return
        await self._serve(scope, receive, send, lease, entity)

    async def _lease(self, rule: Rule, entity: str, scope: Scope) -> Lease:
        limiter = self._limiter if isinstance(self._limiter, RateLimiter) else self._limiter()
        consume = await _awaited(rule.consume(scope)) if callable(rule.consume) else rule.consume
        resource = rule.resource(scope) if callable(rule.resource) else rule.resource
        options = acquire_options(rule.limits, rule.timeout, self._on_unavailable)
        return limiter.acquire(entity, resource, consume, **options)

    def _refusal(self, error: Exception, entity: str) -> Answer:
        if isinstance(error, RateLimitExceeded):
            return refused(error, entity, compatible=self._compatible)
        if isinstance(error, RateLimiterUnavailable):
            return unavailable()
        if isinstance(error, ValidationError) and error.field == "entity_id":
            return not_a_caller(error.reason)
        raise error

    async def _serve(self, scope: Scope, receive: Receive, send: Send, lease: Lease, entity: str) -> None:
        fields = _encoded(rate_limit_fields(lease.statuses, entity, compatible=self._compatible))

        async def send_with_fields(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *fields]}
            await send(message)

        token = _LEASE.set(lease)
        failure: BaseException | None = None
        try:
            state = {**scope.get("state", {}), "lease": lease}
            await self._app({**scope, "state": state}, receive, send_with_fields)
        except BaseException as error:
            failure = None if self._keeps_failures else error
            raise
        finally:
            _LEASE.reset(token)
            await lease.__aexit__(None if failure is None else type(failure), failure, None)


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _header(scope: Scope, wanted: bytes) -> str | None:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == wanted), None)


def _encoded(fields: Fields) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in fields]


async def _send(send: Send, answer: Answer) -> None:
    headers = [*_encoded(answer.headers), (b"content-length", str(len(answer.body)).encode())]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
