"""Marks: how a write is recognised when it comes again.

Every write has a mark of its own: a bit in a bitmap of its client. The script sets it in the step that writes, so a
write that is repeated because its reply was lost, or one that arrives after its repeat, finds its bit and does
nothing.

The bitmaps expire. A client asks a write to move the expiry until one of them is known to have done so, and again
every minute: writes are repeated within seconds.
"""

from __future__ import annotations

import os
from functools import lru_cache
from itertools import count
from typing import Final, NamedTuple

from zae_limiter.stores.redis.keys import marks_key
from zae_limiter.stores.redis.wire import bulk
from zae_limiter.stores.windows import DAYS_KEPT

MARKS_PER_BLOCK: Final = 4096
RENEWAL_MS: Final = 60_000

ONLY_LOOK = bulk("")
"""Instead of a mark: write nothing."""


Flags = tuple[bytes, bytes, bytes, bytes]
"""What a script is told: 1 it may have been done, 2 the marks need an expiry; then for how many days usage is kept."""


@lru_cache
def flags_of(usage_days: int) -> Flags:
    """The four of them."""
    days = "" if usage_days == DAYS_KEPT else f" {usage_days}"
    return bulk(f"0{days}"), bulk(f"1{days}"), bulk(f"2{days}"), bulk(f"3{days}")


class Mark(NamedTuple):
    """One write: key of the bitmap and bit, as they are sent, and whether the bitmap's expiry is to be moved."""

    key: str
    packed_key: bytes
    bit: bytes
    moves_expiry: bool
    all_flags: Flags = flags_of(DAYS_KEPT)

    def flags(self, repeated: bool) -> bytes:
        """What the script is told about it."""
        return self.all_flags[repeated + 2 * self.moves_expiry]


_BITS = tuple(bulk(bit) for bit in range(MARKS_PER_BLOCK))


_SERIAL = count()
_PROCESS = (0, "")


def process_name() -> str:
    """What no other process is called. A forked child has a name of its own."""
    global _PROCESS
    pid, name = _PROCESS
    if pid != os.getpid():
        name = os.urandom(6).hex()
        _PROCESS = os.getpid(), name
    return name


class Marks:
    """The marks of one process in one namespace. A forked child has its own."""

    __slots__ = (
        "_all_flags",
        "_block",
        "_client",
        "_counter",
        "_key",
        "_packed_key",
        "_pid",
        "_prefix",
        "_renewed_ms",
    )

    def __init__(self, prefix: str, usage_days: int) -> None:
        self._prefix = prefix
        self._all_flags = flags_of(usage_days)
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._client = f"{process_name()}-{next(_SERIAL):x}"  # claims are told by the process they are of
        self._counter = count()
        self._block = -1
        self._renewed_ms: int | None = None

    def next(self, timer_ms: int) -> Mark:
        """A mark that no other write has."""
        if self._pid != os.getpid():
            self._begin()
        block, bit = divmod(next(self._counter), MARKS_PER_BLOCK)
        if block != self._block:
            self._key = marks_key(self._prefix, self._client, block)
            self._packed_key = bulk(self._key)
            self._block = block
            self._renewed_ms = None
        renewed = self._renewed_ms
        moves_expiry = renewed is None or timer_ms - renewed > RENEWAL_MS
        return Mark(self._key, self._packed_key, _BITS[bit], moves_expiry, self._all_flags)

    def written(self, mark: Mark, timer_ms: int) -> None:
        """A write that was asked to move the expiry of its bitmap has done so."""
        if mark.packed_key is self._packed_key:
            self._renewed_ms = timer_ms
