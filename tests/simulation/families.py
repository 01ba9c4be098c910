"""What must be true of the shards of one bucket together, however they were split.

A millitoken's number, modulo the number of shards, says whose it is: shard ``s`` of ``n`` owns all that leave ``s``.
So ceilings and rates add up to the limit at all times if, and only if, every remainder has exactly one owner. That
holds for trees in which some shards are split further than others too.
"""

from __future__ import annotations

from collections.abc import Iterable

from simulation.violations import OWNED, PAUSE, PRESSURE, Place, Violation, owner_of, shard_of

Owner = tuple[str, str]

MOST_SHARDS = 64
PAUSE_MS = 1000
PRESSED_FOR_MS = 1000
"""For how long after it was seen pressure may be the reason of a split."""


class Gauge:
    """How much more one partition could take: so many writes a second, at most those of one second saved."""

    __slots__ = ("at", "left")

    def __init__(self, left: float, at: int) -> None:
        self.left = left
        self.at = at

    def charge(self, wcu: int, at: int) -> float:
        """What is left after one more write."""
        self.left = min(self.left + (at - self.at) * wcu / 1000, wcu) - 1
        self.at = at
        return self.left


class Families:
    """The shards of every bucket."""

    def __init__(self, *, wcu: int = 0) -> None:
        """``wcu``: the load at which shards are split, where nothing else may be a reason; 0: unknown."""
        self.shards: dict[Owner, dict[int, int]] = {}
        self.torn: set[Owner] = set()
        """Families that lost a shard by deletion: they do not add up to the whole any more."""
        self.splits = 0
        self._wcu = wcu
        self._split_at: dict[Owner, int] = {}
        self._gauges: dict[Place, Gauge] = {}
        self._pressed: dict[Owner, int] = {}

    def places(self, place: Place) -> list[Place]:
        """All shards of the bucket that one is a shard of."""
        stem = place[0].rpartition("#")[0]
        return [(f"{stem}#{shard}", place[1]) for shard in self.shards.get(owner_of(place), ())]

    def is_whole(self, owner: Owner) -> bool:
        """Whether no shard was deleted."""
        return owner not in self.torn

    # What happens

    def born(self, place: Place, shards: int) -> None:
        """A bucket begins its life."""
        self.shards.setdefault(owner_of(place), {})[shard_of(place)] = shards
        self._check(place)

    def divided(self, place: Place, other: Place, shards: int, *, t: int, at: int) -> None:
        """One shard of ``shards`` becomes two, by a write computed for ``t``."""
        self.splits += 1
        owner, shard = owner_of(place), shard_of(place)
        if shard_of(other) != shard + shards:
            raise Violation(OWNED, place, f"shard {shard} of {shards} was divided into itself and {other[0]}")
        if shard == 0:
            rested = t - self._split_at.get(owner, 0)
            self._split_at[owner] = t
            if shards > 1 and rested < PAUSE_MS:
                raise Violation(PAUSE, place, f"divided again into {2 * shards} after {rested} ms")
            if self._wcu and at - self._pressed.get(owner, 0) > PRESSED_FOR_MS:
                raise Violation(PRESSURE, place, f"divided into {2 * shards} although its partitions had room")
        family = self.shards[owner]
        family[shard] = family[shard_of(other)] = 2 * shards
        for part in (place, other):
            self._gauges.pop(part, None)
        self._check(place)

    def gone(self, place: Place) -> None:
        """A shard is deleted, or has expired."""
        owner = owner_of(place)
        family = self.shards.get(owner, {})
        family.pop(shard_of(place), None)
        self._gauges.pop(place, None)
        if family:
            self.torn.add(owner)
        else:
            self.torn.discard(owner)

    def charged(self, places: Iterable[Place], at: int) -> None:
        """A client wrote to these shards, or tried to."""
        if not self._wcu:
            return
        for place in places:
            gauge = self._gauges.get(place)
            if gauge is None:
                gauge = self._gauges[place] = Gauge(self._wcu, at)
            if gauge.charge(self._wcu, at) < self._wcu / 2:
                self._pressed[owner_of(place)] = at

    # What must be true

    def _check(self, place: Place) -> None:
        owner = owner_of(place)
        family = self.shards[owner]
        owners = [0] * MOST_SHARDS
        for shard, shards in family.items():
            for number in range(shard, MOST_SHARDS, shards):
                owners[number] += 1
        told = ", ".join(f"{shard} of {shards}" for shard, shards in sorted(family.items()))
        if max(owners) > 1:
            raise Violation(OWNED, place, f"the shards {told} add up to more than the limit")
        if min(owners) < 1 and owner not in self.torn:
            raise Violation(OWNED, place, f"the shards {told} add up to less than the limit")
        if max(family.values()) > family.get(0, MOST_SHARDS):
            raise Violation(OWNED, place, f"of the shards {told} the first is not divided most")
