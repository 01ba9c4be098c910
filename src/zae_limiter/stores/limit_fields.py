"""A limit as a list of fields, for rows and records.

Five fields are those of an even limit that refuses. Behind them stands what makes it another kind; a reader that does
not know the kind refuses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zae_limiter.calendars import calendar_from
from zae_limiter.models.limit import Limit

KINDS = {"calendar", "ttl", "shadow"}


def fields_of(limit: Limit) -> list[Any]:
    """The fields of a limit."""
    fields: list[Any] = [*(limit.name, limit.capacity, limit.refill_amount, limit.refill_period_seconds, limit.burst)]
    if not limit.is_plain:
        kind: dict[str, Any] = {}
        if limit.periods is not None:
            kind["calendar"] = str(limit.periods)
        if limit.hold_seconds is not None:
            kind["ttl"] = limit.hold_seconds
        if not limit.enforce:
            kind["shadow"] = True
        fields.append(kind)
    return fields


def limit_from(fields: Sequence[Any]) -> Limit:
    """The limit of these fields. Raises ``ValueError`` and its kin for what is none."""
    name, capacity, amount, seconds, burst, *kinds = fields
    if not kinds:
        return Limit(name, capacity, amount, seconds, burst)
    [kind] = kinds
    if not isinstance(kind, dict) or not kind.keys() <= KINDS or kind.get("shadow", True) is not True:
        raise ValueError("a kind of limit that this version does not know")
    periods = calendar_from(str(kind["calendar"])) if "calendar" in kind else None
    return Limit(name, capacity, amount, seconds, burst, periods, kind.get("ttl"), "shadow" not in kind)
