"""The axes of a plot: round numbers upwards, times along."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

from zae_limiter.models.choices import WindowType

ROUND = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
"""What a scale may end at, times a power of ten."""

UNITS = ((10**15, "P"), (10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))
WRITTEN_OUT = 10_000
"""Below this a number is short enough as it is."""


def round_up(value: int) -> int:
    """The next round whole number, at least 1."""
    if value <= 1:
        return 1
    power: int = 10 ** (len(str(value)) - 1)
    return next(end for step in ROUND if (end := math.ceil(step * power)) >= value)


def compact(value: float) -> str:
    """A number in a few characters: ``9,500``, ``12.5k``, ``3M``."""
    if abs(value) < WRITTEN_OUT:
        return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"
    size, unit = next((size, unit) for size, unit in UNITS if abs(value) >= size)
    return f"{value / size:.4g}{unit}"


DAYS = 30


class Dates(NamedTuple):
    """How the windows of one length are called: each by itself, and what they share with their neighbours."""

    own: str
    shared: str
    steps: tuple[int, ...]
    """Of how many windows one is named, if not all can be."""


DATES = {
    WindowType.HOURLY: Dates("%H:%M", "%d %b", (1, 2, 3, 6, 12, 24)),
    WindowType.DAILY: Dates("%d", "%b %Y", (1, 2, 5, 10, 15)),
    WindowType.MONTHLY: Dates("%b", "%Y", (1, 2, 3, 6, 12)),
}


def is_named(start: datetime, window: WindowType, step: int) -> bool:
    """Whether a window gets a label when one in ``step`` does: at round hours, days and months.

    Months have no round length: their last days would crowd the first ones of the next.
    """
    if window is WindowType.HOURLY:
        return start.hour % step == 0
    if window is WindowType.MONTHLY:
        return (start.month - 1) % step == 0
    return (start.day - 1) % step == 0 and (step == 1 or start.day - 1 + step // 2 < DAYS)


def time_labels(starts: Sequence[datetime], columns: Sequence[int], window: WindowType, width: int) -> list[str]:
    """Two lines below a plot: windows by name at their columns, and the date that they share."""
    dates = DATES[window]
    return [
        _line(_own(starts, columns, window, dates), width),
        _line(_shared(starts, columns, dates.shared), width),
    ]


def _own(
    starts: Sequence[datetime], columns: Sequence[int], window: WindowType, dates: Dates
) -> list[tuple[int, str]]:
    for step in dates.steps:
        named = [
            (column, start.strftime(dates.own))
            for start, column in zip(starts, columns, strict=True)
            if is_named(start, window, step)
        ]
        if all(column + len(text) < other for (column, text), (other, _) in pairwise(named)):
            break
    return named or [(columns[0], starts[0].strftime(dates.own))]


def _shared(starts: Sequence[datetime], columns: Sequence[int], form: str) -> list[tuple[int, str]]:
    named: list[tuple[int, str]] = []
    before = None
    for start, column in zip(starts, columns, strict=True):
        text = start.strftime(form)
        if text != before:
            named.append((column, text))
            before = text
    return named


def _line(labels: Sequence[tuple[int, str]], width: int) -> str:
    """Labels at their columns; one that would touch the label before it or the end is left out."""
    line = ""
    for column, text in labels:
        place = min(column, width - len(text))
        if place >= 0 and (not line or place > len(line)):
            line = line.ljust(place) + text
    return line
