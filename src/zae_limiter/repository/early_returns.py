"""Whether tokens may come back to a bucket before refill brings them: a lease of this process is open that took some.

What leases of other processes give back is not known here, and not waited for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zae_limiter.stores.open_leases import OpenLeases, SharedMark
from zae_limiter.stores.protocol import BucketPlace, FastPath

SORTED_FOR_MS = 1_000
"""For so long fast paths are not sorted again by the buckets they lead to, unless there are more or fewer of them."""


class EarlyReturns:
    """The open leases of one namespace, however they were granted."""

    __slots__ = ("_below", "_open_leases", "_sorted_at", "_sorted_paths")

    def __init__(self, open_leases: OpenLeases) -> None:
        self._open_leases = open_leases
        self._below: Mapping[BucketPlace, Sequence[SharedMark]] = {}
        self._sorted_at = 0
        self._sorted_paths = 0

    def may_come_to(self, place: BucketPlace, paths: Mapping[BucketPlace, FastPath], now: int) -> bool:
        """Whether a lease is open that took from this bucket. ``paths`` are the fast paths by own bucket."""
        if self._open_leases.has(place):
            return True
        own = paths.get(place)
        if own is not None and own.shared_mark.is_held:
            return True
        if len(paths) != self._sorted_paths or not 0 <= now - self._sorted_at < SORTED_FOR_MS:
            self._sort(paths, now)
        return any(mark.is_held for mark in self._below.get(place, ()))

    def _sort(self, paths: Mapping[BucketPlace, FastPath], now: int) -> None:
        below: dict[BucketPlace, list[SharedMark]] = {}
        for path in list(paths.values()):
            for leg in path.legs[1:]:
                below.setdefault(leg.place, []).append(path.shared_mark)
        self._below, self._sorted_at, self._sorted_paths = below, now, len(paths)
