"""A dependency of FastAPI that takes tokens for one endpoint, and hands its lease over.

::

    chat_limit = Limited(limiter, resource="chat", consume={"requests": 1, "tokens": 500}, key=header_key("x-api-key"))

    @app.post("/chat")
    async def chat(lease: Annotated[Lease, Depends(chat_limit)]): ...

The lease ends when the answer is sent. What is refused is an ``HTTPException``, with the fields of the middleware.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from fastapi import HTTPException, Request, Response

from zae_limiter import (
    Lease,
    Limit,
    RateLimiter,
    RateLimiterUnavailable,
    RateLimitExceeded,
    ValidationError,
)
from zae_limiter.http_fields import Answer, not_a_caller, rate_limit_fields, refused, unavailable
from zae_limiter.integrations.asgi import Key, client_address, header_key
from zae_limiter.integrations.web_rules import acquire_options, keeps_failures

__all__ = ["Limited", "client_address", "header_key"]


class Limited:
    """What an endpoint takes. ``consume`` may be a function of the request; the others are as in a rule.

    A request without a caller (``key`` says ``None``) gets a 401.
    """

    def __init__(
        self,
        limiter: RateLimiter | Callable[[], RateLimiter],
        *,
        resource: str,
        key: Key,
        consume: Mapping[str, int] | Callable[[Request], Any] | None = None,
        limits: Sequence[Limit] | None = None,
        timeout: float = 0.0,
        on_unavailable: str | None = None,
        on_error: str = "keep",
        compatible_headers: bool = False,
    ) -> None:
        self._limiter = limiter
        self._resource = resource
        self._key = key
        self._consume = {"requests": 1} if consume is None else consume
        self._options = acquire_options(limits, timeout, on_unavailable)
        self._keeps_failures = keeps_failures(on_error)
        self._compatible = compatible_headers

    async def __call__(self, request: Request, response: Response) -> AsyncIterator[Lease]:
        """The lease, for the length of the request."""
        entity = self._key(request.scope)
        if inspect.isawaitable(entity):
            entity = await entity
        if entity is None:
            raise HTTPException(401, "the request does not say whose it is")
        consume = self._consume(request) if callable(self._consume) else self._consume
        if inspect.isawaitable(consume):
            consume = await consume
        limiter = self._limiter if isinstance(self._limiter, RateLimiter) else self._limiter()
        lease = limiter.acquire(entity, self._resource, consume, **self._options)
        try:
            await lease.__aenter__()
        except RateLimitExceeded as error:
            raise _exception(refused(error, entity, compatible=self._compatible)) from error
        except RateLimiterUnavailable as error:
            raise _exception(unavailable()) from error
        except ValidationError as error:
            if error.field != "entity_id":
                raise
            raise _exception(not_a_caller(error.reason)) from error
        for name, value in rate_limit_fields(lease.statuses, entity, compatible=self._compatible):
            response.headers[name] = value
        failure: BaseException | None = None
        try:
            yield lease
        except BaseException as error:
            failure = None if self._keeps_failures else error
            raise
        finally:
            await lease.__aexit__(None if failure is None else type(failure), failure, None)


def _exception(answer: Answer) -> HTTPException:
    headers = {name: value for name, value in answer.headers if name != "Content-Type"}
    return HTTPException(answer.status, json.loads(answer.body), headers)
