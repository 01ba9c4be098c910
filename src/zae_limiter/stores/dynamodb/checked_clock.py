"""The machine's clock, checked against DynamoDB's by the ``Date`` of its replies. Pure: it is told both.

A clock counts as checked from the first reply on, for as long as the wall clock keeps step with the timer. A wall
clock that moved against the timer was set, or the machine was asleep while its timer stood still; only a reply tells
which. Until then the time goes on along the timer, and nothing is to be written by it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, NamedTuple

LARGEST_CLOCK_ERROR_MS = 2_000
"""A machine's clock that is off by more, as DynamoDB's replies show it, is corrected. So is one that moved by more
against the machine's timer since the last reply."""


class Correction(NamedTuple):
    """What is to be added to a reading of the wall clock, and whether a reply confirms that."""

    error_ms: int
    checked: bool


UNCHECKED = Correction(0, False)


class _LastReply(NamedTuple):
    """What the last reply showed, and how far the wall clock was ahead of the timer then."""

    error_ms: int
    lead_ms: int


class CheckedClock:
    """How far one machine's clock is from DynamoDB's."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: _LastReply | None = None

    def hear(self, skew_ms: int | None, wall_ms: int, timer_ms: int) -> int | None:
        """A reply came whose ``Date`` is so far ahead of the wall clock (``None``: it has no date).

        Returns the correction if it is another one from now on. A reply without a date confirms nothing, but there is
        nothing better to wait for: then the clock is believed.
        """
        before = 0 if self._last is None else self._last.error_ms
        known = self.correction(wall_ms, timer_ms).error_ms
        error = skew_ms or 0
        if skew_ms is not None and abs(error - known) <= LARGEST_CLOCK_ERROR_MS:
            error = known
        elif abs(error) <= LARGEST_CLOCK_ERROR_MS:
            error = 0
        self._last = _LastReply(error, wall_ms - timer_ms)
        return None if error == before else error

    def correction(self, wall_ms: int, timer_ms: int) -> Correction:
        """What the clock is to be corrected by, at a reading of wall clock and timer."""
        last = self._last
        if last is None:
            return UNCHECKED
        step = wall_ms - timer_ms - last.lead_ms
        if -LARGEST_CLOCK_ERROR_MS <= step <= LARGEST_CLOCK_ERROR_MS:  # what clocks drift
            return Correction(last.error_ms, True)
        return Correction(last.error_ms - step, False)


_MONTHS: Final = {
    name: number for number, name in enumerate(b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)
}


def date_skew_s(date: bytes, sent_at: float | None, now: float) -> float | None:
    """How far the date of a reply is ahead of the machine's clock; nothing, if it is no date.

    The reply was dated at some moment since the call was sent, perhaps long before now.
    """
    dated = epoch_s_of_date(date)
    if dated is None:
        return None
    skew = dated + 0.5 - now
    if skew < 0 and sent_at is not None:
        skew = min(skew + max(now - sent_at, 0.0), 0.0)
    return skew


def epoch_s_of_date(date: bytes) -> float | None:
    """Seconds since the epoch, of a header like ``Sun, 06 Nov 1994 08:49:37 GMT``."""
    try:
        _, day, month, year, clock, _ = date.split()
        hour, minute, second = map(int, clock.split(b":"))
        return datetime(int(year), _MONTHS[month], int(day), hour, minute, min(second, 59), tzinfo=UTC).timestamp()
    except (KeyError, ValueError, OverflowError):
        return None
