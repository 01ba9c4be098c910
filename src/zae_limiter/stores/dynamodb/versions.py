"""Which config a bucket obeys: the version it carries (``cv``), and which version may follow which.

Every config item has a counter that grows with each change, deletions included. A bucket carries the counters
of all the items from which its limits were resolved, and every write is guarded by them. So a client that knows
an older config cannot write by it, and a client that knows a newer one rebases the bucket first.

An ancestor without limits has no bucket to carry its counters. The bucket below it does, after its own: they are the
*way* from there to the next bucket. When such an ancestor gets limits, or leads elsewhere, it is that bucket which
everybody meets at a version they do not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

from zae_limiter.models.limit import Limit

FENCED = "!"
"""The version of a bucket whose namespace was deleted: nobody has it, so everybody must look again."""

_CALL = "~"
_STEP = "/"


class Versions(NamedTuple):
    """The counters of the items that resolution reads: four levels, and the entity itself."""

    system: int
    resource: int
    entity_default: int
    entity: int
    meta: int

    def __str__(self) -> str:
        return ".".join(map(str, self))

    @property
    def passed_by(self) -> str:
        """The step of a way over an entity that has no limits."""
        return f"{_STEP}{self.entity_default}.{self.entity}.{self.meta}"


def of_call(limits: Iterable[Limit], meta: int) -> str:
    """The version of limits given with a call: they have no counter, only a digest."""
    terms = ";".join(
        f"{limit.name},{limit.capacity},{limit.burst},{limit.refill_amount},{limit.refill_period_seconds}"
        for limit in limits
    )
    return f"{_CALL}{blake2b(terms.encode(), digest_size=6).hexdigest()}.{meta}"


def may_follow(ours: str, theirs: str, *, seen_before: bool) -> bool:
    """Whether a bucket at version ``theirs`` may be rebased to ``ours``; if not, resolve again.

    Counters are ordered: ours must be nowhere behind. A digest and a fence are not; ``seen_before`` says that
    ours was resolved after theirs was seen, so it is the newer one (even if its counters are behind, as after a
    restored backup).
    """
    if seen_before:
        return True
    if theirs == FENCED:
        return False
    my_own, *my_way = ours.split(_STEP)
    their_own, *their_way = theirs.split(_STEP)
    mine, other = _counters(my_own), _counters(their_own)
    if mine[-1] < other[-1]:
        return False
    if mine[-1] == other[-1] and not _is_nowhere_behind(my_way, their_way):
        return False
    if ours.startswith(_CALL):
        return True
    if theirs.startswith(_CALL):
        return False  # what the bucket obeyed before that call may be newer than ours
    return len(mine) == len(other) and all(ours >= theirs for ours, theirs in zip(mine, other, strict=True))


def _is_nowhere_behind(my_way: Sequence[str], their_way: Sequence[str]) -> bool:
    """Whether one way is surely no older than another from the same entity, step by step.

    Each step ends with the counter of the entity itself: where that is higher, the way has led elsewhere since.
    """
    if len(my_way) != len(their_way):
        return False
    for my_step, their_step in zip(my_way, their_way, strict=True):
        mine, other = _counters(my_step), _counters(their_step)
        if len(mine) != len(other) or any(ours < theirs for ours, theirs in zip(mine, other, strict=True)):
            return False
        if mine[-1] > other[-1]:
            return True
    return True


def _counters(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdecimal()] or [0]
