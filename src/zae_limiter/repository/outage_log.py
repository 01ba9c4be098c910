"""What is logged while a store fails: that it began, now and then how many calls it concerned, and that it is over.

A line per call would bury every other line in an outage. Each failed call is still told at ``DEBUG``.
"""

from __future__ import annotations

import logging
from collections import Counter

from zae_limiter.exceptions import ConfigurationError

logger = logging.getLogger("zae_limiter")
logger.addHandler(logging.NullHandler())  # a program that sets up no logging hears nothing

REPORT_INTERVAL_MS = 60_000
"""So often the calls of an outage are counted into one line."""

QUIET_MS = 5_000
"""An outage is over when the store answers and has not failed for so long: one that comes and goes is one outage."""


class OutageLog:
    """The state of one store as one process met it, in the lines that are logged of it."""

    __slots__ = ("_began_at", "_counts", "_is_misconfigured", "_last_failure_at", "_level", "_report_at", "is_failing")

    def __init__(self, level: int = logging.WARNING) -> None:
        self.is_failing = False
        self._level = level
        self._is_misconfigured = False
        self._counts: Counter[str] = Counter()
        self._began_at = self._last_failure_at = self._report_at = 0

    def failed(self, error: Exception, became: str, about: str, timer_ms: int) -> None:
        """A call failed: one more of those that ``became`` counts, like ``callers refused``. ``about`` says which."""
        logger.debug("%s: %s: %s", became, about, error)
        cause = error.__cause__ if isinstance(error.__cause__, ConfigurationError) else error
        is_misconfigured = isinstance(cause, ConfigurationError)
        self._last_failure_at = timer_ms
        if not self.is_failing or is_misconfigured is not self._is_misconfigured:
            if not self.is_failing:
                self._began_at = timer_ms
                self._counts.clear()
            self.is_failing, self._is_misconfigured = True, is_misconfigured
            self._report_at = timer_ms + REPORT_INTERVAL_MS
            state = "is misconfigured" if is_misconfigured else "is unavailable"
            logger.log(self._level, "the store %s: %s; %s from now on, first: %s", state, cause, became, about)
        self._counts[became] += 1
        if timer_ms >= self._report_at:
            self._report_at = timer_ms + REPORT_INTERVAL_MS
            logger.log(self._level, "the store still fails after %s; last: %s", self._summary(timer_ms), cause)

    def answered(self, timer_ms: int) -> None:
        """The store has answered. To be called while it :attr:`is_failing`."""
        if self.is_failing and timer_ms - self._last_failure_at >= QUIET_MS:
            self.is_failing = False
            logger.log(self._level, "the store answers again after %s", self._summary(self._last_failure_at))

    def _summary(self, until_ms: int) -> str:
        counted = ", ".join(f"{count} {what}" for what, count in sorted(self._counts.items()))
        return f"{(until_ms - self._began_at) / 1000:.0f} s: {counted}"
