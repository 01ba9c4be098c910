"""Errors become one line and an exit code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from zae_limiter import (
    ConfigurationError,
    EntityExistsError,
    EntityNotFoundError,
    Limit,
    LimitStatus,
    NamespaceNotFoundError,
    RateLimiterUnavailable,
    RateLimitExceeded,
    RequestExceedsBurst,
    ValidationError,
    ZAELimiterError,
)
from zae_limiter.cli.error_messages import (
    EXIT_CODES,
    MEANINGS,
    exit_code,
    interrupt_exit_code,
    message_for,
    report,
)
from zae_limiter.cli.group import cli
from zae_limiter.stores.dynamodb.requests import TABLE_NOT_FOUND, CircuitOpen, NoAnswer, Refused
from zae_limiter.stores.dynamodb.table_client import error_of

LACKING = LimitStatus("key-1", "gpt-4", "rpm", Limit.per_minute("rpm", 1), 0, 1, True, 60.0, "system")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ZAELimiterError("something"), 1),
        (ValidationError("url", "foo://", "is not a URL"), 1),
        (EntityNotFoundError("key-1"), 1),
        (RateLimiterUnavailable("no answer"), 69),
        (ConfigurationError("no such table"), 78),
        (RateLimitExceeded([LACKING]), 75),
        (RequestExceedsBurst([LACKING]), 65),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_each_kind_of_error_has_its_exit_code(error: ZAELimiterError, code: int) -> None:
    assert exit_code(error) == code


def test_help_and_the_page_have_every_exit_code() -> None:
    shown = CliRunner().invoke(cli, ["--help"]).output
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    for code, meaning in MEANINGS.items():
        assert re.search(rf"^ *{code} +{re.escape(meaning)}$", shown, re.MULTILINE), code
        assert f"| {code} | {meaning} |" in page
    assert {code for _, code in EXIT_CODES} < set(MEANINGS)


def test_an_error_is_one_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(RateLimiterUnavailable("no answer\nfrom the store", hint="is it running?")) == 69
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "Error: no answer from the store; is it running?\n"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (EntityNotFoundError("key-1"), "create it with: zae-limiter entity create key-1"),
        (EntityExistsError("key-1"), "change it with: zae-limiter entity update key-1"),
        (NamespaceNotFoundError("eu"), "register it with: zae-limiter namespace register eu"),
        (NamespaceNotFoundError("eu", deleted=True), "bring it back with: zae-limiter namespace recover eu"),
        (ValidationError("entity_id", "#", "must be letters"), "entity: must be letters (got '#')"),
        (ValidationError("limits", None, "none; give limits= with the call"), "none; give -l with the command"),
        (
            error_of(Refused(TABLE_NOT_FOUND, "no")),
            "deploy --name STACK; check the name, the region and the endpoint",
        ),
        (error_of(CircuitOpen(NoAnswer("refused"))), "did not answer: it has not answered for a while (refused)"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_advice_is_a_command_not_a_method(error: ZAELimiterError, words: str) -> None:
    assert message_for(error).endswith(words)
    assert "()" not in message_for(error)


def test_what_would_command_the_terminal_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    report(ZAELimiterError("no \x1b[2Jsuch thing"))
    assert capsys.readouterr().err == "Error: no \N{REPLACEMENT CHARACTER}[2Jsuch thing\n"


def test_an_interrupt_is_told_from_a_question_without_an_answer() -> None:
    assert interrupt_exit_code(KeyboardInterrupt()) == 130
    for cause, code in ((KeyboardInterrupt(), 130), (EOFError(), 1), (None, 1)):
        error = RuntimeError()
        error.__cause__ = cause
        assert interrupt_exit_code(error) == code
