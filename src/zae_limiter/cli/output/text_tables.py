"""Tables that are aligned, no wider than the terminal, and printed as their rows come.

The columns are as wide as the first page needs; a later page widens them if it must. Where there is too little room
the widest columns are narrowed and their cells continue on the next line, so nothing is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from rich import box
from rich.table import Table
from rich.text import Text

from zae_limiter.cli.output.console import Output, shown

Cell: TypeAlias = str | Text
Row: TypeAlias = Sequence[Cell]

GAP = 2
NARROWEST = 6


class Column(NamedTuple):
    """What a column is called. ``numbers`` stand at the right; they and what is ``rigid`` are never narrowed."""

    heading: str
    numbers: bool = False
    rigid: bool = False
    style: str = ""


def print_rows(output: Output, columns: Sequence[Column], pages: Iterable[Sequence[Row]]) -> bool:
    """Print every page as it comes; whether there were any rows."""
    widths = [0] * len(columns)
    began = False
    for rows in pages:
        if not rows:
            continue
        cells = [[_text(cell) for cell in row] for row in rows]
        widths = [max(known, *wanted) for known, *wanted in zip(widths, *map(_lengths, cells), strict=True)]
        output.show(_table(columns, cells, _fitted(columns, widths, output), heading=not began))
        began = True
    return began


def table(output: Output, columns: Sequence[Column], rows: Sequence[Row]) -> Table:
    """A table as a picture."""
    cells = [[_text(cell) for cell in row] for row in rows]
    widths = [max(wanted, default=0) for wanted in zip(*map(_lengths, cells), strict=True)] or [0] * len(columns)
    return _table(columns, cells, _fitted(columns, widths, output), heading=True)


def ruled(*, heading: bool = True) -> Table:
    """A table without columns yet: a line below its heading and nothing around it."""
    return Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        show_header=heading,
        header_style="dim",
        border_style="dim",
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )


def fitting(natural: Sequence[int], shrinkable: Sequence[bool], room: int) -> list[int]:
    """The widths of columns in so much room: the widest that may shrink give way first."""
    widths = list(natural)
    while sum(widths) + GAP * (len(widths) - 1) > room:
        victims = [place for place, width in enumerate(widths) if shrinkable[place] and width > NARROWEST]
        if not victims:
            break
        widths[max(victims, key=lambda place: widths[place])] -= 1
    return widths


def _fitted(columns: Sequence[Column], widths: Sequence[int], output: Output) -> list[int]:
    wanted = [max(len(column.heading), width) for column, width in zip(columns, widths, strict=True)]
    return fitting(wanted, [not (column.numbers or column.rigid) for column in columns], output.console.width)


def _table(
    columns: Sequence[Column], rows: Sequence[Sequence[Text]], widths: Sequence[int], *, heading: bool
) -> Table:
    drawn = ruled(heading=heading)
    for column, width in zip(columns, widths, strict=True):
        drawn.add_column(
            column.heading,
            justify="right" if column.numbers else "left",
            style=column.style,
            width=width,
            no_wrap=column.numbers or column.rigid,
            overflow="fold",
        )
    for row in rows:
        drawn.add_row(*row)
    return drawn


def _text(cell: Cell) -> Text:
    return cell if isinstance(cell, Text) else Text(shown(cell))


def _lengths(row: Sequence[Text]) -> list[int]:
    return [max((line.cell_len for line in cell.split("\n")), default=0) for cell in row]
