"""The page for readers of the design documents names tests that exist, for every correction."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest
from pages import ROOT

PAGE = ROOT / "docs" / "from-the-design-documents.md"
CORRECTIONS = [f"C{number}" for number in range(1, 14)]
NAMED = re.compile(r"`((?:tests|src)/[\w/]+\.py)::(\w+)`")


def text() -> str:
    return PAGE.read_text(encoding="utf-8")


@cache
def functions_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@cache
def names_in(path: str) -> frozenset[str]:
    """Functions, and what is imported: mutations are listed in one file and written in another."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    imported = {alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    return functions_in(path) | imported


@pytest.mark.parametrize(("path", "name"), sorted(set(NAMED.findall(text()))))
def test_every_named_test_exists(path: str, name: str) -> None:
    assert name in names_in(path)


def part(correction: str) -> str:
    found = re.search(rf"^### {correction}: .*?(?=^##)", text(), re.MULTILINE | re.DOTALL)
    assert found, correction
    return found[0]


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_every_correction_says_what_shows_it(correction: str) -> None:
    assert NAMED.findall(part(correction))


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_a_mutation_undoes_the_correction_it_stands_under(correction: str) -> None:
    listed = (ROOT / "tests/simulation/test_mutations.py").read_text(encoding="utf-8")
    for path, name in NAMED.findall(part(correction)):
        if path.endswith("test_mutations.py") and not name.startswith("test_"):
            assert f'("{correction}", {name},' in listed


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_both_pages_have_every_correction(correction: str) -> None:
    exact = (ROOT / "docs" / "how-it-stays-exact.md").read_text(encoding="utf-8")
    assert f"| {correction} |" in exact


def test_the_sizes_are_those_of_the_table_page() -> None:
    table = (ROOT / "docs" / "table.md").read_text(encoding="utf-8")
    sizes = dict(re.findall(r"^\| (\d+) \| ([\d,]+) \| \d \|$", table, re.MULTILINE))
    assert f"| {sizes['2']}, {sizes['5']} and {sizes['10']}: " in text()


def test_every_function_that_kept_its_name_is_there() -> None:
    (line,) = [line for line in text().splitlines() if "the same, in `bucket.py`" in line]
    assert set(re.findall(r"`(\w+)`", line.split("|")[1])) <= functions_in("src/zae_limiter/bucket.py")
