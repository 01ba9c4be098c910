"""Milliseconds since the epoch, and the aware UTC datetimes callers see."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

LAST_MOMENT_MS = 253_402_300_799_999
"""The last millisecond of the year 9999: no moment that is stored is later."""

_EPOCH = datetime.fromtimestamp(0, UTC)


def at(milliseconds: int) -> datetime:
    """That moment, as callers see time."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


def milliseconds_at(moment: datetime) -> int:
    """The inverse of :func:`at`."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)
