"""The transport for threads: this package signs calls, sends them over sockets and reads their replies.

Through a proxy, requests are sent by urllib3: it knows how to open a tunnel, and how to log in there. Each has a
thread of its own, because urllib3 bounds the time of every step, but not of all of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Future
from time import monotonic
from typing import Any, Final, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from zae_limiter.exceptions import MissingExtra
from zae_limiter.stores.dynamodb.requests import NoAnswer, Refused, Reply
from zae_limiter.stores.dynamodb.transport.connection_pool import (
    CONNECT_S,
    RECEIVE_BYTES,
    ConnectionPool,
    SocketConnection,
)
from zae_limiter.stores.dynamodb.transport.credentials import run_in_thread
from zae_limiter.stores.dynamodb.transport.http_replies import MAX_BODY_BYTES, HttpReply
from zae_limiter.stores.dynamodb.transport.protocol import Target
from zae_limiter.stores.dynamodb.transport.service import (
    BAD_SIGNATURE,
    EXPIRED_CREDENTIALS,
    SETTINGS_TOO_LATE,
    Service,
    Services,
    SignedRequest,
    described,
    error_before_sending,
    refresh_failed,
)
from zae_limiter.stores.dynamodb.transport.settings import CONNECTIONS, service_of

PROXY_TOO_LATE: Final = "no answer through the proxy in time"

Result = TypeVar("Result")


class SocketTransport:
    """Carries the calls of threads."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._process = _Process(target)
        self.last_date_skew_s: float | None = None
        """By how much this machine's clock is behind DynamoDB's, to a second; unknown before the first reply."""

    def __repr__(self) -> str:
        return "SocketTransport()"

    def call(
        self,
        operation: str,
        params: Mapping[str, Any],
        seconds: float,
        refused: tuple[Refused, SignedRequest] | None = None,
    ) -> Reply:
        """DynamoDB's reply, in its own JSON. Raises ``Refused`` or ``NoAnswer``, after ``seconds`` at the latest.

        ``refused`` is how the same call was refused before: it is sent only if it can be signed anew.
        """
        give_up_at = monotonic() + seconds
        process = self._process
        if process.pid != os.getpid():
            process = self._process = _Process(self._target)
        service, channel = process.routes.get(operation) or process.find_route(operation, give_up_at)
        if refused is not None and not _can_be_signed_anew(service, *refused, give_up_at):
            raise refused[0]
        was_refused = refused is not None
        while True:
            credentials = service.credentials.current() or _result(service.credentials.fetching(), give_up_at)
            request = service.sign(operation, params, credentials)
            sent = channel.begin(request.data, give_up_at) or channel.begin_anew(request.data, give_up_at)
            reply = channel.finish(sent, give_up_at)
            try:
                return service.decode(reply, request)
            except Refused as refusal:
                if was_refused or not _can_be_signed_anew(service, refusal, request, give_up_at):
                    raise
                was_refused = True
            finally:
                self.last_date_skew_s = service.date_skew_s

    def begin(self, operation: str, params: Mapping[str, Any], seconds: float) -> SentCall | None:
        """A call that is sent by now; nothing, if something has to be waited for first."""
        process = self._process
        route = process.routes.get(operation)
        if route is None or process.pid != os.getpid() or not isinstance(route.channel, ConnectionPool):
            return None
        service, pool = route.service, route.channel
        credentials = service.credentials.current()
        if credentials is None:
            return None
        give_up_at = monotonic() + seconds
        request = service.sign(operation, params, credentials)
        connection = pool.begin(request.data, give_up_at)
        if connection is None:
            return None
        return SentCall(self, operation, params, service, request, pool, connection, give_up_at)

    def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        if self._process.pid == os.getpid():
            self._process.close()


class SentCall:
    """A call that was sent, and whose reply is to be waited for; or else it is abandoned."""

    __slots__ = ("_connection", "_give_up_at", "_operation", "_params", "_pool", "_request", "_service", "_transport")

    def __init__(
        self,
        transport: SocketTransport,
        operation: str,
        params: Mapping[str, Any],
        service: Service,
        request: SignedRequest,
        pool: ConnectionPool,
        connection: SocketConnection,
        give_up_at: float,
    ) -> None:
        self._transport = transport
        self._operation = operation
        self._params = params
        self._service = service
        self._request = request
        self._pool = pool
        self._connection = connection
        self._give_up_at = give_up_at

    def reply(self) -> Reply:
        """As :meth:`SocketTransport.call`."""
        reply = self._pool.finish(self._connection, self._give_up_at)
        try:
            return self._service.decode(reply, self._request)
        except Refused as refusal:
            if refusal.code not in EXPIRED_CREDENTIALS and refusal.code not in BAD_SIGNATURE:
                raise
            left = max(self._give_up_at - monotonic(), 0.0)
            return self._transport.call(self._operation, self._params, left, (refusal, self._request))
        finally:
            self._transport.last_date_skew_s = self._service.date_skew_s

    def abandon(self) -> None:
        """Do not wait for the reply. DynamoDB may do it all the same."""
        self._pool.abandon(self._connection)


class Channel(Protocol):
    """Sends requests to one endpoint, and brings the replies back."""

    def begin(self, request: bytes, give_up_at: float) -> Any:
        """Send a request, for :meth:`finish`. Nothing, if something has to be waited for first."""
        ...

    def begin_anew(self, request: bytes, give_up_at: float) -> Any:
        """The same, after waiting for what is missing. Raises ``NoAnswer``."""
        ...

    def finish(self, sent: Any, give_up_at: float) -> HttpReply:
        """The reply to a request that was sent. Raises ``NoAnswer``."""
        ...

    def close(self) -> None: ...


class _Route(NamedTuple):
    """The service that has an operation, and the channel to it."""

    service: Service
    channel: Channel


class _Process:
    """The services and channels of one process. A forked child has others: its parent's sockets are not its own."""

    def __init__(self, target: Target) -> None:
        self.pid = os.getpid()
        self.routes: dict[str, _Route] = {}
        """By operation."""
        self._services = Services(target)
        self._channels: dict[str, Channel] = {}
        """By service."""

    def find_route(self, operation: str, give_up_at: float) -> _Route:
        """The route of an operation that is called for the first time."""
        name = service_of(operation)
        service = self._services.ready(name) or _result(self._services.preparing(name), give_up_at)
        channel = self._channels.get(name)
        if channel is None:
            made = ConnectionPool(service) if service.proxy is None else ProxyChannel(service, service.proxy)
            channel = self._channels.setdefault(name, made)
        return self.routes.setdefault(operation, _Route(service, channel))

    def close(self) -> None:
        for channel in list(self._channels.values()):
            channel.close()


def _can_be_signed_anew(service: Service, refusal: Refused, request: SignedRequest, give_up_at: float) -> bool:
    """Whether a refused call is worth another signature, perhaps after waiting for other credentials.

    Nothing was done when DynamoDB refused. Raises ``Refused`` with the reason if no others can be fetched.
    """
    if service.has_other_signature(refusal, request):
        return True
    refreshing = service.refreshing(refusal)
    if refreshing is None:
        return False
    try:
        _result(refreshing, give_up_at)
    except NoAnswer as failure:
        raise refresh_failed(refusal, failure) from failure
    return service.has_other_signature(refusal, request)


def _result(future: Future[Result], give_up_at: float) -> Result:
    """The outcome of preparing a call. Raises ``NoAnswer`` if it is not there in time."""
    try:
        return future.result(max(give_up_at - monotonic(), 0))
    except Exception as error:
        if isinstance(error, TimeoutError) and not future.done():
            raise NoAnswer(SETTINGS_TOO_LATE, sent=False) from error
        raise error_before_sending(error) from error


class ProxyChannel:
    """Sends requests to one endpoint through a proxy."""

    def __init__(self, service: Service, proxy: str) -> None:
        try:
            from urllib3 import ProxyManager
            from urllib3.exceptions import HTTPError
            from urllib3.util import make_headers
        except ImportError as error:
            raise MissingExtra(error.name) from error

        parts = urlsplit(proxy)
        has_login = parts.username is not None and parts.password is not None
        login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}" if has_login else None
        self._url = service.endpoint.url
        self._tunneled = service.endpoint.is_secure
        try:
            self._manager: Any = ProxyManager(
                proxy,
                maxsize=CONNECTIONS,
                proxy_headers=make_headers(proxy_basic_auth=login),
                ssl_context=service.tls,
            )
        except (HTTPError, ValueError):
            raise NoAnswer("the URL of the proxy is not valid", sent=False, misconfigured=True) from None

    def begin(self, request: bytes, give_up_at: float) -> Future[HttpReply]:
        """The reply to come."""
        return self.exchanging(request, max(give_up_at - monotonic(), 0.001))

    begin_anew = begin

    def finish(self, sent: Future[HttpReply], give_up_at: float) -> HttpReply:
        """The reply. Raises ``NoAnswer``."""
        try:
            return sent.result(max(give_up_at - monotonic(), 0.001))
        except TimeoutError as error:
            raise NoAnswer(PROXY_TOO_LATE) from error

    def exchanging(self, request: bytes, seconds: float) -> Future[HttpReply]:
        """The reply to come."""
        return run_in_thread(lambda: self._exchange(request, seconds), "zae-limiter-proxied")

    def close(self) -> None:
        self._manager.clear()

    def _exchange(self, request: bytes, seconds: float) -> HttpReply:
        from urllib3 import Timeout
        from urllib3.exceptions import HTTPError

        head, _, body = request.partition(b"\r\n\r\n")
        lines = (line.partition(": ") for line in head.decode("latin-1").split("\r\n")[1:])
        try:
            response = self._manager.urlopen(
                "POST",
                self._url,
                body=body,
                headers={name: value for name, _, value in lines},
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
                timeout=Timeout(connect=min(seconds, CONNECT_S), read=seconds),
            )
            try:
                content = _body_of(response)
            finally:
                response.release_conn()
        except (HTTPError, OSError) as error:
            raise NoAnswer(described(error), sent=not _before_sending(error, tunneled=self._tunneled)) from error
        headers = {name.lower().encode(): value.encode() for name, value in response.headers.items()}
        return HttpReply(response.status, headers, content)


def _body_of(response: Any) -> bytes:
    pieces: list[bytes] = []
    while piece := response.read(RECEIVE_BYTES):
        pieces.append(piece)
        if len(pieces) * RECEIVE_BYTES > MAX_BODY_BYTES:
            response.close()
            raise NoAnswer("the reply does not end")
    return b"".join(pieces)


def _before_sending(error: Exception, *, tunneled: bool) -> bool:
    """Whether an error came before the request was sent. urllib3's ``ProxyError`` says so of a tunnel only."""
    import ssl

    from urllib3.exceptions import ConnectTimeoutError, NewConnectionError, ProxyError, SSLError

    if isinstance(error, ProxyError):
        return tunneled or isinstance(error.original_error, ConnectTimeoutError | NewConnectionError)
    if isinstance(error, SSLError):
        return any(isinstance(part, ssl.SSLCertVerificationError) for part in (*error.args, error.__cause__))
    return isinstance(error, ConnectTimeoutError | NewConnectionError)
