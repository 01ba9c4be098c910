"""The short form of a limit: ``name:rate[/[N]sec|min|hour|day][:burst]``, per minute unless it says otherwise.

>>> parse_limit("rpm:100")
Limit(name='rpm', capacity=100, refill_amount=100, refill_period_seconds=60, burst=100)
>>> parse_limit("tpm:10_000/15min:20_000").burst
20000
>>> short_form(parse_limit("rps:5/sec:20"))
'rps:5/sec:20'
"""

from __future__ import annotations

import re

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.limit import Limit

FORM = "name:rate[/[N]sec|min|hour|day][:burst]"
EXAMPLES = "rpm:100, tpm:10_000/min:15_000 or tpd:1_000_000/day"

UNITS = {"day": 86_400, "hour": 3_600, "min": 60, "sec": 1}
"""Seconds of each unit, the longest first."""

DEFAULT_PERIOD = "min"

_NUMBER = re.compile(r"[0-9]+(?:_[0-9]+)*")
_PERIOD = re.compile(r"([0-9]*)([a-z]+)")
_MOST_DIGITS = 18


def parse_limit(text: str) -> Limit:
    """The limit that the short form says. Raises ``ValidationError``, which shows the right form."""
    name, *numbers = text.split(":")
    if not 1 <= len(numbers) <= 2:
        raise _wrong(text, "must have a name, a rate and perhaps a burst")
    rate, slash, period = numbers[0].partition("/")
    amount = _number(text, rate, "the rate")
    burst = _number(text, numbers[1], "the burst") if numbers[1:] else None
    seconds = _seconds(text, period if slash else DEFAULT_PERIOD)
    try:
        return Limit.custom(name, amount, amount, seconds, burst)
    except ValidationError as error:
        raise _wrong(text, f"{error.field} {error.reason}") from None


def short_form(limit: Limit) -> str:
    """The short form of a limit. A capacity that is neither its refill nor its burst is not in it."""
    burst = "" if limit.burst == limit.refill_amount else f":{limit.burst}"
    return f"{limit.name}:{limit.refill_amount}/{period_of(limit)}{burst}"


def period_of(limit: Limit) -> str:
    """The period of a limit in its largest whole unit: ``min``, ``15min``, ``90sec``."""
    seconds = limit.refill_period_seconds
    unit, length = next((unit, length) for unit, length in UNITS.items() if seconds % length == 0)
    return unit if seconds == length else f"{seconds // length}{unit}"


def _number(text: str, digits: str, what: str) -> int:
    if not _NUMBER.fullmatch(digits) or len(digits) > _MOST_DIGITS:
        raise _wrong(text, f"{what} must be a whole number")
    return int(digits)


def _seconds(text: str, period: str) -> int:
    match = _PERIOD.fullmatch(period)
    if match is None or match[2] not in UNITS or len(match[1]) > _MOST_DIGITS:
        raise _wrong(text, f"the period must be {', '.join(reversed(UNITS))}, or several of them like 15min")
    return int(match[1] or 1) * UNITS[match[2]]


def _wrong(text: str, reason: str) -> ValidationError:
    return ValidationError("limit", text, f"{reason}; the form is {FORM}, like {EXAMPLES}")
