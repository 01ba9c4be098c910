"""Ids that sort by time: 48 bits of milliseconds, 80 bits to tell them apart, in Crockford's base 32."""

from __future__ import annotations

DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LENGTH = 26
_MOMENT_LENGTH = 10


def ulid(milliseconds: int, distinct: int) -> str:
    """The id for that moment. ``distinct`` tells ids of one moment apart, and orders them."""
    number = (milliseconds & (2**48 - 1)) << 80 | (distinct & (2**80 - 1))
    digits = []
    for _ in range(_LENGTH):
        digits.append(DIGITS[number & 31])
        number >>= 5
    return "".join(reversed(digits))


def moment_of(identifier: str) -> int:
    """The moment an id begins with, in milliseconds. The rest of it is not looked at."""
    milliseconds = 0
    for digit in identifier[:_MOMENT_LENGTH]:
        milliseconds = milliseconds * 32 + DIGITS.index(digit)
    return milliseconds
