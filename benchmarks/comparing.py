"""Rows of a comparison: two contenders, the ratio between them, and the goal it is held against.

And rows about waiting: how long, and how evenly, when several processes want the same.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from measuring import Contender, Costs, Spread


@dataclass(frozen=True, slots=True)
class Goal:
    """A ratio to reach, and a realistic first step on the way. ``at_most``: smaller is better."""

    target: float
    first_step: float | None = None
    at_most: bool = False

    def verdict(self, ratio: float) -> str:
        """Whether the ratio is there."""
        if self._met(self.target, ratio):
            return "reached"
        if self.first_step is not None and self._met(self.first_step, ratio):
            return "first step reached"
        return "not reached"

    def _met(self, wanted: float, ratio: float) -> bool:
        return ratio <= wanted if self.at_most else ratio >= wanted

    def __str__(self) -> str:
        sign = "≤" if self.at_most else "≥"
        step = f" (first {sign} {self.first_step:g}x)" if self.first_step is not None else ""
        return f"{sign} {self.target:g}x{step}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Ours against theirs. The ratio: how many times faster ours is; with ``cost_ratio``, our cost in theirs."""

    title: str
    ours: Contender
    theirs: Contender
    goal: Goal | None = None
    cost_ratio: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """A comparison that was measured."""

    comparison: Comparison
    ours: Spread
    theirs: Spread
    ratio: Spread

    @property
    def verdict(self) -> str:
        """Whether the goal is reached; empty without one."""
        goal = self.comparison.goal
        return "" if goal is None else goal.verdict(self.ratio.median)

    def as_dict(self) -> dict[str, Any]:
        """For the JSON file."""
        row = self.comparison
        return {
            "title": row.title,
            "ours": {"name": row.ours.name, "does": row.ours.does, "seconds": self.ours._asdict()},
            "theirs": {"name": row.theirs.name, "does": row.theirs.does, "seconds": self.theirs._asdict()},
            "ratio": self.ratio._asdict(),
            "ratio_means": "our cost in theirs" if row.cost_ratio else "times faster",
            "goal": None if row.goal is None else str(row.goal),
            "verdict": self.verdict,
        }


def find(comparison: Comparison, costs: Costs) -> Finding:
    """What the measured costs say about a comparison."""
    ours, theirs = comparison.ours, comparison.theirs
    above, below = (ours, theirs) if comparison.cost_ratio else (theirs, ours)
    return Finding(comparison, costs.of(ours), costs.of(theirs), costs.ratio(above, below))


@dataclass(frozen=True, slots=True)
class Waits:
    """How long the processes of one contender waited for single operations, in milliseconds.

    ``p99_ms`` is of the process that waited most, ``fairness`` what the least served process got of what the best
    served one did; both are medians over the rounds. ``worst_ms`` is the longest of all.
    """

    title: str
    contender: str
    worst_ms: float
    p99_ms: float
    fairness: float
    goal_ms: float | None = None

    @property
    def verdict(self) -> str:
        """Whether no caller waited longer than the goal; empty without one."""
        if self.goal_ms is None:
            return ""
        return "reached" if self.worst_ms < self.goal_ms else "not reached"

    def as_dict(self) -> dict[str, Any]:
        """For the JSON file."""
        return asdict(self) | {"verdict": self.verdict}
