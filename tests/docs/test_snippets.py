"""Every Python snippet of the documentation runs, in order, one namespace per page, and prints what it says."""

from __future__ import annotations

import ast
import asyncio
import inspect
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from pages import NO_RUN, PAGES, ROOT, Block, blocks_of_kind, printed_by, title_of

from zae_limiter import RateLimiter, SyncRateLimiter

RUN = [page for page in PAGES if blocks_of_kind(page, "python")]
SKIPPED_AT_MOST = 3
COLUMNS = 90
"""What the site shows of a line without scrolling, on a laptop."""


@contextmanager
def namespace() -> Iterator[tuple[asyncio.Runner, dict[str, Any]]]:
    """An event loop and names that live as long as a page; what is left open is closed."""
    names: dict[str, Any] = {"__name__": "page"}
    with asyncio.Runner() as runner:
        try:
            yield runner, names
        finally:
            for value in names.values():
                if isinstance(value, SyncRateLimiter):
                    value.close()
                elif isinstance(value, RateLimiter):
                    runner.run(value.close())


def run(block: Block, page: Path, runner: asyncio.Runner, names: dict[str, Any]) -> list[str]:
    """Run a block at its own place in the page, so that a traceback shows it; the lines it printed."""
    source = "\n" * (block.line - 1) + block.text
    code = compile(source, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    with redirect_stdout(StringIO()) as printed:
        result = eval(code, names)
        if code.co_flags & inspect.CO_COROUTINE:
            runner.run(result)
    return printed.getvalue().splitlines()


@pytest.mark.parametrize("page", RUN, ids=title_of)
def test_the_snippets_of_a_page_run_and_print_what_they_say(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZAEL_URL", f"sqlite:///{quote(str(tmp_path / 'limits.db'))}")
    with namespace() as (runner, names):
        for block in blocks_of_kind(page, "python"):
            printed = run(block, page, runner, names)
            assert printed == printed_by(block), f"{title_of(page)}, line {block.line}"


@pytest.mark.parametrize("page", RUN, ids=title_of)
def test_no_line_of_a_snippet_runs_out_of_the_page(page: Path) -> None:
    lines = [line for block in blocks_of_kind(page, "python") for line in block.text.splitlines()]
    assert [line for line in lines if len(line) > COLUMNS] == []


@pytest.mark.parametrize("page", [page for page in PAGES if blocks_of_kind(page, "no-run")], ids=title_of)
def test_a_skipped_snippet_imports_what_there_is(page: Path) -> None:
    for block in blocks_of_kind(page, "no-run"):
        imports = [each for each in ast.parse(block.text).body if isinstance(each, ast.ImportFrom)]
        assert imports
        for each in imports:
            exec(ast.unparse(each), {})


GUIDES = [ROOT / "docs" / f"{name}.md" for name in ("llm-clients", "web-apps", "functions-and-tasks", "metrics")]
LINES_TO_BEGIN = 10


@pytest.mark.parametrize("page", GUIDES, ids=title_of)
def test_a_guide_begins_with_a_program_of_few_lines(page: Path) -> None:
    before, _, rest = page.read_text(encoding="utf-8").partition("```python\n")
    assert before.count("\n## ") == 0
    program = [line for line in rest.partition("```")[0].splitlines() if line]
    assert 0 < len(program) <= LINES_TO_BEGIN


def test_hardly_any_snippet_is_skipped() -> None:
    assert sum(page.read_text(encoding="utf-8").count(NO_RUN) for page in PAGES) <= SKIPPED_AT_MOST
