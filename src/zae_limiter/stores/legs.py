"""Legs: the buckets one acquire takes from, what is booked on them after the fact, and how that is noted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from zae_limiter.bucket import are_plain
from zae_limiter.models.choices import ConfigSource
from zae_limiter.models.holds import Hold
from zae_limiter.models.limit import Limit

if TYPE_CHECKING:
    from zae_limiter.stores.lease_records import RecordChange

BucketPlace: TypeAlias = tuple[str, str]
"""Entity and resource."""

NO_NAMES: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class Leg:
    """One bucket an acquire takes from: the entity's own, its total over all resources, or one of an ancestor.

    ``paid`` says which shards of a sharded bucket gave how many millitokens, for those who settle there. ``known`` are
    the names of limits that any of the levels consulted for it has; those in ``names`` are taken from it. ``cascaded``
    has those of its limits that a leg before it has too, and counts: reports count each call once. ``None``: it is
    the first leg. ``refused`` names the limits that only watch and would have refused: nothing was taken from them,
    and nothing is settled there. ``held`` names those of calls in flight, ``is_plain`` says that all limits refill
    evenly and refuse.

    The first leg of an acquire is the entity's own. Where only others of its legs have limits, it has none. The total
    of an entity comes after its own.
    """

    entity_id: str
    resource: str
    limits: tuple[Limit, ...]
    source: ConfigSource
    paid: tuple[tuple[int, Mapping[str, int]], ...] = ()
    known: frozenset[str] = frozenset()
    cascaded: frozenset[str] | None = None
    refused: frozenset[str] = NO_NAMES
    names: frozenset[str] = field(init=False)
    settled_names: frozenset[str] = field(init=False)
    held: frozenset[str] = field(init=False)
    is_plain: bool = field(init=False)

    @property
    def place(self) -> BucketPlace:
        """Which bucket it is."""
        return self.entity_id, self.resource

    def unrefused(self) -> Leg:
        """The same before a draw: none of its limits has refused."""
        return replace(self, refused=NO_NAMES) if self.refused else self

    def __post_init__(self) -> None:
        names = frozenset([limit.name for limit in self.limits])
        held = NO_NAMES if are_plain(self.limits) else frozenset(one.name for one in self.limits if one.is_held)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "known", self.known | names)
        object.__setattr__(self, "settled_names", names - self.refused - held if self.refused or held else names)
        object.__setattr__(self, "held", held)
        object.__setattr__(self, "is_plain", are_plain(self.limits))


def in_order(legs: Iterable[Leg]) -> tuple[Leg, ...]:
    """The legs of one acquire, the first one first: each knows what those before it count."""
    found: list[Leg] = []
    counted: frozenset[str] | None = None
    for leg in legs:
        placed = leg_after(leg, counted)
        found.append(placed)
        counted = placed.names if counted is None else counted | placed.names
    return tuple(found)


@lru_cache(4096)
def leg_after(leg: Leg, counted: frozenset[str] | None) -> Leg:
    """A leg that comes after others, which count these limits; ``None``: it is the first."""
    cascaded = None if counted is None else leg.names & counted
    return leg if leg.cascaded == cascaded else replace(leg, cascaded=cascaded)


def with_refusals(legs: tuple[Leg, ...], refused: Mapping[int, set[str]]) -> tuple[Leg, ...]:
    """The legs; those with limits that only watch and would have refused say so, and what those before them have
    counted then. ``refused`` has them by the place of the leg."""
    if not refused:
        return legs
    marked = []
    counted: frozenset[str] = frozenset()
    for place, leg in enumerate(legs):
        names = leg.names - refused.get(place, set())
        cascaded = None if leg.cascaded is None else leg.cascaded & counted & names
        marked.append(replace(leg, refused=leg.names - names, cascaded=cascaded))
        counted |= names
    return tuple(marked)


class HoldChange(NamedTuple):
    """Slots by which a hold is to change: positive ones are taken without asking, negative ones given back."""

    hold: Hold
    slots: int


class Posting(NamedTuple):
    """Millitokens to book on one leg after the fact, per limit: positive taken, negative given back.

    Limits of calls in flight are changed by ``holds``. ``undo``: it was never used, so nothing of it is counted, and
    neither is what limits that only watch would have refused.

    ``usage_milli`` is what is counted, where that is not what moves: a limit that it does not name counts nothing. It
    names no limits of calls in flight, and goes with a change of a record, as no repetition may count twice.
    """

    leg: Leg
    deltas_milli: Mapping[str, int]
    holds: Sequence[HoldChange] = ()
    undo: bool = False
    usage_milli: Mapping[str, int] | None = None

    @property
    def counted_milli(self) -> Mapping[str, int]:
        """What is counted of limits that are not of calls in flight."""
        return self.deltas_milli if self.usage_milli is None else self.usage_milli

    @property
    def named(self) -> Mapping[str, int]:
        """The limits that it moves or counts; 0 only for those of which it does neither."""
        if self.usage_milli is None:
            return self.deltas_milli
        return {**self.deltas_milli, **{name: count for name, count in self.usage_milli.items() if count}}


class Settlement:
    """What is to be booked, until it is: ``postings`` has what is left of it.

    A store notes here what it books, in the step that books: a caller that was interrupted asks again for what is
    left, and all of it is booked once. A store that cannot know what became of a step says that what is left is
    ``doubtful``. With a ``change`` of the lease's record all of it is booked in the step that makes the change, or
    nothing is, and ``RecordMoved`` is raised.
    """

    __slots__ = ("doubtful", "postings")

    postings: Sequence[Posting] | None
    """``None`` if it is not spelled out which leg is to book what; then all of it is left."""

    def __init__(self, postings: Sequence[Posting]) -> None:
        self.postings = postings
        self.doubtful = False

    @property
    def change(self) -> RecordChange | None:
        """What changes in the record of the lease; most leases have none."""
        return None
