"""AWS's Signature Version 4.

:class:`Signer` signs calls to DynamoDB: one method, one path and one set of headers. :func:`signed_headers` signs any
request to any service, and keeps nothing between two of them: archives are asked for objects rarely.

A signature is made in three steps. The request is written in a canonical form and hashed. A text of the date, the
*scope* (day, region, service) and that hash is what is signed. The key for it is derived from the secret key and
the scope, so it serves for a day. All but the hashes changes rarely, and is kept: for a day and its credentials the
key and the scope, for a second the date.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Mapping
from hashlib import sha256
from typing import Final, NamedTuple
from urllib.parse import quote

from zae_limiter.stores.dynamodb.transport.protocol import Credentials

ALGORITHM: Final = "AWS4-HMAC-SHA256"
CONTENT_TYPE: Final = "application/x-amz-json-1.0"
SERVICE: Final = "dynamodb"

_INNER_PAD: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER_PAD: Final = bytes(byte ^ 0x5C for byte in range(256))
"""What HMAC makes of a key's bytes, before the text and before the hash of that."""


class BadCredentials(ValueError):
    """Credentials that no header can carry. The message does not say what they are."""


class Signature(NamedTuple):
    """The two headers of a signed request: ``X-Amz-Date`` and ``Authorization``."""

    date: str
    authorization: str

    def __repr__(self) -> str:
        return f"Signature({self.date!r}, …)"


class Signer:
    """Signs requests to one host in one region. Safe to share between threads."""

    __slots__ = ("_before_date", "_key", "_region", "_second")

    def __init__(self, host: str, path: str, region: str) -> None:
        self._region = region
        self._before_date = f"POST\n{canonical_path(path)}\n\ncontent-type:{CONTENT_TYPE}\nhost:{host}\nx-amz-date:"
        self._key: _SigningKey | None = None
        self._second = (-1, "")

    def sign(self, target: str, body: bytes, credentials: Credentials, epoch_s: int) -> Signature:
        """The signature of a request: ``target`` names the operation, as the header ``X-Amz-Target`` does."""
        second, date = self._second
        if second != epoch_s:
            date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(epoch_s))
            self._second = (epoch_s, date)
        key = self._key
        if key is None or key.credentials is not credentials or key.date != date[:8]:
            key = self._key = _SigningKey(credentials, date[:8], self._region)
        canonical = f"{self._before_date}{date}{key.after_date}{target}{key.after_target}{sha256(body).hexdigest()}"
        text = f"{ALGORITHM}\n{date}\n{key.scope}\n{sha256(canonical.encode()).hexdigest()}"
        inner, outer = key.inner_hash.copy(), key.outer_hash.copy()  # HMAC, of which the key's half was hashed once
        inner.update(text.encode())
        outer.update(inner.digest())
        return Signature(date, key.authorization + outer.hexdigest())


class _SigningKey:
    """What stays the same for one day and one set of credentials."""

    __slots__ = (
        "after_date",
        "after_target",
        "authorization",
        "credentials",
        "date",
        "inner_hash",
        "outer_hash",
        "scope",
    )

    def __init__(self, credentials: Credentials, date: str, region: str) -> None:
        check_credentials(credentials)
        access_key, secret_key, token = credentials
        signed = f"content-type;host;x-amz-date;{'x-amz-security-token;' if token else ''}x-amz-target"
        self.credentials = credentials
        self.date = date
        self.scope = f"{date}/{region}/{SERVICE}/aws4_request"
        key = signing_key(secret_key, date, region, SERVICE).ljust(sha256().block_size, b"\0")
        self.inner_hash = sha256(key.translate(_INNER_PAD))
        self.outer_hash = sha256(key.translate(_OUTER_PAD))
        self.after_date = (f"\nx-amz-security-token:{token}" if token else "") + "\nx-amz-target:"
        self.after_target = f"\n\n{signed}\n"
        self.authorization = f"{ALGORITHM} Credential={access_key}/{self.scope}, SignedHeaders={signed}, Signature="


class SignableRequest(NamedTuple):
    """A request to any service. ``path`` and ``query`` are escaped as they are sent; the query's names are sorted."""

    method: str
    host: str
    path: str
    query: str
    body: bytes


def signed_headers(
    request: SignableRequest, service: str, region: str, credentials: Credentials, epoch_s: int
) -> Mapping[str, str]:
    """The headers to send with a request: its signature, its date, and the hash of its body."""
    check_credentials(credentials)
    access_key, secret_key, token = credentials
    date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(epoch_s))
    digest = sha256(request.body).hexdigest()
    headers = {"host": request.host, "x-amz-content-sha256": digest, "x-amz-date": date}
    if token:
        headers["x-amz-security-token"] = token
    signed = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    canonical = f"{request.method}\n{request.path}\n{request.query}\n{lines}\n{signed}\n{digest}"
    scope = f"{date[:8]}/{region}/{service}/aws4_request"
    text = f"{ALGORITHM}\n{date}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"
    key = signing_key(secret_key, date[:8], region, service)
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    authorization = f"{ALGORITHM} Credential={access_key}/{scope}, SignedHeaders={signed}, Signature={signature}"
    return {**headers, "Authorization": authorization}


def check_credentials(credentials: Credentials) -> None:
    """Refuse credentials that no header can carry. Raises :class:`BadCredentials`."""
    for part in (credentials.access_key, credentials.session_token or ""):
        if not (part.isascii() and part.isprintable()) or " " in part:
            raise BadCredentials("the credentials have a character that no header may have; a line break?")


def signing_key(secret_key: str, date: str, region: str, service: str) -> bytes:
    """The key that signs for one day, region and service."""
    key = f"AWS4{secret_key}".encode()
    for part in (date, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def canonical_path(path: str) -> str:
    """A path as it is signed: without empty and dotted segments, everything unusual escaped."""
    segments: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del segments[-1:]
        elif segment not in ("", "."):
            segments.append(segment)
    last = "/" if segments and path.endswith("/") else ""
    return quote(f"/{'/'.join(segments)}{last}", safe="/~")
