"""When nobody answers, do not let every caller wait to find that out. Pure: the caller says what time it is.

After a few silences in a row the breaker is *open*: calls fail at once. From time to time one of them is told to probe
beside its own failing; the first answer, to the probe or to anything else, closes the breaker.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

SILENCES_TO_OPEN: Final = 5
SILENCE_TO_OPEN_MS: Final = 300
REST_MS: Final = 1_000
"""Between probes."""


class Passage(Enum):
    """What a call may do."""

    GO = "go"
    STOP = "stop"
    STOP_AND_PROBE = "stop and probe"


class Breaker:
    """Counts silences in a row."""

    __slots__ = ("_probe_at", "_silences", "_silent_since")

    def __init__(self) -> None:
        self._silences = 0
        self._silent_since = 0
        self._probe_at = 0

    @property
    def is_open(self) -> bool:
        """Whether calls fail at once."""
        return self._silences >= SILENCES_TO_OPEN

    def passage(self, timer_ms: int) -> Passage:
        """What a call may do now."""
        if not self.is_open:
            return Passage.GO
        if timer_ms < self._probe_at:
            return Passage.STOP
        self._probe_at = timer_ms + REST_MS
        return Passage.STOP_AND_PROBE

    def answered(self) -> None:
        """Somebody is there."""
        self._silences = 0

    def silent(self, timer_ms: int) -> None:
        """One more call without an answer."""
        if not self._silences:
            self._silent_since = timer_ms
        if not self.is_open:
            # Many calls may be lost in one moment; that is not yet an outage.
            lasting = timer_ms - self._silent_since >= SILENCE_TO_OPEN_MS
            self._silences = min(self._silences + 1, SILENCES_TO_OPEN if lasting else SILENCES_TO_OPEN - 1)
            self._probe_at = timer_ms + REST_MS
