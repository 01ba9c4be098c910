"""Which buckets have open leases of this process: what they took may come back before refill brings it.

Only a caller whose wait is longer than it may wait asks, and every acquire would have to count for it. So nothing is
counted: a lease that is open has a reference to a mark, and drops it in the instruction that ends the lease. CPython
counts references anyway. Interpreters
that do not are told that any fast path may have open leases.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from typing import Final
from weakref import WeakSet

from zae_limiter.stores.legs import BucketPlace, Leg

MOST_EMPTY: Final = 4096
"""So many buckets may be remembered of which all leases have ended."""

_references: Final[Callable[[object], int] | None] = getattr(sys, "getrefcount", None)


class OpenMark:
    """What an open lease refers to, and nothing else does for long."""

    __slots__ = ("__weakref__",)


class SharedMark:
    """The mark of all leases that one fast path granted, and those before it on the same route."""

    __slots__ = ("mark",)

    def __init__(self) -> None:
        self.mark: object = OpenMark()

    @property
    def is_held(self) -> bool:
        """Whether a lease is open that has it."""
        return self.references() > _UNHELD

    def references(self) -> int:
        """How many references to the mark there are, its own and that of the question among them."""
        return sys.maxsize if _references is None else _references(self.mark)


_UNHELD = 0 if _references is None else SharedMark().references()


class OpenLeases:
    """The open leases of one namespace that were granted by a plan, by the buckets they took from."""

    __slots__ = ("_by_bucket", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_bucket: dict[BucketPlace, WeakSet[OpenMark]] = {}

    def mark(self, legs: Iterable[Leg]) -> OpenMark:
        """A mark for one lease that took from these legs."""
        mark = OpenMark()
        with self._lock:
            if len(self._by_bucket) > MOST_EMPTY:
                self._by_bucket = {place: marks for place, marks in self._by_bucket.items() if marks}
            for leg in legs:
                place = leg.entity_id, leg.resource
                marks = self._by_bucket.get(place)
                if marks is None:
                    marks = self._by_bucket[place] = WeakSet()
                marks.add(mark)
        return mark

    def has(self, place: BucketPlace) -> bool:
        """Whether a lease is open that took from this bucket."""
        with self._lock:
            return bool(self._by_bucket.get(place))

    def forget_parent(self) -> None:
        """In a forked child: the leases are those of the parent."""
        self._lock = threading.Lock()
        self._by_bucket = {}
