"""Figures for reports, as PNG or SVG: the same series, drawn by matplotlib, which only this module imports."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.extras import install_command
from zae_limiter.models.choices import WindowType
from zae_limiter.visualization.scales import compact
from zae_limiter.visualization.series import Series
from zae_limiter.visualization.terminal import EVERY, Style

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Distinguishable also with colour blindness, on screens and in print (Okabe and Ito)."""

BELOW_ZERO = "#b2182b"
FAINT, INK = "#d0d4da", "#24292f"
WIDTH_INCHES, HEIGHT_INCHES = 9.0, 2.4
PADDING_INCHES = 0.12
DOTS_PER_INCH = 144
BAR_PART = {WindowType.HOURLY: 1 / 24, WindowType.DAILY: 1.0, WindowType.MONTHLY: 28.0}
"""Days that a bar may take."""


class PlotsNotInstalled(ZAELimiterError, ImportError):
    """What draws figures is an extra."""

    def __init__(self) -> None:
        super().__init__(f"figures need matplotlib: {install_command('plots')}")


def save(all_series: Sequence[Series], title: str, style: Style, path: Path, kind: str) -> None:
    """Write a figure of all series, one below the other, as ``png`` or ``svg``."""
    figure = draw(all_series, title, style)
    options: dict[str, Any] = {"dpi": DOTS_PER_INCH} if kind == "png" else {"metadata": {"Date": None}}
    figure.savefig(path, format=kind, facecolor="white", **options)


def draw(all_series: Sequence[Series], title: str, style: Style) -> Any:
    """The figure of every limit that was used. Raises :class:`PlotsNotInstalled`."""
    try:
        dates, ticker, canvas = map(import_module, ("matplotlib.dates", "matplotlib.ticker", "matplotlib.figure"))
    except ModuleNotFoundError as error:
        raise PlotsNotInstalled from error
    used = [series for series in all_series if any(point.value for point in series.points)] or all_series
    figure = canvas.Figure(figsize=(WIDTH_INCHES, HEIGHT_INCHES * len(used) + 0.6), layout="constrained")
    figure.get_layout_engine().set(w_pad=PADDING_INCHES, h_pad=PADDING_INCHES)
    figure.suptitle(f"{title} (UTC)", x=0.01, ha="left", fontsize=12, fontweight="bold", color=INK)
    for place, series in enumerate(used):
        axes = figure.add_subplot(len(used), 1, place + 1)
        _draw_one(axes, series, style, COLOURS[place % len(COLOURS)])
        locator = dates.AutoDateLocator(minticks=3, maxticks=10, tz="UTC")
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz="UTC"))
        axes.yaxis.set_major_locator(ticker.MaxNLocator(4, integer=True))
        axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: compact(value)))
    return figure


def _draw_one(axes: Any, series: Series, style: Style, colour: str) -> None:
    starts = [point.start for point in series.points]
    values = [point.value for point in series.points]
    if style is Style.BARS:
        colours = [BELOW_ZERO if value < 0 else colour for value in values]
        axes.bar(starts, values, width=0.8 * BAR_PART[series.window], align="edge", color=colours)
    else:
        axes.plot(starts, values, color=colour, linewidth=1.6, marker="o", markersize=2.5)
        axes.fill_between(starts, values, color=colour, alpha=0.12, linewidth=0)
    axes.set_title(
        f"{series.name} per {EVERY[series.window]}: {series.total:,} in all, at most {series.peak.value:,}",
        loc="left",
        fontsize=10,
        color=INK,
    )
    axes.grid(axis="y", color=FAINT, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.axhline(0, color=INK, linewidth=0.8)
    axes.tick_params(colors=INK, labelsize=9, length=0)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
