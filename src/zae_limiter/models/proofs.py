"""The proof that usage equals what was taken."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

Counted: TypeAlias = Literal["grants", "taken", "cascaded", "denials"]


@dataclass(frozen=True, slots=True)
class UsageGap:
    """What was taken after one hour ended and before the next began, and is in neither.

    ``after`` is ``None`` where the first hour begins too late, ``before`` where the last one ends too early.
    ``amount`` is negative where the hours say more than was taken.
    """

    after: datetime | None
    before: datetime | None
    amount: int


@dataclass(frozen=True, slots=True)
class UsageChain:
    """The hours of one limit (``None``: of the grants) of one bucket, in whole tokens.

    ``counts`` says of what: of what was ``taken`` or of ``grants``, of the ``cascaded`` part of either, or of the
    limit's ``denials``.

    On DynamoDB each shard and each life of a bucket counts by itself; ``life`` is ``None`` where there is only one.
    ``counted`` is what the hours say. ``expired`` was taken before the oldest hour that is kept. ``behind`` is what
    the live bucket has counted since the last hour ended, and the aggregator has not read yet (negative, if more came
    back than was taken); ``None`` if the bucket is gone.
    """

    resource: str
    limit_name: str | None
    shard: int
    life: str | None
    hours: int
    counted: int
    expired: int
    behind: int | None
    gaps: tuple[UsageGap, ...]
    counts: Counted = "taken"


@dataclass(frozen=True, slots=True)
class UsageProof:
    """How the usage of an entity compares with what its buckets counted, on one resource or on all."""

    entity_id: str
    resource: str | None
    chains: tuple[UsageChain, ...]

    @property
    def holds(self) -> bool:
        """Whether every hour begins where the one before ended, and the last is not ahead of its bucket."""
        return not any(chain.gaps for chain in self.chains)
