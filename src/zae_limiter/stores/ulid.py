"""Ids that sort by time: 48 bits of milliseconds, 80 bits to tell them apart, in Crockford's base 32."""

from __future__ import annotations

_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LENGTH = 26


def ulid(milliseconds: int, distinct: int) -> str:
    """The id for that moment. ``distinct`` tells ids of one moment apart, and orders them."""
    number = (milliseconds & (2**48 - 1)) << 80 | (distinct & (2**80 - 1))
    digits = []
    for _ in range(_LENGTH):
        digits.append(_DIGITS[number & 31])
        number >>= 5
    return "".join(reversed(digits))
