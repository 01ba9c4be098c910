"""A limit in one word: ``name:rate[/[N]sec|min|hour|day][:burst]``, per minute if nothing else is said.

>>> parse_limit("tpm:10000:15000")
Limit(name='tpm', capacity=10000, refill_amount=10000, refill_period_seconds=60, burst=15000)
>>> format_limit(parse_limit("rps:5/sec"))
'rps:5/sec'
"""

from __future__ import annotations

import re

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.limit import Limit

UNITS = {"sec": 1, "min": 60, "hour": 3_600, "day": 86_400}
"""Seconds of each unit, the shortest first."""

LIMIT_SYNTAX = "name:rate[/[N]sec|min|hour|day][:burst]"
EXAMPLES = "like rpm:100, tpm:10_000/min:15_000 or rpd:50/day"

_OTHER_WORDS = {
    "s": "sec",
    "second": "sec",
    "m": "min",
    "minute": "min",
    "h": "hour",
    "hr": "hour",
    "d": "day",
}
_PARTS = re.compile(
    r"(?P<name>[^:/]*):(?P<rate>[^:/]*)(?:/(?P<every>[0-9]*)(?P<unit>[^:/]*))?(?::(?P<burst>[^:/]*))?"
).fullmatch
_WHOLE = re.compile(r"[0-9]+(?:_[0-9]+)*").fullmatch
_MOST_DIGITS = 18


def parse_limit(text: object, field: str = "limit") -> Limit:
    """The limit a word describes. Raises ``ValidationError`` with what would be right."""
    parts = _PARTS(text) if isinstance(text, str) else None
    if parts is None:
        raise ValidationError(field, text, f"must be {LIMIT_SYNTAX}, {EXAMPLES}")
    name, rate, every, unit, burst = parts.group("name", "rate", "every", "unit", "burst")
    seconds = UNITS["min"] if unit is None else _seconds_of(unit, text, field)
    amount = _whole(rate, "rate", text, field)
    period = seconds * (_whole(every, "number of units", text, field) if every else 1)
    most = None if burst is None else _whole(burst, "burst", text, field)
    try:
        return Limit.custom(name, amount, amount, period, most)
    except ValidationError as error:
        what = {"capacity": "rate", "refill_period_seconds": "period"}.get(error.field, error.field)
        raise ValidationError(field, text, f"{what} {error.reason}") from None


def format_limit(limit: Limit) -> str | None:
    """The word that describes a limit; ``None`` if its capacity is not its rate, which no word can say."""
    if limit.capacity != limit.refill_amount:
        return None
    burst = "" if limit.burst == limit.capacity else f":{limit.burst}"
    return f"{limit.name}:{limit.refill_amount}/{period_of(limit)}{burst}"


def period_of(limit: Limit) -> str:
    """The period of a limit in its largest whole unit: ``min``, ``15min``, ``90sec``."""
    seconds = limit.refill_period_seconds
    unit, length = next((unit, length) for unit, length in reversed(UNITS.items()) if seconds % length == 0)
    return unit if seconds == length else f"{seconds // length}{unit}"


def _seconds_of(unit: str, text: object, field: str) -> int:
    if unit in UNITS:
        return UNITS[unit]
    meant = _OTHER_WORDS.get(unit.rstrip("s") or unit, _OTHER_WORDS.get(unit))
    words = meant or next((word for word in UNITS if unit == f"{word}s"), None) or "sec, min, hour or day"
    raise ValidationError(field, text, f"has an unknown unit {unit!r}; write {words}")


def _whole(digits: str, what: str, text: object, field: str) -> int:
    if not _WHOLE(digits) or len(digits) > _MOST_DIGITS:
        raise ValidationError(field, text, f"{what} must be a whole number, as in {LIMIT_SYNTAX}, {EXAMPLES}")
    return int(digits)
