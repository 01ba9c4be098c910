"""A pulse as stores keep it, and the pulses of all processes as one.

The text is JSON of a few kilobytes at most: the rows that matter least are left out until it fits. Merging adds up
minute by minute; how full a limit is, the latest report says. The order of the pulses does not matter.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from zae_limiter.models.moments import LAST_MOMENT_MS, at
from zae_limiter.models.pulse import (
    MINUTES_OF_ROWS,
    MINUTES_OF_TOTALS,
    NEAR_PERMILLE,
    Pulse,
    PulseLevel,
    PulseRow,
    RefusedBy,
)
from zae_limiter.pulses.pulse_counts import STORE_MS, Counted, Place

FORMAT: Final = 1

MOST_BYTES: Final = 8_000
"""So long a pulse may be."""

MOST_ROWS: Final = 100
MOST_MERGED_ROWS: Final = 1_000
MOST_LABELS_READ: Final = 64


def to_text(counted: Counted) -> str:
    """A pulse, with as many rows as fit."""
    head: dict[str, Any] = {
        "v": FORMAT,
        "m": counted.now_minute,
        "g": _short(counted.granted),
        "d": _short(counted.degraded),
        "r": [[*label, _short(minutes)] for label, minutes in counted.refused.items() if any(minutes)],
        "s": counted.store_calls,
        "e": counted.store_errors,
    }
    left = MOST_BYTES - len(_json({**head, "rows": []}))
    rows = []
    for row in _rows(counted)[:MOST_ROWS]:
        left -= len(_json(row)) + 1
        if left < 0:
            break
        rows.append(row)
    return _json({**head, "rows": rows})


def _rows(counted: Counted) -> list[list[Any]]:
    """Everything by place, the worst first."""
    places = dict.fromkeys([*counted.refusals, *counted.levels, *counted.calls])
    rows = []
    for place in places:
        refused = counted.refusals.get(place, [])
        calls = max(counted.calls.get(place, 0), sum(refused))
        level = counted.levels.get(place)
        seen = [] if level is None else [*level[:5], dict(level.requested)]
        rows.append([*place, _short(refused), calls, seen])
    return sorted(rows, key=_badness)


def _badness(row: list[Any]) -> tuple[int, int, int]:
    _, _, refused, calls, level = row
    return -sum(refused), -(level[2] if level else 0), -calls


def merge(texts: Iterable[str], now_ms: int) -> Pulse:
    """The pulses of all processes as one. A text that is none of ours, or newer, is left out."""
    last = now_ms // 60_000
    parts = [part for part in map(_parsed, texts) if part is not None]
    granted, degraded = [0] * MINUTES_OF_TOTALS, [0] * MINUTES_OF_TOTALS
    refused: dict[tuple[str, str], list[int]] = {}
    rows: dict[Place, _MergedRow] = {}
    store_calls = [0] * (len(STORE_MS) + 1)
    for part in parts:
        shift = max(last - part["m"], 0)
        _add(granted, part["g"], shift)
        _add(degraded, part["d"], shift)
        for name, level, minutes in part["r"]:
            if (name, level) in refused or len(refused) < MOST_LABELS_READ:
                _add(refused.setdefault((name, level), [0] * MINUTES_OF_TOTALS), minutes, shift)
        for index, count in enumerate(part["s"]):
            store_calls[index] += count
        for entity_id, resource, minutes, calls, level in part["rows"]:
            rows.setdefault((entity_id, resource), _MergedRow()).add(minutes, shift, calls, level)
    bounds = [*STORE_MS, None]
    return Pulse(
        processes=len(parts),
        rows=tuple(sorted((row.row(place) for place, row in rows.items()), key=attention)[:MOST_MERGED_ROWS]),
        granted=tuple(granted),
        refused=tuple(RefusedBy(*label, tuple(minutes)) for label, minutes in sorted(refused.items())),
        degraded=tuple(degraded),
        store_calls=tuple(zip(bounds, store_calls, strict=True)),
        store_errors=sum(part["e"] for part in parts),
        until=at(last * 60_000),
    )


def attention(row: PulseRow) -> tuple[int, int, int, Place]:
    """Sorts the worst row first: refused lately, then in debt or near a limit, then by calls."""
    level = row.level
    near = level.used_permille if level is not None and level.used_permille >= NEAR_PERMILLE else 0
    return -row.refused_in_all, -near, -row.calls, (row.entity_id, row.resource)


class _MergedRow:
    """One place, over all processes."""

    __slots__ = ("calls", "level", "refused")

    def __init__(self) -> None:
        self.refused = [0] * MINUTES_OF_ROWS
        self.calls = 0
        self.level: list[Any] = []

    def add(self, minutes: Sequence[int], shift: int, calls: int, level: list[Any]) -> None:
        _add(self.refused, minutes, shift)
        self.calls += calls
        if level and (not self.level or _freshness(level) > _freshness(self.level)):
            self.level = level

    def row(self, place: Place) -> PulseRow:
        if not self.level:
            return PulseRow(*place, tuple(self.refused), self.calls)
        limit_name, entity_id, permille, available, seen_s, requested = self.level
        level = PulseLevel(limit_name, entity_id, permille, available, at(seen_s * 1000))
        return PulseRow(*place, tuple(self.refused), self.calls, requested, level)


def _freshness(level: list[Any]) -> tuple[int, int, str]:
    """The latest report counts; of two of the same second, the worse."""
    return level[4], level[2], _json(level)


def _add(series: list[int], minutes: Sequence[int], shift: int) -> None:
    """Add numbers whose last one is ``shift`` minutes before the last of the series."""
    for back, count in enumerate(reversed(minutes)):
        place = len(series) - 1 - shift - back
        if place < 0:
            return
        series[place] += count


def _short(minutes: Sequence[int]) -> list[int]:
    """Without the zeros before the first number."""
    first = next((index for index, count in enumerate(minutes) if count), len(minutes))
    return list(minutes[first:])


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _parsed(text: str) -> dict[str, Any] | None:
    """The parts of a pulse, if it is one that this version reads."""
    try:
        part: dict[str, Any] = json.loads(text)
        _check_part(part)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return part


def _check_part(part: dict[str, Any]) -> None:
    """Raises ``ValueError``, ``TypeError`` or ``KeyError`` at what is not as it should be."""
    if part["v"] != FORMAT:
        raise ValueError("another format")
    _check_counts([part["m"], part["e"]])
    _check_counts(part["g"], MINUTES_OF_TOTALS)
    _check_counts(part["d"], MINUTES_OF_TOTALS)
    _check_counts(part["s"], len(STORE_MS) + 1)
    for name, level, minutes in part["r"]:
        _check_texts(name, level)
        _check_counts(minutes, MINUTES_OF_TOTALS)
    for entity_id, resource, minutes, calls, level in part["rows"]:
        _check_texts(entity_id, resource)
        _check_counts([calls])
        _check_counts(minutes, MINUTES_OF_ROWS)
        if level:
            limit_name, whose, permille, available, seen_s, requested = level
            _check_texts(limit_name, whose, *requested)
            _check_counts([seen_s * 1000, *requested.values()])
            if type(permille) is not int or type(available) is not int:
                raise ValueError("a level is a whole number")


def _check_texts(*texts: Any) -> None:
    if not all(type(text) is str for text in texts):
        raise ValueError("a name is a text")


def _check_counts(counts: Any, most: int = 64) -> None:
    if len(counts) > most or not all(type(count) is int and 0 <= count <= LAST_MOMENT_MS for count in counts):
        raise ValueError("a count is a whole number")
