"""What an observer is told: one frozen value per thing that happened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from zae_limiter.models.status import LimitStatus


class Decision(Protocol):
    """What was decided. Its statuses may be made when they are read."""

    @property
    def statuses(self) -> tuple[LimitStatus, ...]: ...


@dataclass(frozen=True, slots=True)
class Decided:
    """An acquire (or ``lease.consume``) was granted or denied. ``waited_ms`` is its time in the wait queue.

    ``would_refuse`` names the limits that lacked where they only watch: it was let through all the same. ``blocked``:
    an access switch denied it, and no limit was looked at.
    """

    entity_id: str
    resource: str
    requested: Mapping[str, int]
    granted: bool
    decision: Decision = field(repr=False, compare=False)
    waited_ms: int
    would_refuse: tuple[str, ...] = ()
    blocked: bool = False

    @property
    def statuses(self) -> tuple[LimitStatus, ...]:
        """Every limit of every leg, with what the decision found or left there."""
        return self.decision.statuses


@dataclass(frozen=True, slots=True)
class Settled:
    """Adjustments or a give-back were written, or could not be (``error``).

    ``deltas`` are in whole tokens; negative ones were given back.
    """

    entity_id: str
    resource: str
    deltas: Mapping[str, int]
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class StoreCalled:
    """The store was asked for one thing. ``error`` is what it raised, if it did."""

    verb: str
    duration_ms: int
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class Degraded:
    """The store was unavailable and the caller was let through without taking anything."""

    entity_id: str
    resource: str
    requested: Mapping[str, int]
    cause: BaseException


Event: TypeAlias = Decided | Settled | StoreCalled | Degraded
Observer: TypeAlias = Callable[[Event], object]
