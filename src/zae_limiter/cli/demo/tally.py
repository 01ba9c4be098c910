"""What the callers counted themselves, independently of the store.

For each lease it splits what was finally paid into two parts::

    granted = min(asked, paid)         what was taken at the grant and not given back
    over    = max(paid - asked, 0)     what was settled beyond that, possibly into debt

so that ``granted + over`` is what the store should have counted, and ``granted`` what a limit has to bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from zae_limiter import RateLimitExceeded
from zae_limiter.cli.demo.scenario import BucketId


class Ending(StrEnum):
    """How a call ended."""

    SERVED = "served"
    FAILED = "failed"
    """It was admitted, then the provider failed; the tokens went back."""
    CUT_SHORT = "cut short"
    """The demo ended while the call was under way or waiting in the queue."""
    DENIED = "denied"
    UNAVAILABLE = "unavailable"


@dataclass(slots=True)
class Tally:
    """Counts of some callers. The keys of ``granted`` and ``over`` are a key's bucket and a limit's name."""

    endings: Counter[tuple[BucketId, Ending]] = field(default_factory=Counter)
    admitted: Counter[BucketId] = field(default_factory=Counter)
    granted: Counter[tuple[BucketId, str]] = field(default_factory=Counter)
    over: Counter[tuple[BucketId, str]] = field(default_factory=Counter)
    refusals: Counter[BucketId] = field(default_factory=Counter)
    """How often each bucket, ancestors included, was one of those that did not have enough."""
    unresolved: int = 0
    """Settlements that could not be written, or not be proven written."""

    def note_paid(self, bucket: BucketId, asked: Mapping[str, int], paid: Mapping[str, int]) -> None:
        """Count what a lease cost in the end."""
        for name, amount in paid.items():
            taken = min(asked.get(name, 0), amount)
            self.granted[bucket, name] += taken
            self.over[bucket, name] += amount - taken

    def note_refusal(self, refusal: RateLimitExceeded) -> None:
        """Count the buckets that did not have enough."""
        self.refusals.update({BucketId(status.entity_id, status.resource) for status in refusal.violations})

    def ended(self, ending: Ending, bucket: BucketId | None = None) -> int:
        """How many calls ended so, of one key or of all."""
        return sum(count for (of, how), count in self.endings.items() if how is ending and bucket in (None, of))


def added_up(tallies: Iterable[Tally]) -> Tally:
    """Several tallies as one."""
    total = Tally()
    for tally in tallies:
        total.endings.update(tally.endings)
        total.admitted.update(tally.admitted)
        total.granted.update(tally.granted)
        total.over.update(tally.over)
        total.refusals.update(tally.refusals)
        total.unresolved += tally.unresolved
    return total
