"""What mkdocs does to our pages on their way to the site.

The pages are read on a code host too, so they are written for that. On the site, what only tests need is left out, a
link that leads out of ``docs/`` leads to the page that shows the same thing, or to nowhere, and pictures follow the
site's switch between light and dark.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).parent))
from themed_pictures import in_both_schemes, scheme_pictures
from written_pages import pictures, where_the_site_has, written_pages

_FOR_TESTS = re.compile(r"<!-- (?:setup\n.*?|no-run|/?bills) ?-->\n?", re.DOTALL)
_FENCE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
_SECTION = re.compile(r"^## ", re.MULTILINE)
_WIDE = {"comparison.md", "benchmarks/REPORT.md"}
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """List every decision below the page about them."""
    docs = Path(config["docs_dir"])
    decisions = [page.relative_to(docs).as_posix() for page in sorted((docs / "adr").glob("[0-9]*.md"))]
    _entries_of(config["nav"], "Decisions").extend(decisions)
    return config


def _entries_of(nav: Any, title: str) -> list[Any]:
    """The entries below a title, wherever it is."""
    for entry in nav:
        for name, below in entry.items() if isinstance(entry, dict) else ():
            if name == title:
                found: list[Any] = below
                return found
            if isinstance(below, list) and (found := _entries_of(below, title)):
                return found
    return []


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are written from the code, and their pictures."""
    for path, text in written_pages().items():
        files.append(File.generated(config, path, content=text))
    for path, picture in pictures().items():
        files.append(File.generated(config, path, abs_src_path=str(picture)))
    for path, text in scheme_pictures().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """The page as the site shows it."""
    page.meta["hide"] = _sidebars_without_use(markdown, page)
    parts = _FENCE.split(_FOR_TESTS.sub("", markdown))
    parts[::2] = [in_both_schemes(prose) for prose in parts[::2]]
    parts[::2] = [_LINK.sub(lambda link: _led_within(link, page.file.src_uri, files), prose) for prose in parts[::2]]
    return "".join(parts)


def _sidebars_without_use(markdown: str, page: Any) -> list[str]:
    """No list of pages beside a page on its own, no list of sections where there are none or tables are wide."""
    alone = page.parent is None
    whole = not _SECTION.search(_FENCE.sub("", markdown)) and "\n::: " not in markdown
    return ["navigation"] * alone + ["toc"] * (whole or page.file.src_uri in _WIDE)


def _led_within(link: re.Match[str], source: str, files: Any) -> str:
    """A link, to a page of the site; just its text if there is none."""
    text, target, anchor = link[1], link[2], link[3] or ""
    folder = posixpath.dirname(source)
    led_to = posixpath.normpath(posixpath.join(folder, target))
    for candidate in where_the_site_has(led_to):
        if files.get_file_from_path(candidate):
            return f"[{text}]({posixpath.relpath(candidate, folder or '.')}{anchor})"
    return text if led_to.startswith("..") else link[0]
