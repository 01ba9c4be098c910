"""The operator's page is true: its commands run, in order, and its figures are those of the calculator."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest
from local_deployment import CloudRunner

from zae_limiter.infra import costs
from zae_limiter.infra.costs import MILLION, SECONDS_PER_MONTH, Load, monthly_bill

PAGE = Path(__file__).parents[2] / "docs" / "operating.md"
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
BILLS = re.compile(r"(<!-- bills -->\n(?:\|[^\n]*\n){2})(.*?)(<!-- /bills -->)", re.DOTALL)

LOADS = (
    Load(1, 1, denied=0.05, buckets=20, clients=2),
    Load(10, 2, denied=0.05, buckets=100, clients=4),
    Load(100, 2, denied=0.05, buckets=500, clients=20),
    Load(100, 2, denied=0.05, buckets=500, clients=20, window_seconds=60),
    Load(1_000, 3, denied=0.05, buckets=2_000, clients=50),
)


def commands() -> list[list[str]]:
    """What the page shows, in order."""
    lines = [line for block in BLOCK.findall(PAGE.read_text(encoding="utf-8")) for line in block.splitlines()]
    return [shlex.split(line.removeprefix("$ "), comments=True) for line in lines if line.startswith("$ ")]


def test_the_commands_of_the_page_run(cloud: CloudRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        for program, *words in commands():
            if program == "aws":
                asked_as_the_aws_command_does(cloud, words)
                continue
            assert program == "zae-limiter"
            ran = cloud.run(*words)
            assert ran.code == 0, (words, ran)
    finally:
        for table in ("my-app", "my-app-2"):
            if table in cloud.ask("dynamodb", "ListTables")["TableNames"]:
                cloud.ask("dynamodb", "UpdateTable", TableName=table, DeletionProtectionEnabled=False)
                cloud.ask("dynamodb", "DeleteTable", TableName=table)
    assert cloud.left_of("my-app") == []


def asked_as_the_aws_command_does(cloud: CloudRunner, words: list[str]) -> None:
    """``aws SERVICE OPERATION --some-name value --some-flag``."""
    service, operation, *options = words
    params: dict[str, str | bool] = {}
    for word in options:
        if word.startswith("--"):
            name = pascal(word.removeprefix("--"))
            params[name] = True
        else:
            params[name] = word
    cloud.ask(service, pascal(operation), **params)


def pascal(words: str) -> str:
    return "".join(word.capitalize() for word in words.split("-"))


def test_the_figures_of_the_page_are_those_that_are_measured() -> None:
    shown = dict(re.findall(r"^\| ([a-z][^|]*) \| (\d+ \| \d+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    figures = {
        "a grant": costs.GRANT,
        "a grant, and its settlement or give-back": costs.per_acquire(settled=True),
        "the same with two legs (a key and its organisation)": costs.per_acquire(legs=2, settled=True),
        "a denial": costs.DENIAL,
        "the same denial again, too early, by the same client": costs.Units(),
        "a denial by the organisation, of two legs": costs.DENIAL_ABOVE,
        "the first acquire of a pair of entity and resource": costs.NEW_BUCKET,
        "limits read anew, a minute later, by each client": costs.LIMITS,
        "a bucket in a batch of the stream": costs.SNAPSHOT,
        "the same, first in its hour": costs.FIRST_SNAPSHOT,
    }
    assert shown == {what: f"{units.writes:g} | {units.reads:g}" for what, units in figures.items()}


def test_the_bills_of_the_page_are_those_of_the_calculator() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = []
    for load in LOADS:
        dollars = monthly_bill(load).dollars
        millions = load.acquires_per_second * SECONDS_PER_MONTH / MILLION
        rows.append(
            f"| {load.acquires_per_second:,} | {load.legs} | {load.buckets:,} | {load.clients} "
            f"| {load.window_seconds:g} s | {dollars:,.0f} | {dollars / millions:.2f} |\n"
        )
    computed = BILLS.sub(lambda found: found[1] + "".join(rows) + found[3], page)
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(computed, encoding="utf-8")
    assert "".join(rows) in computed
    assert computed == page or os.environ.get("UPDATE_GOLDEN")
