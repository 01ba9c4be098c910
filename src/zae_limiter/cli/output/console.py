"""The console that answers are printed on: a terminal, a pipe or a file.

A terminal has a width and perhaps colours (``NO_COLOR`` is respected). A pipe has neither, so nothing is cut to fit
it; only ``COLUMNS`` gives it a width.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from io import TextIOWrapper

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.text import Text

UNBOUNDED = 10_000
"""Columns of a pipe: more than any line has."""

PICTURE_COLUMNS = range(60, 161)
"""How wide pictures with bars may be."""

PICTURE_COLUMNS_OF_A_PIPE = 80


class SafeConsole(Console):
    """A console that makes foreign text safe wherever it is in a picture; see :func:`shown`."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of a picture. Control sequences come from rich only, never from a text."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield segment._replace(text=shown(segment.text))


class Output:
    """A console, and how wide pictures on it should be."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.width = picture_width(console)

    def show(self, picture: RenderableType | str) -> None:
        """Draw it. A plain string may be longer than a line; a pipe gets no blanks at the ends of lines."""
        if isinstance(picture, str):
            self.console.print(Text(shown(picture)), soft_wrap=True)
        elif self.console.is_terminal:
            self.console.print(picture)
        else:
            with self.console.capture() as drawn:
                self.console.print(picture)
            self.console.file.write("".join(f"{line.rstrip()}\n" for line in drawn.get().splitlines()))


def picture_width(console: Console) -> int:
    """How wide pictures should be, now."""
    wide = PICTURE_COLUMNS_OF_A_PIPE if console.width == UNBOUNDED else console.width
    return min(max(wide, PICTURE_COLUMNS[0]), PICTURE_COLUMNS[-1])


def stdout() -> Output:
    """Where answers go."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an output without these characters still gets the words
    console = SafeConsole(highlight=False, markup=False, emoji=False)
    if not console.is_terminal and not os.environ.get("COLUMNS", "").isdigit():
        console.width = UNBOUNDED
    return Output(console)


def spaced(pictures: Sequence[RenderableType]) -> Group:
    """Pictures below each other, with a line between."""
    return Group(*[part for picture in pictures for part in (Text(), picture)][1:])


def shown(text: str) -> str:
    """Foreign text, safe to print: characters that would control the terminal are replaced."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "�" for letter in text)
