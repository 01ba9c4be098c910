"""Each call is counted once, and so is each denial: what the buckets say, held against what callers did.

What a bucket counts beside what is taken from it (``tallies``) is read off every write, over all lives of all
buckets. Without faults that leave a client in doubt, what no leg counted before another is exactly what was granted
and settled, and every denial that a caller was told is counted. With them a denial may be lost, and is never counted
twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from simulation.violations import DENIALS, EACH_ONCE, Place, Violation, owner_of
from zae_limiter.stores.dynamodb.write_ids import write_id_time
from zae_limiter.stores.protocol import Denial
from zae_limiter.stores.windows import hour_of

Owner = tuple[str, str]


class CallCounts:
    """What was told to callers, and what was written."""

    def __init__(self) -> None:
        self.taken: Counter[str] = Counter()
        """By callers, in millitokens; grants under ``ev``."""
        self.own: Counter[str] = Counter()
        """By the buckets, less what cascaded."""
        self.unheard = 0
        """So many callers were interrupted or died while they drew: a denial may count that they were not told."""
        self.told: Counter[tuple[Owner, str]] = Counter()
        self.denials: Counter[tuple[Owner, str]] = Counter()

    def took(self, names: Iterable[str], amounts: Mapping[str, int], *, grants: int = 0) -> None:
        """A caller took that (whole tokens; negative: gave back) of limits that any of its legs has."""
        self.taken["ev"] += grants
        self.taken.update({name: amount * 1000 for name, amount in amounts.items() if name in names})

    def denied(self, denial: Denial) -> None:
        """A caller was told that."""
        if denial.binding is not None:
            self.told[(denial.binding.entity_id, denial.binding.resource), denial.binding.limit_name] += 1

    def written(self, place: Place, old: Any, new: Any) -> None:
        """One write changed a bucket."""
        same_life = old is not None and old["inc"] == new["inc"]
        before = Counter({**_ended(old, new), **_tallied(old)}) if same_life else Counter[str]()
        for attribute, amount in _tallied(new).items():
            delta = amount - before[attribute]
            if attribute.startswith("d_"):
                if delta < 0:
                    raise Violation(DENIALS, place, f"{attribute} fell by {-delta}")
                self.denials[owner_of(place), attribute[2:]] += delta
            elif attribute == "evc" or attribute.startswith("c_"):
                self.own["ev" if attribute == "evc" else attribute[2:]] -= delta
            else:
                self.own[attribute] += delta

    def compare(self, *, exact: bool, all_written: bool) -> None:
        """``exact``: no client was ever in doubt; ``all_written``: nor forgot what it had not written yet."""
        if exact and +self.own != +self.taken:
            raise Violation(EACH_ONCE, None, f"callers took {+self.taken}, and the buckets say {+self.own}")
        spare = self.unheard
        for place in self.told | self.denials:
            told, counted = self.told[place], self.denials[place]
            spare -= max(counted - told, 0)
            if spare < 0 or (exact and all_written and counted < told):
                raise Violation(DENIALS, None, f"{told} were told by {place}, and {counted} counted")


def _ended(old: Any, new: Any) -> Counter[str]:
    """What limits that left the bucket in this hour have counted: they go on from there if they come back."""
    if "eh" not in old or hour_of(write_id_time(new["w0"]["S"])) > int(old["eh"]["N"]):
        return Counter()
    return Counter({attribute[2:]: int(value["N"]) for attribute, value in old.items() if attribute[:2] == "e_"})


def _tallied(item: Any) -> Counter[str]:
    """Every counter of a bucket: ``ev``, what each limit counted by its name, and tallies by their attributes."""
    found = Counter({"ev": int(item["ev"]["N"])})
    for attribute, value in item.items():
        if attribute == "evc" or attribute[:2] in ("c_", "d_"):
            found[attribute] = int(value["N"])
        elif attribute[:2] == "b_" and attribute[-3:] == "_tc" and attribute != "b_wcu_tc":
            found[attribute[2:-3]] = int(value["N"])
    return found
