"""The words a caller chooses between."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, TypeVar

from zae_limiter.exceptions import ValidationError


class OnUnavailable(StrEnum):
    """What an acquire does while the store does not answer."""

    ALLOW = "allow"
    BLOCK = "block"
    LOCAL = "local"


class OnError(StrEnum):
    """What happens to the tokens of a lease whose body raises."""

    REFUND = "refund"
    KEEP = "keep"


class AccessMode(StrEnum):
    """What an access switch does: refuse every call, count refusals without refusing, or nothing."""

    BLOCK = "block"
    OBSERVE = "observe"
    ENFORCE = "enforce"


class WindowType(StrEnum):
    """The length of a usage window, in UTC."""

    HOURLY = "hourly"
    DAILY = "daily"
    MONTHLY = "monthly"


ConfigSource = Literal["entity", "entity_default", "total", "resource", "system", "call"]
"""The level a limit came from; ``call`` when it was given with the call itself."""

Choice = TypeVar("Choice", bound=StrEnum)


def check_choice(kind: type[Choice], value: object, field: str) -> Choice:
    """The member of ``kind`` that ``value`` names."""
    try:
        return kind(str(value))
    except ValueError:
        *first, last = (repr(str(member)) for member in kind)
        words = f"{', '.join(first)} or {last}"
        raise ValidationError(field, value, f"must be {words}") from None
