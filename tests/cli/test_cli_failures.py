"""Errors become one line and an exit code."""

from __future__ import annotations

import pytest

from zae_limiter import (
    EntityNotFoundError,
    Limit,
    LimitStatus,
    RateLimiterUnavailable,
    RateLimitExceeded,
    RequestExceedsBurst,
    ValidationError,
    ZAELimiterError,
)
from zae_limiter.cli.failures import exit_code, report

LACKING = LimitStatus("key-1", "gpt-4", "rpm", Limit.per_minute("rpm", 1), 0, 1, True, 60.0, "system")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ZAELimiterError("something"), 1),
        (ValidationError("url", "foo://", "is not a URL"), 1),
        (EntityNotFoundError("key-1"), 1),
        (RateLimiterUnavailable("no answer"), 69),
        (RateLimitExceeded([LACKING]), 75),
        (RequestExceedsBurst([LACKING]), 75),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_each_kind_of_error_has_its_exit_code(error: ZAELimiterError, code: int) -> None:
    assert exit_code(error) == code


def test_an_error_is_one_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(RateLimiterUnavailable("no answer\nfrom the store", hint="is it running?")) == 69
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "Error: no answer from the store; is it running?\n"
