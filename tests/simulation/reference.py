"""The exact bucket beside the one that is judged: told the same operations, in its own words.

A limit has a *position*: what it would hold at time zero if it accrued without end. Its level at ``t`` is position
plus everything accrued from the epoch to ``t``, at most the burst. There is no baseline and there are no forms;
taking and giving back move the position, and both forget first what is above the ceiling at that moment.
Nothing here is shared with the library.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

Item = Mapping[str, Any]


class Terms(NamedTuple):
    """Ceiling and rate of one limit: millitokens, and millitokens per milliseconds."""

    bx: int
    ra: int
    rp: int

    def accrued(self, t: int) -> int:
        """Everything from the epoch to ``t``."""
        return t * self.ra // self.rp


class Held(NamedTuple):
    """One limit as an item has it. ``active``: it is obeyed, not only kept."""

    tk: int
    tc: int
    terms: Terms
    active: bool


class Bucket(NamedTuple):
    """A bucket's item, read."""

    rf: int
    cv: str
    inc: str
    ring: tuple[str, ...]
    ev: int
    ttl: int | None
    limits: dict[str, Held]

    def level(self, name: str, t: int) -> int:
        """What a limit holds at ``t``, by the definition of the stored numbers."""
        tk, _, terms, _ = self.limits[name]
        t = max(t, self.rf)
        return min(tk + terms.accrued(t) - terms.accrued(self.rf), terms.bx)


def read_bucket(item: Item) -> Bucket:
    """A bucket from its item, the gauge of its write load left out."""
    fields: dict[str, dict[str, int]] = {}
    for attribute, value in item.items():
        if attribute[:2] == "b_":
            name = attribute[2:-3]
            if name != "wcu":
                fields.setdefault(name, {})[attribute[-2:]] = int(value["N"])
    ttl = item.get("ttl")
    return Bucket(
        int(item["rf"]["N"]),
        item["cv"]["S"],
        item["inc"]["S"],
        (item["w0"]["S"], item["w1"]["S"], item["w2"]["S"], item["w3"]["S"]),
        int(item["ev"]["N"]),
        None if ttl is None else int(ttl["N"]),
        {name: Held(f["tk"], f["tc"], Terms(f["bx"], f["ra"], f["rp"]), "cp" in f) for name, f in fields.items()},
    )


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

    def fill(self, name: str, t: int) -> None:
        """Make it full at ``t``."""
        terms = self.terms[name]
        self.positions[name] = terms.bx - terms.accrued(t)

    def change(self, name: str, terms: Terms, t: int) -> None:
        """Other terms from ``t`` on: a lower ceiling clamps, a higher one mints nothing."""
        level = min(self.level(name, t), terms.bx)
        self.terms[name] = terms
        self.positions[name] = level - terms.accrued(t)

    def due(self, name: str, amount: int) -> int | None:
        """The first millisecond at which the limit holds so much, if nobody touches it; nothing if it never will."""
        terms = self.terms[name]
        if amount > terms.bx:
            return None
        return -(-(amount - self.positions[name]) * terms.rp // terms.ra)

    def full_at(self, name: str) -> int:
        """The first millisecond at which the limit is full, if nobody touches it."""
        due = self.due(name, self.terms[name].bx)
        assert due is not None
        return due
