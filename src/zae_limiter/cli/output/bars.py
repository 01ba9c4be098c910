"""Bars and numbers as text: pure functions of a value and a width."""

from __future__ import annotations

from rich.text import Text

COLOURS = ((0.5, "green"), (0.2, "yellow"), (0.0, "red"))
"""The colour of a level, by the part of the burst that is at least left."""

TRACK = "grey35"
DEBT = "bold bright_red"

HEAVY, HALF, LIGHT = "━╸─"


def stroke(part: float, width: int) -> str:
    """``part`` of ``width`` as a heavy line, to half a column. Something never shows as nothing."""
    halves = round(min(max(part, 0.0), 1.0) * width * 2)
    whole, half = divmod(max(halves, 1) if part > 0 else 0, 2)
    return HEAVY * whole + HALF * half


def bar(part: float, width: int, colour: str) -> Text:
    """A heavy line on a light one, so that it can be read without colours too."""
    line = stroke(part, width)
    return Text.assemble((line, colour), (LIGHT * (width - len(line)), TRACK))


def level_bar(level: int, burst: int, width: int) -> Text:
    """How full a bucket is. Debt grows the other way, from the right; an empty bucket has a red track."""
    if level < 0:
        owed = "◀" + HEAVY * round(min(-level / burst, 1.0) * (width - 1))
        return Text.assemble((LIGHT * (width - len(owed)), TRACK), (owed, DEBT))
    if level == 0:
        return Text(LIGHT * width, style="red")
    part = level / burst
    return bar(part, width, next(colour for least, colour in COLOURS if part >= least))


def level_number(level: int) -> Text:
    """A level in whole tokens; debt is red and has its sign."""
    return Text(f"{level:,}", style=DEBT if level < 0 else "")


def count(number: int, style: str = "") -> Text:
    """A count; nothing is a dim dot, so that the eye finds the rest."""
    return Text(f"{number:,}", style=style) if number else Text("·", style="dim")


def usage_bar(value: int, largest: int, width: int, colour: str) -> Text:
    """A horizontal bar in proportion to the largest of its column."""
    return Text(stroke(value / largest if largest else 0.0, width), style=colour)
