"""The pages of the documentation, taken apart.

- A fenced ``python`` block is run, unless the line before it is ``<!-- no-run -->``. A comment that begins with
  ``<!-- setup`` holds code that is run at its place and not shown.
- ``# → text`` at the end of a line says what the block prints there.
- A fenced ``console`` block shows commands: its lines that begin with ``$ ``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
TOP_PAGES = [
    ROOT / name
    for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "PACKAGE.md", "RELEASING.md", "SECURITY.md")
]
PAGES = [*TOP_PAGES, *sorted((ROOT / "docs").rglob("*.md"))]

NO_RUN = "<!-- no-run -->"
SETUP = "<!-- setup"

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_INLINE_CODE = re.compile(r"`[^`]*`")
_PRINTED = re.compile(r"# → (.*)$", re.MULTILINE)


class Block(NamedTuple):
    """A stretch of a page that is not prose. ``line`` is that of its first line of content."""

    kind: str
    line: int
    text: str


def title_of(page: Path) -> str:
    """How a test calls a page."""
    return page.relative_to(ROOT).as_posix()


def blocks_of(page: Path) -> Iterator[Block]:
    """The blocks of a page; skipped python ones have the kind ``no-run``, the rest of the page is ``prose``."""
    kind, end, first, held = "prose", "", 1, list[str]()
    before = ""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if end:
            if line.strip() == end:
                yield Block(kind, first, "\n".join(held) + "\n")
                kind, end, first, held = "prose", "", number + 1, []
            else:
                held.append(line)
        elif line.startswith(("```", SETUP)):
            yield Block("prose", first, "\n".join(held) + "\n")
            end = "-->" if line == SETUP else "```"
            kind = "python" if line == SETUP else line.removeprefix("```")
            if before == NO_RUN:
                kind = "no-run"
            first, held = number + 1, []
        else:
            held.append(line)
        before = line.strip() or before
    assert not end, f"{title_of(page)}: the block at line {first} has no end"
    yield Block("prose", first, "\n".join(held) + "\n")


def blocks_of_kind(page: Path, kind: str) -> list[Block]:
    return [block for block in blocks_of(page) if block.kind == kind]


def printed_by(block: Block) -> list[str]:
    """What a block says that it prints."""
    return [text.rstrip() for text in _PRINTED.findall(block.text)]


def commands_of(page: Path) -> list[list[str]]:
    """The words of every command that a page shows."""
    return [
        shlex.split(line.removeprefix("$ "), comments=True)
        for block in blocks_of_kind(page, "console")
        for line in block.text.splitlines()
        if line.startswith("$ ")
    ]


def links_of(page: Path) -> list[str]:
    """Where a page points to, except into the wide world."""
    prose = "\n".join(block.text for block in blocks_of_kind(page, "prose"))
    return [link for link in _LINK.findall(_INLINE_CODE.sub("", prose)) if "://" not in link]


def anchors_of(page: Path) -> set[str]:
    """What a link may name after its ``#``: the headings, as GitHub spells them."""
    prose = "\n".join(block.text for block in blocks_of_kind(page, "prose"))
    headings = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
