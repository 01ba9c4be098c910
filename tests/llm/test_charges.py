"""What a usage is to each limit, what providers say is left, and refusals in their words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from zae_limiter import Limit, LimitStatus, RateLimiterUnavailable, RateLimitExceeded, RequestExceedsBurst
from zae_limiter.llm import ANTHROPIC, GEMINI, OPENAI, Usage, input_tokens
from zae_limiter.llm.charges import amounts, levels_told, pause_told
from zae_limiter.llm.refusals import refusal

HELD = {"rpm": 10, "tpm": 1_000, "gate": 1}


def test_each_provider_limits_its_own() -> None:
    usage = Usage(input=100, cached=40, cache_writes=10, output=7, requests=2)
    assert amounts(OPENAI, usage) == amounts(GEMINI, usage) == {"rpm": 2, "tpm": 107}
    assert amounts(ANTHROPIC, usage) == {"rpm": 2, "itpm": 60, "otpm": 7}
    assert amounts({"all": input_tokens}, usage) == {"all": 100}


@pytest.mark.parametrize(
    ("status", "headers", "told"),
    [
        (200, {"x-ratelimit-remaining-requests": "3", "x-ratelimit-remaining-tokens": "999"}, {"rpm": 3, "tpm": 999}),
        (200, {"x-ratelimit-remaining-requests": "10", "x-ratelimit-remaining-tokens": "2000"}, {}),
        (200, {"x-ratelimit-remaining-requests": "-1", "x-ratelimit-remaining-tokens": "lots"}, {}),
        (200, {"x-ratelimit-remaining-tokens": "nan"}, {}),
        (200, {"retry-after-ms": "500"}, {}),
        (429, {"retry-after-ms": "500"}, {"gate": -500}),
        (429, {"retry-after": "2"}, {"gate": -2_000}),
        (429, {"retry-after": "99999"}, {"gate": -60_000}),
        (429, {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, {}),
        (429, {"retry-after-ms": "-5"}, {}),
        (429, {}, {}),
    ],
)
def test_what_a_provider_says(status: int, headers: dict[str, str], told: dict[str, int]) -> None:
    assert levels_told("openai", status, headers, HELD) == told


def test_only_limits_that_are_held_are_told() -> None:
    headers = {"anthropic-ratelimit-input-tokens-remaining": "5", "anthropic-ratelimit-output-tokens-remaining": "6"}
    assert levels_told("anthropic", 200, headers, {"itpm": 100, "rpm": 5}) == {"itpm": 5}
    assert levels_told("openai", 429, {"retry-after-ms": "500"}, {"rpm": 5}) == {}
    assert pause_told({"retry-after-ms": "1.5"}) == 2


def status(wait: float | None) -> LimitStatus:
    return LimitStatus("team", "gpt", "rpm", Limit.per_minute("rpm", 5), 0, 1, True, wait, "system")


@pytest.mark.parametrize("dialect", ["openai", "anthropic", "gemini"])
def test_refusals(dialect: Any) -> None:
    answer = refusal(dialect, RateLimitExceeded([status(1.2)]))
    assert answer.status == 429
    assert (answer.headers["retry-after-ms"], answer.headers["retry-after"]) == ("1200", "2")
    assert "x-should-retry" not in answer.headers
    assert json.loads(answer.body)["error"]["message"]
    assert refusal(dialect, RateLimitExceeded([status(61.0)])).headers["x-should-retry"] == "false"
    never = refusal(dialect, RequestExceedsBurst([status(None)]))
    assert never.status == 413
    assert never.headers["x-should-retry"] == "false"
    assert "retry-after" not in never.headers
    assert refusal(dialect, RateLimiterUnavailable("gone")).status == 503
