"""A limit: how much may be taken at once, and how fast it comes back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from zae_limiter.exceptions import ValidationError
from zae_limiter.naming import MAX_AMOUNT, check_limit_name

MAX_TOKENS = MAX_AMOUNT
"""Largest capacity, burst or refill of a limit: every intermediate value then fits DynamoDB's 38 digits."""

MAX_PERIOD_SECONDS = 366 * 86_400

MAX_LIMITS = 20
"""The most limits of one level, and so of one bucket. A write to a bucket names every limit in its condition, and
DynamoDB allows a condition 300 operators: this many, each exchanged for another, and ``MAX_RETIRED`` besides fit."""

MAX_RETIRED = 36
"""The most limits that were removed from a bucket and are not full again."""

MAX_ENDED = 64
"""The most limits that a bucket lets go of within an hour with something counted: that is kept to the hour's end."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A token bucket's parameters.

    ``burst`` is the ceiling and the first balance; ``refill_amount`` tokens come back evenly over
    ``refill_period_seconds``. Usually one of the short forms says it better:

    >>> Limit.per_minute("tpm", 10_000, burst=15_000)
    Limit(name='tpm', capacity=10000, refill_amount=10000, refill_period_seconds=60, burst=15000)
    """

    name: str
    capacity: int
    refill_amount: int
    refill_period_seconds: int
    burst: int = None  # type: ignore[assignment]  # becomes the capacity

    def __post_init__(self) -> None:
        check_limit_name(self.name)
        _check_tokens("capacity", self.capacity)
        _check_tokens("refill_amount", self.refill_amount)
        _check_whole("refill_period_seconds", self.refill_period_seconds, "seconds", MAX_PERIOD_SECONDS)
        if self.burst is None:
            object.__setattr__(self, "burst", self.capacity)
        else:
            _check_tokens("burst", self.burst)

    @classmethod
    def per_second(cls, name: str, rate: int, burst: int | None = None) -> Limit:
        """``rate`` tokens per second."""
        return cls.custom(name, rate, rate, 1, burst)

    @classmethod
    def per_minute(cls, name: str, rate: int, burst: int | None = None) -> Limit:
        """``rate`` tokens per minute."""
        return cls.custom(name, rate, rate, 60, burst)

    @classmethod
    def per_hour(cls, name: str, rate: int, burst: int | None = None) -> Limit:
        """``rate`` tokens per hour."""
        return cls.custom(name, rate, rate, 3_600, burst)

    @classmethod
    def per_day(cls, name: str, rate: int, burst: int | None = None) -> Limit:
        """``rate`` tokens per day."""
        return cls.custom(name, rate, rate, 86_400, burst)

    @classmethod
    def custom(
        cls,
        name: str,
        capacity: int,
        refill_amount: int,
        refill_period_seconds: int,
        burst: int | None = None,
    ) -> Limit:
        """Any capacity, refill and period."""
        return cls(name, capacity, refill_amount, refill_period_seconds, burst)  # type: ignore[arg-type]

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready description."""
        return {
            "name": self.name,
            "capacity": self.capacity,
            "refill_amount": self.refill_amount,
            "refill_period_seconds": self.refill_period_seconds,
            "burst": self.burst,
        }


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
