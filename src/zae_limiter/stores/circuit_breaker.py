"""A circuit breaker: while a server does not answer, calls fail at once instead of waiting for it. Pure.

After several calls in a row without an answer it is open. Then every call fails at once, and about once a second one
of them starts a probe on the side: the first answer closes it.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

FAILURES_TO_OPEN: Final = 5
FAILING_TO_OPEN_MS: Final = 300
PROBE_INTERVAL_MS: Final = 1_000


class Permission(Enum):
    """What a call may do."""

    GO = "go"
    FAIL = "fail"
    FAIL_AND_PROBE = "fail and probe"


class CircuitBreaker:
    """Counts the calls without an answer since the last answer. When it is open, calls fail at once."""

    __slots__ = ("_failing_since", "_probe_at", "failures", "is_open")

    def __init__(self) -> None:
        self.failures = 0
        self.is_open = False
        self._failing_since = 0
        self._probe_at = 0

    def permission(self, timer_ms: int) -> Permission:
        """What a call may do now."""
        if not self.is_open:
            return Permission.GO
        if timer_ms < self._probe_at:
            return Permission.FAIL
        self._probe_at = timer_ms + PROBE_INTERVAL_MS
        return Permission.FAIL_AND_PROBE

    def answered(self) -> None:
        """A call was answered."""
        self.failures = 0
        self.is_open = False

    def unanswered(self, timer_ms: int) -> None:
        """A call was not answered."""
        if not self.failures:
            self._failing_since = timer_ms
        if not self.is_open:
            # Many calls may be lost in one moment; that is not yet an outage.
            lasting = timer_ms - self._failing_since >= FAILING_TO_OPEN_MS
            self.failures = min(self.failures + 1, FAILURES_TO_OPEN if lasting else FAILURES_TO_OPEN - 1)
            self.is_open = self.failures >= FAILURES_TO_OPEN
            self._probe_at = timer_ms + PROBE_INTERVAL_MS
