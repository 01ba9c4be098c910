"""A roll-out as an operator sees it while it happens."""

from __future__ import annotations

import re

import pytest
from local_deployment import CloudRunner, fresh_name
from scripted_cloud import event, stack_event

from cli.pseudo_terminal import COMMAND, terminal
from zae_limiter.cli.rollout_screen import event_in_words, rollout_screen
from zae_limiter.infra.change_sets import Change, Changes
from zae_limiter.infra.rollouts import ProgressNote
from zae_limiter.infra.stack_events import event_of


def test_an_event_is_one_line() -> None:
    assert event_in_words(ProgressNote("put code")) == "put code"
    assert event_in_words(Changes((Change("Add", "Table", "T", False),))) == "1 of the stack's resources changes"
    failed = event_of(event("Table", "CREATE_FAILED", "no \x1b[31mroom"))
    assert event_in_words(failed) == "00:00:00  CREATE_FAILED               Table  no �[31mroom"
    assert event_in_words(event_of(stack_event("UPDATE_COMPLETE"))) == "00:00:00  UPDATE_COMPLETE             my-app"


def test_without_a_terminal_it_is_lines_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with rollout_screen("deploying") as listener:
        listener(event_of(event("Table", "CREATE_COMPLETE")))
    captured = capsys.readouterr()
    assert (captured.out, captured.err.splitlines()) == ("", ["00:00:00  CREATE_COMPLETE             Table"])


def test_an_operator_who_interrupts_is_told_that_it_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), rollout_screen("deploying"):
        raise KeyboardInterrupt
    assert "CloudFormation continues on its own" in capsys.readouterr().err


def test_on_a_terminal_events_scroll_and_the_answer_stays(cloud: CloudRunner) -> None:
    name = fresh_name()
    words = [COMMAND, "deploy", "--name", name, "--no-aggregator", "--no-iam"]
    with terminal(*words, columns=120, environment=cloud.environment) as screen:
        screen.wait_for("is deployed: ")
        assert screen.end() == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.shown)
    assert re.search(r"CREATE_COMPLETE +Table", text)
    assert f"{name} is deployed: dynamodb://{name}" in text
    assert "deploying" in text
    cloud.do("delete", "--name", name, "--lift-protection", "--yes")
