"""What went wrong, as an answer: problem documents (RFC 9457), with the fields of refusals where limits refuse.

=====  ==============================================================================================
status  when
=====  ==============================================================================================
400    the body is no JSON, or not of the type it must be
401    no token, or an unknown one
403    the token has not the role, the namespace or the entity; or an access switch blocks
404    no such path, entity, namespace or lease: it ended, or it expired
405    the path is there, for another method
408    the body did not come in time
409    it exists already, or has changed since it was planned
412    ``If-Match`` names another version
413    the body is too large, or the request larger than a limit can ever hold
422    a value is not valid, or an ``Idempotency-Key`` was used for another request
429    a limit refuses
503    the store does not answer
=====  ==============================================================================================
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from http import HTTPStatus
from json import JSONEncoder
from typing import Any, NamedTuple

from zae_limiter import (
    AccessBlocked,
    ConfigurationError,
    EntityChangedError,
    EntityExistsError,
    EntityNotFoundError,
    LeaseExpiredError,
    LeaseNotFoundError,
    LimitsChangedError,
    NamespaceNotFoundError,
    RateLimiterUnavailable,
    RateLimitExceeded,
    ValidationError,
    VersionError,
)
from zae_limiter.http_fields import Answer, refused, unavailable

logger = logging.getLogger("zae_limiter.service")

encode_json: Callable[[Any], str] = JSONEncoder(separators=(",", ":")).encode

PROBLEM_TYPE = (b"content-type", b"application/problem+json")
NO_STORE = (b"cache-control", b"no-store")

Headers = list[tuple[bytes, bytes]]


class Reply(NamedTuple):
    """An answer, ready to be sent."""

    status: int
    body: bytes
    headers: Headers


class Problem(Exception):
    """Something that the service itself refuses."""

    def __init__(self, status: int, detail: str, *, headers: Headers | None = None, **members: Any) -> None:
        self.status = status
        self.detail = detail
        self.headers = headers or []
        self.members = members
        super().__init__(status, detail)


def problem(status: int, detail: str, headers: Headers | None = None, **members: Any) -> Reply:
    """A problem document."""
    title = HTTPStatus(status).phrase
    document = {"type": "about:blank", "title": title, "status": status, "detail": detail, **members}
    return Reply(status, encode_json(document).encode(), [PROBLEM_TYPE, NO_STORE, *(headers or [])])


def reply_to_error(error: Exception, entity_id: str) -> Reply:
    """The answer to a request that raised. ``entity_id``: whose limits a refusal may show."""
    if isinstance(error, Problem):
        return problem(error.status, error.detail, error.headers, **error.members)
    if isinstance(error, RateLimitExceeded):
        return from_answer(refused(error, entity_id))
    for kinds, status in STATUS_OF_ERROR:
        if isinstance(error, kinds):
            return problem(status, str(error))
    if isinstance(error, ValidationError):
        return problem(422, str(error), field=error.field)
    if isinstance(error, AccessBlocked):
        told = error.as_dict()
        return problem(403, told["message"], until=told["until"])
    if isinstance(error, RateLimiterUnavailable):
        return from_answer(unavailable())
    if isinstance(error, ConfigurationError | VersionError):
        logger.error("the store cannot be used as it is set up: %s", error)
        return from_answer(unavailable())
    logger.error("a request failed in a way that was not foreseen", exc_info=error)
    return problem(500, "the service failed; its log says why")


STATUS_OF_ERROR: tuple[tuple[tuple[type[Exception], ...], int], ...] = (
    ((EntityNotFoundError, NamespaceNotFoundError, LeaseNotFoundError, LeaseExpiredError), 404),
    ((EntityExistsError,), 409),
    ((EntityChangedError, LimitsChangedError), 412),
)


def from_answer(answer: Answer) -> Reply:
    """An answer of ``http_fields``, ready to be sent."""
    headers = [(name.lower().encode(), value.encode()) for name, value in answer.headers]
    return Reply(answer.status, answer.body, headers)
