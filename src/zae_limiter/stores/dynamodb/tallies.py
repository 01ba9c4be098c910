"""Counters of a bucket that no condition reads: what cascaded, and denials. They ride on writes that are made anyway.

**What cascaded.** Every leg of an acquire counts what is taken from it, so a sum over entities would have it as often
as there were legs. A leg therefore also counts, in the same write, what a leg before it has counted: ``c_{limit}`` in
millitokens, ``evc`` in grants. The first leg never does, so the buckets of most entities have neither.

**Denials.** A denial writes nothing: it is a refused write, or none at all. So a client keeps its denials here, by
bucket and limit (``d_{limit}``), until it writes to the bucket anyway. While a bucket does nothing but deny, they are
written once a minute, in place of a write that would be refused; what is left is written when the store is closed. A
process that is killed takes with it what it had not written.

A write that was surely not done brings its denials back. If that cannot be known they are let go: a denial is counted
once or not at all.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final, NamedTuple

from zae_limiter.stores.dynamodb.schema import Key, shard_key
from zae_limiter.stores.protocol import Leg

EVENTS_CASCADED: Final = "evc"
CASCADED: Final = "c_"
DENIED: Final = "d_"

NO_TALLIES: Final[Mapping[str, int]] = {}

WRITTEN_EVERY_MS: Final = 60_000
"""How long denials by a bucket are kept at most before they are written, if it goes on denying."""

MOST_BUCKETS: Final = 50_000
"""So many buckets may have denials that are not written yet; what is denied by others is not counted."""


def cascaded_tallies(leg: Leg, deltas: Mapping[str, int], grants: int) -> Mapping[str, int]:
    """What of a write another leg counts too, by attribute."""
    names = leg.cascaded
    if names is None:
        return NO_TALLIES
    found = {CASCADED + name: delta for name, delta in deltas.items() if delta and name in names}
    if grants:
        found[EVENTS_CASCADED] = grants
    return found


def denial_tallies(denials: Mapping[str, int]) -> dict[str, int]:
    """Denials by limit, by attribute."""
    return {DENIED + name: number for name, number in denials.items()}


class Unwritten(NamedTuple):
    """Denials by a bucket that are not written yet, and since when (machine time)."""

    leg: Leg
    since: int
    denials: dict[str, int]


class DenialTally:
    """The denials of one client that are not written yet, by the first shard of each bucket."""

    __slots__ = ("_lock", "unwritten")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.unwritten: dict[Key, Unwritten] = {}

    def add(self, key: Key, leg: Leg, denials: Mapping[str, int], started: int) -> None:
        """Keep denials, to be written with the next write to any shard of their bucket."""
        first = shard_key(key, 0)
        with self._lock:
            kept = self.unwritten.get(first)
            if kept is None:
                if len(self.unwritten) >= MOST_BUCKETS:
                    return
                kept = self.unwritten[first] = Unwritten(leg, started, {})
            for name, number in denials.items():
                kept.denials[name] = kept.denials.get(name, 0) + number

    def take(self, key: Key) -> Mapping[str, int]:
        """Those by one bucket, to be written now."""
        with self._lock:
            kept = self.unwritten.pop(shard_key(key, 0), None)
        return NO_TALLIES if kept is None else kept.denials

    def is_due(self, first: Key, started: int) -> bool:
        """Whether the denials by a bucket have been kept for long enough."""
        kept = self.unwritten.get(first)
        return kept is not None and started - kept.since >= WRITTEN_EVERY_MS
