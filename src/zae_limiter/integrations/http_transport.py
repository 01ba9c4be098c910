"""Sending limited requests, for the two libraries that speak the same: ``httpx`` and ``httpx2``.

A sender takes the tokens of a call, lets the transport it was given send it, and settles when the body of the answer
is closed: at its end, when its reader leaves, or when the reader's task is cancelled.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, NamedTuple

from zae_limiter import (
    Lease,
    RateLimiter,
    RateLimiterUnavailable,
    RateLimitExceeded,
    SyncLease,
    SyncRateLimiter,
    ValidationError,
)
from zae_limiter.integrations.provider_calls import ClientTerms, ProviderCall
from zae_limiter.llm.refusals import Refusal

logger = logging.getLogger("zae_limiter")


class HttpLibrary(NamedTuple):
    """What a sender needs of a library. ``unsent`` are the errors after which nothing has reached a server."""

    name: str
    client: type
    async_client: type
    request: Callable[..., Any]
    response: Callable[..., Any]
    stream: Callable[[MeteredStream], Any]
    async_stream: Callable[[AsyncMeteredStream], Any]
    unsent: tuple[type[Exception], ...]

    def prepared(self, request: Any, call: ProviderCall) -> Any:
        """The request as it is sent."""
        if call.is_changed:
            headers = request.headers.copy()
            headers["content-length"] = str(len(call.content))
            request = self.request(
                request.method, request.url, headers=headers, content=call.content, extensions=request.extensions
            )
        request.headers["accept-encoding"] = call.accept_encoding
        return request

    def refusal(self, request: Any, call: ProviderCall, error: Refusal) -> Any:
        """The answer to a request that is not sent. Raises the error if the client was told so."""
        answer = call.refusal(error)
        if answer is None:
            raise error
        return self.response(answer.status, headers=answer.headers, content=answer.body, request=request)


class SyncSender:
    """Sends for threads."""

    def __init__(self, library: HttpLibrary, limiter: SyncRateLimiter, terms: ClientTerms, transport: Any) -> None:
        self._library = library
        self._limiter = limiter
        self._terms = terms
        self._options = terms.acquire_options
        self.transport = transport

    def send(self, request: Any) -> Any:
        """The answer to a request: the provider's, or a refusal in its words."""
        url, content = request.url, request.read()
        call = self._terms.provider_call(request, method=request.method, host=url.host, path=url.path, content=content)
        if call is None:
            return self.transport.handle_request(request)
        lease = self._limiter.acquire(call.entity, call.resource, call.wanted, **self._options)
        try:
            lease.__enter__()
        except (RateLimitExceeded, RateLimiterUnavailable, ValidationError) as error:
            return self._library.refusal(request, call, error)
        try:
            response = self._answered(request, call, lease)
        except BaseException as error:
            lease.settle(call.cost_without_answer(sent=not isinstance(error, self._library.unsent)))
            lease.__exit__(None, None, None)
            raise
        response.stream = self._library.stream(MeteredStream(response.stream, call, lease))
        return response

    def _answered(self, request: Any, call: ProviderCall, lease: SyncLease) -> Any:
        response = self.transport.handle_request(self._library.prepared(request, call))
        if call.is_to_be_repeated(response.status_code):
            response.close()
            call.repeat_unchanged()
            response = self.transport.handle_request(self._library.prepared(request, call))
        status, headers = response.status_code, response.headers
        call.answered(status, headers)
        if call.has_news(status, headers):
            self._lower(call, call.levels_told(status, headers, lease.statuses))
        return response

    def _lower(self, call: ProviderCall, levels: Mapping[str, int]) -> None:
        try:
            if levels:
                self._limiter.lower(call.entity, call.resource, levels)
        except RateLimiterUnavailable as error:
            logger.warning("what the provider says is left was not noted: %s", error)

    def close(self) -> None:
        """Close the transport."""
        self.transport.close()


class MeteredStream:
    """The body of an answer, which is read on its way, and settled when it is closed."""

    def __init__(self, body: Any, call: ProviderCall, lease: SyncLease) -> None:
        self._body = body
        self._call = call
        self._lease: SyncLease | None = lease

    def __iter__(self) -> Iterator[bytes]:
        meter = self._call.meter
        for raw in self._body:
            passed = meter.feed(raw)
            if passed:
                yield passed
        rest = meter.rest()
        if rest:
            yield rest

    def close(self) -> None:
        """Close the body, and settle."""
        try:
            self._body.close()
        finally:
            lease, self._lease = self._lease, None
            if lease is not None:
                lease.settle(self._call.cost())
                lease.__exit__(None, None, None)


class AsyncSender:
    """Sends for tasks."""

    def __init__(self, library: HttpLibrary, limiter: RateLimiter, terms: ClientTerms, transport: Any) -> None:
        self._library = library
        self._limiter = limiter
        self._terms = terms
        self._options = terms.acquire_options
        self.transport = transport

    async def send(self, request: Any) -> Any:
        """The answer to a request: the provider's, or a refusal in its words."""
        url, content = request.url, await request.aread()
        call = self._terms.provider_call(request, method=request.method, host=url.host, path=url.path, content=content)
        if call is None:
            return await self.transport.handle_async_request(request)
        lease = self._limiter.acquire(call.entity, call.resource, call.wanted, **self._options)
        try:
            await lease.__aenter__()
        except (RateLimitExceeded, RateLimiterUnavailable, ValidationError) as error:
            return self._library.refusal(request, call, error)
        try:
            response = await self._answered(request, call, lease)
        except BaseException as error:
            await lease.settle(call.cost_without_answer(sent=not isinstance(error, self._library.unsent)))
            await lease.__aexit__(None, None, None)
            raise
        response.stream = self._library.async_stream(AsyncMeteredStream(response.stream, call, lease))
        return response

    async def _answered(self, request: Any, call: ProviderCall, lease: Lease) -> Any:
        response = await self.transport.handle_async_request(self._library.prepared(request, call))
        if call.is_to_be_repeated(response.status_code):
            await response.aclose()
            call.repeat_unchanged()
            response = await self.transport.handle_async_request(self._library.prepared(request, call))
        status, headers = response.status_code, response.headers
        call.answered(status, headers)
        if call.has_news(status, headers):
            await self._lower(call, call.levels_told(status, headers, lease.statuses))
        return response

    async def _lower(self, call: ProviderCall, levels: Mapping[str, int]) -> None:
        try:
            if levels:
                await self._limiter.lower(call.entity, call.resource, levels)
        except RateLimiterUnavailable as error:
            logger.warning("what the provider says is left was not noted: %s", error)

    async def close(self) -> None:
        """Close the transport."""
        await self.transport.aclose()


class AsyncMeteredStream:
    """The body of an answer, which is read on its way, and settled when it is closed."""

    def __init__(self, body: Any, call: ProviderCall, lease: Lease) -> None:
        self._body = body
        self._call = call
        self._lease: Lease | None = lease

    async def __aiter__(self) -> AsyncIterator[bytes]:
        meter = self._call.meter
        async for raw in self._body:
            passed = meter.feed(raw)
            if passed:
                yield passed
        rest = meter.rest()
        if rest:
            yield rest

    async def aclose(self) -> None:
        """Close the body, and settle."""
        try:
            await self._body.aclose()
        finally:
            lease, self._lease = self._lease, None
            if lease is not None:
                await lease.settle(self._call.cost())
                await lease.__aexit__(None, None, None)


_PLACES = ("", "_client", "_api_client._httpx_client", "_api_client._async_httpx_client")
"""Where clients of providers keep their HTTP client: themselves, OpenAI and Anthropic and their kin, Google."""


def http_client_in(client: Any, library: HttpLibrary, limiter: RateLimiter | SyncRateLimiter) -> Any:
    """The HTTP client that a client is, or has, of the kind that goes with the limiter."""
    wanted, other = library.async_client, library.client
    if not isinstance(limiter, RateLimiter):
        wanted, other = other, wanted
    found: list[Any] = []
    for place in _PLACES:
        inner = client
        for part in filter(None, place.split(".")):
            inner = getattr(inner, part, None)
        if isinstance(inner, wanted):
            return inner
        found.append(inner)
    if any(isinstance(inner, other) for inner in found):
        raise ValidationError(
            "limiter",
            limiter,
            "is for the other world: an async client needs a RateLimiter, a client for threads a SyncRateLimiter",
        )
    others = {type(inner).__module__.partition(".")[0] for inner in found} & {"httpx", "httpx2"} - {library.name}
    if others:
        hint = f"it has one of {others.pop()}: import limit_client from there"
    else:
        hint = "give the HTTP client that it was made with"
    raise ValidationError("client", client, f"has no client of {library.name} that could be limited; {hint}")


def wrap(client: Any, limited: type[Any], make: Callable[[Any], Any]) -> None:
    """Put transports made by ``make`` around those that an HTTP client has: its own, and those of its proxies."""
    if isinstance(client._transport, limited):
        raise ValidationError("client", client, "is limited already")
    client._transport = make(client._transport)
    client._mounts = {
        pattern: None if transport is None else make(transport) for pattern, transport in client._mounts.items()
    }
