"""Nothing in one namespace is seen, counted or lost through another."""

from __future__ import annotations

import pytest
from cli_runner import CommandRunner, Ran

READS = [
    "entity list",
    "entity tree",
    "entity list --with-limits",
    "entity get-limits key-1",
    "entity get-limits key-1 --resource gpt-4",
    "system get-defaults",
    "resource list",
    "resource get-defaults gpt-4",
    "resource capacity gpt-4 rpm",
    "status key-1",
    "explain key-1 gpt-4",
    "usage list --entity key-1",
    "usage list --resource gpt-4",
    "usage summary --resource gpt-4",
    "usage plot --resource gpt-4",
    "audit list",
]

POPULATE = [
    "system set-defaults -l rpm:60 --on-unavailable allow",
    "resource set-defaults gpt-4 -l rpm:30",
    "entity create acme",
    "entity create key-1 --parent acme --cascade",
    "entity set-limits key-1 -l rpm:20",
    "entity set-limits key-1 --resource gpt-4 -l rpm:10",
    "acquire key-1 gpt-4 rpm=7",
    "acquire key-1 other rpm=2",
]


def look(runner: CommandRunner, namespace: str) -> list[Ran]:
    return [runner.run(*line.split(), "--json", "--namespace", namespace) for line in READS]


@pytest.fixture
def tenants(any_runner: CommandRunner) -> CommandRunner:
    """Two namespaces, with the same things in the first."""
    for name in ("eu", "us"):
        assert any_runner.run("namespace", "register", name).code == 0
    for line in POPULATE:
        assert any_runner.run(*line.split(), "--namespace", "eu").code == 0, line
    return any_runner


def test_what_happens_in_one_is_not_seen_in_the_other(tenants: CommandRunner) -> None:
    seen = look(tenants, "us")
    assert [ran.code for ran in seen] == [0] * len(READS)
    text = "".join(ran.out for ran in seen[:-1])
    assert "acme" not in text
    assert "refill_amount" not in text
    assert [line for line, mine, theirs in zip(READS, seen, look(tenants, "eu"), strict=True) if mine == theirs] == []


def test_the_same_names_are_others_in_the_other(tenants: CommandRunner) -> None:
    before = look(tenants, "eu")
    for line in POPULATE:
        assert tenants.run(*line.replace("60", "6_000").split(), "--namespace", "us").code == 0
    for line in (
        "lower key-1 gpt-4 rpm=0",
        "reset key-1 --yes",
        "entity delete-limits key-1 --yes",
        "entity delete key-1 --yes",
        "resource delete-defaults gpt-4 --yes",
        "system delete-defaults --yes",
    ):
        assert tenants.run(*line.split(), "--namespace", "us").code == 0, line
    assert look(tenants, "eu") == before


def test_a_purge_removes_everything_of_one_and_nothing_of_the_other(tenants: CommandRunner) -> None:
    for line in POPULATE:
        assert tenants.run(*line.split(), "--namespace", "us").code == 0
    before = look(tenants, "eu")
    assert tenants.run("namespace", "delete", "us", "--yes").code == 0
    assert tenants.run("namespace", "purge", "us", "--yes").code == 0
    assert look(tenants, "eu") == before
    assert tenants.run("namespace", "register", "us").code == 0
    assert "acme" not in "".join(ran.out for ran in look(tenants, "us"))
