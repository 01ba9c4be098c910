"""From grants and refusals to what Envoy is answered. Pure.

Every descriptor gets the status of its limit: what is left, and the seconds until it is full, or if it refuses until
the same request fits. An ancestor's limit stands in for the entity's own when it is the one that refuses, and a limit
that no descriptor names for all of its demand: a debt of one limit refuses what asks for another. The client
gets the fields of ``http_fields``, of the demand that refuses or else of the first, and with a refusal a problem
document. Its status is the one that Envoy sends, 429, whatever the reason: a service cannot choose another.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from zae_limiter import AccessBlocked, Limit, LimitStatus, RateLimitExceeded
from zae_limiter.http_fields import Fields, rate_limit_fields, refused
from zae_limiter.service.envoy.descriptors import UNITS, Demand

OK = 1
OVER_LIMIT = 2

STATUS = 429
LARGEST = 2**32 - 1
"""What fits the fields of a status."""

LEASE_HEADER = "x-zael-lease"
"""What tells Envoy which lease to settle when the stream is done."""

UNIT_NUMBERS = {name: number for number, name in UNITS.items()}
_UNIT_OF_SECONDS = {1: "second", 60: "minute", 3_600: "hour", 86_400: "day"}


class DescriptorStatus(NamedTuple):
    """What is said of one descriptor. Without a ``name`` only its code: there is no limit to show."""

    code: int
    name: str | None = None
    requests_per_unit: int = 0
    unit: int = 0
    remaining: int = 0
    reset_seconds: int = 0


class Response(NamedTuple):
    """What Envoy is answered."""

    code: int
    statuses: Sequence[DescriptorStatus]
    response_headers: Fields
    request_headers: Fields
    body: bytes = b""


NO_LIMIT = DescriptorStatus(OK)


def nothing_to_limit(descriptors: int) -> Response:
    """The answer to a request that takes nothing: one that settles."""
    return Response(OK, [NO_LIMIT] * descriptors, [], [])


def granted(
    descriptors: int, grants: Sequence[tuple[Demand, Sequence[LimitStatus]]], tokens: Sequence[str]
) -> Response:
    """The answer to a request that is let through, with the tokens of the leases to settle."""
    statuses = [NO_LIMIT] * descriptors
    for demand, found in grants:
        _place(statuses, demand, _shown(demand, found, is_refused=False), is_refused=False)
    fields = rate_limit_fields(grants[0][1], grants[0][0].entity_id) if grants else []
    request_headers = [(LEASE_HEADER, ",".join(tokens))] if tokens else []
    return Response(OK, statuses, lowered(fields), request_headers)


def over_limit(descriptors: int, demand: Demand, error: RateLimitExceeded) -> Response:
    """The answer to a request that lacks."""
    statuses = [NO_LIMIT] * descriptors
    _place(statuses, demand, _shown(demand, error.statuses, is_refused=True), is_refused=True)
    if all(status.code == OK for status in statuses):  # a limit refuses that no descriptor names: one in debt
        over = _described(error.primary_violation, OVER_LIMIT) if error.violations else DescriptorStatus(OVER_LIMIT)
        for place in _places(demand):
            statuses[place] = over
    answer = refused(error, demand.entity_id, status=STATUS)
    return Response(OVER_LIMIT, statuses, lowered(answer.headers), [], answer.body)


def blocked(descriptors: int, demand: Demand, error: AccessBlocked) -> Response:
    """The answer to a caller that an operator has shut out."""
    return _refusal(descriptors, "Access is blocked", str(error.as_dict()["message"]), demand)


def unavailable(descriptors: int) -> Response:
    """The answer while the store is away, and callers are to be refused then."""
    refusal = _refusal(descriptors, "The rate limiter is unavailable")
    return refusal._replace(response_headers=[*refusal.response_headers, ("retry-after", "1")])


def not_limitable(descriptors: int) -> Response:
    """The answer to a request whose entity, resource or limit is none.

    It is refused: an error would be let through by Envoy unless it is told otherwise, and any client could cause it.
    """
    return _refusal(descriptors, "The request names no caller, resource or limit that is known")


def lowered(fields: Iterable[tuple[str, str]]) -> Fields:
    """Fields with names as HTTP/2 has them."""
    return [(name.lower(), value) for name, value in fields]


def _refusal(descriptors: int, title: str, detail: str | None = None, demand: Demand | None = None) -> Response:
    statuses = [DescriptorStatus(OVER_LIMIT)] * descriptors
    if demand is not None:
        statuses = [NO_LIMIT] * descriptors
        for place in _places(demand):
            statuses[place] = DescriptorStatus(OVER_LIMIT)
    problem: dict[str, object] = {"type": "about:blank", "title": title, "status": STATUS}
    if detail is not None:
        problem["detail"] = detail
    headers = [("content-type", "application/problem+json"), ("cache-control", "no-store")]
    return Response(OVER_LIMIT, statuses, headers, [], json.dumps(problem).encode())


def _places(demand: Demand) -> list[int]:
    return [place for places in demand.places.values() for place in places]


def _shown(demand: Demand, statuses: Iterable[LimitStatus], *, is_refused: bool) -> Mapping[str, LimitStatus]:
    """By name, the entity's own limit, or one that refuses in its place: that with the longest wait."""
    shown: dict[str, LimitStatus] = {}
    for status in statuses:
        name = status.limit_name
        if name not in demand.places:
            continue
        known = shown.get(name)
        if known is None:
            if status.entity_id == demand.entity_id or (is_refused and status.refuses):
                shown[name] = status
        elif is_refused and status.refuses and _outlasts(status, known):
            shown[name] = status
    return shown


def _outlasts(status: LimitStatus, known: LimitStatus) -> bool:
    return not known.refuses or _wait(status) > _wait(known)


def _wait(status: LimitStatus) -> float:
    return math.inf if status.retry_after_seconds is None else status.retry_after_seconds


def _place(
    statuses: list[DescriptorStatus], demand: Demand, shown: Mapping[str, LimitStatus], *, is_refused: bool
) -> None:
    for name, status in shown.items():
        described = _described(status, OVER_LIMIT if is_refused and status.refuses else OK)
        for place in demand.places[name]:
            statuses[place] = described


def _described(status: LimitStatus, code: int) -> DescriptorStatus:
    amount, unit = _rate(status.limit)
    wait = status.retry_after_seconds if code == OVER_LIMIT else status.seconds_to_full
    return DescriptorStatus(
        code,
        status.limit_name,
        min(amount, LARGEST),
        unit,
        min(max(status.available, 0), LARGEST),
        0 if wait is None else math.ceil(wait),
    )


def _rate(limit: Limit) -> tuple[int, int]:
    """How much of a limit there is in which of Envoy's units; 0 if it is another."""
    if limit.is_held:
        return limit.capacity, 0
    if limit.periods is not None:
        return limit.refill_amount, UNIT_NUMBERS.get(limit.periods.length, 0)
    assert limit.refill_period_seconds is not None
    return limit.refill_amount, UNIT_NUMBERS.get(_UNIT_OF_SECONDS.get(limit.refill_period_seconds, ""), 0)
