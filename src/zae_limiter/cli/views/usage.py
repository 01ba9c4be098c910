"""Usage windows as a table, and added up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from zae_limiter import UsageSnapshot, UsageSummary, WindowType
from zae_limiter.cli.output.bars import level_number
from zae_limiter.cli.output.console import Output
from zae_limiter.cli.output.text_tables import Column, Row, table
from zae_limiter.cli.views.formats import NOTHING, iso, moment, plural

COLUMNS = (
    Column("entity"),
    Column("resource"),
    Column("window", rigid=True),
    Column("start (UTC)", rigid=True),
    Column("used"),
    Column("grants", numbers=True),
)

STARTS = {WindowType.HOURLY: "%Y-%m-%d %H:%M", WindowType.DAILY: "%Y-%m-%d", WindowType.MONTHLY: "%Y-%m"}
"""As precise as a window is long."""


def snapshot_document(snapshot: UsageSnapshot) -> dict[str, Any]:
    """A window for programs."""
    return {
        "entity_id": snapshot.entity_id,
        "resource": snapshot.resource,
        "window_type": str(snapshot.window_type),
        "window_start": iso(snapshot.window_start),
        "window_end": iso(snapshot.window_end),
        "counters": dict(snapshot.counters),
        "total_events": snapshot.total_events,
    }


def snapshot_rows(snapshot: UsageSnapshot) -> list[Row]:
    """A window in a list."""
    return [
        (
            snapshot.entity_id,
            snapshot.resource,
            str(snapshot.window_type),
            snapshot.window_start.strftime(STARTS[snapshot.window_type]),
            counters_in_words(snapshot.counters),
            f"{snapshot.total_events:,}",
        )
    ]


def counters_in_words(counters: Mapping[str, int]) -> str:
    """``rpm 12, tpm 3,400``."""
    return ", ".join(f"{name} {amount:,}" for name, amount in sorted(counters.items())) or NOTHING


def summary_document(
    entity_id: str | None, resource: str | None, window_type: WindowType, summary: UsageSummary
) -> dict[str, Any]:
    """Windows added up, for programs."""
    return {
        "entity_id": entity_id,
        "resource": resource,
        "window_type": str(window_type),
        "snapshot_count": summary.snapshot_count,
        "total": dict(summary.total),
        "average": dict(summary.average),
        "total_events": summary.total_events,
        "min_window_start": iso(summary.min_window_start),
        "max_window_start": iso(summary.max_window_start),
    }


def summary_picture(output: Output, title: str, window_type: WindowType, summary: UsageSummary) -> RenderableType:
    """Windows added up, for people."""
    if not summary.snapshot_count:
        return Text(f"{title}: no usage in this period", style="dim")
    count = plural(summary.snapshot_count, f"{window_type} window")
    period = f"{count}, from {moment(summary.min_window_start)} to {moment(summary.max_window_start)} UTC"
    rows = [
        (name, level_number(total), f"{summary.average[name]:,.1f}") for name, total in sorted(summary.total.items())
    ]
    columns = (Column("limit"), Column("total", numbers=True), Column("per window", numbers=True))
    return Group(
        Text.assemble((title, "bold"), f": {plural(summary.total_events, 'grant')}"),
        Text(period, style="dim"),
        Text(),
        table(output, columns, rows),
    )
