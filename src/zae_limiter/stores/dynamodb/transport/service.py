"""One service of DynamoDB, as this process reaches it: its endpoint, its credentials, its requests and replies.

A request is one POST of JSON. A reply is believed only if it is whole: its length, its checksum where there is one,
and its JSON have to agree. One that is not may hide a yes.

Of every failure the question is the same: may DynamoDB have done it? A reply of DynamoDB's own with a 4xx status says
no, and becomes ``Refused``. So does a connection that was never established. Everything else (silence, a reset, a 5xx,
a reply that cannot be read) may mean yes: ``NoAnswer``.

After two kinds of refusal the same call is signed and sent once more, because nothing was done: a signature of a clock
that is off is corrected by the date of the reply, and credentials that have expired are looked up anew.
"""

from __future__ import annotations

import json
import re
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, NamedTuple
from zlib import crc32

from zae_limiter.stores.dynamodb.requests import THROTTLED, Item, NoAnswer, Reason, Refused, Reply, UnreadReply
from zae_limiter.stores.dynamodb.transport.credentials import CredentialCache, SingleFlight
from zae_limiter.stores.dynamodb.transport.http_replies import HttpReply, date_skew_s
from zae_limiter.stores.dynamodb.transport.protocol import Credentials, Target
from zae_limiter.stores.dynamodb.transport.settings import ServiceSettings, discovered_settings, tls_context
from zae_limiter.stores.dynamodb.transport.signing import CONTENT_TYPE, Signer
from zae_limiter.version import __version__

TARGET_PREFIXES: Final = {"dynamodb": "DynamoDB_20120810", "dynamodbstreams": "DynamoDBStreams_20120810"}

EXPIRED_CREDENTIALS: Final = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "UnrecognizedClientException"}
)
"""Refusals after which newer credentials may help."""

BAD_SIGNATURE: Final = frozenset(
    {
        "AuthFailure",
        "InvalidSignatureException",
        "RequestExpired",
        "RequestInTheFuture",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
    }
)
"""Refusals that a clock may be the reason for."""

REQUEST_TIMEOUT: Final = 408
SERVER_ERROR: Final = 500
CLIENT_ERROR: Final = 400

FAILED_INSIDE: Final = frozenset(
    {
        "InternalFailure",
        "InternalServerError",
        "ServiceUnavailable",
        "ServiceUnavailableException",
    }
)
"""DynamoDB failed while it worked on the call: it may have done it or not."""

CLOCK_TOLERANCE_S: Final = 2.0
SETTINGS_TOO_LATE: Final = "the credentials and the endpoint were not found in time"
QUOTED_CHARS: Final = 200
"""How much is quoted of a reply that is not DynamoDB's."""

SHORTEST_SECRET: Final = 8
"""Shorter ones are used with engines on this machine only, and may be any word."""

USER_AGENT: Final = f"zae-limiter/{__version__} python/{sys.version_info[0]}.{sys.version_info[1]}"

_REPLY_WITH_ITEM: Final = '{"Attributes":{'
"""How the reply to a write begins that asked for the item."""

_HEX_SIGNATURE: Final = re.compile(r"\b[0-9a-f]{64}\b")


OUTAGES: Final = ("ConnectTimeoutError", "MetadataRetrievalError")
"""botocore's errors that say that a service it asks first does not answer."""


class SignedRequest(NamedTuple):
    """A request as it is sent, and what it was signed with."""

    data: bytes
    credentials: Credentials
    clock_offset_s: float
    sent_at: float
    """By the machine's clock."""

    def __repr__(self) -> str:
        return f"SignedRequest({len(self.data)} bytes, …)"


class Service:
    """Writes the requests to one service at one endpoint, and reads its replies. Safe to share between threads."""

    def __init__(self, settings: ServiceSettings, name: str) -> None:
        endpoint = settings.endpoint
        self.endpoint = endpoint
        self.credentials = CredentialCache(settings.source)
        self.proxy = settings.proxy
        self.ca_bundle = settings.ca_bundle
        self.tls = tls_context(settings.ca_bundle) if endpoint.is_secure else None
        self.date_skew_s: float | None = None
        """By how much the machine's clock is behind DynamoDB's, to a second; unknown before the first reply."""
        self.clock_offset_s = 0.0
        """What is added to the machine's clock to sign."""
        self._last_date = b""
        self._signer = Signer(endpoint.host_header, endpoint.path, endpoint.region)
        self._target_prefix = f"{TARGET_PREFIXES[name]}."
        self._head = (
            f"POST {endpoint.path} HTTP/1.1\r\nHost: {endpoint.host_header}\r\nUser-Agent: {USER_AGENT}\r\n"
            f"Content-Type: {CONTENT_TYPE}\r\nX-Amz-Target: "
        )

    def __repr__(self) -> str:
        return f"Service({self.endpoint.url!r})"

    def sign(self, operation: str, params: Mapping[str, Any], credentials: Credentials) -> SignedRequest:
        """The request for a call. Raises ``NoAnswer`` if the credentials cannot be written into a header.

        Some parameters know themselves how they are sent (see ``expressions``).
        """
        written: Callable[[], bytes] | None = getattr(params, "written", None)
        body = _encode(params).encode() if written is None else written()
        target = self._target_prefix + operation
        offset_s, now = self.clock_offset_s, time.time()
        try:
            date, authorization = self._signer.sign(target, body, credentials, int(now + offset_s))
        except ValueError as error:
            raise NoAnswer(str(error), sent=False, misconfigured=True) from None
        token = credentials.session_token
        security = f"X-Amz-Security-Token: {token}\r\n" if token else ""
        head = (
            f"{self._head}{target}\r\nX-Amz-Date: {date}\r\n{security}Authorization: {authorization}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return SignedRequest(head.encode("latin-1") + body, credentials, offset_s, now)

    def decode(self, reply: HttpReply, request: SignedRequest) -> Reply:
        """DynamoDB's reply to a request, in its own JSON. Raises ``Refused`` or ``NoAnswer``."""
        status, headers, body, _ = reply
        date = headers.get(b"date")
        if date is not None and date != self._last_date:
            self._note_date(date, request.sent_at)
        checksum = headers.get(b"x-amz-crc32")
        if checksum is not None and str(crc32(body)).encode() != checksum:
            raise NoAnswer("the reply does not have the checksum it was sent with")
        if not 200 <= status < 300:
            raise _failure_in(status, body, request.credentials)
        try:
            text = body.decode()
            if checksum is not None and text.startswith(_REPLY_WITH_ITEM) and text.endswith("}}"):
                return UnreadReply(text)
            content = json.loads(text)
        except (ValueError, RecursionError):
            content = None
        if type(content) is not dict:
            raise NoAnswer("the reply is not JSON; does something else answer at this endpoint?")
        return content

    def has_other_signature(self, refusal: Refused, request: SignedRequest) -> bool:
        """Whether the refused call would be signed otherwise now: by a corrected clock, or with other credentials."""
        if refusal.code in EXPIRED_CREDENTIALS:
            return self.credentials.differs_from(request.credentials)
        skew = self.date_skew_s
        if refusal.code not in BAD_SIGNATURE or skew is None:
            return False
        if abs(skew - request.clock_offset_s) <= CLOCK_TOLERANCE_S:
            return False
        self.clock_offset_s = skew
        return True

    def refreshing(self, refusal: Refused) -> Future[Credentials] | None:
        """The newer credentials to wait for before the refused call is sent again, if they may help."""
        return self.credentials.refreshing() if refusal.code in EXPIRED_CREDENTIALS else None

    def _note_date(self, date: bytes, sent_at: float) -> None:
        skew = date_skew_s(date, sent_at, time.time())
        if skew is not None:
            self._last_date, self.date_skew_s = date, skew


class Services:
    """The services of one target, for one process: each is prepared when it is first needed."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.known: dict[str, Service] = {}
        """Those that are prepared, by name."""
        self._preparing = {
            name: SingleFlight(partial(self._prepare, name), "zae-limiter-settings") for name in TARGET_PREFIXES
        }

    def ready(self, name: str, *, quick: bool = False) -> Service | None:
        """A service, if it is prepared or can be at once; ``quick``: without reading certificates."""
        service = self.known.get(name)
        if service is None:
            try:
                settings = discovered_settings(self._target, name)
                if settings is None or (quick and settings.endpoint.is_secure):
                    return None
                service = self.known.setdefault(name, Service(settings, name))
            except Exception as error:
                raise error_before_sending(error) from error
        return service

    def preparing(self, name: str) -> Future[Service]:
        """A service to come: that of another caller, if one was faster. That may fail."""
        return self._preparing[name].run(unless_done=name in self.known)

    def _prepare(self, name: str) -> Service:
        settings = discovered_settings(self._target, name)
        if settings is None:
            from zae_limiter.stores.dynamodb.transport.botocore_fallback import settings_by_botocore

            settings = settings_by_botocore(self._target, name)
        service = Service(settings, name)
        if service.credentials.current() is None:
            service.credentials.fetching().result()
        return self.known.setdefault(name, service)


def without_secrets(text: str, credentials: Credentials) -> str:
    """A text of the server's, which may quote what it was sent, without credentials and signatures."""
    for secret in credentials:
        if secret and len(secret) >= SHORTEST_SECRET:
            text = text.replace(secret, "…")
    return _HEX_SIGNATURE.sub("…", text)


def refresh_failed(refusal: Refused, failure: NoAnswer) -> Refused:
    """What to raise for a call whose credentials were refused, if no others could be fetched."""
    return Refused(refusal.code, f"{refusal.message} (new credentials could not be fetched: {failure})")


def error_before_sending(error: Exception) -> Exception:
    """What to raise to a caller for an error that came before anything was sent."""
    if isinstance(error, ImportError):
        return error
    if isinstance(error, NoAnswer):
        # One for each caller that waited for the same outcome.
        return NoAnswer(str(error), sent=error.sent, misconfigured=error.misconfigured)
    return failure_before_sending(error) or error


def failure_before_sending(error: Exception) -> NoAnswer | None:
    """What an error that came before anything was sent means to a plan: wrong settings, no credentials, no region."""
    if isinstance(error, NoAnswer):
        return error
    botocore = sys.modules.get("botocore.exceptions")  # if it was never loaded, it raised nothing
    known = (OSError, ValueError) if botocore is None else (OSError, ValueError, botocore.BotoCoreError)
    if not isinstance(error, known):
        return None
    return NoAnswer(
        str(error) or type(error).__name__,
        sent=False,
        misconfigured=is_permanent(error) if isinstance(error, OSError) else type(error).__name__ not in OUTAGES,
    )


def never_connected(host: str, error: OSError) -> NoAnswer:
    """No connection could be made."""
    return NoAnswer(f"no connection to {host}: {described(error)}", sent=False, misconfigured=is_permanent(error))


def is_permanent(error: object) -> bool:
    """Whether an error of the operating system's will not go by itself: no such host, another host's certificate,
    a file of certificates that is not there."""
    import socket
    import ssl

    if isinstance(error, socket.gaierror):
        return error.errno in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))
    return isinstance(error, (ssl.SSLCertVerificationError, FileNotFoundError, PermissionError))


def described(error: Exception) -> str:
    """An error's type and message, for a message of ours; some errors have none."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def failure_of_status(
    status: int, code: str, message: str, item: Item | None, reasons: Sequence[Mapping[str, Any]]
) -> Refused | NoAnswer:
    """What a reply that is no success means: DynamoDB refused, or the outcome is unknown."""
    answered = CLIENT_ERROR <= status < SERVER_ERROR and status != REQUEST_TIMEOUT and code not in FAILED_INSIDE
    if not answered and code not in THROTTLED:
        return NoAnswer(f"{code}: {message} (HTTP status {status})")
    return Refused(code, message, item=item, reasons=_reasons(reasons))


def _reasons(reasons: Sequence[Mapping[str, Any]]) -> list[Reason]:
    return [
        Reason(None if reason.get("Code") in (None, "None") else reason["Code"], reason.get("Item"))
        for reason in reasons
    ]


def _failure_in(status: int, body: bytes, credentials: Credentials) -> Refused | NoAnswer:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        content = None
    if type(content) is not dict:
        text = without_secrets(body[: QUOTED_CHARS * 4].decode("utf-8", "replace"), credentials)[:QUOTED_CHARS]
        return failure_of_status(status, str(status), text, None, ())
    kind = content.get("__type")
    code = kind.partition(":")[0].rpartition("#")[2] if isinstance(kind, str) else str(status)
    message = content.get("message", content.get("Message"))
    text = without_secrets(message, credentials) if isinstance(message, str) else ""
    item, reasons = content.get("Item"), content.get("CancellationReasons") or ()
    if not (isinstance(reasons, Sequence) and all(isinstance(reason, dict) for reason in reasons)):
        return NoAnswer(f"{code}: the reasons cannot be read")
    return failure_of_status(status, code, text, item if isinstance(item, dict) else None, reasons)


def _json_value(value: object) -> object:
    """What JSON's encoder does not know by itself."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (bytes, bytearray)):
        return b64encode(value).decode()
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(f"{type(value).__name__} is not a value of DynamoDB's")


_encode: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False, default=_json_value).encode
