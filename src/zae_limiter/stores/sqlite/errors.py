"""What SQLite's errors mean to a caller: the one border where they are translated."""

from __future__ import annotations

import sqlite3

from zae_limiter.exceptions import RateLimiterUnavailable

_HINTS = (
    ("full", "free some space on its disk"),
    ("readonly", "make the file and its folder writable for this user"),
    ("unable to open", "its folder must exist and be writable for this user"),
    ("no such file", "its folder does not exist and cannot be made here; name another"),
    ("permission denied", "make the file and its folder writable for this user"),
    ("not a database", "name another file, or move this one away to start anew"),
    ("malformed", "restore it from a backup, or move it away to start anew"),
    ("disk i/o", "check its disk"),
)


def unavailable(path: str, error: BaseException) -> RateLimiterUnavailable:
    """The error a caller gets for one of SQLite's (or of the operating system's)."""
    said = str(error)
    hint = next((hint for words, hint in _HINTS if words in said.lower()), None)
    return RateLimiterUnavailable(f"{path}: {said}", hint=hint)


def too_busy(path: str, deadline: float) -> RateLimiterUnavailable:
    """The error that other processes held the file for a whole deadline."""
    return RateLimiterUnavailable(
        f"{path}: no turn within {deadline:g} s",
        hint="another process holds the file; is one of them stopped?",
    )


def is_busy(error: sqlite3.OperationalError) -> bool:
    """Whether another program holds SQLite's lock right now."""
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
