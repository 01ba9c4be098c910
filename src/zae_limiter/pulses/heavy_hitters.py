"""Who comes most often, in bounded memory (Misra and Gries).

At most twice ``most`` keys are known. When there are more, the count of the first that is one too many is taken off
all of them, and those with nothing left are forgotten. So a count is never too high, and too low by at most
:attr:`HeavyHitters.error`, which is at most the sum of all that was added, divided by ``most + 1``: a key that has a
larger share than that is known for sure. Two of them merge by the same step, and keep the promise.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class HeavyHitters(Generic[Key]):
    """Counts by key, of those that come most often."""

    __slots__ = ("_most", "counts", "error", "total")

    def __init__(self, most: int) -> None:
        self._most = most
        self.counts: dict[Key, int] = {}
        self.error = 0
        """How much may be missing from any count, and how much a key that is not known has at most."""
        self.total = 0
        """The sum of all that was added."""

    def add(self, key: Key, amount: int = 1) -> None:
        """Count a key."""
        counts = self.counts
        self.total += amount
        counts[key] = counts.get(key, 0) + amount
        if len(counts) > 2 * self._most:
            self._shrink()

    def merge(self, other: HeavyHitters[Key]) -> None:
        """Count what another has counted."""
        self.total += other.total
        self.error += other.error
        for key, amount in other.counts.items():
            self.counts[key] = self.counts.get(key, 0) + amount
        if len(self.counts) > 2 * self._most:
            self._shrink()

    def top(self, most: int) -> list[tuple[Key, int]]:
        """Those with the largest counts, the largest first; of equal ones, those that came first."""
        return sorted(self.counts.items(), key=lambda item: -item[1])[:most]

    def _shrink(self) -> None:
        surplus = sorted(self.counts.values(), reverse=True)[self._most]
        self.error += surplus
        self.counts = {key: count - surplus for key, count in self.counts.items() if count > surplus}


def merged(parts: Iterable[HeavyHitters[Key]], most: int) -> HeavyHitters[Key]:
    """All of them as one."""
    whole: HeavyHitters[Key] = HeavyHitters(most)
    for part in parts:
        whole.merge(part)
    return whole
