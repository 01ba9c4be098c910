"""Pictures that follow the site's own switch between light and dark.

On a code host a picture follows the reader's system: by ``<picture>`` with a source for dark, or by a style inside
the SVG. The site has a switch, and its theme shows an image whose address ends with ``#only-light`` or ``#only-dark``
in that scheme alone. So each such picture becomes two images there; of an SVG with a style for dark, two files are
made.
"""

from __future__ import annotations

import re
from pathlib import Path

IMAGES = Path(__file__).parents[1] / "images"

_PICTURE = re.compile(
    r'<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="([^"]+)">\s*'
    r'<img alt="([^"]*)" src="([^"]+)">\s*</picture>'
)
_IMAGE = re.compile(r"!\[([^\]]*)\]\(((?:[^)\s]*/)?images/([\w-]+))\.svg\)")
_DARK_STYLE = re.compile(r"\n *@media \(prefers-color-scheme: dark\) \{\n(.*?)\n    \}", re.DOTALL)


def has_both_schemes(name: str) -> bool:
    """Whether a picture has a style for dark inside."""
    path = IMAGES / f"{name}.svg"
    return path.exists() and _DARK_STYLE.search(path.read_text(encoding="utf-8")) is not None


def scheme_pictures() -> dict[str, str]:
    """The files of both schemes of every picture that has a style for dark, by their path on the site."""
    written: dict[str, str] = {}
    for path in sorted(IMAGES.glob("*.svg")):
        if has_both_schemes(path.stem):
            text = path.read_text(encoding="utf-8")
            written[f"images/{path.stem}-light.svg"] = _DARK_STYLE.sub("", text)
            written[f"images/{path.stem}-dark.svg"] = _DARK_STYLE.sub(lambda style: "\n" + style[1], text)
    return written


def in_both_schemes(markdown: str) -> str:
    """The page with two images for every picture that follows the reader's system."""
    markdown = _PICTURE.sub(r"![\2](\3#only-light)![\2](\1#only-dark)", markdown)
    return _IMAGE.sub(_two_images, markdown)


def _two_images(image: re.Match[str]) -> str:
    text, path, name = image.groups()
    if not has_both_schemes(name):
        return image[0]
    return f"![{text}]({path}-light.svg#only-light)![{text}]({path}-dark.svg#only-dark)"
