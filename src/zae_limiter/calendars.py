"""Calendars: periods of civil time, numbered.

A calendar is a unit, a multiple of it, a time zone and an anchor, one civil date and time. Period ``k`` begins at ::

    start(k) = the instant of  anchor + k * every * unit   in civil time of the zone

where a time that occurs twice is the first of the two, and one that is skipped is as if it were before the gap. Hours
and shorter units are plain time from the anchor's instant on. ``ordinal(t)`` is the greatest ``k`` with ``start(k) <=
t``.

**Ordinals, not instants, are what a bucket stores.** Two hosts whose time zone databases disagree about an instant
still agree about the number of a period, so that every period is credited once.

A month that lacks the anchor's day begins on its last one. Unix time has no leap seconds, and neither have we.
"""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import UTC as UTC_ZONE
from datetime import datetime, timedelta, tzinfo
from typing import Any

from zae_limiter.exceptions import ValidationError
from zae_limiter.extras import install_command

UTC = "UTC"

UNIT_MS = {"sec": 1_000, "min": 60_000, "hour": 3_600_000}
"""Units of plain time, in milliseconds."""

UNIT_DAYS = {"day": 1, "week": 7}

CALENDAR_UNITS = (*UNIT_MS, *UNIT_DAYS, "month")

ANCHOR = datetime(2024, 1, 1)
"""Where periods are counted from unless a calendar says otherwise: a Monday, the first of a month and of a year."""

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

MAX_EVERY = 9_999

LAST_START_MS = 253_402_128_000_000
"""Every period behind this (in the year 9999) is said to begin then: Python knows no later dates."""

FIRST_START_MS = -62_135_424_000_000

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC_ZONE)
_MILLISECOND = timedelta(milliseconds=1)
_ZONE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+\-/]{0,63}").fullmatch
_TEXT = re.compile(r"([0-9]{0,4})([a-z]+)@([^,]+)(?:,([0-9][0-9T:\-]+))?(,fresh)?").fullmatch
_TIME = re.compile(r"([0-9]{2}):([0-9]{2})").fullmatch
_EVERY = re.compile(r"([0-9]*)([A-Za-z]+)").fullmatch

INSTALL_HINT = f"is this host's time zone database installed? {install_command('tz')}"


class Calendar:
    """Periods of civil time. ``carry_debt``: what was spent beyond a period's amount is taken from the next one."""

    __slots__ = ("_first", "_period", "_zone", "anchor", "carry_debt", "every", "tz", "unit")

    unit: str
    every: int
    tz: str
    anchor: datetime
    carry_debt: bool
    _zone: tzinfo
    _first: int
    _period: tuple[int, int, int]

    def __init__(
        self, unit: str, every: int = 1, tz: str = UTC, anchor: datetime = ANCHOR, carry_debt: bool = True
    ) -> None:
        if unit not in CALENDAR_UNITS:
            raise ValidationError("every", unit, f"must be one of {', '.join(CALENDAR_UNITS)}")
        if type(every) is not int or not 1 <= every <= MAX_EVERY:
            raise ValidationError("every", every, f"must be a whole number of units from 1 to {MAX_EVERY}")
        if type(carry_debt) is not bool:
            raise ValidationError("carry_debt", carry_debt, "must be True or False")
        if anchor.tzinfo is not None or anchor.microsecond or not 1900 <= anchor.year <= 2200:
            raise ValidationError("start", anchor, "must be a time of whole seconds, without a zone: tz= has that")
        zone = zone_of(tz)
        values = (unit, every, tz, anchor.replace(fold=0), carry_debt, zone, (0, 0, 0))
        names = ("unit", "every", "tz", "anchor", "carry_debt", "_zone", "_period")
        for name, value in zip(names, values, strict=True):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_first", _milliseconds(self.anchor, zone))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a calendar does not change; make another one instead of setting {name}")

    @property
    def boundaries(self) -> tuple[str, int, str, datetime]:
        """What its boundaries follow from: calendars that share it number the same periods."""
        return self.unit, self.every, self.tz, self.anchor

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Calendar):
            return NotImplemented
        return self.boundaries == other.boundaries and self.carry_debt == other.carry_debt

    def __hash__(self) -> int:
        return hash((self.boundaries, self.carry_debt))

    def __reduce__(self) -> tuple[Any, ...]:
        return Calendar, (*self.boundaries, self.carry_debt)

    def __str__(self) -> str:
        """The calendar in canonical words, as stores keep it: ``5hour@UTC,2026-01-05T09:00``."""
        anchor = "" if self.anchor == ANCHOR else f",{told(self.anchor)}"
        return f"{self.length}@{self.tz}{anchor}{'' if self.carry_debt else ',fresh'}"

    def __repr__(self) -> str:
        return f"Calendar({str(self)!r})"

    @property
    def length(self) -> str:
        """How long a period is: ``month``, ``5hour``."""
        return self.unit if self.every == 1 else f"{self.every}{self.unit}"

    def start(self, number: int) -> int:
        """When a period begins, in milliseconds since the epoch."""
        count = number * self.every
        if self.unit in UNIT_MS:
            begins = self._first + count * UNIT_MS[self.unit]
            return min(max(begins, FIRST_START_MS), LAST_START_MS)
        try:
            return min(_milliseconds(self._civil(count), self._zone), LAST_START_MS)
        except (OverflowError, ValueError):  # beyond the years that Python knows
            return LAST_START_MS if count > 0 else FIRST_START_MS

    def _civil(self, count: int) -> datetime:
        """The anchor, so many units later, by the calendar on the wall."""
        anchor = self.anchor
        if self.unit == "month":
            year, month = divmod(anchor.year * 12 + anchor.month - 1 + count, 12)
            return anchor.replace(year=year, month=month + 1, day=min(anchor.day, monthrange(year, month + 1)[1]))
        return anchor + timedelta(days=count * UNIT_DAYS[self.unit])

    def ordinal(self, t: int) -> int:
        """The number of the period that ``t`` lies in. The period that was asked for last is remembered."""
        number, begins, ends = self._period
        if not begins <= t < ends:
            number, begins, ends = self._find(t)
            object.__setattr__(self, "_period", (number, begins, ends))
        return number

    def until(self, t: int) -> int:
        """When the period ends that ``t`` lies in."""
        _, begins, ends = self._period
        if begins <= t < ends:
            return ends
        return self.start(self.ordinal(t) + 1)

    def _find(self, t: int) -> tuple[int, int, int]:
        t = min(max(t, 0), LAST_START_MS - 1)
        number = self._guess(t)
        while self.start(number) > t:
            number -= 1
        while (ends := self.start(number + 1)) <= t:
            number += 1
        return number, self.start(number), ends

    def _guess(self, t: int) -> int:
        if self.unit in UNIT_MS:
            return (t - self._first) // (UNIT_MS[self.unit] * self.every)
        civil = (_EPOCH + timedelta(milliseconds=t)).astimezone(self._zone).replace(tzinfo=None)
        if self.unit == "month":
            months = (civil.year - self.anchor.year) * 12 + civil.month - self.anchor.month
            return months // self.every
        return (civil - self.anchor).days // (self.every * UNIT_DAYS[self.unit])

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready description."""
        return {
            "unit": self.unit,
            "every": self.every,
            "tz": self.tz,
            "start": told(self.anchor),
            "carry_debt": self.carry_debt,
        }


def calendar_from(text: str) -> Calendar:
    """The calendar that canonical words describe. ``ValueError`` for what are none."""
    parts = _TEXT(text)
    if parts is None:
        raise ValueError(f"{text!r} is no calendar that this version knows")
    every, unit, tz, anchor, fresh = parts.groups()
    begins = ANCHOR if anchor is None else datetime.fromisoformat(anchor)
    return Calendar(unit, int(every or 1), tz, begins, fresh is None)


def zone_of(tz: object) -> tzinfo:
    """A time zone by its name. UTC needs no database."""
    if tz == UTC:
        return UTC_ZONE
    if not isinstance(tz, str) or not _ZONE_NAME(tz):
        raise ValidationError("tz", tz, "must be the name of a time zone, like UTC or Europe/Berlin")
    from zoneinfo import ZoneInfo  # here, so that only those who need a zone pay for it

    try:
        return ZoneInfo(tz)
    except (LookupError, ValueError, OSError) as error:
        hint = f"is not a time zone that this host knows, like UTC or Europe/Berlin; {INSTALL_HINT}"
        raise ValidationError("tz", tz, hint) from error


def every_of(text: object) -> tuple[int, str]:
    """A multiple and a unit, from ``month`` or ``5hour``."""
    parts = _EVERY(text) if isinstance(text, str) else None
    if parts is None or parts[2] not in CALENDAR_UNITS or len(parts[1]) > len(str(MAX_EVERY)):
        units = ", ".join(CALENDAR_UNITS)
        raise ValidationError("every", text, f"must be a unit, or a number and a unit, like 5hour; units are {units}")
    return int(parts[1] or 1), parts[2]


def anchor_of(start: object, unit: str) -> datetime:
    """The anchor that ``start=`` describes: a day of the month, a day of the week, a time, or a date and a time."""
    if start is None:
        return ANCHOR
    if isinstance(start, datetime):
        return start
    text = str(start) if type(start) is int else start
    if isinstance(text, str):
        if unit == "month" and text.isascii() and text.isdecimal() and 1 <= int(text[:3]) <= 31:
            return ANCHOR.replace(day=int(text[:3]))
        if unit == "week" and text in WEEKDAYS:
            return ANCHOR + timedelta(days=WEEKDAYS.index(text))
        if (time := _TIME(text)) and int(time[1]) < 24 and int(time[2]) < 60:
            return ANCHOR.replace(hour=int(time[1]), minute=int(time[2]))
        try:
            return datetime.fromisoformat(text) if len(text) >= 10 else _no_start(start, unit)
        except ValueError:
            pass
    return _no_start(start, unit)


def start_of(calendar: Calendar) -> str | None:
    """The shortest ``start=`` that describes the anchor of a calendar; ``None`` if it is the usual one."""
    anchor = calendar.anchor
    if anchor == ANCHOR:
        return None
    words = [f"{anchor:%H:%M}"]
    if calendar.unit == "month":
        words.append(str(anchor.day))
    if calendar.unit == "week":
        words.append(WEEKDAYS[anchor.weekday()])
    return next((word for word in words if anchor_of(word, calendar.unit) == anchor), told(anchor))


def told(anchor: datetime) -> str:
    """A date and a time as they are written."""
    return anchor.isoformat(timespec="seconds" if anchor.second else "minutes")


def _no_start(start: object, unit: str) -> datetime:
    first = {"month": "a day of the month from 1 to 31, ", "week": f"a day of the week ({', '.join(WEEKDAYS)}), "}
    what = f"must be {first.get(unit, '')}a time like 07:00, or a date and time like 2026-01-05T09:00"
    raise ValidationError("start", start, what)


def _milliseconds(civil: datetime, zone: tzinfo) -> int:
    """The instant of a civil time, the first of two; as if before a gap."""
    return (civil.replace(tzinfo=zone, fold=0) - _EPOCH) // _MILLISECOND
