"""The fields of HTTP answers, read by a parser of structured fields that is not ours."""

from __future__ import annotations

import json
from typing import Any

import http_sf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zae_limiter import Limit, LimitStatus, RateLimitExceeded, SyncRateLimiter
from zae_limiter.http_fields import QUOTA_EXCEEDED, not_a_caller, rate_limit_fields, refused, unavailable
from zae_limiter.testing import FakeClock, sync_memory_limiter

LIMITS = [Limit.per_hour("requests", 5), Limit.per_hour("tokens", 1_000, burst=2_000)]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(auto_advance=False)


@pytest.fixture
def limiter(clock: FakeClock) -> SyncRateLimiter:
    limiter = sync_memory_limiter(LIMITS, clock=clock)
    limiter.create_entity("acme")
    limiter.set_limits("acme", [Limit.per_hour("requests", 7)])
    limiter.create_entity("key", parent_id="acme", cascade=True)
    return limiter


def parsed(fields: list[tuple[str, str]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Each field as a list of strings with parameters."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name, value in fields:
        if name.startswith("RateLimit"):
            items = http_sf.parse(value.encode(), tltype="list")
            found[name] = {str(item): dict(parameters) for item, parameters in items}
    return found


def refusal(limiter: SyncRateLimiter, **consume: int) -> RateLimitExceeded:
    with pytest.raises(RateLimitExceeded) as caught, limiter.acquire("key", "web", consume):
        pass
    return caught.value


def test_a_grant_shows_the_callers_own_limits(limiter: SyncRateLimiter) -> None:
    with limiter.acquire("key", "web", {"requests": 1, "tokens": 500}) as lease:
        fields = parsed(rate_limit_fields(lease.statuses, "key"))
    assert fields["RateLimit-Policy"] == {
        "requests": {"q": 5, "w": 3600},
        "tokens": {"q": 1000, "qu": "tokens", "w": 3600, "zael-burst": 2000},
    }
    assert fields["RateLimit"] == {"requests": {"r": 4, "t": 720}, "tokens": {"r": 1500, "t": 1800}}


def test_taking_what_is_left_within_its_time_always_fits(limiter: SyncRateLimiter, clock: FakeClock) -> None:
    for _ in range(4):
        with limiter.acquire("key", "web", {"requests": 1}) as lease:
            told = parsed(rate_limit_fields(lease.statuses, "key"))["RateLimit"]["requests"]
        clock.advance(60)
    clock.advance(told["t"] - 60)
    for _ in range(told["r"]):
        with limiter.acquire("key", "web", {"requests": 1}):
            pass


def test_a_refusal_shows_what_lacks_and_when_to_come_again(limiter: SyncRateLimiter, clock: FakeClock) -> None:
    with limiter.acquire("key", "web", {"requests": 5, "tokens": 1}):
        pass
    answer = refused(refusal(limiter, requests=1), "key")
    headers = dict(answer.headers)
    assert answer.status == 429
    assert headers["Content-Type"] == "application/problem+json"
    assert headers["Retry-After"] == "720"
    assert headers["retry-after-ms"] == "720000"
    fields = parsed(answer.headers)
    assert fields["RateLimit"] == {"requests": {"r": 0, "t": 720}}
    assert set(fields["RateLimit-Policy"]) == {"requests", "tokens"}
    problem = json.loads(answer.body)
    assert problem["type"] == QUOTA_EXCEEDED
    assert problem["violated-policies"] == ["requests"]
    assert problem["status"] == 429
    clock.advance(int(headers["Retry-After"]))
    with limiter.acquire("key", "web", {"requests": 1}):
        pass


def test_an_ancestor_is_shown_only_when_it_refuses(limiter: SyncRateLimiter) -> None:
    with limiter.acquire("acme", "web", {"requests": 7}):
        pass
    answer = refused(refusal(limiter, requests=1), "key")
    assert parsed(answer.headers)["RateLimit"] == {"requests": {"r": 0, "t": 515}}
    assert "acme" not in answer.body.decode()


def test_what_never_fits_is_too_large(limiter: SyncRateLimiter) -> None:
    answer = refused(refusal(limiter, tokens=2_001), "key")
    assert answer.status == 413
    assert "Retry-After" not in dict(answer.headers)
    assert parsed(answer.headers)["RateLimit"]["tokens"] == {"r": 2000, "t": 1}


def test_a_debt_is_nothing_left(limiter: SyncRateLimiter) -> None:
    with limiter.acquire("key", "web", {"requests": 1}) as lease:
        lease.adjust(tokens=2_500)
    answer = refused(refusal(limiter, requests=1), "key", compatible=True)
    assert parsed(answer.headers)["RateLimit"] == {"tokens": {"r": 0, "t": 1800}}
    assert dict(answer.headers)["x-ratelimit-remaining-tokens"] == "0"


def test_the_names_that_other_clients_know_are_there_on_request(limiter: SyncRateLimiter) -> None:
    with limiter.acquire("key", "web", {"requests": 1}) as lease:
        fields = dict(rate_limit_fields(lease.statuses, "key", compatible=True))
    assert fields["x-ratelimit-limit-requests"] == "5"
    assert fields["x-ratelimit-remaining-requests"] == "4"
    assert fields["x-ratelimit-reset-requests"] == "720s"
    assert fields["x-ratelimit-limit-tokens"] == "2000"


def test_answers_without_statuses() -> None:
    assert rate_limit_fields([], "key") == []
    assert unavailable().status == 503
    assert json.loads(not_a_caller("must not be empty").body)["detail"] == "must not be empty"
    assert refused(RateLimitExceeded([], unread_wait_seconds=0.1), "key").status == 429


def test_limits_of_other_kinds() -> None:
    limits = [
        Limit.calendar("rpd", 5, "day"),
        Limit.concurrent("flights", 2),
        Limit.per_hour("watched", 7, enforce=False),
    ]
    limiter = sync_memory_limiter(limits, clock=FakeClock(auto_advance=False))
    with limiter.acquire("key", "web", {"rpd": 1, "flights": 1, "watched": 1}) as lease:
        fields = parsed(rate_limit_fields(lease.statuses, "key", compatible=True))
    assert fields["RateLimit-Policy"] == {"rpd": {"q": 5}, "flights": {"q": 2, "qu": "concurrent-requests"}}
    assert fields["RateLimit"]["rpd"]["r"] == 4
    assert 1 <= fields["RateLimit"]["rpd"]["t"] <= 86_400
    assert fields["RateLimit"]["flights"]["r"] == 1


@given(
    st.integers(1, 10**15),
    st.integers(1, 10**15),
    st.integers(1, 10**7),
    st.integers(-(10**18), 10**18),
    st.booleans(),
    st.one_of(st.none(), st.floats(0, 10**12)),
)
def test_whatever_the_numbers_the_fields_can_be_parsed(
    burst: int, amount: int, period: int, available: int, exceeded: bool, wait: float | None
) -> None:
    limit = Limit.custom("rpm", burst, amount, period)
    status = LimitStatus("key", "web", "rpm", limit, available, 1, exceeded, wait, "system", 10.5)
    fields = parsed(rate_limit_fields([status], "key", compatible=True))
    assert fields["RateLimit"]["rpm"]["r"] >= 0
    assert fields["RateLimit"]["rpm"]["t"] >= 1
