"""What an error tells a handler, and that it survives the way between processes."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import zae_limiter
from zae_limiter.exceptions import (
    AccessBlocked,
    ConfigurationError,
    EntityChangedError,
    EntityExistsError,
    EntityNotFoundError,
    LeaseExpiredError,
    LeaseNotFoundError,
    LimitsChangedError,
    MissingExtra,
    NamespaceNotFoundError,
    RateLimiterUnavailable,
    RateLimitExceeded,
    RequestExceedsBurst,
    StackOperationError,
    ValidationError,
    VersionError,
    ZAELimiterError,
)
from zae_limiter.models.access import Access, AccessMode
from zae_limiter.models.limit import Limit
from zae_limiter.models.status import LimitStatus


def status(
    name: str = "rpm", *, wait: float | None = 0.0, exceeded: bool = True, entity_id: str = "key-1"
) -> LimitStatus:
    return LimitStatus(
        entity_id=entity_id,
        resource="gpt-4",
        limit_name=name,
        limit=Limit.per_minute(name, 100),
        available=-3,
        requested=7,
        exceeded=exceeded,
        retry_after_seconds=wait,
        source="system",
        seconds_to_full=60.5,
    )


SHORT, LONG, FINE = status("rpm", wait=0.25), status("tpm", wait=12.001), status("images", exceeded=False)
NEVER = status("tpm", wait=None, entity_id="project-1")

EXAMPLES: list[ZAELimiterError] = [
    ZAELimiterError("something"),
    ValidationError("tpm", -1, "must be a whole number of tokens, 0 or more"),
    EntityNotFoundError("key-1"),
    EntityExistsError("key-1"),
    EntityChangedError("key-1", 3, 4),
    LimitsChangedError("key-1 on gpt", "a1", "b2"),
    NamespaceNotFoundError("tenant-1"),
    NamespaceNotFoundError("tenant-1", deleted=True),
    LeaseExpiredError("this lease is not open"),
    LeaseNotFoundError("zl1.req-1"),
    AccessBlocked("key-1", "gpt-4", Access(AccessMode.BLOCK, "key-1")),
    VersionError("layout 9 is newer than this library"),
    MissingExtra("botocore"),
    StackOperationError("could not create the stack"),
    RateLimiterUnavailable("no answer in 2 s", hint="is the network up?", ambiguous=True),
    RateLimiterUnavailable("no answer in 2 s"),
    ConfigurationError("no such table", hint="deploy it"),
    RateLimitExceeded([SHORT, FINE, LONG]),
    RequestExceedsBurst([SHORT, NEVER]),
]


def named(error: ZAELimiterError) -> str:
    return type(error).__name__


# One family


def test_every_error_of_the_library_is_an_example_here() -> None:
    public = {
        kind
        for name in zae_limiter.__all__
        if isinstance(kind := getattr(zae_limiter, name), type) and issubclass(kind, BaseException)
    }
    assert public == {type(error) for error in EXAMPLES}
    assert all(issubclass(kind, ZAELimiterError) for kind in public)


@pytest.mark.parametrize(
    ("kind", "kin"),
    [(ValidationError, ValueError), (EntityNotFoundError, LookupError), (NamespaceNotFoundError, LookupError)],
)
def test_errors_are_also_what_python_calls_them(kind: type, kin: type) -> None:
    assert issubclass(kind, kin)


@pytest.mark.parametrize("error", EXAMPLES, ids=named)
def test_every_error_says_something_in_one_line(error: ZAELimiterError) -> None:
    assert str(error).strip()
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (EntityNotFoundError("key-1"), "create it with create_entity()"),
        (EntityExistsError("key-1"), "change it with update_entity()"),
        (EntityChangedError("key-1", 3, 4), "version 4, not 3; read it again"),
        (NamespaceNotFoundError("t"), "register it with register_namespace()"),
        (NamespaceNotFoundError("t", deleted=True), "recover_namespace() brings it back"),
        (RateLimiterUnavailable("no answer", hint="is it up?"), "no answer; is it up?"),
        (ConfigurationError("no such table", hint="deploy it"), "no such table; deploy it"),
        (RequestExceedsBurst([NEVER]), "its burst is 100, so this can never be granted"),
        (RateLimitExceeded([SHORT]), "rpm of key-1 on gpt-4: requested 7, available -3; retry in 0.250 s"),
        (RateLimitExceeded([SHORT, LONG]), "retry in 12.001 s (and 1 more)"),
    ],
    ids=lambda value: named(value) if isinstance(value, ZAELimiterError) else "",
)
def test_an_error_says_what_to_do(error: ZAELimiterError, advice: str) -> None:
    assert advice in str(error)


# Between processes


def everything_about(error: ZAELimiterError) -> tuple[Any, ...]:
    return type(error), error.args, vars(error), str(error)


@pytest.mark.parametrize("error", EXAMPLES, ids=named)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_error_survives_pickling(error: ZAELimiterError, protocol: int) -> None:
    arrived = pickle.loads(pickle.dumps(error, protocol))
    assert everything_about(arrived) == everything_about(error)


@pytest.mark.parametrize("error", EXAMPLES, ids=named)
def test_every_error_survives_copying(error: ZAELimiterError) -> None:
    assert everything_about(copy.copy(error)) == everything_about(error)
    assert everything_about(copy.deepcopy(error)) == everything_about(error)


# Over a limit


def test_violations_and_passed_part_the_statuses_in_order() -> None:
    error = RateLimitExceeded(iter([SHORT, FINE, LONG]))
    assert error.statuses == (SHORT, FINE, LONG)
    assert error.violations == (SHORT, LONG)
    assert error.passed == (FINE,)


def test_the_primary_violation_is_the_one_with_the_longest_wait() -> None:
    assert RateLimitExceeded([SHORT, LONG, FINE]).primary_violation is LONG
    assert RateLimitExceeded([LONG, SHORT]).retry_after_seconds == 12.001


def test_a_violation_that_never_ends_is_the_primary_one() -> None:
    error = RequestExceedsBurst([LONG, NEVER])
    assert error.primary_violation is NEVER
    assert error.retry_after_seconds is None
    assert error.retry_after_header == ""
    assert isinstance(error, RateLimitExceeded)


@pytest.mark.parametrize(
    ("wait", "header"),
    [(0.0, "0"), (0.001, "1"), (0.999, "1"), (1.0, "1"), (1.001, "2"), (59.5, "60"), (86_400.0, "86400")],
)
def test_the_header_rounds_up_to_whole_seconds(wait: float, header: str) -> None:
    assert RateLimitExceeded([status(wait=wait)]).retry_after_header == header


@given(st.integers(0, 400 * 86_400_000))
def test_waiting_as_long_as_the_header_says_is_always_enough_and_never_a_second_too_much(wait_ms: int) -> None:
    header = int(RateLimitExceeded([status(wait=wait_ms / 1000)]).retry_after_header)
    assert 0 <= header * 1000 - wait_ms < 1000


@pytest.mark.parametrize("error", [RateLimitExceeded([SHORT, FINE]), RequestExceedsBurst([SHORT, NEVER, FINE])])
def test_the_dict_is_ready_for_json_and_complete(error: RateLimitExceeded) -> None:
    told = json.loads(json.dumps(error.as_dict(ancestors=True)))
    assert told["error"] == "rate_limit_exceeded"
    assert told["message"] == str(error)
    assert told["retry_after_seconds"] == error.retry_after_seconds
    assert [row["limit_name"] for row in told["violations"]] == [row.limit_name for row in error.violations]
    assert [row["limit_name"] for row in told["passed"]] == ["images"]
    first = told["violations"][0]
    assert first == {
        "entity_id": "key-1",
        "resource": "gpt-4",
        "limit_name": "rpm",
        "limit": {"name": "rpm", "capacity": 100, "refill_amount": 100, "refill_period_seconds": 60, "burst": 100},
        "available": -3,
        "requested": 7,
        "exceeded": True,
        "retry_after_seconds": 0.25,
        "source": "system",
        "seconds_to_full": 60.5,
    }


@pytest.mark.parametrize("statuses", [[], [FINE]])
def test_a_denial_in_which_nothing_lacks_still_describes_itself(statuses: list[LimitStatus]) -> None:
    """As a user's test may make it."""
    error = RateLimitExceeded(statuses)
    assert error.as_dict()["retry_after_seconds"] == error.retry_after_seconds == 0
    assert (str(error), error.retry_after_header) == ("rate limit exceeded", "0")
