"""Every command has help, an example, a place in the docs, and a test."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from command_scripts import STORIES, steps_of
from command_tree import COMMANDS, ON_A_CLOUD, TREE, WITHOUT_A_STORE, Names

from zae_limiter.cli.group import cli

HERE = Path(__file__).parent
CLI_PAGE = (HERE.parents[1] / "docs" / "cli.md").read_text(encoding="utf-8")

SHARED = ["--url", "--namespace", "--json"]
SHARED_ON_A_CLOUD = ["--region", "--endpoint-url", "--profile", "--json"]


def called(names: Names) -> str:
    return " ".join(("zae-limiter", *names))


def examples_of(command: click.Command) -> list[str]:
    lines = (command.epilog or "").splitlines()
    return [line.strip() for line in lines if line.strip().startswith("zae-limiter")]


@pytest.mark.parametrize("names", TREE, ids=called)
def test_a_command_has_help_and_an_example_of_itself(names: Names) -> None:
    shown = CliRunner().invoke(cli, [*names, "--help"])
    assert shown.exit_code == 0
    assert TREE[names].help
    assert [line for line in examples_of(TREE[names]) if line.startswith(called(names))]
    assert "Example" in shown.output


@pytest.mark.parametrize("names", TREE, ids=called)
def test_the_one_line_of_help_is_not_cut(names: Names) -> None:
    assert not TREE[names].get_short_help_str(limit=60).endswith("...")


@pytest.mark.parametrize("names", COMMANDS, ids=called)
def test_every_option_says_what_it_does(names: Names) -> None:
    options = [option for option in COMMANDS[names].params if isinstance(option, click.Option)]
    assert [option.name for option in options if not option.help] == []


@pytest.mark.parametrize("names", COMMANDS, ids=called)
def test_every_command_on_a_store_or_a_cloud_takes_the_same_options(names: Names) -> None:
    options = [name for parameter in COMMANDS[names].params for name in parameter.opts]
    if names not in WITHOUT_A_STORE:
        shared = SHARED_ON_A_CLOUD if names in ON_A_CLOUD else SHARED
        assert [name for name in shared if name not in options] == []


@pytest.mark.parametrize(
    ("names", "example"),
    [(names, example) for names, command in COMMANDS.items() for example in examples_of(command)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_example_can_be_parsed(names: Names, example: str) -> None:
    words = shlex.split(example, comments=True)[1:]
    words = words[: min((words.index(end) for end in ("|", ">", ">>", "&&") if end in words), default=None)]
    assert tuple(words[: len(names)]) == names
    command = COMMANDS[names]
    if names[0] == "limits":
        words = [word for word in words if word not in ("-f", "limits.yaml")]  # there is no such file here
        command = click.Command("any", params=[p for p in command.params if p.name != "path"])
    with command.make_context("any", words[len(names) :], resilient_parsing=False):
        pass


@pytest.mark.parametrize("names", COMMANDS, ids=called)
def test_a_command_and_its_options_are_on_the_page(names: Names) -> None:
    assert re.search(rf"`{called(names)}[` ]|\$ {called(names)}\b", CLI_PAGE)
    options = [name for parameter in COMMANDS[names].params for name in parameter.opts if name.startswith("--")]
    assert [option for option in options if option not in CLI_PAGE] == []


def covered() -> set[Names]:
    """The commands of the stories, and those that a test module names word by word."""
    found = {step.words[:length] for story in STORIES for step in steps_of(story) for length in (1, 2)}
    texts = [path.read_text(encoding="utf-8") for path in HERE.glob("test_*.py")]
    for names in COMMANDS:
        words = r"[\"',\s]+".join(names)
        if any(re.search(words, text) for text in texts):
            found.add(names)
    return found


@pytest.mark.parametrize("names", COMMANDS, ids=called)
def test_a_command_is_tested(names: Names) -> None:
    assert names in covered()
