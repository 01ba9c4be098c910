"""What SQLite's errors mean to a caller: the one border where they are translated."""

from __future__ import annotations

import errno
import sqlite3

from zae_limiter.exceptions import ConfigurationError, RateLimiterUnavailable

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


_NOT_USABLE = frozenset(
    {errno.EACCES, errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR}
    | {errno.EPERM, errno.EROFS}
)

_MISCONFIGURED = frozenset(
    {
        sqlite3.SQLITE_AUTH,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
    }
)
"""What SQLite says of a file that cannot be used, however long one waits."""


def error_of(path: str, error: Exception) -> RateLimiterUnavailable | ConfigurationError:
    """The error a caller gets for one of SQLite's (or of the operating system's)."""
    said = str(error)
    hint = next((hint for words, hint in _HINTS if words in said.lower()), None)
    kind = ConfigurationError if _is_misconfigured(error) else RateLimiterUnavailable
    return kind(f"{path}: {said}", hint=hint)


def _is_misconfigured(error: Exception) -> bool:
    """Whether the file cannot be used as things are: not opened, not written, or no database."""
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", None)  # the module's own errors have none
        return code is not None and code & 0xFF in _MISCONFIGURED
    return isinstance(error, OSError) and error.errno in _NOT_USABLE


def too_busy(path: str, deadline: float) -> RateLimiterUnavailable:
    """The error that other processes held the file for a whole deadline."""
    return RateLimiterUnavailable(
        f"{path}: no turn within {deadline:g} s",
        hint="another process holds the file; is one of them stopped?",
    )


def is_busy(error: sqlite3.OperationalError) -> bool:
    """Whether another program holds SQLite's lock right now."""
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
