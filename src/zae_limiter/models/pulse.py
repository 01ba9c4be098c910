"""What the live processes of a namespace tell of themselves, merged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

MINUTES_OF_ROWS = 10
"""Over so many minutes a row is counted."""

MINUTES_OF_TOTALS = 60
"""Over so many minutes all calls are counted."""

NEAR_PERMILLE = 800
"""A limit of which so many thousandths are used is near."""


@dataclass(frozen=True, slots=True)
class PulseLevel:
    """How a limit was found: the one that lacked or, if all had enough, the fullest.

    ``entity_id`` is whose limit it is, the caller's or an ancestor's. ``used_permille`` is in thousandths of its
    burst, above 1000 in debt; ``available`` in whole tokens.
    """

    limit_name: str
    entity_id: str
    used_permille: int
    available: int
    seen_at: datetime

    @property
    def is_near(self) -> bool:
        """Whether little is left."""
        return self.used_permille >= NEAR_PERMILLE


@dataclass(frozen=True, slots=True)
class PulseRow:
    """One entity on one resource, over all processes.

    ``refused`` is per minute, the oldest first; ``calls`` are all decisions of the same minutes, refused ones too.
    Counts are never too high. ``requested`` is what the last call asked for.
    """

    entity_id: str
    resource: str
    refused: tuple[int, ...]
    calls: int
    requested: Mapping[str, int] = field(default_factory=dict)
    level: PulseLevel | None = None

    @property
    def refused_in_all(self) -> int:
        """Refusals of all the minutes."""
        return sum(self.refused)


@dataclass(frozen=True, slots=True)
class RefusedBy:
    """Refusals by limits of one name: per minute, the oldest first. ``level``: ``own``, ``ancestor`` or nothing."""

    limit_name: str
    level: str
    minutes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pulse:
    """What all live processes of a namespace that have a pulse tell, the worst rows first.

    ``granted``, ``refused`` and ``degraded`` are per minute, the oldest first, of the processes that live now.
    ``store_calls`` says how many calls of the store took at most so many milliseconds (the last: longer).
    """

    processes: int
    rows: tuple[PulseRow, ...]
    granted: tuple[int, ...]
    refused: tuple[RefusedBy, ...]
    degraded: tuple[int, ...]
    store_calls: tuple[tuple[int | None, int], ...]
    store_errors: int
    until: datetime
    """When the last of the minutes began."""

    @property
    def refused_per_minute(self) -> tuple[int, ...]:
        """Refusals by all limits."""
        return tuple(map(sum, zip(*(one.minutes for one in self.refused), strict=True))) or (0,) * len(self.granted)

    def store_milliseconds(self, share: float) -> int | None:
        """So many milliseconds that share of the store's calls took at most; ``None``: there were none, or longer."""
        calls = sum(count for _, count in self.store_calls)
        passed = 0
        for bound, count in self.store_calls:
            passed += count
            if calls and passed >= share * calls:
                return bound
        return None
