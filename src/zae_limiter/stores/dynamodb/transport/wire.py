"""What is said to DynamoDB, and what its answers mean: one POST of JSON, one reply of JSON, nothing else.

An answer is believed only if it is whole: its length, its checksum where there is one, and its JSON have to agree.
One that is not may hide a yes. Two kinds of refusal can be mended by whoever called, because nothing was done: a
signature of a clock that is off is corrected by the time the reply was sent, and credentials that have expired are
looked up anew.
"""

from __future__ import annotations

import json
import re
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from zlib import crc32

from zae_limiter.stores.dynamodb.requests import NoAnswer, Refused, Reply, UnreadReply
from zae_limiter.stores.dynamodb.transport.failures import judged
from zae_limiter.stores.dynamodb.transport.http_replies import Answer
from zae_limiter.stores.dynamodb.transport.places import Place
from zae_limiter.stores.dynamodb.transport.protocol import Credentials
from zae_limiter.stores.dynamodb.transport.signing import CONTENT_TYPE, Signer
from zae_limiter.version import __version__

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

_MONTHS: Final = {
    name: number for number, name in enumerate(b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)
}
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
        skew = date_skew_s(date, sent_at)
        if skew is not None:
            self._date, self.date_skew_s = date, skew


def encoded(params: Mapping[str, Any]) -> bytes:
    """A call's parameters as they are sent. Some know that themselves (see ``expressions``)."""
    written: Callable[[], bytes] | None = getattr(params, "written", None)
    return _encode(params).encode() if written is None else written()


def date_skew_s(date: bytes, sent_at: float | None) -> float | None:
    """How far the date of a reply is ahead of the machine's clock; nothing, if it is none.

    The reply was dated at some moment since the call was sent, perhaps long before now.
    """
    dated = seconds_of(date)
    if dated is None:
        return None
    now = time.time()
    skew = dated + 0.5 - now
    if skew < 0 and sent_at is not None:
        skew = min(skew + max(now - sent_at, 0.0), 0.0)
    return skew


def seconds_of(date: bytes) -> float | None:
    """Seconds since the epoch, of a header like ``Sun, 06 Nov 1994 08:49:37 GMT``."""
    try:
        _, day, month, year, clock, _ = date.split()
        hour, minute, second = map(int, clock.split(b":"))
        return datetime(int(year), _MONTHS[month], int(day), hour, minute, min(second, 59), tzinfo=UTC).timestamp()
    except (KeyError, ValueError, OverflowError):
        return None


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
