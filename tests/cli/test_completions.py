"""A shell completes the entities of the store that is named, and never waits long or fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runner import CommandRunner, plain_environment, sqlite_url
from click.shell_completion import ShellComplete

from zae_limiter.cli.group import cli


def completed(words: str, incomplete: str = "", **environment: str) -> list[str]:
    with plain_environment(environment):
        shell = ShellComplete(cli, {}, "zae-limiter", "_ZAE_LIMITER_COMPLETE")
        return [item.value for item in shell.get_completions(words.split(), incomplete)]


@pytest.fixture
def url(runner: CommandRunner) -> str:
    """A store with three entities, and one more that was never created."""
    runner.run("system", "set-defaults", "-l", "rpm:10")
    for entity_id in ("key-1", "key-2", "acme"):
        runner.run("entity", "create", entity_id)
    runner.run("acquire", "visitor", "gpt-4", "rpm=1")
    assert runner.url is not None
    return runner.url


@pytest.mark.parametrize(
    "command",
    [
        "status",
        "acquire",
        "watch acme",
        "explain",
        "lower",
        "reset",
        "available",
        "entity show",
        "entity set-limits",
        "entity tree",
        "entity create new --parent",
        "usage list --entity",
        "usage verify --entity",
    ],
)
def test_ids_are_completed_wherever_one_is_typed(command: str, url: str) -> None:
    assert completed(command, "key", ZAEL_URL=url) == ["key-1", "key-2"]


def test_the_store_and_namespace_that_were_typed_go_first(url: str, tmp_path: Path) -> None:
    assert completed(f"status --url {url}", "a") == ["acme"]
    assert completed(f"status --url {url} --namespace nothing", "a") == []


def test_an_entity_that_was_never_created_is_found_too(url: str) -> None:
    assert completed("status", "vis", ZAEL_URL=url) == ["visitor"]


def test_a_store_that_is_not_there_completes_nothing_and_is_not_made(tmp_path: Path) -> None:
    assert completed("status", "k", ZAEL_URL=sqlite_url(tmp_path)) == []
    assert completed("status", "k", ZAEL_URL="nonsense://") == []
    assert (
        completed("status", "k", ZAEL_URL="dynamodb://limits?region=us-east-1&endpoint_url=http://127.0.0.1:9") == []
    )
    assert list(tmp_path.iterdir()) == []
