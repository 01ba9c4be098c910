"""One service of DynamoDB, as this process reaches it: its endpoint, its credentials, its requests and replies.

A request is one POST of JSON. An answer is believed only if it is whole: its length, its checksum where there is one,
and its JSON have to agree. One that is not may hide a yes.

After two kinds of refusal the same call is signed and sent once more, because nothing was done: a signature of a clock
that is off is corrected by the date of the reply, and credentials that have expired are looked up anew.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

from zae_limiter.stores.dynamodb.checked_clock import date_skew_s
from zae_limiter.stores.dynamodb.requests import NoAnswer, Refused, Reply, UnreadReply
from zae_limiter.stores.dynamodb.transport.credentials import Errand, Keeper
from zae_limiter.stores.dynamodb.transport.failures import failure_to_begin, judged
from zae_limiter.stores.dynamodb.transport.http_replies import Answer
from zae_limiter.stores.dynamodb.transport.protocol import Credentials, Target
from zae_limiter.stores.dynamodb.transport.settings import Found, Place, found_at_once
from zae_limiter.stores.dynamodb.transport.signing import CONTENT_TYPE, Signer
from zae_limiter.version import __version__

if TYPE_CHECKING:
    from ssl import SSLContext

PREFIXES: Final = {"dynamodb": "DynamoDB_20120810", "dynamodbstreams": "DynamoDBStreams_20120810"}

EXPIRED: Final = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "UnrecognizedClientException"}
)
"""Refusals that newer credentials mend."""

BADLY_SIGNED: Final = frozenset(
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

CLOCK_TOLERANCE_S: Final = 2.0
QUOTED: Final = 200
"""How much is quoted of what is not DynamoDB's."""

SHORTEST_SECRET: Final = 8
"""Shorter ones are nobody's but an engine's on this machine, and may be any word."""

USER_AGENT: Final = f"zae-limiter/{__version__} python/{sys.version_info[0]}.{sys.version_info[1]}"

_WRITTEN: Final = '{"Attributes":{'
"""How the reply to a write begins that asked for the item."""

_SIGNATURE: Final = re.compile(r"\b[0-9a-f]{64}\b")


class Line:
    """Puts calls to one service at one place, and understands its answers. Safe to share between threads."""

    __slots__ = ("_date", "_head", "_signer", "_targets", "date_skew_s", "offset_s", "place")

    def __init__(self, place: Place, service: str) -> None:
        self.place = place
        self.date_skew_s: float | None = None
        """By how much the machine's clock was behind DynamoDB's, to a second, when last told."""
        self.offset_s = 0.0
        """What is added to the machine's clock to sign."""
        self._signer = Signer(place.host_header, place.path, place.region)
        self._targets = PREFIXES[service]
        self._head = (
            f"POST {place.path} HTTP/1.1\r\nHost: {place.host_header}\r\nUser-Agent: {USER_AGENT}\r\n"
            f"Content-Type: {CONTENT_TYPE}\r\nX-Amz-Target: {self._targets}."
        )
        self._date = b""

    def put(self, operation: str, body: bytes, credentials: Credentials) -> bytes:
        """A call, as it is sent."""
        date, authorization = self._signer.sign(
            f"{self._targets}.{operation}", body, credentials, int(time.time() + self.offset_s)
        )
        token = credentials.session_token
        security = f"X-Amz-Security-Token: {token}\r\n" if token else ""
        head = (
            f"{self._head}{operation}\r\nX-Amz-Date: {date}\r\n{security}Authorization: {authorization}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return head.encode("latin-1") + body

    def understood(self, answer: Answer, credentials: Credentials, sent_at: float | None = None) -> Reply:
        """The reply to a call that was sent then, by the machine's clock. Raises ``Refused`` or ``NoAnswer``."""
        status, headers, body, _ = answer
        date = headers.get(b"date")
        if date is not None and date != self._date:
            self._note(date, sent_at)
        checksum = headers.get(b"x-amz-crc32")
        if checksum is not None and str(crc32(body)).encode() != checksum:
            raise NoAnswer("the reply does not have the checksum it was sent with")
        if 200 <= status < 300:
            try:
                text = body.decode()
                if checksum is not None and text.startswith(_WRITTEN) and text.endswith("}}"):
                    return UnreadReply(text)
                reply = json.loads(text)
            except (ValueError, RecursionError):
                reply = None
            if type(reply) is not dict:
                raise NoAnswer("the reply is not JSON; does something else answer at this endpoint?")
            return reply
        raise _refusal(status, body, credentials)

    def corrected(self, refusal: Refused, offset_s: float) -> bool:
        """Whether a call that was signed with this offset is worth signing again: the clock was off."""
        skew = self.date_skew_s
        if refusal.code not in BADLY_SIGNED or skew is None or abs(skew - offset_s) <= CLOCK_TOLERANCE_S:
            return False
        self.offset_s = skew
        return True

    def _note(self, date: bytes, sent_at: float | None) -> None:
        skew = date_skew_s(date, sent_at, time.time())
        if skew is not None:
            self._date, self.date_skew_s = date, skew


def encoded(params: Mapping[str, Any]) -> bytes:
    """A call's parameters as they are sent. Some know that themselves (see ``expressions``)."""
    written: Callable[[], bytes] | None = getattr(params, "written", None)
    return _encode(params).encode() if written is None else written()


def hidden(text: str, credentials: Credentials) -> str:
    """A text of the server's, which may quote what it was sent, without credentials and signatures."""
    for secret in credentials:
        if secret and len(secret) >= SHORTEST_SECRET:
            text = text.replace(secret, "…")
    return _SIGNATURE.sub("…", text)


def _refusal(status: int, body: bytes, credentials: Credentials) -> Refused | NoAnswer:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        said = None
    if type(said) is not dict:
        text = hidden(body[: QUOTED * 4].decode("utf-8", "replace"), credentials)[:QUOTED]
        return judged(status, str(status), text, None, ())
    kind = said.get("__type")
    code = kind.partition(":")[0].rpartition("#")[2] if isinstance(kind, str) else str(status)
    message = said.get("message", said.get("Message"))
    text = hidden(message, credentials) if isinstance(message, str) else ""
    item, reasons = said.get("Item"), said.get("CancellationReasons") or ()
    if not (isinstance(reasons, Sequence) and all(isinstance(reason, dict) for reason in reasons)):
        return NoAnswer(f"{code}: the reasons cannot be understood")
    return judged(status, code, text, item if isinstance(item, dict) else None, reasons)


def _plain(value: object) -> object:
    """What JSON's encoder does not know by itself."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (bytes, bytearray)):
        return b64encode(value).decode()
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(f"{type(value).__name__} is not a value of DynamoDB's")


_encode: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False, default=_plain).encode


CONNECT_S: Final = 1.0
IDLE_S: Final = 20.0
"""How long a connection may rest. An older one may be dead without looking so, as in a frozen Lambda."""

NOT_IN_TIME: Final = "the credentials and the endpoint were not found in time"


class Signed(NamedTuple):
    """With what a call was signed."""

    credentials: Credentials
    offset_s: float


class Access(NamedTuple):
    """How to reach one service, and as whom."""

    line: Line
    keeper: Keeper
    trusted: SSLContext | None
    proxy: str | None
    ca_bundle: str | None

    def __repr__(self) -> str:
        return f"Access({self.line.place.url!r})"

    def mended_by_now(self, refusal: Refused, signed: Signed) -> bool:
        """Whether the same call is worth signing again: another clock, or other credentials that are there."""
        if refusal.code in EXPIRED:
            return self.keeper.has_others_than(signed.credentials)
        return self.line.corrected(refusal, signed.offset_s)

    def mending(self, refusal: Refused) -> Future[Credentials] | None:
        """What to wait for before asking again, if that may help."""
        return self.keeper.fetching_anew() if refusal.code in EXPIRED else None


class Entrance:
    """The accesses of one process to the services of one target, each made ready when first needed."""

    def __init__(self, target: Target) -> None:
        self.pid = os.getpid()
        self._target = target
        self._ready: dict[str, Access] = {}
        self._errands = {
            service: Errand(partial(self._make_ready, service), "zae-limiter-settings")
            for service in ("dynamodb", "dynamodbstreams")
        }

    def access(self, service: str, *, quick: bool = False) -> Access | None:
        """The access to ``service``, if it is ready or can be made so at once; ``quick``: without reading much."""
        ready = self._ready.get(service)
        if ready is None:
            try:
                found = found_at_once(self._target, service)
                if found is None or (quick and found.place.is_secure):
                    return None
                ready = self._ready.setdefault(service, _accessed(found, service))
            except Exception as error:
                raise not_begun(error) from error
        return ready

    def making_ready(self, service: str) -> Future[Access]:
        """The access to ``service``, when it is ready: that of another caller, if one was faster. That may fail."""
        return self._errands[service].run(unless_done=service in self._ready)

    @property
    def date_skew_s(self) -> float | None:
        ready = self._ready.get("dynamodb")
        return None if ready is None else ready.line.date_skew_s

    def _make_ready(self, service: str) -> Access:
        found = found_at_once(self._target, service)
        if found is None:
            from zae_limiter.stores.dynamodb.transport.botocore_fallback import found_by_botocore

            found = found_by_botocore(self._target, service)
        access = _accessed(found, service)
        if access.keeper.current() is None:
            access.keeper.fetching().result()
        return self._ready.setdefault(service, access)


def not_renewed(refusal: Refused, failure: NoAnswer) -> Refused:
    """What to raise for a call whose credentials were refused, if no others could be fetched."""
    return Refused(refusal.code, f"{refusal.message} (new credentials could not be fetched: {failure})")


def not_begun(error: Exception) -> Exception:
    """What to raise for an error that came before anything was sent, to whoever waited for the outcome."""
    if isinstance(error, ImportError):
        return error
    if isinstance(error, NoAnswer):
        return NoAnswer(str(error), sent=error.sent)
    return failure_to_begin(error) or error


def _accessed(found: Found, service: str) -> Access:
    from zae_limiter.stores.dynamodb.transport.settings import trusting

    trusted = trusting(found.ca_bundle) if found.place.is_secure else None
    return Access(Line(found.place, service), Keeper(found.source), trusted, found.proxy, found.ca_bundle)
