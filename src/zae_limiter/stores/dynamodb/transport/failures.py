"""Errors of a call, translated into the two that plans know: ``Refused`` and ``NoAnswer``.

The question is always the same: may DynamoDB have done it? A reply of DynamoDB's own with a 4xx status says no.
So does a connection that was never established. Everything else (silence, a reset, a 5xx, a reply that cannot be
read) may mean yes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final
from zlib import crc32

from zae_limiter.stores.dynamodb.requests import THROTTLED, Item, NoAnswer, Reason, Refused

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

NEVER_SENT: Final = (
    "ConnectTimeoutError",
    "CredentialRetrievalError",
    "MetadataRetrievalError",
    "NoAuthTokenError",
    "NoCredentialsError",
    "NoRegionError",
    "PartialCredentialsError",
    "ProfileNotFound",
    "SSOError",
    "TokenRetrievalError",
)
"""botocore's errors that come before anything was sent."""


def failure_from_botocore(error: Exception) -> Refused | NoAnswer | None:
    """What an error that botocore raised means to a plan; nothing, if it is no failure of the call but a bug."""
    from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError, ProxyConnectionError, SSLError
    from botocore.parsers import ResponseParserError

    if isinstance(error, NoAnswer):
        return error
    if isinstance(error, ClientError):
        return _failure_in(error.response)
    if isinstance(error, EndpointConnectionError | ProxyConnectionError | SSLError):
        return NoAnswer(str(error), sent=not _while_connecting(error.kwargs.get("error")))
    if isinstance(error, BotoCoreError):
        return NoAnswer(str(error), sent=not isinstance(error, _never_sent()))
    if isinstance(error, ResponseParserError | OSError):
        return NoAnswer(described(error))
    return None


def failure_before_sending(error: Exception) -> NoAnswer | None:
    """What an error that came before anything was sent means to a plan: wrong settings, no credentials, no region."""
    if isinstance(error, NoAnswer):
        return error
    botocore = sys.modules.get("botocore.exceptions")  # if it was never loaded, it raised nothing
    known = (OSError, ValueError) if botocore is None else (OSError, ValueError, botocore.BotoCoreError)
    return NoAnswer(str(error) or type(error).__name__, sent=False) if isinstance(error, known) else None


def described(error: Exception) -> str:
    """An error's type and message, for a message of ours; some errors have none."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def check_whole(response_dict: Mapping[str, Any] | None, parsed_response: Mapping[str, Any] | None, **_: Any) -> None:
    """Raise ``NoAnswer`` for a reply that arrived broken: botocore takes it for an empty one.

    botocore calls this for every reply (its event ``response-received``).
    """
    if response_dict is None or parsed_response is None or response_dict["status_code"] >= 300:
        return
    body, headers = response_dict["body"], response_dict["headers"]
    checksum, length = headers.get("x-amz-crc32"), headers.get("content-length")
    if length is not None and len(body) != int(length):
        raise NoAnswer(f"the reply was cut off after {len(body)} of {length} bytes")
    if checksum is not None and crc32(body) != int(checksum):
        raise NoAnswer("the reply does not have the checksum it was sent with")
    if parsed_response.keys() <= {"ResponseMetadata"}:
        try:
            understood = isinstance(json.loads(body), dict)
        except ValueError:
            understood = False
        if not understood:
            raise NoAnswer("the reply is not JSON; does something else answer at this endpoint?")


def failure_of_status(
    status: int, code: str, message: str, item: Item | None, reasons: Sequence[Mapping[str, Any]]
) -> Refused | NoAnswer:
    """What a reply that is no success means: DynamoDB refused, or the outcome is unknown."""
    answered = CLIENT_ERROR <= status < SERVER_ERROR and status != REQUEST_TIMEOUT and code not in FAILED_INSIDE
    if not answered and code not in THROTTLED:
        return NoAnswer(f"{code}: {message} (HTTP status {status})")
    return Refused(code, message, item=item, reasons=_reasons(reasons))


def _failure_in(response: Mapping[str, Any]) -> Refused | NoAnswer:
    error = response.get("Error", {})
    return failure_of_status(
        response.get("ResponseMetadata", {}).get("HTTPStatusCode", SERVER_ERROR),
        str(error.get("Code", "")),
        str(error.get("Message", "")),
        response.get("Item"),
        response.get("CancellationReasons") or (),
    )


def _reasons(reasons: Sequence[Mapping[str, Any]]) -> list[Reason]:
    return [
        Reason(None if reason.get("Code") in (None, "None") else reason["Code"], reason.get("Item"))
        for reason in reasons
    ]


def _while_connecting(native: object) -> bool:
    """Whether the error below botocore's came before there was a connection.

    urllib3 calls everything an error of the proxy that happens on a connection to one, unless there is a tunnel.
    """
    import ssl

    native = getattr(native, "original_error", native)
    if isinstance(native, ssl.SSLCertVerificationError):
        return True
    kinds = {kind.__name__ for kind in type(native).__mro__}
    if kinds & {
        "ConnectTimeoutError",
        "NewConnectionError",
        "gaierror",
        "ClientConnectorError",
        "ClientConnectorCertificateError",
    }:
        return True
    inner = getattr(native, "args", ())
    return str(native).startswith("Tunnel connection failed") or any(
        isinstance(part, ssl.SSLCertVerificationError) for part in inner
    )


@cache
def _never_sent() -> tuple[type[Exception], ...]:
    from botocore import exceptions

    return tuple(getattr(exceptions, name) for name in NEVER_SENT if hasattr(exceptions, name))
