"""How long to wait between two tries."""

from __future__ import annotations

from collections.abc import Iterator

FIRST_PAUSE_S = 0.000_05
LONGEST_PAUSE_S = 0.001


def pauses() -> Iterator[float]:
    """How long to wait between tries: little by little longer."""
    pause = FIRST_PAUSE_S
    while True:
        yield pause
        pause = min(pause * 1.5, LONGEST_PAUSE_S)
