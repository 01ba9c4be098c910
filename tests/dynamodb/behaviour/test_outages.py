"""What callers see when DynamoDB is away, misconfigured or lost: a named error with its cause and a hint, within the
deadline; or, under ``allow``, a lease that says it is degraded. And when it is overloaded: a denial, under ``allow``
too."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from engines.servers import Engine
from support.bad_servers import black_hole, no_server, no_tls, refusing, server
from zae_limiter import (
    ConfigurationError,
    NamespaceNotFoundError,
    RateLimiter,
    RateLimiterUnavailable,
    RateLimitExceeded,
    SyncRateLimiter,
)
from zae_limiter.stores.circuit_breaker import (
    FAILING_TO_OPEN_MS,
    FAILURES_TO_OPEN,
    PROBE_INTERVAL_MS,
    CircuitBreaker,
    Permission,
)

Where = Callable[[], AbstractContextManager[str]]

DEADLINE_S = 0.5
SLACK_S = 8.0
"""For starting a client on a busy machine; less than twenty deadlines."""

LOADED_DEADLINE_S = 2.0
"""Long enough for the first refusal to arrive on a busy machine: who never heard one cannot know of load."""

MISCONFIGURED = "refused"

BAD_DAYS: dict[str, tuple[Where, str, str | None]] = {
    "no server listens": (no_server, "did not answer", None),
    "black hole": (black_hole, "did not answer", None),
    "no TLS": (no_tls, "did not answer", None),
    "500": (lambda: server(refusing(500, "InternalServerError")), "did not answer", None),
    "503": (lambda: server(refusing(503, "ServiceUnavailable")), "did not answer", None),
    "expired credentials": (lambda: server(refusing(400, "ExpiredTokenException")), MISCONFIGURED, "expired"),
    "unknown credentials": (lambda: server(refusing(400, "UnrecognizedClientException")), MISCONFIGURED, "not valid"),
    "no permission": (lambda: server(refusing(400, "AccessDeniedException")), MISCONFIGURED, "permission"),
    "missing table, wrong region": (
        lambda: server(refusing(400, "ResourceNotFoundException")),
        MISCONFIGURED,
        "region",
    ),
}


LOADS: dict[str, Where] = {
    "account throttled": lambda: server(refusing(400, "ThrottlingException")),
    "table throttled": lambda: server(refusing(400, "ProvisionedThroughputExceededException")),
    "transactions in the way": lambda: server(refusing(400, "TransactionConflictException")),
}


def url_of(endpoint_url: str) -> str:
    return f"dynamodb://bad-day?region=us-east-1&endpoint_url={endpoint_url}"


@pytest.mark.parametrize("day", BAD_DAYS)
def test_threads_get_a_named_error_in_time(day: str) -> None:
    where, words, hint = BAD_DAYS[day]
    kind = ConfigurationError if words is MISCONFIGURED else RateLimiterUnavailable
    with where() as endpoint, SyncRateLimiter.open(url_of(endpoint), deadline=DEADLINE_S) as limiter:
        limiter.is_available()  # makes the client, which takes its time
        started = time.monotonic()
        with pytest.raises(kind, match=words) as caught, limiter.acquire("key", "gpt", {"rpm": 1}):
            pass
        assert time.monotonic() - started < DEADLINE_S + SLACK_S
        assert caught.value.__cause__ is not None
        assert hint is None or hint in str(caught.value)
        if kind is ConfigurationError:
            with pytest.raises(kind), limiter.acquire("key", "gpt", {"rpm": 1}, on_unavailable="allow"):
                pass
        else:
            with limiter.acquire("key", "gpt", {"rpm": 1}, on_unavailable="allow") as lease:
                assert lease.degraded
        for read in (lambda: limiter.available("key", "gpt"), lambda: limiter.list_entities(), limiter.check):
            with pytest.raises(kind):
                read()
        assert not limiter.is_available()


@pytest.mark.parametrize("day", BAD_DAYS)
def test_tasks_get_a_named_error_in_time(day: str) -> None:
    where, words, hint = BAD_DAYS[day]
    kind = ConfigurationError if words is MISCONFIGURED else RateLimiterUnavailable

    async def asking(endpoint: str) -> None:
        async with await RateLimiter.open(url_of(endpoint), deadline=DEADLINE_S) as limiter:
            await limiter.is_available()
            started = time.monotonic()
            with pytest.raises(kind, match=words) as caught:
                async with limiter.acquire("key", "gpt", {"rpm": 1}):
                    pass
            assert time.monotonic() - started < DEADLINE_S + SLACK_S
            assert caught.value.__cause__ is not None
            assert hint is None or hint in str(caught.value)
            allowed = limiter.acquire("key", "gpt", {"rpm": 1}, on_unavailable="allow")
            if kind is ConfigurationError:
                with pytest.raises(kind):
                    await allowed.__aenter__()
            else:
                async with allowed as lease:
                    assert lease.degraded

    with where() as endpoint:
        asyncio.run(asking(endpoint))


@pytest.mark.parametrize("policy", ["block", "allow"])
@pytest.mark.parametrize("day", LOADS)
def test_load_denies_threads_whatever_the_policy(day: str, policy: str) -> None:
    """Not even the limits can be read: the denial has no statuses."""
    with LOADS[day]() as endpoint, SyncRateLimiter.open(url_of(endpoint), deadline=LOADED_DEADLINE_S) as limiter:
        with pytest.raises(RateLimitExceeded, match="too much load") as denied:
            limiter.acquire("key", "gpt", {"rpm": 1}, on_unavailable=policy).__enter__()
        assert denied.value.statuses == denied.value.violations == ()
        assert denied.value.retry_after_seconds == 0.1
        assert denied.value.as_dict()["violations"] == []


def test_reads_under_load_say_so() -> None:
    with (
        LOADS["account throttled"]() as endpoint,
        SyncRateLimiter.open(url_of(endpoint), deadline=LOADED_DEADLINE_S) as limiter,
        pytest.raises(RateLimiterUnavailable, match=r"refused.*too much load") as caught,
    ):
        limiter.available("key", "gpt")
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("day", LOADS)
def test_load_denies_all_tasks_that_wait_for_one_reading(day: str) -> None:
    async def asking(endpoint: str) -> list[BaseException | None]:
        async def one() -> None:
            async with limiter.acquire("key", "gpt", {"rpm": 1}, on_unavailable="allow"):
                pass

        async with await RateLimiter.open(url_of(endpoint), deadline=LOADED_DEADLINE_S) as limiter:
            return await asyncio.gather(*(one() for _ in range(8)), return_exceptions=True)

    with LOADS[day]() as endpoint:
        assert {type(outcome) for outcome in asyncio.run(asking(endpoint))} == {RateLimitExceeded}


def test_a_missing_namespace_is_no_outage(engine: Engine) -> None:
    url = f"dynamodb://no-namespace?region=us-east-1&endpoint_url={engine.endpoint_url}"
    with SyncRateLimiter.open(url, create=True):
        pass
    with (
        SyncRateLimiter.open(url, namespace="nowhere") as limiter,
        pytest.raises(NamespaceNotFoundError),
        limiter.acquire("key", "gpt", {"rpm": 1}, on_unavailable="allow"),
    ):
        pass


# The breaker


def test_the_breaker_opens_after_calls_without_an_answer_in_a_row_and_lets_one_probe_at_a_time() -> None:
    breaker = CircuitBreaker()
    for _ in range(FAILURES_TO_OPEN * 2):
        breaker.unanswered(0)
    assert breaker.permission(0) is Permission.GO, "many lost at one moment are no outage"
    breaker.answered()
    for _ in range(FAILURES_TO_OPEN - 1):
        breaker.unanswered(0)
    opened = FAILING_TO_OPEN_MS
    assert breaker.permission(opened) is Permission.GO
    breaker.unanswered(opened)
    assert breaker.permission(opened + PROBE_INTERVAL_MS - 1) is Permission.FAIL
    assert breaker.permission(opened + PROBE_INTERVAL_MS) is Permission.FAIL_AND_PROBE
    assert breaker.permission(opened + PROBE_INTERVAL_MS) is Permission.FAIL
    assert breaker.permission(opened + 2 * PROBE_INTERVAL_MS) is Permission.FAIL_AND_PROBE
    breaker.answered()
    assert breaker.permission(opened + 2 * PROBE_INTERVAL_MS) is Permission.GO


def test_after_repeated_silence_callers_fail_at_once_and_a_probe_finds_the_way_back(engine: Engine) -> None:
    dead = {"now": True}

    def answer(operation: str, params: dict[str, object]) -> tuple[int, dict[str, object]]:
        if dead["now"]:
            return 500, {}
        return 400, {"__type": "ResourceNotFoundException", "message": "no such table"}

    with server(answer) as endpoint, SyncRateLimiter.open(url_of(endpoint), deadline=DEADLINE_S) as limiter:
        for _ in range(3):
            assert not limiter.is_available()
        started = time.monotonic()
        for _ in range(20):
            with pytest.raises(RateLimiterUnavailable), limiter.acquire("key", "gpt", {"rpm": 1}):
                pass
        assert time.monotonic() - started < DEADLINE_S + SLACK_S, "a dead endpoint costs a deadline, not twenty"
        dead["now"] = False
        give_up = time.monotonic() + 20
        while True:
            try:
                with limiter.acquire("key", "gpt", {"rpm": 1}):
                    pass
            except RateLimiterUnavailable:
                pass
            except ConfigurationError:
                break
            assert time.monotonic() < give_up
            time.sleep(0.05)
