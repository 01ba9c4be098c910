"""The pictures in the documentation are there, and show what the commands print today."""

from __future__ import annotations

import html
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RENDER = load(DOCS / "images" / "render_cli.py")


def words_of(svg: str) -> list[str]:
    """Everything written in a picture, from top to bottom."""
    pieces = re.findall(r"<text [^>]*?y=\"([\d.]+)\"[^>]*>(.*?)</text>", svg)
    lines: dict[float, list[str]] = {}
    for place, piece in pieces:
        lines.setdefault(float(place), []).append(html.unescape(piece))
    return [word for place in sorted(lines) for word in " ".join(lines[place]).split()]


@pytest.mark.parametrize("width", RENDER.WIDTHS)
@pytest.mark.parametrize("name", RENDER.DOCUMENTED)
def test_a_picture_shows_what_the_command_prints(name: str, width: int) -> None:
    command = RENDER.DOCUMENTED[name]
    with RENDER.world() as dependencies:
        printed = RENDER.recorded(command, dependencies, width).plain
    for look in (RENDER.DARK, RENDER.LIGHT):
        drawn = (DOCS / "images" / f"{name}-{width}-{look.name}.svg").read_text(encoding="utf-8")
        shown = "".join(words_of(drawn))
        assert shown == "".join(f"$ zae-limiter {command} {printed}".split()), "run docs/images/render_cli.py"


def test_every_picture_of_a_page_is_there() -> None:
    pages = [page for page in DOCS.rglob("*.md") if "<picture>" in page.read_text(encoding="utf-8")]
    assert len(pages) >= 2
    for page in pages:
        named = re.findall(r"(?:src|srcset)=\"([^\"]+)\"", page.read_text(encoding="utf-8"))
        assert named
        assert all((page.parent / name).is_file() for name in named)
