"""A refusal in the words of a provider: its own client understands it, raises its own error and retries by itself."""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple, TypeAlias

from zae_limiter.exceptions import RateLimiterUnavailable, RateLimitExceeded, RequestExceedsBurst, ValidationError
from zae_limiter.llm.calls import Dialect

LONGEST_RETRY_S = 60.0
"""No client is told to come again later than this: Anthropic's sleeps for as long as it is told."""

REFUSED_HEADER = "x-zael-refused"
"""Tells an answer of this library from one of the provider."""

Refusal: TypeAlias = RateLimitExceeded | RateLimiterUnavailable | ValidationError
"""Why a request is not sent."""

_GEMINI_STATUS = {400: "INVALID_ARGUMENT", 413: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}
_ANTHROPIC_TYPE = {400: "invalid_request_error", 413: "request_too_large", 429: "rate_limit_error", 503: "api_error"}
_OPENAI_CODE = {
    400: "invalid_limits",
    413: "request_too_large",
    429: "rate_limit_exceeded",
    503: "rate_limiter_unavailable",
}


class Answer(NamedTuple):
    """An HTTP answer that no provider gave."""

    status: int
    headers: dict[str, str]
    body: bytes


def refusal(dialect: Dialect, error: Refusal) -> Answer:
    """429 with the wait, 413 for what never fits, 503 while the store is unavailable, 400 for limits that are none."""
    headers = {"content-type": "application/json", REFUSED_HEADER: "1"}
    if isinstance(error, RateLimiterUnavailable):
        return Answer(503, headers, _body(dialect, 503, "the rate limiter is unavailable", None))
    if isinstance(error, ValidationError):
        return Answer(400, {**headers, "x-should-retry": "false"}, _body(dialect, 400, str(error), None))
    wait = error.retry_after_seconds
    status = 413 if isinstance(error, RequestExceedsBurst) or wait is None else 429
    if wait is None or wait > LONGEST_RETRY_S:
        headers["x-should-retry"] = "false"
    if wait is not None:
        headers["retry-after-ms"] = str(math.ceil(wait * 1000))
        headers["retry-after"] = error.retry_after_header
    told = error.as_dict()
    return Answer(status, headers, _body(dialect, status, str(told["message"]), told))


def _body(dialect: Dialect, status: int, message: str, told: dict[str, Any] | None) -> bytes:
    body: dict[str, Any]
    if dialect == "gemini":
        body = {"error": {"code": status, "message": message, "status": _GEMINI_STATUS[status]}}
    elif dialect == "anthropic":
        body = {"type": "error", "error": {"type": _ANTHROPIC_TYPE[status], "message": message}}
    else:
        code = _OPENAI_CODE[status]
        body = {"error": {"message": message, "type": "zae_limiter", "code": code, "param": None}}
    if told is not None:
        body["zae_limiter"] = told
    return json.dumps(body).encode()
