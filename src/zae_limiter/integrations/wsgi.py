"""Limits for what comes into a WSGI application: Flask, Django, Pyramid.

::

    app.wsgi_app = LimitMiddleware(app.wsgi_app, limiter, key=header_key("x-api-key"))

The lease of a request ends when the server closes the body of its answer. In between a handler may settle it:
``request.environ["zae_limiter.lease"].settle(tokens=used)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import Any, TypeAlias

from zae_limiter import RateLimiterUnavailable, RateLimitExceeded, SyncLease, SyncRateLimiter, ValidationError
from zae_limiter.http_fields import Answer, Fields, not_a_caller, rate_limit_fields, refused, unavailable
from zae_limiter.integrations.web_rules import Rule, Rules, acquire_options, address_id, forwarded, keeps_failures

__all__ = ["LEASE", "LimitMiddleware", "Rule", "client_address", "header_key"]

LEASE = "zae_limiter.lease"
"""Where the environ has the lease of a request."""

Environ: TypeAlias = dict[str, Any]
App: TypeAlias = Callable[..., Iterable[bytes]]
Key: TypeAlias = Callable[[Environ], str | None]


def header_key(name: str) -> Key:
    """The caller is who a header says. Only for headers that the application, or a proxy, has checked."""
    variable = f"HTTP_{name.upper().replace('-', '_')}"
    return lambda environ: environ.get(variable)


def client_address(*, trusted_proxies: int = 0) -> Key:
    """The caller is its network address. Behind proxies, say how many: each adds one to ``X-Forwarded-For``."""

    def key(environ: Environ) -> str:
        seen = forwarded(environ.get("HTTP_X_FORWARDED_FOR"), trusted_proxies)
        return address_id(seen or environ.get("REMOTE_ADDR"))

    return key


class LimitMiddleware:
    """Takes the tokens of every request that a rule matches. The arguments are those of the middleware for ASGI."""

    def __init__(
        self,
        app: App,
        limiter: SyncRateLimiter | Callable[[], SyncRateLimiter],
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

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "") or "/"
        rule = self._rules.matching(environ["REQUEST_METHOD"], path)
        entity = None if rule is None else self._key(environ)
        if rule is None or entity is None:
            return self._app(environ, start_response)
        limiter = self._limiter if isinstance(self._limiter, SyncRateLimiter) else self._limiter()
        consume = rule.consume(environ) if callable(rule.consume) else rule.consume
        resource = rule.resource(environ) if callable(rule.resource) else rule.resource
        options = acquire_options(rule.limits, rule.timeout, self._on_unavailable)
        lease = limiter.acquire(entity, resource, consume, **options)
        try:
            lease.__enter__()
        except (RateLimitExceeded, RateLimiterUnavailable, ValidationError) as error:
            return _started(start_response, self._refusal(error, entity))
        fields = rate_limit_fields(lease.statuses, entity, compatible=self._compatible)
        return self._serve(environ, start_response, lease, fields)

    def _refusal(self, error: Exception, entity: str) -> Answer:
        if isinstance(error, RateLimitExceeded):
            return refused(error, entity, compatible=self._compatible)
        if isinstance(error, RateLimiterUnavailable):
            return unavailable()
        if isinstance(error, ValidationError) and error.field == "entity_id":
            return not_a_caller(error.reason)
        raise error

    def _serve(
        self, environ: Environ, start_response: Callable[..., Any], lease: SyncLease, fields: Fields
    ) -> Iterable[bytes]:
        def start_with_fields(status: str, headers: Fields, *exc_info: Any) -> Any:
            return start_response(status, [*headers, *fields], *exc_info)

        environ[LEASE] = lease
        try:
            body = self._app(environ, start_with_fields)
        except BaseException as error:
            failure = None if self._keeps_failures else error
            lease.__exit__(None if failure is None else type(failure), failure, None)
            raise
        return LeasedBody(body, lease, keeps_failures=self._keeps_failures)


class LeasedBody:
    """The body of an answer. Closing it ends the lease, as a failure if it failed."""

    def __init__(self, body: Iterable[bytes], lease: SyncLease, *, keeps_failures: bool) -> None:
        self._body = body
        self._keeps_failures = keeps_failures
        self._lease: SyncLease | None = lease
        self._failure: BaseException | None = None

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._body
        except GeneratorExit:
            raise  # the client has left: that is no failure
        except BaseException as error:
            self._failure = error
            raise

    def close(self) -> None:
        """Close the body, and end the lease."""
        lease, self._lease = self._lease, None
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        except BaseException as error:
            self._failure = self._failure or error
            raise
        finally:
            if lease is not None:
                failure = None if self._keeps_failures else self._failure
                lease.__exit__(None if failure is None else type(failure), failure, None)


def _started(start_response: Callable[..., Any], answer: Answer) -> list[bytes]:
    reason = HTTPStatus(answer.status).phrase
    start_response(f"{answer.status} {reason}", [*answer.headers, ("Content-Length", str(len(answer.body)))])
    return [answer.body]
