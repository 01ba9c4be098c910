"""What Envoy is answered, from statuses."""

from __future__ import annotations

import json

import pytest

from zae_limiter import Limit, LimitStatus, RateLimitExceeded, RequestExceedsBurst
from zae_limiter.service.envoy.descriptors import Demand
from zae_limiter.service.envoy.responses import (
    NO_LIMIT,
    OK,
    OVER_LIMIT,
    DescriptorStatus,
    granted,
    not_limitable,
    nothing_to_limit,
    over_limit,
    unavailable,
)


def status(
    limit: Limit, available: int, wait: float | None = 0.0, *, entity_id: str = "key", full: float = 90.2
) -> LimitStatus:
    """``wait``: 0 if it has enough."""
    about = (entity_id, "chat", limit.name, limit, available, 1, wait != 0.0, wait, "system")
    return LimitStatus(*about, seconds_to_full=full, enforced=limit.enforce)  # type: ignore[arg-type]


def demand(**places: int) -> Demand:
    found = Demand("key", "chat")
    for limit, place in places.items():
        found.add(limit, 1, place)
    return found


RPM = Limit.per_minute("rpm", 10)
TPM = Limit.per_hour("tpm", 1_000)


def test_every_descriptor_of_a_grant_gets_the_status_of_its_limit() -> None:
    response = granted(4, [(demand(tpm=2, rpm=0), [status(RPM, 9), status(TPM, 600)])], ["t1", "t2"])
    assert response.code == OK
    assert response.statuses == [
        DescriptorStatus(OK, "rpm", 10, 2, 9, 91),
        NO_LIMIT,
        DescriptorStatus(OK, "tpm", 1_000, 3, 600, 91),
        NO_LIMIT,
    ]
    assert response.request_headers == [("x-zael-lease", "t1,t2")]
    assert [name for name, _ in response.response_headers] == ["ratelimit-policy", "ratelimit"]
    assert response.body == b""


def test_a_refusal_shows_what_is_left_and_when_it_fits() -> None:
    error = RateLimitExceeded([status(RPM, 9), status(TPM, -30, 12.1)])
    response = over_limit(2, demand(rpm=0, tpm=1), error)
    assert response.code == OVER_LIMIT
    assert response.statuses == [
        DescriptorStatus(OK, "rpm", 10, 2, 9, 91),
        DescriptorStatus(OVER_LIMIT, "tpm", 1_000, 3, 0, 13),
    ]
    headers = dict(response.response_headers)
    assert headers["content-type"] == "application/problem+json"
    assert headers["retry-after"] == "13"
    assert headers["ratelimit"] == '"tpm";r=0;t=13'
    assert json.loads(response.body)["status"] == 429


def test_an_ancestor_that_refuses_stands_in_for_the_own_limit() -> None:
    own, organisation = status(TPM, 600), status(Limit.per_day("tpm", 5_000), 0, 99.0, entity_id="acme")
    refused = over_limit(1, demand(tpm=0), RateLimitExceeded([own, organisation]))
    assert refused.statuses == [DescriptorStatus(OVER_LIMIT, "tpm", 5_000, 4, 0, 99)]
    assert b"acme" not in refused.body
    shown = granted(1, [(demand(tpm=0), [own, organisation])], [])
    assert shown.statuses == [DescriptorStatus(OK, "tpm", 1_000, 3, 600, 91)]


def test_of_two_that_refuse_the_longer_wait_is_told() -> None:
    own, organisation = status(TPM, 0, 50.0), status(TPM, 0, 40.0, entity_id="acme")
    assert over_limit(1, demand(tpm=0), RateLimitExceeded([own, organisation])).statuses[0].reset_seconds == 50


def test_what_can_never_fit_is_429_as_envoy_sends_it_and_no_time_is_told() -> None:
    response = over_limit(1, demand(tpm=0), RequestExceedsBurst([status(TPM, 600, None)]))
    assert response.statuses == [DescriptorStatus(OVER_LIMIT, "tpm", 1_000, 3, 600, 0)]
    assert "retry-after" not in dict(response.response_headers)
    assert json.loads(response.body)["status"] == 429


def test_a_refusal_without_statuses_is_a_refusal() -> None:
    response = over_limit(2, demand(tpm=0), RateLimitExceeded((), unread_wait_seconds=0.1))
    assert (response.code, response.statuses) == (OVER_LIMIT, [DescriptorStatus(OVER_LIMIT), NO_LIMIT])
    assert dict(response.response_headers)["retry-after"] == "1"


def test_a_debt_of_a_limit_that_no_descriptor_names_is_told() -> None:
    response = over_limit(2, demand(rpm=1), RateLimitExceeded([status(RPM, 9), status(TPM, -5, 18.0)]))
    assert response.statuses == [NO_LIMIT, DescriptorStatus(OVER_LIMIT, "tpm", 1_000, 3, 0, 18)]


def test_a_limit_that_watches_is_over_for_no_descriptor() -> None:
    watching = status(Limit.per_hour("tpm", 1_000, enforce=False), 0, 12.0)
    assert granted(1, [(demand(tpm=0), [watching])], []).statuses[0].code == OK
    refused = over_limit(2, demand(tpm=0, rpm=1), RateLimitExceeded([watching, status(RPM, 0, 6.0)]))
    assert [found.code for found in refused.statuses] == [OK, OVER_LIMIT]


@pytest.mark.parametrize(
    ("limit", "amount", "unit"),
    [
        (Limit.per_second("n", 5), 5, 1),
        (Limit.per_day("n", 5), 5, 4),
        (Limit.custom("n", 5, 5, 300), 5, 0),
        (Limit.per_month("n", 5), 5, 5),
        (Limit.per_day("n", 5, tz="UTC"), 5, 4),
        (Limit.calendar("n", 5, "5hour"), 5, 0),
        (Limit.concurrent("n", 5), 5, 0),
        (Limit.per_second("n", 10**12), 2**32 - 1, 1),
    ],
)
def test_a_rate_is_told_in_envoys_units(limit: Limit, amount: int, unit: int) -> None:
    (shown,) = granted(1, [(demand(n=0), [status(limit, 10**13)])], []).statuses
    assert (shown.requests_per_unit, shown.unit, shown.remaining) == (amount, unit, 2**32 - 1)


def test_other_answers() -> None:
    assert nothing_to_limit(2).statuses == [NO_LIMIT, NO_LIMIT]
    for refusal in (unavailable(2), not_limitable(2)):
        assert [found.code for found in refusal.statuses] == [OVER_LIMIT, OVER_LIMIT]
        assert json.loads(refusal.body)["status"] == 429
    assert dict(unavailable(1).response_headers)["retry-after"] == "1"
