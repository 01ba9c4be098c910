"""Comments and docstrings name the actor, and use the words of the glossary."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "tests", "benchmarks", "examples")

UNNAMED = re.compile(r"\b(?:whoever|(?:some|no|every|any)body)\b", re.IGNORECASE)
"""Caller, thread, task, process, client, operator: a reader wants to know which."""

UNNAMED_IN_TITLE = re.compile(r"(?:^|_)(?:whoever|(?:some|no|every|any)bod(?:ys?|ies))(?:_|$)")


def prose_of(source: str) -> Iterator[str]:
    """Every comment and every docstring, also of attributes."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value


def titles_of(source: str) -> Iterator[str]:
    """The names of all classes and functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


def unnamed_actors(source: str) -> list[str]:
    """The sentences and titles that do not say who acts."""
    return [
        *(prose for prose in prose_of(source) if UNNAMED.search(prose)),
        *(title for title in titles_of(source) if UNNAMED_IN_TITLE.search(title)),
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_comments_docstrings_and_titles_name_the_actor(folder: str) -> None:
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert paths
    found = {str(path.relative_to(ROOT)): unnamed_actors(path.read_text()) for path in paths if path != Path(__file__)}
    assert {path: sentences for path, sentences in found.items() if sentences} == {}


@pytest.mark.parametrize(
    "source",
    [
        "x = 1  # nobody reads it",
        '"""Whoever comes first."""',
        "LIMIT = 1\n" + '"""So many for everybody."""',
        "def test_nobody_waits(): ...",
    ],
)
def test_an_actor_without_a_name_is_noticed(source: str) -> None:
    assert unnamed_actors(source)


def test_data_may_be_anything() -> None:
    assert unnamed_actors('limiter.get_entity("nobody")') == []
