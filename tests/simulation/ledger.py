"""What the clients know, held against what was applied.

Every bucket has an account per limit, in millitokens, and one for its grants (``ev``). What a client was told moves
both of its bounds alike. What no client can tell widens them: a crash, an outcome that was reported as ambiguous or
counted as unresolved. Without any of those the bounds are one number, and the counters must be exactly that. With
them it must lie between: more than the clients know may be charged, but never less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from simulation.invariants import Oracle
from simulation.violations import BOOKS, TOLD, Place, Violation, owner_of
from zae_limiter.bucket import WOULD_REFUSE

Owner = tuple[str, str]
"""Entity and resource."""

Amounts = Mapping[str, int]


class Books:
    """The accounts of all clients together."""

    def __init__(self) -> None:
        self.least: dict[Owner, Counter[str]] = {}
        self.most: dict[Owner, Counter[str]] = {}
        self.lost: dict[Owner, Counter[str]] = {}
        self.lost_creations: dict[Owner, Counter[str]] = {}
        self.doubts = 0

    def know(self, owner: Owner, amounts: Amounts) -> None:
        """So much was surely taken (negative: came back)."""
        for bound in (self.least, self.most):
            account = bound.setdefault(owner, Counter())
            for name, amount in amounts.items():
                account[name] += amount

    def doubt(self, owner: Owner, amounts: Amounts) -> None:
        """So much may have been taken, or may have come back; no client can tell."""
        self.doubts += 1
        for name, amount in amounts.items():
            bound = self.most if amount > 0 else self.least
            bound.setdefault(owner, Counter())[name] += amount

    def doubt_settlement(self, owed: Sequence[tuple[Owner, Amounts]]) -> None:
        """Part of it could not be resolved: it may be charged twice, or not come back."""
        self.doubts += 1
        for owner, amounts in owed:
            account = self.most.setdefault(owner, Counter())
            for name, amount in amounts.items():
                account[name] += abs(amount)

    def lose(self, place: Place, amounts: Amounts) -> None:
        """The answer to one write was lost: it may be charged twice, or never come back."""
        account = self.lost.setdefault(owner_of(place), Counter())
        for name, amount in amounts.items():
            account[name] += abs(amount)

    def lose_creation(self, place: Place, amounts: Amounts) -> None:
        """The answer to a creation was lost: it may arrive when the bucket that others made has been deleted."""
        self.lost_creations.setdefault(owner_of(place), Counter()).update(amounts)

    def deleted(self, place: Place) -> None:
        """An operator deleted a bucket: a creation that is still under way may begin it again, unknown to its client.

        That charges what no caller was granted, or gives back what was never taken of the new bucket; it is not told.
        """
        for name, amount in self.lost_creations.get(owner_of(place), Counter()).items():
            bound = self.most if amount > 0 else self.least
            bound.setdefault(owner_of(place), Counter())[name] += amount

    def excuse(self, place: Place) -> None:
        """A bucket was removed, and with it what could have told whether an unanswered write to it was done.

        A write that created it may even arrive now, and create it again: no client is left that could report that. It
        may be one that gives back.
        """
        owner = owner_of(place)
        self.most.setdefault(owner, Counter()).update(self.lost.get(owner, Counter()))
        self.least.setdefault(owner, Counter()).subtract(self.lost.get(owner, Counter()))

    def compare(self, oracle: Oracle, place_of: Callable[[Owner], Place], *, all_told: bool) -> None:
        """Raise unless every counter is within its bounds.

        ``all_told``: what is charged beyond what the clients know must have been reported by one of them; otherwise
        it is enough that answers were lost.
        """
        nothing: Counter[str] = Counter()
        for owner in dict.fromkeys([*oracle.applied, *self.least, *self.most]):
            applied = oracle.applied.get(owner, nothing)
            least, most = self.least.get(owner, nothing), self.most.get(owner, nothing)
            lost = self.lost.get(owner, nothing)
            for name in dict.fromkeys([*applied, *least, *most]):
                if (owner, name.removesuffix(WOULD_REFUSE)) in oracle.incomplete:
                    continue
                told = f"the clients know of {_between(least, most, name)}, and {lost[name]} was unanswered"
                if applied[name] < least[name]:
                    raise Violation(BOOKS, place_of(owner), f"{name}: only {applied[name]} was charged; {told}")
                if applied[name] > most[name] + lost[name]:
                    raise Violation(BOOKS, place_of(owner), f"{name}: {applied[name]} was charged; {told}")
                if all_told and applied[name] > most[name]:
                    raise Violation(TOLD, place_of(owner), f"{name}: {applied[name]} was charged; {told}")


def _between(least: Counter[str], most: Counter[str], name: str) -> str:
    return str(least[name]) if least[name] == most[name] else f"{least[name]}..{most[name]}"


def taken_by(legs: Sequence[Any], wanted: Amounts) -> list[tuple[Owner, dict[str, int]]]:
    """What a grant charges each of its legs with; of limits that only watch and lack it counts that they do."""
    return [
        (
            (leg.entity_id, leg.resource),
            {
                "ev": 1,
                **{name: amount * 1000 for name, amount in wanted.items() if name in leg.settled_names},
                **{name + WOULD_REFUSE: 1000 for name in leg.refused},
            },
        )
        for leg in legs
    ]
