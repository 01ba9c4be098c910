"""What the clients know, held against what was applied.

Every bucket has an account per limit, in millitokens, and one for its grants (``ev``). What a client was told moves
both of its bounds alike. What nobody can tell widens them: a lost answer, a crash, an outcome that was reported as
ambiguous. Without any of those the bounds are one number, and the counters must be exactly that. With them it must
lie between: more than the clients know may be charged, but never less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from simulation.invariants import BOOKS, Oracle, Place, Violation, owner_of

Owner = tuple[str, str]
"""Entity and resource."""

Amounts = Mapping[str, int]


class Books:
    """The accounts of all clients together."""

    def __init__(self) -> None:
        self.least: dict[Owner, Counter[str]] = {}
        self.most: dict[Owner, Counter[str]] = {}
        self.doubts = 0

    def know(self, owner: Owner, amounts: Amounts) -> None:
        """So much was surely taken (negative: came back)."""
        for bound in (self.least, self.most):
            account = bound.setdefault(owner, Counter())
            for name, amount in amounts.items():
                account[name] += amount

    def doubt(self, owner: Owner, amounts: Amounts) -> None:
        """So much may have been taken, or may have come back; nobody can tell."""
        self.doubts += 1
        for name, amount in amounts.items():
            bound = self.most if amount > 0 else self.least
            bound.setdefault(owner, Counter())[name] += amount

    def doubt_write(self, place: Place, amounts: Amounts) -> None:
        """The answer to one write was lost: it may be charged twice, or never come back."""
        self.doubts += 1
        account = self.most.setdefault(owner_of(place), Counter())
        for name, amount in amounts.items():
            account[name] += abs(amount)

    def compare(self, oracle: Oracle, place_of: Any) -> None:
        """Raise unless every counter is within its bounds."""
        owners = dict.fromkeys([*oracle.applied, *self.least, *self.most])
        for owner in owners:
            applied = oracle.applied.get(owner, Counter())
            least, most = self.least.get(owner, Counter()), self.most.get(owner, Counter())
            for name in dict.fromkeys([*applied, *least, *most]):
                if (owner, name) in oracle.incomplete:
                    continue
                if applied[name] > most[name]:
                    raise Violation(
                        BOOKS,
                        place_of(owner),
                        f"{name}: {applied[name]} was charged, but the clients know of {_between(least, most, name)}",
                    )
                if applied[name] < least[name]:
                    raise Violation(
                        BOOKS,
                        place_of(owner),
                        f"{name}: only {applied[name]} was charged, the clients took {_between(least, most, name)}",
                    )


def _between(least: Counter[str], most: Counter[str], name: str) -> str:
    return str(least[name]) if least[name] == most[name] else f"{least[name]}..{most[name]}"


def taken_by(legs: Sequence[Any], wanted: Amounts) -> list[tuple[Owner, dict[str, int]]]:
    """What a grant charges each of its legs with."""
    return [
        (
            (leg.entity_id, leg.resource),
            {"ev": 1, **{name: amount * 1000 for name, amount in wanted.items() if name in leg.names}},
        )
        for leg in legs
    ]
