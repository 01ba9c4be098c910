"""A limit in one word: ``name:rate[/[N]sec|min|hour|day|week][:burst]``, per minute if nothing else is said.

A time zone makes it a limit by the calendar, ``rpd:1000/day@Europe/Berlin``, and a ``month`` always is one;
``start=15`` says where its periods begin, ``fresh`` that debt is not carried. ``calls:20/inflight,ttl=10min`` limits
calls in flight. Any limit with ``shadow`` only watches: ``tpm:10000/min,shadow``.

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
from typing import NamedTuple

from zae_limiter.calendars import start_of
from zae_limiter.exceptions import ValidationError
from zae_limiter.models.limit import Limit

UNITS = {"sec": 1, "min": 60, "hour": 3_600, "day": 86_400, "week": 604_800}
"""Seconds of each unit, the shortest first."""

SHORT_UNITS = {"s": "sec", "h": "hour", "d": "day", "w": "week"}

CALENDAR_UNITS = {**dict.fromkeys(UNITS), "month": None}

IN_FLIGHT = "inflight"

LIMIT_SYNTAX = (
    "name:rate[/[N]sec|min|hour|day|week|month][:burst][@tz][,start=…][,fresh][,shadow] or name:N/inflight[,ttl=…]"
)
EXAMPLES = "like rpm:100, tpm:10k/min:15k, rpd:50/day, usd:500/month@UTC or calls:20/inflight"
AMOUNT_EXAMPLES = "like 500, 10_000, 10k or 1.5M"

_OTHER_WORDS = {"second": "sec", "m": "min", "minute": "min", "hr": "hour"}
_PARTS = re.compile(
    r"(?P<name>[^:/]*):(?P<rate>[^:/]*)(?:/(?P<every>[0-9]*)(?P<unit>[^:/]*))?(?::(?P<burst>[^:/]*))?"
).fullmatch
_AMOUNT = re.compile(r"([0-9]+(?:_[0-9]+)*)(?:\.([0-9]+))?([A-Za-z]?)").fullmatch
_SECONDS = re.compile(r"([0-9]{1,9})([a-z]*)").fullmatch
_OPTIONS = {"start": True, "ttl": True, "fresh": False, "shadow": False}
"""Whether each option has a value."""
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
    head, *options = text.split(",") if isinstance(text, str) else [""]
    head, at_sign, tz = head.partition("@")
    parts = _PARTS(head)
    if parts is None:
        raise ValidationError(field, text, f"must be {LIMIT_SYNTAX}, {EXAMPLES}")
    name, rate, every, unit, burst = parts.group("name", "rate", "every", "unit", "burst")
    asked = _Asked(name, rate, every, unit, burst, tz if at_sign else None, _options(options, text, field))
    try:
        if unit == IN_FLIGHT:
            return _in_flight(asked, text, field)
        if asked.tz is not None or unit == "month" or asked.options.keys() & {"start", "fresh"}:
            return _by_calendar(asked, text, field)
        return _even(asked, text, field)
    except ValidationError as error:
        if error.field == field:
            raise
        what = {"capacity": "rate", "refill_period_seconds": "period"}.get(error.field, error.field)
        raise ValidationError(field, text, f"{what} {error.reason}") from None


class _Asked(NamedTuple):
    """The parts of the word."""

    name: str
    rate: str
    every: str | None
    unit: str | None
    burst: str | None
    tz: str | None
    options: dict[str, str]


def _options(texts: list[str], text: object, field: str) -> dict[str, str]:
    """What stands behind commas: ``start=15``, ``ttl=10min``, ``fresh``, ``shadow``, each once."""
    options: dict[str, str] = {}
    for option in texts:
        key, equals, value = option.partition("=")
        if key not in _OPTIONS or key in options or bool(equals) != _OPTIONS[key] or (equals and not value):
            known = ", ".join(f"{key}=…" if valued else key for key, valued in _OPTIONS.items())
            raise ValidationError(field, text, f"has {option!r} where an option should be: {known}, each once")
        options[key] = value
    return options


def _even(asked: _Asked, text: object, field: str) -> Limit:
    _refuse_options(asked, {"ttl"}, text, field)
    seconds = UNITS["min"] if asked.unit is None else _seconds_of(asked.unit, text, field)
    amount = _whole(asked.rate, "rate", text, field)
    period = seconds * (_whole(asked.every, "number of units", text, field) if asked.every else 1)
    most = None if asked.burst is None else _whole(asked.burst, "burst", text, field)
    return Limit.custom(asked.name, amount, amount, period, most, enforce="shadow" not in asked.options)


def _by_calendar(asked: _Asked, text: object, field: str) -> Limit:
    _refuse_options(asked, {"ttl"}, text, field)
    unit = "min" if asked.unit is None else SHORT_UNITS.get(asked.unit, asked.unit)
    if unit not in CALENDAR_UNITS:
        _seconds_of(unit, text, field)
    every = _whole(asked.every, "number of units", text, field) if asked.every else 1
    most = None if asked.burst is None else _whole(asked.burst, "burst", text, field)
    return Limit.calendar(
        asked.name,
        _whole(asked.rate, "rate", text, field),
        f"{every}{unit}",
        most,
        tz=asked.tz,
        start=asked.options.get("start"),
        carry_debt="fresh" not in asked.options,
        enforce="shadow" not in asked.options,
    )


def _in_flight(asked: _Asked, text: object, field: str) -> Limit:
    _refuse_options(asked, {"start", "fresh"}, text, field)
    if asked.every or asked.burst is not None or asked.tz is not None:
        raise ValidationError(field, text, "must be name:N/inflight[,ttl=…], like calls:20/inflight,ttl=10min")
    amount = _whole(asked.rate, "number of calls", text, field)
    ttl = {"ttl": parse_seconds(asked.options["ttl"], "ttl")} if "ttl" in asked.options else {}
    return Limit.concurrent(asked.name, amount, **ttl, enforce="shadow" not in asked.options)


def _refuse_options(asked: _Asked, keys: set[str], text: object, field: str) -> None:
    for key in sorted(keys & asked.options.keys()):
        kind = "calls in flight" if key == "ttl" else "limits by the calendar"
        raise ValidationError(field, text, f"has {key}, which is for {kind}")


def parse_seconds(text: str, field: str) -> int:
    """A length of time: ``600`` seconds, ``10min``, ``1h``."""
    parts = _SECONDS(text)
    unit = "" if parts is None else parts[2]
    if parts is None or (unit and SHORT_UNITS.get(unit, unit) not in UNITS):
        raise ValidationError(field, text, "must be a length of time, like 600, 90sec or 10min")
    return int(parts[1]) * (UNITS[SHORT_UNITS.get(unit, unit)] if unit else 1)


def format_limit(limit: Limit) -> str | None:
    """The word that describes a limit; ``None`` if its capacity is not its rate, which no word can say."""
    shadow = "" if limit.enforce else ",shadow"
    if limit.hold_seconds is not None:
        return f"{limit.name}:{limit.burst}/{IN_FLIGHT},ttl={in_units(limit.hold_seconds)}{shadow}"
    if limit.capacity != limit.refill_amount:
        return None
    burst = "" if limit.burst == limit.capacity else f":{limit.burst}"
    if limit.periods is None:
        return f"{limit.name}:{limit.refill_amount}/{period_of(limit)}{burst}{shadow}"
    start = start_of(limit.periods)
    options = ("" if start is None else f",start={start}") + ("" if limit.periods.carry_debt else ",fresh")
    return f"{limit.name}:{limit.refill_amount}/{period_of(limit)}{burst}@{limit.periods.tz}{options}{shadow}"


def period_of(limit: Limit) -> str:
    """The period of a limit in its largest whole unit: ``min``, ``15min``, ``90sec``; of calls in flight, that."""
    if limit.periods is not None:
        return limit.periods.length
    return IN_FLIGHT if limit.refill_period_seconds is None else in_units(limit.refill_period_seconds, "")


def in_units(seconds: int, one: str = "1") -> str:
    """A length of time in its largest whole unit. ``one`` stands before a single one."""
    unit, length = next((unit, length) for unit, length in reversed(UNITS.items()) if seconds % length == 0)
    return f"{one}{unit}" if seconds == length else f"{seconds // length}{unit}"


def _seconds_of(unit: str, text: object, field: str) -> int:
    word = SHORT_UNITS.get(unit, unit)
    if word in UNITS:
        return UNITS[word]
    meant = _OTHER_WORDS.get(unit.rstrip("s"), unit.rstrip("s"))
    words = meant if meant in UNITS else "sec, min, hour, day, week, month or inflight"
    raise ValidationError(field, text, f"has an unknown unit {unit!r}; write {words}")


def _whole(digits: str, what: str, text: object, field: str) -> int:
    try:
        return parse_amount(digits)
    except ValueError as error:
        raise ValidationError(field, text, f"{what} {error}") from None
