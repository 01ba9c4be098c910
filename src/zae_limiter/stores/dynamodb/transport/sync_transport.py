"""The transport for threads: calls are signed, sent over sockets and their replies read by this package.

Through a proxy, requests are sent by urllib3: it knows how to open a tunnel, and how to log in there. Each has a
thread of its own, because urllib3 bounds the time of every step, but not of all of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from concurrent.futures import Future
from time import monotonic
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from zae_limiter.stores.dynamodb.requests import NoAnswer, Refused, Reply
from zae_limiter.stores.dynamodb.transport.connection_pool import Connections
from zae_limiter.stores.dynamodb.transport.credentials import begun
from zae_limiter.stores.dynamodb.transport.failures import told
from zae_limiter.stores.dynamodb.transport.http_replies import LONGEST_BODY, Answer
from zae_limiter.stores.dynamodb.transport.protocol import Target
from zae_limiter.stores.dynamodb.transport.service import (
    CONNECT_S,
    NOT_IN_TIME,
    Access,
    Entrance,
    Signed,
    encoded,
    not_begun,
    not_renewed,
)
from zae_limiter.stores.dynamodb.transport.settings import CONNECTIONS, MissingExtra, Place, service_of, trusting

PIECE: Final = 65536


Result = TypeVar("Result")


class SocketTransport:
    """Carries calls, signed and understood by ourselves."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._process = _Process(target)

    def __repr__(self) -> str:
        return "SocketTransport()"

    @property
    def last_date_skew_s(self) -> float | None:
        """By how much this machine's clock is behind DynamoDB's, to a second; unknown before the first reply."""
        return self._process.entrance.date_skew_s

    def call(self, operation: str, params: Mapping[str, Any], seconds: float) -> Reply:
        """DynamoDB's reply, in its own JSON. Raises ``Refused`` or ``NoAnswer``, after ``seconds`` at the latest."""
        give_up_at = monotonic() + seconds
        process = self._process
        if process.entrance.pid != os.getpid():
            process = self._process = _Process(self._target)
        service = service_of(operation)
        access = process.entrance.access(service) or _waited(process.entrance.making_ready(service), give_up_at)
        carrier = process.carrier(service, access)
        body = encoded(params)
        mended = False
        while True:
            credentials = access.keeper.current() or _waited(access.keeper.fetching(), give_up_at)
            offset_s, sent_at = access.line.offset_s, time.time()
            try:
                request = access.line.put(operation, body, credentials)
            except ValueError as error:
                raise NoAnswer(str(error), sent=False) from None
            answer = carrier.exchange(request, give_up_at)
            try:
                return access.line.understood(answer, credentials, sent_at)
            except Refused as refusal:
                if mended or not _mended(access, refusal, Signed(credentials, offset_s), give_up_at):
                    raise
                mended = True

    def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        if self._process.entrance.pid == os.getpid():
            self._process.close()


class Carrier(Protocol):
    """Brings calls to one place, and the answers back."""

    def exchange(self, request: bytes, give_up_at: float) -> Answer:
        """The answer to a call. Raises ``NoAnswer``."""
        ...

    def close(self) -> None: ...


class _Process:
    """What one process has. A forked child begins anew: its parent's sockets are not its own."""

    def __init__(self, target: Target) -> None:
        self.entrance = Entrance(target)
        self._carriers: dict[str, Carrier] = {}

    def carrier(self, service: str, access: Access) -> Carrier:
        carrier = self._carriers.get(service)
        if carrier is None:
            carrier = self._carriers.setdefault(service, carrier_for(access))
        return carrier

    def close(self) -> None:
        for carrier in list(self._carriers.values()):
            carrier.close()


def carrier_for(access: Access) -> Carrier:
    """Who carries calls there."""
    if access.proxy is None:
        return Connections(access)
    from zae_limiter.stores.dynamodb.transport.sync_transport import ProxiedCarrier

    return ProxiedCarrier(access.line.place, access.proxy, access.ca_bundle)


def _mended(access: Access, refusal: Refused, signed: Signed, give_up_at: float) -> bool:
    """Whether it is worth asking again. Nothing was done when DynamoDB refused. Raises ``Refused`` with a reason."""
    if access.mended_by_now(refusal, signed):
        return True
    mending = access.mending(refusal)
    if mending is None:
        return False
    try:
        _waited(mending, give_up_at)
    except NoAnswer as failure:
        raise not_renewed(refusal, failure) from failure
    return access.mended_by_now(refusal, signed)


def _waited(future: Future[Result], give_up_at: float) -> Result:
    try:
        return future.result(max(give_up_at - monotonic(), 0))
    except Exception as error:
        if isinstance(error, TimeoutError) and not future.done():
            raise NoAnswer(NOT_IN_TIME, sent=False) from error
        raise not_begun(error) from error


class ProxiedCarrier:
    """Brings calls to one place through a proxy, and the answers back."""

    def __init__(self, place: Place, proxy: str, ca_bundle: str | None) -> None:
        try:
            from urllib3 import ProxyManager
            from urllib3.exceptions import HTTPError
            from urllib3.util import make_headers
        except ImportError as error:
            raise MissingExtra(error.name) from error

        parts = urlsplit(proxy)
        known = parts.username is not None and parts.password is not None
        login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}" if known else None
        self._url = place.url
        self._tunneled = place.is_secure
        try:
            self._manager: Any = ProxyManager(
                proxy,
                maxsize=CONNECTIONS,
                proxy_headers=make_headers(proxy_basic_auth=login),
                ssl_context=trusting(ca_bundle) if place.is_secure else None,
            )
        except (HTTPError, ValueError):
            raise NoAnswer("the proxy's URL cannot be understood", sent=False) from None

    def exchange(self, request: bytes, give_up_at: float) -> Answer:
        """The answer to a call. Raises ``NoAnswer``."""
        seconds = max(give_up_at - monotonic(), 0.001)
        carrying = self.carrying(request, seconds)
        try:
            return carrying.result(seconds)
        except TimeoutError as error:
            raise NoAnswer("no answer through the proxy in time") from error

    def carrying(self, request: bytes, seconds: float) -> Future[Answer]:
        """The answer, when it is there."""
        return begun(lambda: self._carry(request, seconds), "zae-limiter-proxied")

    def close(self) -> None:
        self._manager.clear()

    def _carry(self, request: bytes, seconds: float) -> Answer:
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
                received = _whole(response)
            finally:
                response.release_conn()
        except (HTTPError, OSError) as error:
            raise NoAnswer(told(error), sent=not _before_sending(error, tunneled=self._tunneled)) from error
        headers = {name.lower().encode(): value.encode() for name, value in response.headers.items()}
        return Answer(response.status, headers, received)


def _whole(response: Any) -> bytes:
    pieces: list[bytes] = []
    while piece := response.read(PIECE):
        pieces.append(piece)
        if len(pieces) * PIECE > LONGEST_BODY:
            response.close()
            raise NoAnswer("the reply does not end")
    return b"".join(pieces)


def _before_sending(error: Exception, *, tunneled: bool) -> bool:
    """Whether an error came before the call was sent. urllib3's ``ProxyError`` says so of a tunnel only."""
    import ssl

    from urllib3.exceptions import ConnectTimeoutError, NewConnectionError, ProxyError, SSLError

    if isinstance(error, ProxyError):
        return tunneled or isinstance(error.original_error, ConnectTimeoutError | NewConnectionError)
    if isinstance(error, SSLError):
        return any(isinstance(part, ssl.SSLCertVerificationError) for part in (*error.args, error.__cause__))
    return isinstance(error, ConnectTimeoutError | NewConnectionError)
