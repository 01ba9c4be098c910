"""Which config a bucket obeys: the version it carries (``cv``), and which version may follow which.

Every config item has a counter that grows with each change, deletions included. A bucket carries the counters
of all the items from which its limits were resolved, and every write is guarded by them. So a client that knows
an older config cannot write by it, and a client that knows a newer one rebases the bucket first.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

from zae_limiter.models.limit import Limit

FENCED = "!"
"""The version of a bucket whose namespace was deleted: nobody has it, so everybody must look again."""

_CALL = "~"


class Versions(NamedTuple):
    """The counters of the items that resolution reads: four levels, and the entity itself."""

    system: int
    resource: int
    entity_default: int
    entity: int
    meta: int

    def __str__(self) -> str:
        return ".".join(map(str, self))


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
    mine, other = _counters(ours), _counters(theirs)
    if mine[-1] < other[-1]:
        return False
    if ours.startswith(_CALL):
        return True
    if theirs.startswith(_CALL):
        return False  # what the bucket obeyed before that call may be newer than ours
    return len(mine) == len(other) and all(ours >= theirs for ours, theirs in zip(mine, other, strict=True))


def _counters(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdigit()] or [0]
