"""What an observer is told: one value per thing that happened, the same for every observer, to be left as it is.

Not frozen: making a frozen value takes three times as long, which was a fourth of what an observed acquire costs.

Each says in which ``namespace``, and when: ``timestamp`` is in seconds since the epoch, by the limiter's clock.
Durations are in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from zae_limiter.models.status import LimitStatus
from zae_limiter.naming import DEFAULT_NAMESPACE


class Decision(Protocol):
    """What was decided. Its statuses may be made when they are read."""

    @property
    def statuses(self) -> tuple[LimitStatus, ...]: ...


@dataclass(slots=True)
class Decided:
    """An acquire (or ``lease.consume``) was granted or denied. ``waited_seconds`` is its time in the wait queue.

    ``blocked``: an access switch denied it, and no limit was looked at.
    """

    entity_id: str
    resource: str
    requested: Mapping[str, int]
    granted: bool
    decision: Decision = field(repr=False, compare=False)
    waited_seconds: float
    namespace: str = DEFAULT_NAMESPACE
    timestamp: float = 0.0
    blocked: bool = False

    @property
    def statuses(self) -> tuple[LimitStatus, ...]:
        """Every limit of every leg, with what the decision found or left there."""
        return self.decision.statuses

    @property
    def would_refuse(self) -> tuple[str, ...]:
        """The limits that lacked and refused nothing, by name: they only watch, by themselves or by a switch."""
        lacking = (status for status in self.statuses if status.exceeded and (self.granted or not status.enforced))
        return tuple(dict.fromkeys(status.limit_name for status in lacking))


@dataclass(slots=True)
class Settled:
    """Adjustments or a give-back were written, or could not be (``error``).

    ``deltas`` are in whole tokens; negative ones were given back.
    """

    entity_id: str
    resource: str
    deltas: Mapping[str, int]
    error: BaseException | None
    namespace: str = DEFAULT_NAMESPACE
    timestamp: float = 0.0


@dataclass(slots=True)
class StoreCalled:
    """The store was asked for one thing. ``error`` is what it raised, if it did."""

    verb: str
    duration_seconds: float
    error: BaseException | None
    namespace: str = DEFAULT_NAMESPACE
    timestamp: float = 0.0


@dataclass(slots=True)
class Degraded:
    """The store was unavailable and the caller was let through without taking anything."""

    entity_id: str
    resource: str
    requested: Mapping[str, int]
    cause: BaseException
    namespace: str = DEFAULT_NAMESPACE
    timestamp: float = 0.0


@dataclass(slots=True)
class WentLocal:
    """The store is unavailable, and the process grants from its shares of a bucket: ``shares`` by limit, up to 1."""

    entity_id: str
    resource: str
    shares: Mapping[str, float]
    cause: BaseException
    namespace: str = DEFAULT_NAMESPACE
    timestamp: float = 0.0


@dataclass(slots=True)
class Reconciled:
    """The store is back, and what the process granted of a bucket by itself is booked.

    ``granted`` is what it granted, which is usage; ``taken`` what was taken from the bucket for it, where refill had
    not paid for it meanwhile. Both are in whole tokens by limit.
    """

    entity_id: str
    resource: str
    granted: Mapping[str, int]
    taken: Mapping[str, int]
    namespace: str = DEFAULT_NAMESPACE
    timestamp: float = 0.0


@dataclass(slots=True)
class HoldsRenewed:
    """Calls in flight that last long were renewed, so many slots of one entity on one resource."""

    entity_id: str
    resource: str
    slots: Mapping[str, int]
    namespace: str = DEFAULT_NAMESPACE
    timestamp: float = 0.0


@dataclass(slots=True)
class HoldLost:
    """A call in flight lasted longer than its slots were held, and they were returned.

    ``taken_again``: they are held again, whether there were enough or not, for the call is running.
    """

    entity_id: str
    resource: str
    limit_name: str
    slots: int
    taken_again: bool
    namespace: str = DEFAULT_NAMESPACE
    timestamp: float = field(default=0.0, compare=False)


Event: TypeAlias = Decided | Settled | StoreCalled | Degraded | WentLocal | Reconciled | HoldsRenewed | HoldLost
Observer: TypeAlias = Callable[[Event], object]
