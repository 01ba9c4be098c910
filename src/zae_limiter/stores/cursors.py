"""Page cursors: opaque to callers, a key to continue after for the store."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.reports import Page

Item = TypeVar("Item")
Key: TypeAlias = tuple[str | int, ...]


def encode_cursor(key: Key) -> str:
    """The cursor that continues after ``key``."""
    return urlsafe_b64encode(json.dumps(key, separators=(",", ":")).encode()).decode().rstrip("=")


def decode_cursor(cursor: str | None, *kinds: type) -> Key | None:
    """The key a cursor stands for: one part of each kind."""
    if cursor is None:
        return None
    try:
        parts = json.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (Base64Error, ValueError, TypeError, AttributeError, RecursionError):
        parts = None
    if not isinstance(parts, list) or [type(part) for part in parts] != list(kinds) or not _storable(parts):
        raise ValidationError("cursor", cursor, "must be the next_cursor of a page of this same list")
    return tuple(parts)


def _storable(parts: list[str | int]) -> bool:
    """Whether a store can look for these: no half characters, no endless numbers."""
    try:
        return all(abs(part) < 2**63 if isinstance(part, int) else bool(part.encode() or True) for part in parts)
    except UnicodeEncodeError:
        return False


def name_after(cursor: str | None) -> str | None:
    """The name a cursor continues after."""
    key = decode_cursor(cursor, str)
    return None if key is None else str(key[0])


def place_after(cursor: str | None) -> tuple[str, str] | None:
    """The pair of names a cursor continues after."""
    key = decode_cursor(cursor, str, str)
    return None if key is None else (str(key[0]), str(key[1]))


def page_of(rows: Sequence[Item], limit: int, key: Callable[[Item], Key]) -> Page[Item]:
    """The first ``limit`` of ``rows`` (of which one more was asked for), and how to go on if there are more."""
    more = len(rows) > limit
    return Page(rows[:limit], encode_cursor(key(rows[limit - 1])) if more else None)
