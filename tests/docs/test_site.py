"""The site has a place for everything: every page, every public name, every command, every example.

``make docs`` builds it, and finds what only mkdocs can find. What it is built from is looked at here.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Iterator
from typing import Any

import click
import pytest
import yaml
from pages import ROOT, links_of

import zae_limiter
from zae_limiter import testing
from zae_limiter.cli.group import cli

DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "site"))
from themed_pictures import in_both_schemes, scheme_pictures  # noqa: E402
from written_pages import (  # noqa: E402
    apart,
    commands_page,
    pictures,
    reference_pages,
    where_the_site_has,
    written_pages,
)

OF_DECISIONS = "adr/0"
"""The hook lists these by itself."""


def leaves(entries: Any) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            for below in entry.values():
                yield from [below] if isinstance(below, str) else leaves(below)


def navigation() -> list[str]:
    return list(leaves(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]))


def pages_in_the_folder() -> set[str]:
    return {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}


def commands(command: click.Command, ctx: click.Context) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, by its path."""
    if not isinstance(command, click.Group):
        yield ctx.command_path, command
        return
    for name in command.list_commands(ctx):
        below = command.get_command(ctx, name)
        assert below is not None
        yield from commands(below, click.Context(below, parent=ctx, info_name=name))


def test_every_page_has_its_place_in_the_navigation() -> None:
    expected = {page for page in pages_in_the_folder() if not page.startswith(OF_DECISIONS)} | set(written_pages())
    assert sorted(navigation()) == sorted(expected)


def test_no_written_page_hides_one_in_the_folder() -> None:
    assert pages_in_the_folder().isdisjoint(written_pages())


def test_the_list_of_examples_links_what_the_site_has() -> None:
    there = pages_in_the_folder() | set(written_pages())
    links = [link.partition("#")[0] for link in links_of(ROOT / "examples" / "README.md")]
    paths = [posixpath.normpath(posixpath.join("examples", link)) for link in links]
    assert paths
    assert [path for path in paths if there.isdisjoint(where_the_site_has(path))] == []


def test_the_index_links_every_page() -> None:
    linked = {link.partition("#")[0] for link in links_of(DOCS / "README.md")}
    pages = {page for page in pages_in_the_folder() if not page.startswith(OF_DECISIONS)}
    assert pages - linked == {"README.md"}


@pytest.mark.parametrize("name", [name for name in [*zae_limiter.__all__, *testing.__all__] if name != "__version__"])
def test_every_public_name_is_in_the_reference_once(name: str) -> None:
    lines = "\n".join(reference_pages().values()).splitlines()
    assert len([line for line in lines if line.startswith("::: ") and line.endswith(f".{name}")]) == 1


def test_every_command_and_option_is_in_the_reference() -> None:
    page = commands_page()
    for path, command in commands(cli, click.Context(cli, info_name="zae-limiter")):
        part = page.partition(f"# {path}\n")[2].partition("\n#")[0]
        assert part, path
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden and "--help" not in option.opts:
                assert option.opts[-1] in part, (path, option.opts)


def test_what_an_example_says_of_itself_is_on_its_page() -> None:
    pages = written_pages()
    for example in (ROOT / "examples").glob("*.py"):
        page = pages[f"examples/{example.stem}.md"]
        opening, code = apart(example.read_text(encoding="utf-8"))
        assert page.startswith(f"# {example.name}\n\n{opening}\n")
        assert f"```python\n{code}```" in page


def test_the_report_of_benchmarks_comes_with_its_pictures() -> None:
    page = written_pages()["benchmarks/REPORT.md"]
    shown = {f"benchmarks/{path}" for path in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page)}
    assert shown
    assert shown <= set(pictures())


# Pictures in light and dark


def test_a_picture_with_a_source_for_dark_becomes_two_images() -> None:
    picture = (
        '<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="images/a-dark.svg">\n'
        '  <img alt="Bars" src="images/a-light.svg">\n</picture>'
    )
    assert in_both_schemes(picture) == "![Bars](images/a-light.svg#only-light)![Bars](images/a-dark.svg#only-dark)"


def test_a_picture_with_a_style_for_dark_is_written_for_both_schemes() -> None:
    written = scheme_pictures()
    light, dark = written["images/acquire-path-light.svg"], written["images/acquire-path-dark.svg"]
    assert "prefers-color-scheme" not in light + dark
    assert "#e6eaf0" not in light
    assert '[fill="#1f2933"] { fill: #e6eaf0 }' in dark
    both = "![The path](images/acquire-path-light.svg#only-light)![The path](images/acquire-path-dark.svg#only-dark)"
    assert in_both_schemes("![The path](images/acquire-path.svg)") == both


def test_a_picture_that_is_the_same_in_both_is_left_alone() -> None:
    assert in_both_schemes("![The demo](images/demo.svg)") == "![The demo](images/demo.svg)"


def test_no_page_has_a_picture_that_follows_the_system_on_the_site() -> None:
    pages = list(DOCS.rglob("*.md"))
    assert any("<picture>" in page.read_text(encoding="utf-8") for page in pages)
    assert [page.name for page in pages if "<picture>" in in_both_schemes(page.read_text(encoding="utf-8"))] == []
