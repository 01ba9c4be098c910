"""The live picture: one line per bucket, both limits as bars, and the time.

:func:`frame` is a pure function of a :class:`Moment` and a width. At 80 columns it takes 20 lines, so that it
fits the smallest common terminal; wider ones get longer bars.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from zae_limiter.cli.demo.scenario import Reading
from zae_limiter.cli.demo.tally import Ending, Tally
from zae_limiter.cli.output.bars import DEBT, bar, count, level_bar, level_number

FIXED_COLUMNS = 55
"""What a line takes beside its two bars: the tree, the numbers, the gaps."""

BAR_COLUMNS = range(6, 31)

SHOWN = ("rpm", "tpm")
"""The limits that have bars; budgets and calls in flight have a line below."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Everything that is shown at one moment."""

    elapsed: float
    seconds: float
    readings: list[Reading]
    tally: Tally
    over: bool = False


@contextmanager
def screen(console: Console) -> Iterator[Callable[[Moment], None] | None]:
    """A function that shows a moment in place of the one before; ``None`` without a terminal. The last one stays."""
    if not console.is_interactive:
        yield None
        return
    with Live(console=console, auto_refresh=False) as live:
        yield lambda moment: live.update(frame(moment, console.width), refresh=True)
    console.print()


def frame(moment: Moment, width: int) -> RenderableType:
    """The whole picture."""
    columns = min(max((width - FIXED_COLUMNS) // 2, BAR_COLUMNS[0]), BAR_COLUMNS[-1])
    return Group(
        _clock(moment, min(width, FIXED_COLUMNS + 2 * columns)),
        Text(),
        _buckets(moment, columns),
        *_budgets(moment),
        Text(),
        _totals(moment),
    )


def _clock(moment: Moment, width: int) -> Text:
    label = f" {min(moment.elapsed, moment.seconds):4.1f} of {moment.seconds:g} s "
    part = moment.elapsed / moment.seconds
    return bar(part, width - len(label), "cyan").append(label, style="cyan")


def _buckets(moment: Moment, columns: int) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("bucket", min_width=14, no_wrap=True)
    for name in SHOWN:
        table.add_column(f"{name} left", min_width=columns, no_wrap=True)
        table.add_column("", min_width=7 if name == "tpm" else 3, justify="right", no_wrap=True)
    for heading in ("admitted", "denied", "debt"):
        table.add_column(heading, min_width=8, justify="right", no_wrap=True)
    resource = None
    for place, status in moment.readings:
        if place.bucket.resource != resource:
            resource = place.bucket.resource
            table.add_row(Text(resource, style="bold cyan"))
        cells: list[RenderableType] = [place.branch]
        shown = [level for level in status.limits if level.limit_name in SHOWN]
        for level in shown:
            cells += level_bar(level.available, level.limit.burst, columns), level_number(level.available)
        debt = max(max(-level.available for level in shown), 0)
        table.add_row(
            *cells,
            count(status.total_events),
            count(moment.tally.refusals[place.bucket], "yellow"),
            count(debt, DEBT),
        )
    return table


def _budgets(moment: Moment) -> list[Text]:
    """A line for each bucket with a budget or with calls in flight."""
    lines = []
    for place, status in moment.readings:
        words = [
            f"{level.limit.burst - level.available} of {level.limit.burst} {level.limit_name} in flight"
            if level.limit.is_held
            else f"{level.available:,} of {level.limit.burst:,} {level.limit_name} left this month"
            for level in status.limits
            if level.limit_name not in SHOWN
        ]
        if words:
            lines.append(Text(f"{place.bucket.entity_id}: {', '.join(words)}", style="cyan"))
    return lines


def _totals(moment: Moment) -> Text:
    tally = moment.tally
    words = [
        (f"{tally.admitted.total():,} admitted", "green"),
        (f"{tally.ended(Ending.DENIED):,} denied", "yellow"),
        (f"{tally.ended(Ending.FAILED):,} failed and refunded", "magenta"),
    ]
    if not moment.over:
        words.append(("Ctrl-C ends early", "dim"))
    return Text("   ").join(Text(*word) for word in words)
