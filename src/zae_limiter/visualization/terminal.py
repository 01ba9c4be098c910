"""Plots for terminals: columns of eighths, lines of braille dots. Pure: numbers in, lines of marks out.

A plot has its scale at the left, the time below, and at most as many columns as it is given. A value that is not
zero never looks like zero; what lies below zero is drawn below it and marked as such.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from zae_limiter.models.choices import WindowType
from zae_limiter.visualization.scales import compact, round_up, time_labels
from zae_limiter.visualization.series import Point, Series

HEIGHT = 8
EIGHTHS = " ▁▂▃▄▅▆▇█"
UPPER_HALF = "▀"
WIDEST_COLUMN = 6
NARROWEST_PLOT = 10

DOTS_ACROSS, DOTS_DOWN = 2, 4
BRAILLE = 0x2800
DOT = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bit of each dot of a braille character, row by row."""

EVERY = {WindowType.HOURLY: "hour", WindowType.DAILY: "day", WindowType.MONTHLY: "month"}


class Role(StrEnum):
    """What a mark is; the printing code gives it a colour."""

    NAME = "name"
    NOTE = "note"
    AXIS = "axis"
    VALUE = "value"
    BELOW_ZERO = "below zero"


class Mark(NamedTuple):
    """A stretch of a line."""

    text: str
    role: Role


Line: TypeAlias = Sequence[Mark]


class Style(StrEnum):
    """What a plot is drawn with."""

    BARS = "bars"
    LINES = "lines"


class Scale(NamedTuple):
    """From values to rows: ``up`` rows end at ``top``, ``down`` rows at ``-bottom``."""

    top: int
    up: int
    bottom: int
    down: int


def plot(series: Series, style: Style, width: int, height: int = HEIGHT) -> list[Line]:
    """A plot of one series, no wider than ``width``; only a heading if nothing was used at all."""
    values = [point.value for point in series.points]
    if not any(values):
        return [_heading(series)]
    scale = scale_of(values, height)
    labels = _scale_labels(scale)
    gutter = max(map(len, labels)) + 2
    room = max(width - gutter, NARROWEST_PLOT)
    lines = [_heading(series)]
    if style is Style.BARS:
        left_out = max(len(series.points) - room, 0)
        if left_out:
            lines.append((Mark(f"  {left_out:,} earlier windows do not fit; lines show all of them", Role.NOTE),))
        points = series.points[left_out:]
        columns, rows = _bars(points, scale, room)
    else:
        points = series.points
        columns, rows = _lines(points, scale, room)
    axis = min(max(map(len, rows), default=0) + 1, room)
    for place, (label, row) in enumerate(zip(labels, rows, strict=True)):
        role = Role.VALUE if place < scale.up else Role.BELOW_ZERO
        tick = Mark(f"{label:>{gutter - 2}} {'┤' if label else '│'}", Role.AXIS)
        lines.append((tick, Mark(row.rstrip(), role)))
        if place == scale.up - 1:
            lines.append((Mark(f"{'0':>{gutter - 2}} ┼" + "─" * axis, Role.AXIS),))
    for text in time_labels([point.start for point in points], columns, series.window, room):
        lines.append((Mark(" " * gutter + text, Role.AXIS),))
    return lines


def scale_of(values: Sequence[int], height: int) -> Scale:
    """Round ends for these values; rows above and below zero in proportion."""
    highest, lowest = max(*values, 0), min(*values, 0)
    top = round_up(highest)
    if lowest == 0:
        return Scale(top, height, 0, 0)
    bottom = round_up(-lowest)
    if highest == 0:
        return Scale(top, 1, bottom, height - 1)
    down = min(max(round(height * bottom / (top + bottom)), 1), height - 1)
    return Scale(top, height - down, bottom, down)


def _scale_labels(scale: Scale) -> list[str]:
    """The text beside each row: the ends, and the middle if there is room for one."""
    labels = [""] * (scale.up + scale.down)
    labels[0] = compact(scale.top)
    if scale.up >= 4 and scale.up % 2 == 0 and scale.top % 2 == 0:
        labels[scale.up // 2] = compact(scale.top / 2)
    if scale.down:
        labels[-1] = compact(-scale.bottom)
    return labels


def _heading(series: Series) -> Line:
    numbers = f"{series.total:,} in all, at most {series.peak.value:,}"
    if not any(point.value for point in series.points):
        numbers = "nothing used"
    return (Mark(series.name, Role.NAME), Mark(f"  per {EVERY[series.window]}; {numbers}", Role.NOTE))


def _bars(points: Sequence[Point], scale: Scale, room: int) -> tuple[list[int], list[str]]:
    """The column of each window, and the rows."""
    slot = min(room // len(points), WIDEST_COLUMN)
    thick = max(slot - 1, 1)
    rows = []
    for row in range(scale.up + scale.down):
        cells = [_cell(point.value, row, scale) * thick for point in points]
        rows.append("".join(cell.ljust(slot) for cell in cells))
    return [place * slot for place in range(len(points))], rows


def _cell(value: int, row: int, scale: Scale) -> str:
    """What a column shows in one row."""
    if row < scale.up:
        eighths = max(round(max(value, 0) / scale.top * scale.up * 8), value > 0)
        return EIGHTHS[min(max(eighths - (scale.up - 1 - row) * 8, 0), 8)]
    halves = max(round(max(-value, 0) / scale.bottom * scale.down * 2), value < 0)
    return ("", UPPER_HALF, "█")[min(max(halves - (row - scale.up) * 2, 0), 2)] or " "


def _lines(points: Sequence[Point], scale: Scale, room: int) -> tuple[list[int], list[str]]:
    """The column of each window, and the rows, of a line through all values."""
    count = len(points)
    across = room * DOTS_ACROSS - 1
    xs = [round(place * across / (count - 1)) if count > 1 else 0 for place in range(count)]
    ys = [_dot_row(point.value, scale) for point in points]
    cells = [[0] * room for _ in range(scale.up + scale.down)]
    for x, y in _strokes(xs, ys):
        cells[y // DOTS_DOWN][x // DOTS_ACROSS] |= DOT[y % DOTS_DOWN][x % DOTS_ACROSS]
    rows = ["".join(chr(BRAILLE + dots) if dots else " " for dots in row) for row in cells]
    return [x // DOTS_ACROSS for x in xs], rows


def _dot_row(value: int, scale: Scale) -> int:
    """The row of dots for a value, from the top."""
    if value >= 0:
        dots = scale.up * DOTS_DOWN
        return dots - 1 - min(round(value / scale.top * (dots - 1)), dots - 1)
    dots = scale.down * DOTS_DOWN
    return scale.up * DOTS_DOWN + max(round(-value / scale.bottom * dots) - 1, 0)


def _strokes(xs: Sequence[int], ys: Sequence[int]) -> set[tuple[int, int]]:
    """The dots of straight lines from point to point."""
    dots = set(zip(xs, ys, strict=True))
    for (x, y), (to_x, to_y) in pairwise(zip(xs, ys, strict=True)):
        steps = max(abs(to_x - x), abs(to_y - y))
        dots |= {(round(x + (to_x - x) * step / steps), round(y + (to_y - y) * step / steps)) for step in range(steps)}
    return dots
