"""What an HTTP answer says about limits. Pure: from statuses to header fields and problem documents.

``RateLimit-Policy`` and ``RateLimit`` are those of draft-ietf-httpapi-ratelimit-headers-11, as structured fields (RFC
9651); refusals are problem documents (RFC 9457).

A policy has the refill of a limit (``q`` tokens each ``w`` seconds), and its burst if that is another number.
``RateLimit`` has what is left (``r``), and when: of a grant, the seconds until the limit is full, so that taking ``r``
within ``t`` always fits; of a refusal, the seconds until the same request fits. A refusal shows only the limits that
lack: a client must not be told a window that ends before ``Retry-After`` does. An ancestor's limit is shown only when
it lacks, one that only watches never.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from zae_limiter.exceptions import RateLimitExceeded, RequestExceedsBurst
from zae_limiter.models.limit import Limit
from zae_limiter.models.status import LimitStatus

Fields: TypeAlias = list[tuple[str, str]]

LARGEST_INTEGER = 999_999_999_999_999
"""A structured field has at most fifteen digits."""

QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"

MOST_POLICIES = 1_024
_POLICIES: dict[int, tuple[Limit, str]] = {}
"""What was written of limits, by their identity; each is kept, so that no other can have it."""

REQUEST_UNITS = frozenset({"requests", "request", "rps", "rpm", "rph", "rpd"})
"""Names of limits that count requests, the unit that is meant if none is said. Others count tokens."""


class Answer(NamedTuple):
    """An HTTP answer in place of the application's."""

    status: int
    headers: Fields
    body: bytes


def rate_limit_fields(statuses: Sequence[LimitStatus], entity_id: str, *, compatible: bool = False) -> Fields:
    """The fields for a caller. ``compatible``: also ``x-ratelimit-limit-requests`` and its kin."""
    shown = [status for status in statuses if status.enforced and (status.entity_id == entity_id or status.exceeded)]
    if not shown:
        return []
    told = [status for status in shown if status.exceeded] or shown
    fields = [
        ("RateLimit-Policy", ", ".join([_policy(status.limit) for status in shown])),
        ("RateLimit", ", ".join([_current(status) for status in told])),
    ]
    return [*fields, *_compatible_fields(told)] if compatible else fields


def refused(
    error: RateLimitExceeded, entity_id: str, *, compatible: bool = False, status: int | None = None
) -> Answer:
    """The answer to a request that lacks: 429, or 413 if it can never fit. ``status``: what a proxy sends instead."""
    wait = error.retry_after_seconds
    never = wait is None or isinstance(error, RequestExceedsBurst)
    status = status or (413 if never else 429)
    headers = [*_problem_headers(), *rate_limit_fields(error.statuses, entity_id, compatible=compatible)]
    if wait is not None:
        headers += [("Retry-After", error.retry_after_header), ("retry-after-ms", str(math.ceil(wait * 1000)))]
    problem = {
        "type": QUOTA_EXCEEDED,
        "title": "The request is larger than its limit" if never else "Quota exceeded",
        "status": status,
        "detail": error.as_dict()["message"],
        "violated-policies": sorted({found.limit_name for found in error.violations}),
        "retry_after_seconds": wait,
    }
    return Answer(status, headers, _document(problem))


def unavailable() -> Answer:
    """The answer while the store does not answer."""
    problem = {"type": "about:blank", "title": "The rate limiter is unavailable", "status": 503}
    return Answer(503, [*_problem_headers(), ("Retry-After", "1")], _document(problem))


def not_a_caller(reason: str) -> Answer:
    """The answer to a request whose caller has an id that is none."""
    problem = {"type": "about:blank", "title": "The id of the caller is not valid", "status": 400, "detail": reason}
    return Answer(400, _problem_headers(), _document(problem))


def _problem_headers() -> Fields:
    return [("Content-Type", "application/problem+json"), ("Cache-Control", "no-store")]


def _document(problem: dict[str, Any]) -> bytes:
    return json.dumps(problem).encode()


def _policy(limit: Limit) -> str:
    """By identity: the limits of a process stay the same objects, and to hash one takes longer than all the rest."""
    known = _POLICIES.get(id(limit))
    if known is None or known[0] is not limit:
        if len(_POLICIES) >= MOST_POLICIES:
            _POLICIES.clear()
        known = _POLICIES[id(limit)] = limit, _policy_text(limit)
    return known[1]


def _policy_text(limit: Limit) -> str:
    if limit.is_held:
        return f'"{limit.name}";q={_integer(limit.capacity)};qu="concurrent-requests"'
    unit = "" if limit.name in REQUEST_UNITS else ';qu="tokens"'
    # The periods of a calendar have no one length: ``t`` says when the next begins.
    window = f";w={limit.refill_period_seconds}" if limit.is_even else ""
    burst = "" if limit.burst == limit.refill_amount else f";zael-burst={_integer(limit.burst)}"
    return f'"{limit.name}";q={_integer(limit.refill_amount)}{unit}{window}{burst}'


def _current(status: LimitStatus) -> str:
    left = status.available
    if not 0 <= left <= LARGEST_INTEGER:
        left = _integer(left)
    seconds = _seconds(status) if status.exceeded else math.ceil(status.seconds_to_full) or 1
    return f'"{status.limit_name}";r={left};t={seconds}'


def _compatible_fields(told: Sequence[LimitStatus]) -> Fields:
    """By unit, the limit of which least is left."""
    fields: Fields = []
    for unit, counts_requests in (("requests", True), ("tokens", False)):
        of_unit = [
            status for status in told if _counts_requests(status) is counts_requests and not status.limit.is_held
        ]
        if of_unit:
            least = min(of_unit, key=lambda status: status.available / status.capacity)
            fields += [
                (f"x-ratelimit-limit-{unit}", str(least.capacity)),
                (f"x-ratelimit-remaining-{unit}", str(max(least.available, 0))),
                (f"x-ratelimit-reset-{unit}", f"{_seconds(least)}s"),
            ]
    return fields


def _counts_requests(status: LimitStatus) -> bool:
    return status.limit_name in REQUEST_UNITS


def _integer(number: int) -> int:
    return min(max(number, 0), LARGEST_INTEGER)


def _seconds(status: LimitStatus) -> int:
    if status.refuses and status.retry_after_seconds is not None:
        return max(math.ceil(status.retry_after_seconds), 1)
    return max(math.ceil(status.seconds_to_full), 1)
