"""What a write to a bucket is to do, before it has a form: the terms a bucket is to obey, and the intent. Pure.

A write also moves *tallies*: counters of the bucket that no condition reads, and that ride on writes made anyway.

**What cascaded.** Every leg of an acquire counts what is taken from it, so a sum over entities would have it as often
as there were legs. A leg therefore also counts, in the same write, what a leg before it has counted: ``c_{limit}`` in
millitokens, ``evc`` in grants. The first leg never does, so the buckets of most entities have neither.

**Denials**, ``d_{limit}``: see :class:`~zae_limiter.stores.dynamodb.namespace.DenialTally`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from zae_limiter.models.limit import Limit
from zae_limiter.stores.protocol import Leg

NOTHING: Mapping[str, int] = {}

EVENTS_CASCADED: Final = "evc"
CASCADED: Final = "c_"
DENIED: Final = "d_"


class SlotMoves(NamedTuple):
    """What a write does to one limit of calls in flight, in millitokens by due time.

    What ``left`` a due time was given back, or goes on under a later one; what ``entered`` one is lent. ``needed``: so
    much must be free (``None``: it does not ask). ``counted`` is added to the counter of what began.
    """

    left: Mapping[int, int] = {}
    entered: Mapping[int, int] = {}
    needed: int | None = None
    counted: int = 0


class Watched(NamedTuple):
    """What a limit that only watches says to a write: it holds at ``least`` so much (``None``: no draw takes from it),
    and less than ``below`` (``None``: it refuses none). ``refusals`` of these draws it would have refused.

    With a window the verdict is exact: a write that meets another level is not done.
    """

    least: int | None = None
    below: int | None = None
    refusals: int = 0


NO_SLOTS: Mapping[str, SlotMoves] = {}
NONE_WATCHED: Mapping[str, Watched] = {}


class Terms(NamedTuple):
    """What a bucket is to obey: the limits of its leg, and the version they have."""

    leg: Leg
    cv: str
    parent_id: str | None = None
    cascade: bool = False


def counted_in(usage: Mapping[str, int]) -> dict[str, int]:
    """The limits of which something is counted."""
    return {name: count for name, count in usage.items() if count}


class Intent(NamedTuple):
    """What a write is to do, in millitokens by limit.

    ``deltas``: positive ones are taken, negative ones come back. ``needed`` makes it a draw: every limit named
    there must hold that much, and no other may be in debt. ``terms``: rebase the bucket to these first;
    ``rebase``: to those it has, so that nothing computed for the old baseline can be done any more.
    ``fill``: fill every limit, or ``only`` these. ``usage``: what is counted, where that is not what moves. ``grants``
    is added to the count of grants.

    ``held``: what is taken must be there, and nothing comes back to a limit in debt, though it is no draw.
    ``exactly``: these limits must hold what they were seen to hold.
    ``not_written``: this write id must not be among the recent writers.
    ``owed``: limits that ``deltas`` may name although the bucket has them no longer. They come back, full and retired.
    ``tallies``: so much is added to these attributes, which no condition reads (see above).
    ``lifts``: so much more these calendar limits hold, and may hold, in their period; only with a rebase.
    ``most``: the levels that these limits may have at most. They fall to it, and none rises.
    ``slots``: what happens to limits of calls in flight. ``watched``: what limits say that only watch, by key.
    ``life``: that of the bucket which ``slots`` are of, where it is not that of the snapshot. ``evened``: so many
    slots come from another shard, or go there.
    """

    deltas: Mapping[str, int]
    needed: Mapping[str, int] | None = None
    terms: Terms | None = None
    grants: int = 0
    fill: bool = False
    rebase: bool = False
    held: bool = False
    exactly: frozenset[str] = frozenset()
    not_written: str | None = None
    owed: tuple[Limit, ...] = ()
    only: tuple[str, ...] | None = None
    usage: Mapping[str, int] | None = None
    tallies: Mapping[str, int] = NOTHING
    most: Mapping[str, int] = NOTHING
    lifts: Mapping[str, int] = NOTHING
    slots: Mapping[str, SlotMoves] = NO_SLOTS
    watched: Mapping[str, Watched] = NONE_WATCHED
    life: str | None = None
    evened: Mapping[str, int] = NOTHING

    def counts(self, name: str) -> int:
        """How much is counted of a limit."""
        return (self.deltas if self.usage is None else self.usage).get(name, 0)

    @property
    def concerned(self) -> Mapping[str, int]:
        """The limits that it moves or counts; 0 only for those of which it does neither."""
        return self.deltas if not self.usage else {**self.deltas, **counted_in(self.usage)}

    def fills(self, name: str) -> bool:
        """Whether this limit is filled, if any is."""
        return self.only is None or name in self.only


def cascaded_tallies(leg: Leg, deltas: Mapping[str, int], grants: int) -> Mapping[str, int]:
    """What of a write another leg counts too, by attribute."""
    names = leg.cascaded
    if names is None:
        return NOTHING
    found = {CASCADED + name: delta for name, delta in deltas.items() if delta and name in names}
    if grants:
        found[EVENTS_CASCADED] = grants
    return found


def denial_tallies(denials: Mapping[str, int]) -> dict[str, int]:
    """Denials by limit, by attribute."""
    return {DENIED + name: number for name, number in denials.items()}
