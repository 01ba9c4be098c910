"""A command that reads, or changes what exists, makes no database: a file that is not there is a misspelt one."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from cli_runner import CommandRunner, sqlite_url
from command_tree import COMMANDS, ON_A_CLOUD, WITHOUT_A_STORE, Names

from zae_limiter.cli.session import default_dependencies

ARGUMENTS = {
    "entity_id": "key-1",
    "resource": "gpt-4",
    "name": "staging",
    "amounts": "rpm=1",
    "event_id": "01KDVDNA00",
    "limit_names": "rpm",
    "entity_ids": "key-1",
    "path": "limits.yaml",
    "token": "zl1.req-1",
}
MORE = {
    ("usage",): ["--entity", "key-1"],
    ("usage", "top"): [],
    ("watch",): ["--count", "1"],
    ("entity", "update"): ["--name", "Key"],
}
"""What a command demands although no single option is required."""

OPTIONS = {
    "entity_id": ("--entity", "key-1"),
    "limits": ("-l", "rpm:1"),
    "resources": ("--resource", "gpt-4"),
    "path": ("-f", "limits.yaml"),
    "key": ("--key", "invoice-1"),
}
"""What the required ones are given."""

BEGINNING = {
    ("acquire",),
    ("entity", "create"),
    ("entity", "set-limits"),
    ("resource", "set-defaults"),
    ("system", "set-defaults"),
    ("limits", "apply"),
    ("namespace", "register"),
}
"""What begins something, and so makes a database."""

OF_A_TABLE = {("aggregate",), ("migrate",)}
SERVERS = {("serve",), ("dashboard",)}
"""What listens until it is told to end; its own tests say what it does without a database."""

OTHERS = sorted(set(COMMANDS) - BEGINNING - OF_A_TABLE - SERVERS - WITHOUT_A_STORE - ON_A_CLOUD)


def typed(names: Names) -> list[str]:
    """A whole command, with all that it requires."""
    words = list(names)
    for parameter in COMMANDS[names].params:
        if isinstance(parameter, click.Argument):
            words.append(ARGUMENTS[parameter.name or ""])
        elif parameter.required:
            words += OPTIONS[parameter.name or ""]
        elif "--yes" in parameter.opts:
            words.append("--yes")
    return words + MORE.get(names, MORE.get(names[:1], []))


@pytest.fixture
def missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandRunner:
    """A stage whose database is not there, in an empty folder that is."""
    (tmp_path / "limits.yaml").write_text("manifest: m\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    url = sqlite_url(tmp_path)
    return CommandRunner(lambda: default_dependencies().open_store(url), url=url)


@pytest.mark.parametrize("names", OTHERS, ids=" ".join)
def test_it_says_that_there_is_no_database_and_makes_none(
    names: Names, missing: CommandRunner, tmp_path: Path
) -> None:
    ran = missing.run(*typed(names))
    assert (ran.code, ran.out) == (1, ""), ran
    assert f"there is no database {tmp_path / 'limits.db'}" in ran.err
    assert "--create" in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["limits.yaml"]


def test_create_makes_it(missing: CommandRunner, tmp_path: Path) -> None:
    ran = missing.run("entity", "list", "--create")
    assert (ran.code, ran.out) == (0, "no entities were created in this namespace\n"), ran
    assert (tmp_path / "limits.db").exists()


@pytest.mark.parametrize("names", sorted(BEGINNING), ids=" ".join)
def test_what_begins_something_makes_it(names: Names, missing: CommandRunner, tmp_path: Path) -> None:
    missing.run(*typed(names))
    assert (tmp_path / "limits.db").exists()


def test_without_a_url_nothing_was_stored_yet(tmp_path: Path) -> None:
    runner = CommandRunner(lambda: default_dependencies().open_store(sqlite_url(tmp_path)))
    assert "nothing was stored yet" in runner.run("status", "key-1").err
    assert "is the path right?" in runner.run("status", "key-1", "--url", "any").err
