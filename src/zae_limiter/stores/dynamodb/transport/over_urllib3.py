"""Calls carried through a proxy, by urllib3: it knows how to tunnel, and how to log in there.

Each call has a thread of its own, because urllib3 bounds the time of every step, but not of all of them.
"""

from __future__ import annotations

import ssl
from concurrent.futures import Future
from time import monotonic
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from zae_limiter.stores.dynamodb.requests import NoAnswer
from zae_limiter.stores.dynamodb.transport.access import CONNECT_S
from zae_limiter.stores.dynamodb.transport.errands import begun
from zae_limiter.stores.dynamodb.transport.failures import told
from zae_limiter.stores.dynamodb.transport.http_replies import LONGEST_BODY, Answer
from zae_limiter.stores.dynamodb.transport.places import Place
from zae_limiter.stores.dynamodb.transport.settings import CONNECTIONS, MissingExtra
from zae_limiter.stores.dynamodb.transport.trust import trusting

PIECE: Final = 65536


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
    from urllib3.exceptions import ConnectTimeoutError, NewConnectionError, ProxyError, SSLError

    if isinstance(error, ProxyError):
        return tunneled or isinstance(error.original_error, ConnectTimeoutError | NewConnectionError)
    if isinstance(error, SSLError):
        return any(isinstance(part, ssl.SSLCertVerificationError) for part in (*error.args, error.__cause__))
    return isinstance(error, ConnectTimeoutError | NewConnectionError)
