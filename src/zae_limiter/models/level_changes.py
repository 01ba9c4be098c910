"""What it means that limits were set: which hold now, and which of wider levels no longer do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zae_limiter.models.choices import ConfigSource
from zae_limiter.models.limit import Limit


@dataclass(frozen=True, slots=True)
class ReplacedLimit:
    """A limit of a wider level that does not hold where a nearer level has limits without it.

    ``source`` is the level it belongs to; ``resource`` the resource that this is about, ``None`` if it is about all.
    """

    limit: Limit
    source: ConfigSource
    resource: str | None

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready description."""
        return {"limit": self.limit.as_dict(), "source": self.source, "resource": self.resource}


@dataclass(frozen=True, slots=True)
class LimitsSet:
    """The limits of a level as they were set, those kept by ``merge=True`` included.

    A level replaces wider ones whole: ``replaced`` has the limits of theirs that no longer hold there.
    """

    limits: tuple[Limit, ...]
    replaced: tuple[ReplacedLimit, ...] = ()
