"""Adding up usage windows."""

from __future__ import annotations

from collections.abc import Sequence

from zae_limiter.models.reports import UsageSnapshot, UsageSummary


def summarize(snapshots: Sequence[UsageSnapshot]) -> UsageSummary:
    """Totals, averages per window, first and last start."""
    total: dict[str, int] = {}
    for snapshot in snapshots:
        for name, amount in snapshot.counters.items():
            total[name] = total.get(name, 0) + amount
    starts = [snapshot.window_start for snapshot in snapshots]
    return UsageSummary(
        snapshot_count=len(snapshots),
        total=total,
        average={name: amount / len(snapshots) for name, amount in total.items()},
        total_events=sum(snapshot.total_events for snapshot in snapshots),
        min_window_start=min(starts, default=None),
        max_window_start=max(starts, default=None),
    )
