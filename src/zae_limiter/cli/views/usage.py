"""Usage windows as a table, and added up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from zae_limiter import UsageSnapshot, UsageSummary, UsageTotal, WindowType
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
    Column("denied"),
)

TOP_COLUMNS = (Column("used"), Column("grants", numbers=True), Column("denied"))

STARTS = {WindowType.HOURLY: "%Y-%m-%d %H:%M", WindowType.DAILY: "%Y-%m-%d", WindowType.MONTHLY: "%Y-%m"}
"""As precise as a window is long."""


def snapshot_document(snapshot: UsageSnapshot) -> dict[str, Any]:
    """A window for programs. What limits that only watch would have refused is there if there is any."""
    watched = {"would_refuse": dict(snapshot.would_refuse)} if snapshot.would_refuse else {}
    return {
        "entity_id": snapshot.entity_id,
        "resource": snapshot.resource,
        "window_type": str(snapshot.window_type),
        "window_start": iso(snapshot.window_start),
        "window_end": iso(snapshot.window_end),
        "counters": dict(snapshot.counters),
        "total_events": snapshot.total_events,
        "cascaded": dict(snapshot.cascaded),
        "cascaded_events": snapshot.cascaded_events,
        "denials": dict(snapshot.denials),
        **watched,
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
            refusals_in_words(snapshot),
        )
    ]


def refusals_in_words(snapshot: UsageSnapshot) -> str:
    """What limits refused, and what those that only watch would have."""
    words = [f"{name} {count:,}" for name, count in sorted(snapshot.denials.items())]
    words += [f"{name} would {count:,}" for name, count in sorted(snapshot.would_refuse.items())]
    return ", ".join(words) or NOTHING


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
        "denials": dict(summary.denials),
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
        (
            name,
            level_number(summary.total.get(name, 0)),
            f"{summary.average.get(name, 0):,.1f}",
            f"{summary.denials.get(name, 0):,}",
        )
        for name in sorted(summary.total.keys() | summary.denials.keys())
    ]
    columns = (
        Column("limit"),
        Column("total", numbers=True),
        Column("per window", numbers=True),
        Column("denied", numbers=True),
    )
    calls = f"{plural(summary.total_events, 'grant')}, {plural(summary.total_denials, 'denial')}"
    return Group(
        Text.assemble((title, "bold"), f": {calls}"),
        Text(period, style="dim"),
        Text(),
        table(output, columns, rows),
    )


def top_document(by: str, resource: str | None, window_type: WindowType, used: Sequence[UsageTotal]) -> dict[str, Any]:
    """Who used most, for programs."""
    return {
        "by": by,
        "resource": resource,
        "window_type": str(window_type),
        "totals": [
            {
                "name": one.name,
                "total": dict(one.total),
                "total_events": one.total_events,
                "denials": dict(one.denials),
            }
            for one in used
        ],
    }


def top_picture(output: Output, by: str, used: Sequence[UsageTotal]) -> RenderableType:
    """Who used most, for people."""
    if not used:
        return Text("no usage in this period", style="dim")
    rows = [
        (one.name, counters_in_words(one.total), f"{one.total_events:,}", counters_in_words(one.denials))
        for one in used
    ]
    return table(output, (Column(by), *TOP_COLUMNS), rows)
