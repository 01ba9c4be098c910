"""Usage plots on the terminal: the marks of ``visualization`` in colours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from zae_limiter import WindowType
from zae_limiter.cli.views.formats import iso
from zae_limiter.visualization.series import Series
from zae_limiter.visualization.terminal import Line, Role, Style, plot

COLOURS = ("cyan", "magenta", "green", "blue", "yellow")
"""Of one plot after the other."""

STYLES = {Role.NAME: "bold", Role.NOTE: "", Role.AXIS: "dim", Role.BELOW_ZERO: "red"}


def series_document(
    entity_id: str | None, resource: str | None, window: WindowType, all_series: Sequence[Series]
) -> dict[str, Any]:
    """What is plotted, for programs."""
    return {
        "entity_id": entity_id,
        "resource": resource,
        "window_type": str(window),
        "series": [
            {
                "limit_name": series.name,
                "total": series.total,
                "points": [{"window_start": iso(point.start), "value": point.value} for point in series.points],
            }
            for series in all_series
        ],
    }


def plots_picture(title: str, all_series: Sequence[Series], style: Style, width: int, height: int) -> RenderableType:
    """A plot of each series below the other."""
    if not all_series:
        return Text(f"{title}: no usage in this period", style="dim")
    lines = [Text(title, style="bold")]
    for place, series in enumerate(all_series):
        colour = COLOURS[place % len(COLOURS)]
        lines += [Text(), *(_coloured(line, colour) for line in plot(series, style, width, height))]
    return Group(*lines)


def _coloured(line: Line, colour: str) -> Text:
    text = Text.assemble(*((mark.text, STYLES.get(mark.role, colour)) for mark in line))
    text.no_wrap = True
    text.rstrip()
    return text
