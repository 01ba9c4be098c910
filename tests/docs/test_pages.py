"""The pages agree with each other and with the code: links, commands, names, decisions."""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from pages import PAGES, ROOT, anchors_of, blocks_of_kind, commands_of, links_of, title_of

import zae_limiter
from zae_limiter import Lease, RateLimiter, Repository, testing
from zae_limiter.cli.group import COMMANDS, cli

API_PAGE = ROOT / "docs" / "api.md"
CLI_PAGE = ROOT / "docs" / "cli.md"
GLOSSARY_PAGE = ROOT / "docs" / "glossary.md"
DECISIONS = sorted((ROOT / "docs" / "adr").glob("[0-9]*.md"))
FOR_DEVELOPERS = [*DECISIONS, GLOSSARY_PAGE, ROOT / "CONTRIBUTING.md", ROOT / "docs" / "architecture.md"]
"""Pages that name parts of the code which are not public."""

SOURCES = [path for folder in ("src", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
WITH_LINKS = [*PAGES, ROOT / "examples" / "README.md", ROOT / "benchmarks" / "REPORT.md"]

BUILT_WHEEL = "$(ls dist/zae_limiter-*.whl)"
README_LINES = 250
ONE_SCREEN = 45
"""Lines; the page of the first steps is promised to be no longer."""


# Links


@pytest.mark.parametrize("page", WITH_LINKS, ids=title_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in links_of(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        if anchor:
            assert anchor in anchors_of(target), link


@pytest.mark.parametrize("page", PAGES, ids=title_of)
def test_every_named_path_of_the_repository_exists(page: Path) -> None:
    named = re.findall(r"(?<![\w/])(?:src|tests|benchmarks|docs|examples)/[\w./-]+", code_on(page))
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=title_of)
def test_every_named_module_exists(page: Path) -> None:
    """A page may leave out the folders above: `stores/protocol.py`, `bucket.py`."""
    known = ["/" + path.relative_to(ROOT).as_posix() for path in [*SOURCES, *(ROOT / "docs").rglob("*.py")]]
    named = re.findall(r"(?<![\w./])[\w/]+\.py(?!\w)", code_on(page))
    assert [name for name in named if not any(path.endswith(f"/{name}") for path in known)] == []


@pytest.mark.parametrize("page", FOR_DEVELOPERS, ids=title_of)
def test_every_named_class_exists(page: Path) -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*") if is_source(path))
    named = re.findall(r"(?<![\w:/])[A-Z][a-z]+(?:[A-Z][a-z]+)+(?!\w)", code_on(page))
    assert [name for name in named if not re.search(rf"\b{name}\b", source)] == []


def test_every_module_in_the_diagrams_of_the_architecture_exists() -> None:
    diagrams = "\n".join(block.text for block in blocks_of_kind(ROOT / "docs" / "architecture.md", "text"))
    named = set(re.findall(r"(?<!\w)[a-z]+(?:_[a-z]+)+(?!\w)", diagrams))
    assert named
    assert named <= {path.stem for path in SOURCES}


def is_source(path: Path) -> bool:
    return path.suffix in (".py", ".yaml")


@pytest.mark.parametrize("page", FOR_DEVELOPERS, ids=title_of)
def test_every_name_is_in_the_file_a_page_says(page: Path) -> None:
    for names, path in places_on(page):
        texts = [file.read_text(encoding="utf-8") for file in SOURCES if f"/{file.as_posix()}".endswith(f"/{path}")]
        for name in re.findall(r"\w+", names):
            assert any(re.search(rf"\b{name}\b", text) for text in texts), (name, path)


def test_the_glossary_says_where_most_things_are() -> None:
    assert len(places_on(GLOSSARY_PAGE)) > 50


def places_on(page: Path) -> list[tuple[str, str]]:
    """Names and their file: `Name`, `Name.attribute` in `file.py`; `Name` (`file.py`)."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"((?:`[\w.]+`,\s)*`[\w.]+`)\s(?:in\s|\()`([\w/]+\.py)`", text)


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached = set[Path]()
    ahead = [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page in reached:
            continue
        reached.add(page)
        targets = [(page.parent / link.partition("#")[0]).resolve() for link in links_of(page)]
        ahead += [target for target in targets if target.suffix == ".md"]
    assert [title_of(page) for page in PAGES if page not in reached] == []


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= README_LINES


def test_getting_started_is_one_screen() -> None:
    assert len((ROOT / "docs" / "getting-started.md").read_text(encoding="utf-8").splitlines()) <= ONE_SCREEN


# Commands


def shown_commands() -> list[tuple[Path, list[str]]]:
    return [(page, words) for page in PAGES for words in commands_of(page)]


@pytest.mark.parametrize(
    ("page", "words"),
    [
        pytest.param(page, words, id=f"{title_of(page)}: {' '.join(words)}")
        for page, words in shown_commands()
        if words[0] == "zae-limiter"
    ],
)
def test_every_shown_command_exists_with_its_options(page: Path, words: list[str]) -> None:
    names = names_in(words[1:])
    help_page = CliRunner().invoke(cli, [*names, "--help"])
    assert help_page.exit_code == 0, help_page.output
    shown = words[1 : words.index("--")] if "--" in words else words[1:]
    for option in shown:
        if option.startswith("-"):
            assert re.search(rf"(^|[\s,]){option}\b", help_page.output), option


def names_in(words: list[str]) -> list[str]:
    """The command, and the one within it if it is a group."""
    names: list[str] = []
    command: click.Command | None = cli
    for word in words:
        if not isinstance(command, click.Group) or word.startswith("-"):
            break
        names.append(word)
        command = command.get_command(click.Context(command), word)
    return names


def test_what_is_shown_of_make_and_pip_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for _, words in shown_commands():
        if words[0] == "make":
            assert set(words[1:]) <= set(targets)
        if words[:2] == ["pip", "install"]:
            source, _, extras = words[2].removesuffix("]").partition("[")
            assert source in (".", BUILT_WHEEL)
            assert {extra for extra in extras.split(",") if extra} <= set(project["optional-dependencies"])


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_has_its_place_on_the_page(name: str) -> None:
    page = CLI_PAGE.read_text(encoding="utf-8")
    assert f"`zae-limiter {name}`" in page
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    options = [name for option in command.params if isinstance(option, click.Option) for name in option.opts]
    assert [option for option in options if f"`{option}" not in page] == []


# Names


def code_on(page: Path) -> str:
    """All that stands between backticks on a page."""
    prose = "\n".join(block.text for block in blocks_of_kind(page, "prose"))
    return "\n".join(re.findall(r"`([^`]+)`", prose))


@pytest.mark.parametrize("name", [*zae_limiter.__all__, *testing.__all__])
def test_every_public_name_is_on_the_page_of_names(name: str) -> None:
    assert re.search(rf"(?<!\w){name}(?!\w)", code_on(API_PAGE))


@pytest.mark.parametrize("kind", [RateLimiter, Repository, Lease])
def test_every_public_method_is_on_the_page_of_names(kind: type) -> None:
    methods = [name for name, _ in inspect.getmembers(kind) if not name.startswith("_")]
    code = code_on(API_PAGE)
    assert [name for name in methods if not re.search(rf"(?<!\w){name}(?!\w)", code)] == []


# Words


@pytest.mark.parametrize("page", PAGES, ids=title_of)
def test_prose_names_the_actor(page: Path) -> None:
    """Caller, thread, task, process, client, operator: a reader wants to know which."""
    prose = "\n".join(block.text for block in blocks_of_kind(page, "prose"))
    assert re.findall(r"\b(?:whoever|(?:some|no|every|any)body)\b", prose, re.IGNORECASE) == []


# Decisions


def test_no_number_stands_for_two_decisions() -> None:
    numbers = [int(page.name[:4]) for page in DECISIONS]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("page", DECISIONS, ids=title_of)
def test_a_decision_says_why_what_and_what_lost(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"# {page.name[:4]}: ")
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings == ["Context", "Decision", "Consequences", "The alternative that lost"]
