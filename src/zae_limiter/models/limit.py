"""A limit: how much may be taken at once, and when it comes back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from zae_limiter.calendars import UTC, Calendar, anchor_of, every_of
from zae_limiter.exceptions import ValidationError
from zae_limiter.naming import MAX_AMOUNT, check_limit_name

MAX_TOKENS = MAX_AMOUNT
"""Largest capacity, burst or refill of a limit: every intermediate value then fits DynamoDB's 38 digits."""

MAX_PERIOD_SECONDS = 366 * 86_400

MIN_HOLD_SECONDS = 10
MAX_HOLD_SECONDS = 7 * 86_400
"""How long a slot of a limit of calls in flight is held at least, if its lease does not end: below the one a process
could not renew in time, above the other a crash would be felt for weeks."""

Start: TypeAlias = str | int | datetime
"""Where the periods of a calendar begin."""

MAX_LIMITS = 20
"""The most limits of one level, and so of one bucket. A write to a bucket names every limit in its condition, and
DynamoDB allows a condition 300 operators: this many, each exchanged for another, and ``MAX_RETIRED`` besides fit."""

MAX_RETIRED = 36
"""The most limits that were removed from a bucket and are not full again."""

MAX_ENDED = 64
"""The most limits that a bucket lets go of within an hour with something counted: that is kept to the hour's end."""


@dataclass(frozen=True, slots=True, repr=False)
class Limit:
    """How much may be taken at once, when it comes back, and whether it refuses.

    There are three kinds. An **even** limit is a token bucket: ``burst`` is the ceiling and the first balance, and
    ``refill_amount`` tokens come back evenly over ``refill_period_seconds``. A **calendar** limit gives its whole
    amount at the start of each of its ``periods``; a ``burst`` above the amount is what may roll over. A limit of
    calls **in flight** lends its slots for the length of a lease, and for about ``hold_seconds`` if that never ends.

    Any of them with ``enforce=False`` only watches: it refuses nothing, and counts what it would have refused. Usually
    one of the short forms says it better:

    >>> Limit.per_minute("tpm", 10_000, burst=15_000)
    Limit(name='tpm', capacity=10000, refill_amount=10000, refill_period_seconds=60, burst=15000)
    """

    name: str
    capacity: int
    refill_amount: int
    refill_period_seconds: int | None
    burst: int = None  # type: ignore[assignment]  # becomes the capacity
    periods: Calendar | None = None
    hold_seconds: int | None = None
    enforce: bool = True

    def __post_init__(self) -> None:
        check_limit_name(self.name)
        _check_tokens("capacity", self.capacity)
        if self.burst is None:
            object.__setattr__(self, "burst", self.capacity)
        else:
            _check_tokens("burst", self.burst)
        if type(self.enforce) is not bool:
            raise ValidationError("enforce", self.enforce, "must be True or False")
        if self.hold_seconds is not None:
            self._check_in_flight()
        elif self.periods is not None:
            self._check_calendar()
        else:
            _check_tokens("refill_amount", self.refill_amount)
            _check_whole("refill_period_seconds", self.refill_period_seconds, "seconds", MAX_PERIOD_SECONDS)

    def _check_in_flight(self) -> None:
        if type(self.hold_seconds) is not int or not MIN_HOLD_SECONDS <= self.hold_seconds <= MAX_HOLD_SECONDS:
            reason = f"must be a whole number of seconds from {MIN_HOLD_SECONDS} to {MAX_HOLD_SECONDS}"
            raise ValidationError("ttl", self.hold_seconds, reason)
        if self.periods is not None or self.refill_amount or self.refill_period_seconds is not None:
            raise ValidationError("hold_seconds", self.hold_seconds, "a limit of calls in flight refills nothing")
        if self.burst != self.capacity:
            raise ValidationError("burst", self.burst, "must be the number of calls in flight, or be left out")

    def _check_calendar(self) -> None:
        if not isinstance(self.periods, Calendar):
            raise ValidationError("periods", self.periods, "must be a Calendar")
        if self.refill_period_seconds is not None or self.refill_amount != self.capacity:
            reason = "must be left out: a calendar limit gives its whole amount at the start of each period"
            raise ValidationError("refill_period_seconds", self.refill_period_seconds, reason)
        if self.burst < self.capacity:
            reason = f"must be at least the amount, {self.capacity}: what is above it may roll over"
            raise ValidationError("burst", self.burst, reason)

    @property
    def is_even(self) -> bool:
        """Whether it refills evenly over time."""
        return self.refill_period_seconds is not None

    @property
    def is_held(self) -> bool:
        """Whether it counts calls in flight, so that what is taken comes back when the lease ends."""
        return self.hold_seconds is not None

    @property
    def is_plain(self) -> bool:
        """Whether it refills evenly and refuses: what every version of this library knows."""
        return self.refill_period_seconds is not None and self.enforce

    @classmethod
    def per_second(cls, name: str, rate: int, burst: int | None = None, *, enforce: bool = True) -> Limit:
        """``rate`` tokens per second."""
        return cls.custom(name, rate, rate, 1, burst, enforce=enforce)

    @classmethod
    def per_minute(cls, name: str, rate: int, burst: int | None = None, *, enforce: bool = True) -> Limit:
        """``rate`` tokens per minute."""
        return cls.custom(name, rate, rate, 60, burst, enforce=enforce)

    @classmethod
    def per_hour(
        cls,
        name: str,
        rate: int,
        burst: int | None = None,
        *,
        tz: str | None = None,
        start: Start | None = None,
        carry_debt: bool = True,
        enforce: bool = True,
    ) -> Limit:
        """``rate`` tokens per hour; with ``tz`` or ``start`` (a time like ``"00:30"``) at the start of each hour."""
        if tz is None and start is None and carry_debt:
            return cls.custom(name, rate, rate, 3_600, burst, enforce=enforce)
        return cls.calendar(name, rate, "hour", burst, tz=tz, start=start, carry_debt=carry_debt, enforce=enforce)

    @classmethod
    def per_day(
        cls,
        name: str,
        rate: int,
        burst: int | None = None,
        *,
        tz: str | None = None,
        start: Start | None = None,
        carry_debt: bool = True,
        enforce: bool = True,
    ) -> Limit:
        """``rate`` tokens per day; with ``tz`` or ``start`` (a time like ``"07:00"``) at the start of each day."""
        if tz is None and start is None and carry_debt:
            return cls.custom(name, rate, rate, 86_400, burst, enforce=enforce)
        return cls.calendar(name, rate, "day", burst, tz=tz, start=start, carry_debt=carry_debt, enforce=enforce)

    @classmethod
    def per_week(
        cls,
        name: str,
        rate: int,
        burst: int | None = None,
        *,
        tz: str | None = None,
        start: Start | None = None,
        carry_debt: bool = True,
        enforce: bool = True,
    ) -> Limit:
        """``rate`` tokens per week; with ``tz`` or ``start`` (a day like ``"mon"``) at the start of each week."""
        if tz is None and start is None and carry_debt:
            return cls.custom(name, rate, rate, 604_800, burst, enforce=enforce)
        return cls.calendar(name, rate, "week", burst, tz=tz, start=start, carry_debt=carry_debt, enforce=enforce)

    @classmethod
    def per_month(
        cls,
        name: str,
        amount: int,
        burst: int | None = None,
        *,
        tz: str | None = None,
        start: Start | None = None,
        carry_debt: bool = True,
        enforce: bool = True,
    ) -> Limit:
        """``amount`` tokens at the start of each month, in UTC unless ``tz`` says otherwise.

        ``start`` is the day on which it begins; 29 to 31 mean the last day of a month that has no such day.
        """
        return cls.calendar(name, amount, "month", burst, tz=tz, start=start, carry_debt=carry_debt, enforce=enforce)

    @classmethod
    def calendar(
        cls,
        name: str,
        amount: int,
        every: str,
        burst: int | None = None,
        *,
        tz: str | None = None,
        start: Start | None = None,
        carry_debt: bool = True,
        enforce: bool = True,
    ) -> Limit:
        """``amount`` tokens at the start of each period of civil time: ``every="month"``, ``every="5hour"``.

        Periods are counted from ``start``: a day of the month, a day of the week, a time, or a date and a time, in the
        time zone ``tz`` (UTC if it is not given). A ``burst`` above the amount is what may roll over. Without
        ``carry_debt`` every period begins full, whatever was spent beyond the one before.
        """
        number, unit = every_of(every)
        periods = Calendar(unit, number, UTC if tz is None else tz, anchor_of(start, unit), carry_debt)
        return cls(name, amount, amount, None, burst, periods, enforce=enforce)  # type: ignore[arg-type]

    @classmethod
    def concurrent(cls, name: str, amount: int, *, ttl: int = 600, enforce: bool = True) -> Limit:
        """``amount`` calls in flight. What a lease takes comes back when it ends, whatever happened in it.

        A process that dies gives nothing back; what it held is free again after ``ttl`` seconds, and 1.25 of that at
        most. Longer calls are renewed by the process that makes them.
        """
        return cls(name, amount, 0, None, amount, hold_seconds=ttl, enforce=enforce)

    @classmethod
    def custom(
        cls,
        name: str,
        capacity: int,
        refill_amount: int,
        refill_period_seconds: int,
        burst: int | None = None,
        *,
        enforce: bool = True,
    ) -> Limit:
        """Any capacity, refill and period."""
        return cls(name, capacity, refill_amount, refill_period_seconds, burst, enforce=enforce)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        """All that is not as usual, so that it can be read back."""
        fields: dict[str, object] = {
            "name": self.name,
            "capacity": self.capacity,
            "refill_amount": self.refill_amount,
            "refill_period_seconds": self.refill_period_seconds,
            "burst": self.burst,
        }
        if self.periods is not None:
            fields["periods"] = self.periods
        if self.hold_seconds is not None:
            fields["hold_seconds"] = self.hold_seconds
        if not self.enforce:
            fields["enforce"] = False
        return f"Limit({', '.join(f'{name}={value!r}' for name, value in fields.items())})"

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready description. ``calendar``, ``hold_seconds`` and ``enforce`` are there if they say something."""
        described: dict[str, Any] = {
            "name": self.name,
            "capacity": self.capacity,
            "refill_amount": self.refill_amount,
            "refill_period_seconds": self.refill_period_seconds,
            "burst": self.burst,
        }
        if self.periods is not None:
            described["calendar"] = self.periods.as_dict()
        if self.hold_seconds is not None:
            described["hold_seconds"] = self.hold_seconds
        if not self.enforce:
            described["enforce"] = False
        return described


def even_rate(limit: Limit) -> tuple[int, int]:
    """How many tokens an even limit refills, in how many seconds."""
    assert limit.refill_period_seconds is not None
    return limit.refill_amount, limit.refill_period_seconds


def check_limits(limits: object, field: str = "limits") -> tuple[Limit, ...]:
    """The limits of one level: at least one, each name once."""
    if isinstance(limits, Limit) or not isinstance(limits, Iterable):
        raise ValidationError(field, limits, "must be a list of Limit")
    checked = tuple(limits)
    if not checked:
        raise ValidationError(field, limits, "must have at least one Limit; deleting is another call")
    for limit in checked:
        if not isinstance(limit, Limit):
            raise ValidationError(field, limit, "must be a list of Limit")
    if len(checked) > MAX_LIMITS:
        raise ValidationError(field, len(checked), f"must be at most {MAX_LIMITS} limits: more do not fit one bucket")
    names = [limit.name for limit in checked]
    for name in names:
        if names.count(name) > 1:
            raise ValidationError(field, name, "names a limit twice")
    return checked


def too_many_retired(entity_id: str, resource: str, retired: int) -> ValidationError:
    """The error that a bucket cannot take other limits yet."""
    return ValidationError(
        "limits",
        f"{retired} on {entity_id}/{resource}",
        f"at most {MAX_RETIRED} limits that were removed from a bucket may wait there until they are full again; "
        "wait, keep the names of limits, or reset the bucket",
    )


def _check_tokens(field: str, value: object) -> None:
    _check_whole(field, value, "tokens", MAX_TOKENS)


def _check_whole(field: str, value: object, unit: str, largest: int) -> None:
    if type(value) is not int or not 1 <= value <= largest:
        raise ValidationError(field, value, f"must be a whole number of {unit} from 1 to {largest}")
