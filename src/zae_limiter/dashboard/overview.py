"""The first view: what needs attention, worst first.

The pulse says which rows are worth reading: those that are refused or near a limit, then those that call most. What
is shown of them is read from their buckets, each with one look at what its last call would meet. So the view costs one
small text per process and at most fifty looks, however many entities there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from zae_limiter import Check, Pulse, PulseRow, RateLimiter, ValidationError
from zae_limiter.dashboard.statuses import GATE, NEAR_PERMILLE, check_document, used_permille

MOST_ROWS = 50
LOOKS_AT_ONCE = 8
RECENT_MINUTES = 2
"""A refusal of the last two minutes, the one that has begun among them, is one of now."""

MOST_NOISY = 6


async def read_overview(limiter: RateLimiter) -> dict[str, Any]:
    """Everything that the first view shows."""
    pulse = await limiter.get_pulse()
    looks = await look_at(limiter, pulse.rows[:MOST_ROWS])
    shown = [(row, check) for row, check in looks if check is not None]
    rows = [row_document(row, check) for row, check in shown]
    rows = sorted((row for row in rows if row["kinds"]), key=_badness)
    return {
        "namespace": limiter.repository.namespace,
        "at": datetime.now(UTC).isoformat(),
        "processes": pulse.processes,
        "counts": {kind: sum(kind in row["kinds"] for row in rows) for kind in ("refused", "near", "debt")},
        "rows": rows,
        "more": sum(bool(row.refused_in_all or row.level) for row in pulse.rows[MOST_ROWS:]),
        "minutes": minutes_document(pulse),
        "store": {
            "p50_ms": pulse.store_milliseconds(0.5),
            "p99_ms": pulse.store_milliseconds(0.99),
            "calls": sum(count for _, count in pulse.store_calls),
            "errors": pulse.store_errors,
        },
        "noisiest": noisiest(pulse.rows),
        "providers": [pause for row, check in shown for pause in pauses(row, check)],
    }


async def look_at(limiter: RateLimiter, rows: Sequence[PulseRow]) -> list[tuple[PulseRow, Check | None]]:
    """What the last call of each row would meet now; ``None``: its limits are gone."""
    turns = asyncio.Semaphore(LOOKS_AT_ONCE)

    async def look(row: PulseRow) -> tuple[PulseRow, Check | None]:
        async with turns:
            try:
                return row, await limiter.check(row.entity_id, row.resource, row.requested)
            except ValidationError:
                return row, await _look_without_amounts(limiter, row)

    return list(await asyncio.gather(*map(look, rows)))


async def _look_without_amounts(limiter: RateLimiter, row: PulseRow) -> Check | None:
    """Limits may have other names by now."""
    try:
        return await limiter.check(row.entity_id, row.resource, {})
    except ValidationError:
        return None


def row_document(row: PulseRow, check: Check) -> dict[str, Any]:
    """One row: whose, which limit binds, how full it is, and since when it refuses."""
    entities = list(dict.fromkeys(status.entity_id for status in check.statuses))
    return {
        "entity": row.entity_id,
        "path": [entity_id for entity_id in entities if entity_id != row.entity_id],
        "resource": row.resource,
        "kinds": kinds_of(row, check),
        "refused": list(row.refused),
        "refused_per_minute": max(row.refused[-RECENT_MINUTES:]),
        "calls": row.calls,
        "requested": dict(row.requested),
        **check_document(check),
    }


def kinds_of(row: PulseRow, check: Check) -> list[str]:
    """Why a row needs attention."""
    own = [status for status in check.statuses if status.enforced and status.limit_name != GATE]
    most = max(map(used_permille, own), default=0)
    found = []
    if any(row.refused[-RECENT_MINUTES:]):
        found.append("refused")
    if any(status.available < 0 for status in own):
        found.append("debt")
    elif most >= NEAR_PERMILLE:
        found.append("near")
    return found


def _badness(row: dict[str, Any]) -> tuple[Any, ...]:
    used = row["binding"]["used_permille"] if row["binding"] else 0
    return -row["refused_per_minute"], "debt" not in row["kinds"], -used, row["entity"], row["resource"]


def minutes_document(pulse: Pulse) -> dict[str, Any]:
    """The last hour, by the minute."""
    return {
        "until": pulse.until.isoformat(),
        "granted": list(pulse.granted),
        "degraded": list(pulse.degraded),
        "refused": [
            {"limit": one.limit_name, "level": one.level, "minutes": list(one.minutes)} for one in pulse.refused
        ],
    }


def noisiest(rows: Sequence[PulseRow]) -> list[dict[str, Any]]:
    """Who makes most of the calls, and which part of its calls is refused."""
    calls: dict[str, int] = {}
    refused: dict[str, int] = {}
    for row in rows:
        calls[row.entity_id] = calls.get(row.entity_id, 0) + row.calls
        refused[row.entity_id] = refused.get(row.entity_id, 0) + row.refused_in_all
    total = sum(calls.values()) or 1
    ranked = sorted(calls, key=lambda entity_id: (-calls[entity_id], entity_id))[:MOST_NOISY]
    return [
        {
            "entity": entity_id,
            "calls": calls[entity_id],
            "share": calls[entity_id] / total,
            "refused_share": refused[entity_id] / max(calls[entity_id], 1),
        }
        for entity_id in ranked
        if calls[entity_id]
    ]


def pauses(row: PulseRow, check: Check) -> list[dict[str, Any]]:
    """Which providers pause their callers: their gates are in debt."""
    return [
        {"entity": status.entity_id, "resource": row.resource, "paused_seconds": status.seconds_to_full}
        for status in check.statuses
        if status.limit_name == GATE and status.available < 0
    ]
