"""How far a write to a bucket is, and what can become known of it. ``bucket_writer`` has the theory."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final


class WriteState(Enum):
    """How far a write is."""

    OPEN = auto()
    IN_DOUBT = auto()
    DONE = auto()


class WriteEvent(Enum):
    """What can become known of a write."""

    ANSWERED = auto()
    REFUSED = auto()
    NOT_SENT = auto()
    LOST = auto()
    SEEN = auto()
    EXCLUDED = auto()
    BEGUN_ANEW = auto()
    NOTHING_LEFT = auto()
    GIVEN_BACK = auto()


OPEN, IN_DOUBT, DONE = WriteState

TRANSITIONS: Final[Mapping[WriteEvent, Mapping[WriteState, WriteState]]] = {
    WriteEvent.ANSWERED: {OPEN: DONE, IN_DOUBT: DONE, DONE: DONE},
    WriteEvent.REFUSED: {OPEN: OPEN, IN_DOUBT: IN_DOUBT, DONE: DONE},
    WriteEvent.NOT_SENT: {OPEN: OPEN, IN_DOUBT: IN_DOUBT, DONE: DONE},
    WriteEvent.LOST: {OPEN: IN_DOUBT, IN_DOUBT: IN_DOUBT, DONE: DONE},
    WriteEvent.SEEN: {OPEN: DONE, IN_DOUBT: DONE, DONE: DONE},
    WriteEvent.EXCLUDED: {OPEN: OPEN, IN_DOUBT: OPEN, DONE: DONE},
    WriteEvent.BEGUN_ANEW: {OPEN: OPEN, IN_DOUBT: OPEN, DONE: DONE},
    WriteEvent.NOTHING_LEFT: {OPEN: DONE, IN_DOUBT: DONE, DONE: DONE},
    WriteEvent.GIVEN_BACK: {OPEN: OPEN, IN_DOUBT: OPEN, DONE: OPEN},
}
