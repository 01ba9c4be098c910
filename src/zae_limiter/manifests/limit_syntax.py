"""A limit in one word: ``name:rate[/[N]sec|min|hour|day|week][:burst]``, per minute if nothing else is said.

Amounts are whole tokens. Thousands may be set apart by ``_``, and ``k``, ``M`` and ``G`` stand for thousands, millions
and billions, with as many decimals as still give whole tokens: ``10_000``, ``10k``, ``1.5M``. Units have a short form
of one letter, ``s``, ``h``, ``d`` and ``w``; not ``m``, which could be a month.

>>> parse_limit("tpm:10000:15000")
Limit(name='tpm', capacity=10000, refill_amount=10000, refill_period_seconds=60, burst=15000)
>>> format_limit(parse_limit("rps:5/sec"))
'rps:5/sec'
"""

from __future__ import annotations

import re

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.limit import Limit

UNITS = {"sec": 1, "min": 60, "hour": 3_600, "day": 86_400, "week": 604_800}
"""Seconds of each unit, the shortest first."""

SHORT_UNITS = {"s": "sec", "h": "hour", "d": "day", "w": "week"}

LIMIT_SYNTAX = "name:rate[/[N]sec|min|hour|day|week][:burst]"
EXAMPLES = "like rpm:100, tpm:10k/min:15k or rpd:50/day"
AMOUNT_EXAMPLES = "like 500, 10_000, 10k or 1.5M"

_OTHER_WORDS = {"second": "sec", "m": "min", "minute": "min", "hr": "hour"}
_PARTS = re.compile(
    r"(?P<name>[^:/]*):(?P<rate>[^:/]*)(?:/(?P<every>[0-9]*)(?P<unit>[^:/]*))?(?::(?P<burst>[^:/]*))?"
).fullmatch
_AMOUNT = re.compile(r"([0-9]+(?:_[0-9]+)*)(?:\.([0-9]+))?([A-Za-z]?)").fullmatch
_ZEROS = {"": 0, "k": 3, "K": 3, "M": 6, "G": 9}
_MOST_DIGITS = 20


def parse_amount(text: str) -> int:
    """A number of tokens as it is typed. Raises ``ValueError`` with what it must be."""
    parts = _AMOUNT(text) if len(text) <= _MOST_DIGITS else None
    if parts is None:
        raise ValueError(f"must be a whole number, {AMOUNT_EXAMPLES}")
    whole, decimals, letter = parts[1].replace("_", ""), parts[2] or "", parts[3]
    if letter not in _ZEROS:
        known = "k, M and G stand for thousands, millions and billions"
        raise ValueError(f"must be a whole number, {AMOUNT_EXAMPLES}; {known}, not {letter}")
    zeros = _ZEROS[letter] - len(decimals)
    if zeros < 0:
        raise ValueError(f"must be a whole number of tokens, which {text} is not")
    return int(whole + decimals + "0" * zeros)


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
    word = SHORT_UNITS.get(unit, unit)
    if word in UNITS:
        return UNITS[word]
    meant = _OTHER_WORDS.get(unit.rstrip("s"), unit.rstrip("s"))
    words = meant if meant in UNITS else "sec, min, hour, day or week"
    raise ValidationError(field, text, f"has an unknown unit {unit!r}; write {words}")


def _whole(digits: str, what: str, text: object, field: str) -> int:
    try:
        return parse_amount(digits)
    except ValueError as error:
        raise ValidationError(field, text, f"{what} {error}") from None
