"""Limits for clients that are built on ``httpx2``: OpenAI, Anthropic, Google and others.

::

    client = limit_client(openai.OpenAI(), limiter, entity="team-a")
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any, TypeVar, Unpack

import httpx2

from zae_limiter import RateLimiter, SyncRateLimiter
from zae_limiter.integrations.http_transport import (
    AsyncMeteredStream,
    AsyncSender,
    HttpLibrary,
    MeteredStream,
    SyncSender,
    http_client_in,
    wrap,
)
from zae_limiter.integrations.provider_calls import ClientOptions, ClientTerms, calling_as

__all__ = ["AsyncLimitedTransport", "LimitedTransport", "calling_as", "limit_client"]

Client = TypeVar("Client")


class LimitedStream(httpx2.SyncByteStream):
    """The body of a limited answer."""

    def __init__(self, metered: MeteredStream) -> None:
        self._metered = metered

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._metered)

    def close(self) -> None:
        self._metered.close()


class AsyncLimitedStream(httpx2.AsyncByteStream):
    """The body of a limited answer, for tasks."""

    def __init__(self, metered: AsyncMeteredStream) -> None:
        self._metered = metered

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._metered.__aiter__()

    async def aclose(self) -> None:
        await self._metered.aclose()


LIBRARY = HttpLibrary(
    "httpx2",
    httpx2.Client,
    httpx2.AsyncClient,
    httpx2.Request,
    httpx2.Response,
    LimitedStream,
    AsyncLimitedStream,
    (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError, httpx2.UnsupportedProtocol),
)


class LimitedTransport(httpx2.BaseTransport):
    """A transport whose calls to models are limited. ``transport`` does the sending."""

    def __init__(
        self,
        limiter: SyncRateLimiter,
        transport: httpx2.BaseTransport | None = None,
        *,
        entity: str | Callable[[Any], str],
        **options: Unpack[ClientOptions],
    ) -> None:
        self._sender = SyncSender(
            LIBRARY, limiter, ClientTerms(entity, **options), transport or httpx2.HTTPTransport()
        )

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        answer: httpx2.Response = self._sender.send(request)
        return answer

    def close(self) -> None:
        self._sender.close()


class AsyncLimitedTransport(httpx2.AsyncBaseTransport):
    """A transport for tasks whose calls to models are limited. ``transport`` does the sending."""

    def __init__(
        self,
        limiter: RateLimiter,
        transport: httpx2.AsyncBaseTransport | None = None,
        *,
        entity: str | Callable[[Any], str],
        **options: Unpack[ClientOptions],
    ) -> None:
        inner = transport or httpx2.AsyncHTTPTransport()
        self._sender = AsyncSender(LIBRARY, limiter, ClientTerms(entity, **options), inner)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        answer: httpx2.Response = await self._sender.send(request)
        return answer

    async def aclose(self) -> None:
        await self._sender.close()


def limit_client(
    client: Client,
    limiter: RateLimiter | SyncRateLimiter,
    *,
    entity: str | Callable[[Any], str],
    **options: Unpack[ClientOptions],
) -> Client:
    """Limit the calls of a client that exists: one of ``httpx2``, or a provider's that has one. Returns the client.

    ``entity`` is an id, or a function of the request. Its proxies, pools and certificates stay what they are.
    """
    inner = http_client_in(client, LIBRARY, limiter)
    if isinstance(limiter, RateLimiter):
        wrap(inner, AsyncLimitedTransport, partial(AsyncLimitedTransport, limiter, entity=entity, **options))
    else:
        wrap(inner, LimitedTransport, partial(LimitedTransport, limiter, entity=entity, **options))
    return client
