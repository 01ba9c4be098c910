"""Numbers, rates, durations and moments in words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from zae_limiter import Limit
from zae_limiter.manifests.limit_syntax import period_of

NOTHING = "-"


def rate(limit: Limit) -> str:
    """``10,000/min``."""
    amount = limit.burst if limit.is_held else limit.refill_amount
    zone = "" if limit.periods is None else f"@{limit.periods.tz}"
    return f"{amount:,}/{period_of(limit)}{zone}{'' if limit.enforce else ' watching'}"


def limit_in_words(limit: Limit) -> str:
    """``tpm 10,000/min burst 15,000``; the burst only where it differs from the rate."""
    burst = "" if limit.is_held or limit.burst == limit.refill_amount else f" burst {limit.burst:,}"
    return f"{limit.name} {rate(limit)}{burst}"


def limits_in_words(limits: Sequence[Limit]) -> str:
    """Several, one after the other."""
    return ", ".join(map(limit_in_words, limits)) or NOTHING


def duration(seconds: float) -> str:
    """A duration in at most two units: ``0.4 s``, ``42 s``, ``3 min 20 s``, ``2 h 5 min``, ``3 d 4 h``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, length, below, part in (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1)):
        if whole >= length:
            rest = whole % length // part
            return f"{whole // length} {unit} {rest} {below}" if rest else f"{whole // length} {unit}"
    return f"{whole} s"


def moment(when: datetime | None) -> str:
    """A moment to the second; UTC, as everything is."""
    return NOTHING if when is None else f"{when:%Y-%m-%d %H:%M:%S}"


def iso(when: datetime | None) -> str | None:
    """A moment for programs."""
    return None if when is None else when.isoformat()


def plural(count: int, thing: str) -> str:
    """``1 bucket``, ``2 buckets``, ``3 entities``."""
    if count == 1:
        return f"{count:,} {thing}"
    return f"{count:,} {thing[:-1]}ies" if thing.endswith("ty") else f"{count:,} {thing}s"
