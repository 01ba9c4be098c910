"""The exact bucket beside the one that is judged: told the same operations, in its own words.

A limit has a *position*: what it would hold at time zero if it accrued without end. Its level at ``t`` is position
plus everything accrued from the epoch to ``t``, at most the burst. There is no baseline and there are no forms;
taking and giving back move the position, and both forget first what is above the ceiling at that moment.
Nothing here is shared with the library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

HOUR_MS = 3_600_000

Item = Mapping[str, Any]


class Terms(NamedTuple):
    """Ceiling and rate of one limit: millitokens, and millitokens per milliseconds; and which part of both it has.

    Every millitoken there may be or ever was has a number. Of ``shards`` shards each owns every so-manyth of them.
    ``watches``: it refuses nothing, and counts what it would have refused.
    """

    burst: int
    ra: int
    rp: int
    shard: int = 0
    shards: int = 1
    watches: bool = False

    @property
    def bx(self) -> int:
        """The ceiling."""
        return self.burst if self.shards == 1 else self.part(self.burst)

    @property
    def whole(self) -> tuple[int, int, int]:
        """The same of all shards together."""
        return self.burst, self.ra, self.rp

    def part(self, amount: int) -> int:
        """How many of the first so many are its own."""
        each, rest = divmod(amount, self.shards)
        return each + (self.shard < rest)

    def accrued(self, t: int) -> int:
        """Everything from the epoch to ``t``."""
        whole = t * self.ra // self.rp
        return whole if self.shards == 1 else self.part(whole)

    def divided(self) -> tuple[Terms, Terms]:
        """Those of the two shards it becomes."""
        return (
            self._replace(shards=2 * self.shards),
            self._replace(shard=self.shard + self.shards, shards=2 * self.shards),
        )


ANCHOR_MS = 1_704_067_200_000
"""Monday 2024-01-01 in UTC: where periods are counted from."""

UNITS_MS = {"sec": 1_000, "min": 60_000, "hour": 3_600_000}


class Steps(Terms):
    """Those of a calendar: ``ra`` at the start of every period of ``rp`` milliseconds.

    Of a step each shard has a part, and of every whole step in the ceiling the same.
    """

    __slots__ = ()

    @property
    def bx(self) -> int:
        """The ceiling."""
        whole, rest = divmod(self.burst, self.ra)
        return whole * self.part(self.ra) + self.part(rest)

    def ordinal(self, t: int) -> int:
        """The number of the period in which ``t`` lies."""
        return (t - ANCHOR_MS) // self.rp

    def accrued(self, t: int) -> int:
        """All steps up to ``t``, from the anchor on."""
        return self.ordinal(t) * self.part(self.ra)


def period_of(calendar: str) -> int:
    """The length of the periods of a calendar, in milliseconds."""
    every, _, zone = calendar.partition("@")
    number = every.rstrip("abcdefghijklmnopqrstuvwxyz")
    assert zone == "UTC", calendar
    return int(number or 1) * UNITS_MS[every[len(number) :]]


class Held(NamedTuple):
    """One limit as an item has it. ``active``: it is obeyed, not only kept. ``sn``: so much it would have refused."""

    tk: int
    tc: int
    terms: Terms
    active: bool
    sn: int = 0


class Bucket(NamedTuple):
    """A bucket's item, read."""

    rf: int
    cv: str
    inc: str
    recent_writers: tuple[str, ...]
    ev: int
    ttl: int | None
    limits: dict[str, Held]
    shard: int = 0
    shards: int = 1
    ended: Mapping[str, int] = MappingProxyType({})
    """What limits had counted that were let go of in the hour that began then (``hour``)."""
    hour: int = 0

    def counted(self, name: str, t: int) -> int:
        """From where the counter of a limit goes on that is not there: within the hour in which it ended."""
        return self.ended.get(name, 0) if t < self.hour + HOUR_MS else 0

    def level(self, name: str, t: int) -> int:
        """What a limit holds at ``t``, by the definition of the stored numbers."""
        tk, _, terms, *_ = self.limits[name]
        t = max(t, self.rf)
        return min(tk + terms.accrued(t) - terms.accrued(self.rf), terms.bx)


def read_bucket(item: Item) -> Bucket:
    """A bucket from its item, the gauge of its write load left out."""
    fields: dict[str, dict[str, int]] = {}
    for attribute, value in item.items():
        if attribute[:2] == "b_":
            name = attribute[2:-3]
            if name != "wcu":
                number = period_of(value["S"]) if attribute[-2:] == "cl" else int(value["N"])
                fields.setdefault(name, {})[attribute[-2:]] = number
    ttl = item.get("ttl")
    shard, shards = int(item["PK"]["S"].rpartition("#")[2]), int(item["shard_count"]["N"])
    return Bucket(
        int(item["rf"]["N"]),
        item["cv"]["S"],
        item["inc"]["S"],
        (item["w0"]["S"], item["w1"]["S"], item["w2"]["S"], item["w3"]["S"]),
        int(item["ev"]["N"]),
        None if ttl is None else int(ttl["N"]),
        {
            name: Held(f["tk"], f["tc"], _terms_in(f, int(item["rf"]["N"]), shard, shards), "cp" in f, f.get("sn", 0))
            for name, f in fields.items()
        },
        shard,
        shards,
        {attribute[2:]: int(value["N"]) for attribute, value in item.items() if attribute[:2] == "e_"},
        int(item["eh"]["N"]) if "eh" in item else 0,
    )


def _terms_in(fields: Mapping[str, int], rf: int, shard: int, shards: int) -> Terms:
    if "cl" not in fields:
        assert "pn" not in fields, fields
        return Terms(fields["bx"], fields["ra"], fields["rp"], shard, shards, "sh" in fields)
    assert "rp" not in fields, fields
    steps = Steps(fields["bx"], fields["ra"], fields["cl"], shard, shards, "sh" in fields)
    assert fields["pn"] == steps.ordinal(rf), f"it stands in period {fields['pn']} at {rf}"
    return steps


class Reference:
    """One bucket, kept exactly: the position of every limit, and its terms."""

    __slots__ = ("positions", "terms")

    def __init__(self) -> None:
        self.positions: dict[str, int] = {}
        self.terms: dict[str, Terms] = {}

    def begin(self, name: str, terms: Terms, t: int, taken: int) -> None:
        """A limit that is new: full at ``t``, less what is taken with it."""
        self.terms[name] = terms
        self.positions[name] = terms.bx - terms.accrued(t) - max(taken, 0)

    def level(self, name: str, t: int) -> int:
        """What the limit holds at ``t``."""
        terms = self.terms[name]
        return min(self.positions[name] + terms.accrued(t), terms.bx)

    def move(self, name: str, t: int, delta: int) -> None:
        """Take so much at ``t`` (or give it back, if negative)."""
        if not delta:
            return
        terms = self.terms[name]
        full = terms.bx - terms.accrued(t)
        position = self.positions[name]
        self.positions[name] = min(position, full) - delta if delta > 0 else min(position - delta, full)

    def end(self, name: str) -> None:
        """Let go of a limit."""
        del self.terms[name], self.positions[name]

    def fill(self, name: str, t: int) -> None:
        """Make it full at ``t``."""
        terms = self.terms[name]
        self.positions[name] = terms.bx - terms.accrued(t)

    def change(self, name: str, terms: Terms, t: int) -> None:
        """Other terms from ``t`` on: a lower ceiling clamps, a higher one mints nothing.

        Of a calendar that stays the amounts may change: what was spent stays spent, and the difference counts at once.
        """
        before, more = self.terms[name], 0
        if isinstance(before, Steps) and isinstance(terms, Steps) and before.rp == terms.rp:
            more = terms.part(terms.ra) - before.part(before.ra)
        level = min(self.level(name, t), terms.bx - more) + more
        self.terms[name] = terms
        self.positions[name] = level - terms.accrued(t)

    def divide(self, t: int, kept: Mapping[str, int]) -> Reference:
        """Become one of two shards at ``t``, with so much left of each limit; the other one gets all the rest."""
        other = Reference()
        for name, terms in self.terms.items():
            level = self.level(name, t)
            self.terms[name], other.terms[name] = terms.divided()
            self.positions[name] = kept[name] - self.terms[name].accrued(t)
            other.positions[name] = level - kept[name] - other.terms[name].accrued(t)
        return other

    def due(self, name: str, amount: int) -> int | None:
        """The first millisecond at which the limit holds so much, if no client touches it; ``None``: never."""
        terms = self.terms[name]
        if amount > terms.bx:
            return None
        missing = amount - self.positions[name]
        if isinstance(terms, Steps):
            return ANCHOR_MS - (-missing // terms.part(terms.ra)) * terms.rp
        number = missing if terms.shards == 1 else terms.shards * (missing - 1) + terms.shard + 1
        return -(-number * terms.rp // terms.ra)

    def full_at(self, name: str) -> int:
        """The first millisecond at which the limit is full, if no client touches it."""
        due = self.due(name, self.terms[name].bx)
        assert due is not None
        return due


def due_of_all(references: Sequence[Reference], name: str, amount: int, now: int) -> int | None:
    """The first millisecond from ``now`` on at which all shards together hold so much; nothing if they never will."""
    if len(references) == 1:
        return references[0].due(name, amount)
    if amount > sum(reference.terms[name].bx for reference in references):
        return None
    early, late = now, max(now, *(reference.full_at(name) for reference in references))
    while early < late:
        middle = (early + late) // 2
        if sum(reference.level(name, middle) for reference in references) >= amount:
            late = middle
        else:
            early = middle + 1
    return early
