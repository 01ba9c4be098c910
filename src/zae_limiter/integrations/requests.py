"""Limits for clients that are built on ``requests``.

::

    session = limit_session(requests.Session(), limiter, entity="team-a")
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator
from typing import Any, Unpack
from urllib.parse import urlsplit

from requests import PreparedRequest, Response, Session
from requests.adapters import BaseAdapter, HTTPAdapter
from requests.exceptions import ConnectionError as RequestsConnectionError
from requests.exceptions import ConnectTimeout, InvalidSchema
from requests.structures import CaseInsensitiveDict
from urllib3.exceptions import ConnectTimeoutError, MaxRetryError, NewConnectionError, ProxyError
from urllib3.response import HTTPResponse

from zae_limiter import RateLimiterUnavailable, RateLimitExceeded, SyncLease, SyncRateLimiter, ValidationError
from zae_limiter.integrations.provider_calls import ClientOptions, ClientTerms, ProviderCall, calling_as
from zae_limiter.llm.refusals import Answer

logger = logging.getLogger("zae_limiter")

__all__ = ["LimitedAdapter", "calling_as", "limit_session"]


def limit_session(
    session: Session,
    limiter: SyncRateLimiter,
    *,
    entity: str | Callable[[Any], str],
    **options: Unpack[ClientOptions],
) -> Session:
    """Limit the calls to models of a session that exists. Returns the session."""
    for prefix, adapter in list(session.adapters.items()):
        if isinstance(adapter, LimitedAdapter):
            raise ValidationError("session", session, "is limited already")
        session.mount(prefix, LimitedAdapter(limiter, adapter, entity=entity, **options))
    return session


class LimitedAdapter(BaseAdapter):
    """An adapter whose calls to models are limited. ``adapter`` does the sending."""

    def __init__(
        self,
        limiter: SyncRateLimiter,
        adapter: BaseAdapter | None = None,
        *,
        entity: str | Callable[[Any], str],
        **options: Unpack[ClientOptions],
    ) -> None:
        super().__init__()
        self._limiter = limiter
        self._adapter = adapter or HTTPAdapter()
        self._terms = ClientTerms(entity, **options)

    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        """The answer to a request: the provider's, or a refusal in its words."""
        call = self._call(request)
        if call is None:
            return self._adapter.send(request, *args, **kwargs)
        lease = self._limiter.acquire(call.entity, call.resource, call.wanted, **self._terms.acquire_options)
        try:
            lease.__enter__()
        except (RateLimitExceeded, RateLimiterUnavailable, ValidationError) as error:
            answer = call.refusal(error)
            if answer is None:
                raise
            return _response(request, answer)
        try:
            response = self._adapter.send(_prepared(request, call), *args, **kwargs)
            if call.is_to_be_repeated(response.status_code):
                response.close()
                call.repeat_unchanged()
                response = self._adapter.send(_prepared(request, call), *args, **kwargs)
            self._hear(call, response, lease)
        except BaseException as error:
            lease.settle(call.cost_without_answer(sent=not _never_sent(error)))
            lease.__exit__(None, None, None)
            raise
        response.raw = MeteredBody(response.raw, call, lease)
        return response

    def close(self) -> None:
        """Close the adapter."""
        self._adapter.close()

    def _call(self, request: PreparedRequest) -> ProviderCall | None:
        body = request.body
        content = body.encode() if isinstance(body, str) else body
        if not isinstance(content, bytes) or request.url is None:
            return None
        url = urlsplit(request.url)
        method = (request.method or "").upper()
        return self._terms.provider_call(
            request, method=method, host=url.hostname or "", path=url.path, content=content
        )

    def _hear(self, call: ProviderCall, response: Response, lease: SyncLease) -> None:
        # The body is read as requests decodes it.
        headers = {name: value for name, value in response.headers.items() if name.lower() != "content-encoding"}
        call.answered(response.status_code, CaseInsensitiveDict(headers))
        if call.has_news(response.status_code, headers):
            levels = call.levels_told(response.status_code, response.headers, lease.statuses)
            try:
                if levels:
                    self._limiter.lower(call.entity, call.resource, levels)
            except RateLimiterUnavailable as error:
                logger.warning("what the provider says is left was not noted: %s", error)


class MeteredBody:
    """The body of an answer, which is read on its way, and settled at its end, or when it is closed."""

    def __init__(self, raw: Any, call: ProviderCall, lease: SyncLease) -> None:
        self._raw = raw
        self._call = call
        self._lease: SyncLease | None = lease

    def stream(self, *args: Any, **kwargs: Any) -> Iterator[bytes]:
        """The pieces of the body."""
        meter = self._call.meter
        try:
            for piece in self._raw.stream(*args, **kwargs):
                passed = meter.feed(piece)
                if passed:
                    yield passed
            rest = meter.rest()
            if rest:
                yield rest
        finally:
            self._settle()

    def read(self, *args: Any, **kwargs: Any) -> bytes:
        """Some of the body, by a caller that reads it without ``requests``."""
        piece: bytes = self._raw.read(*args, **kwargs)
        return self._call.meter.feed(piece)

    def close(self) -> None:
        """Close the body, and settle."""
        try:
            self._raw.close()
        finally:
            self._settle()

    def release_conn(self) -> None:
        """Give the connection back, and settle."""
        try:
            self._raw.release_conn()
        finally:
            self._settle()

    def _settle(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.settle(self._call.cost())
            lease.__exit__(None, None, None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)


def _prepared(request: PreparedRequest, call: ProviderCall) -> PreparedRequest:
    """The request as it is sent."""
    request = request.copy()
    request.headers["Accept-Encoding"] = call.accept_encoding
    if call.is_changed:
        request.body = call.content
        request.headers["Content-Length"] = str(len(call.content))
    return request


def _never_sent(error: BaseException) -> bool:
    """Whether nothing has reached a server."""
    if isinstance(error, ConnectTimeout | InvalidSchema):
        return True
    cause = error.args[0] if isinstance(error, RequestsConnectionError) and error.args else None
    return isinstance(cause, MaxRetryError) and isinstance(
        cause.reason, NewConnectionError | ConnectTimeoutError | ProxyError
    )


def _response(request: PreparedRequest, answer: Answer) -> Response:
    response = Response()
    response.status_code = answer.status
    response.headers = CaseInsensitiveDict(answer.headers)
    response.raw = HTTPResponse(io.BytesIO(answer.body), answer.headers, answer.status, preload_content=False)
    response.url = request.url or ""
    response.request = request
    response.encoding = "utf-8"
    return response
