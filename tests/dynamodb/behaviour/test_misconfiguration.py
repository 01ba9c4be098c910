"""A table, region or credentials that are not right are errors in every mode until DynamoDB has answered once."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from itertools import count

import pytest

from engines.servers import Engine
from zae_limiter import ConfigurationError, Limit, RateLimiter, RateLimiterUnavailable, SyncRateLimiter
from zae_limiter.stores.dynamodb.requests import CircuitOpen, NoAnswer, Refused
from zae_limiter.stores.dynamodb.table_client import error_of
from zae_limiter.stores.dynamodb.transport.service import failure_before_sending, never_connected

NUMBERS = count()
LIMITS = [Limit.per_minute("rpm", 10)]


def url_on(engine: Engine) -> str:
    table = f"misconfigured-{os.getpid()}-{next(NUMBERS)}"
    return f"dynamodb://{table}?region=us-east-1&endpoint_url={engine.endpoint_url}"


@pytest.mark.parametrize("policy", ["allow", "block"])
def test_a_table_that_is_not_there_is_an_error_in_every_mode(engine: Engine, policy: str) -> None:
    with SyncRateLimiter.open(url_on(engine)) as limiter:
        for _ in range(3):
            with (
                pytest.raises(ConfigurationError, match=r"ResourceNotFoundException.*deploy it.*region"),
                limiter.acquire("key", "gpt", {"rpm": 1}, limits=LIMITS, on_unavailable=policy),
            ):
                pass

    async def task() -> None:
        async with RateLimiter.open(url_on(engine)) as limiter:
            with pytest.raises(ConfigurationError):
                async with limiter.acquire("key", "gpt", {"rpm": 1}, limits=LIMITS, on_unavailable=policy):
                    pass

    asyncio.run(task())


def test_a_table_that_was_deleted_after_it_answered_is_an_outage(engine: Engine) -> None:
    with SyncRateLimiter.open(url_on(engine), create=True) as limiter:
        with limiter.acquire("key", "gpt", {"rpm": 1}, limits=LIMITS):
            pass
        limiter.repository.delete_table()
        with limiter.acquire("key", "gpt", {"rpm": 1}, limits=LIMITS, on_unavailable="allow") as lease:
            assert lease.degraded
        with (
            pytest.raises(RateLimiterUnavailable, match="ResourceNotFoundException"),
            limiter.acquire("key", "gpt", {"rpm": 1}, limits=LIMITS),
        ):
            pass


@pytest.mark.usefixtures("no_credentials_here")
@pytest.mark.parametrize("transport", ["own", "botocore"])
def test_no_credentials_are_an_error_in_every_mode_however_often_it_is_tried(transport: str) -> None:
    """Also when the circuit breaker has opened meanwhile."""
    with SyncRateLimiter.open("dynamodb://stack?region=us-east-1", transport=transport, deadline=20) as limiter:
        for _ in range(8):
            with (
                pytest.raises(ConfigurationError, match=r"(?i)credentials"),
                limiter.acquire("key", "gpt", {"rpm": 1}, limits=LIMITS, on_unavailable="allow"),
            ):
                pass


@pytest.mark.usefixtures("no_credentials_here")
@pytest.mark.parametrize("transport", ["own", "botocore"])
def test_no_region_is_an_error_in_every_mode(transport: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with (
        SyncRateLimiter.open("dynamodb://stack", transport=transport, deadline=20) as limiter,
        pytest.raises(ConfigurationError, match="region"),
        limiter.acquire("key", "gpt", {"rpm": 1}, limits=LIMITS, on_unavailable="allow"),
    ):
        pass


@pytest.mark.parametrize(
    ("error", "misconfigured"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), True),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), False),
        (ssl.SSLCertVerificationError("another host's"), True),
        (ConnectionRefusedError("nobody listens"), False),
        (TimeoutError("the time is up"), False),
    ],
    ids=str,
)
def test_a_host_that_does_not_exist_is_told_from_one_that_does_not_answer(error: OSError, misconfigured: bool) -> None:
    failure = never_connected("dynamodb.eu-central-9.amazonaws.com", error)
    assert failure.misconfigured is misconfigured
    kind = ConfigurationError if misconfigured else RateLimiterUnavailable
    assert isinstance(error_of(failure), kind)
    assert isinstance(error_of(CircuitOpen(failure)), kind)


def test_files_of_settings_that_are_not_there_will_not_come_by_themselves() -> None:
    failure = failure_before_sending(FileNotFoundError("no such bundle of certificates"))
    assert failure is not None
    assert failure.misconfigured


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (Refused("AccessDeniedException", "no"), ConfigurationError),
        (Refused("ExpiredTokenException", "old"), ConfigurationError),
        (Refused("ValidationException", "what?"), ConfigurationError),
        (Refused("404", "<html>"), ConfigurationError),
        (Refused("ThrottlingException", "slow down"), RateLimiterUnavailable),
        (Refused("TransactionConflictException", "later"), RateLimiterUnavailable),
        (Refused("ResourceInUseException", "still being made"), RateLimiterUnavailable),
        (NoAnswer("silence"), RateLimiterUnavailable),
    ],
    ids=str,
)
def test_what_will_be_refused_again_is_told_from_what_may_pass(
    failure: Refused | NoAnswer, kind: type[Exception]
) -> None:
    error = error_of(failure)
    assert type(error) is kind
    assert error.__cause__ is failure
    assert kind is not ConfigurationError or error.hint
