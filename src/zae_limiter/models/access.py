"""The access switch: who is let through at all, whatever the limits say.

A switch stands on one of the four levels (an entity on one resource, an entity, a resource, the system). Of all that
concern a call the strictest holds: one ``block`` blocks, else one ``observe`` observes. ``enforce`` is the absence of
a switch, so a narrow level never lifts what a wider one blocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from zae_limiter.models.choices import AccessMode
from zae_limiter.models.moments import milliseconds_at
from zae_limiter.naming import DEFAULT_RESOURCE


@dataclass(frozen=True, slots=True)
class Access:
    """What the switch of one level says. ``until``: from then on it says nothing (``None``: until it is changed).

    Without an ``entity_id`` it is the switch of a resource; without either, of the system. An ``entity_id`` alone is
    the entity on all resources.
    """

    mode: AccessMode
    entity_id: str | None = None
    resource: str | None = None
    until: datetime | None = None

    @property
    def is_wide(self) -> bool:
        """Whether it is no single entity's."""
        return self.entity_id is None

    @property
    def until_ms(self) -> int | None:
        """When it ends, in milliseconds."""
        return None if self.until is None else milliseconds_at(self.until)

    def holds_at(self, now: int) -> bool:
        """Whether it says anything at that moment."""
        if self.mode is AccessMode.ENFORCE:
            return False
        return self.until is None or now < milliseconds_at(self.until)

    @property
    def label(self) -> str:
        """Whose switch it is, in words."""
        if self.entity_id is None:
            return "the system" if self.resource is None else f"all entities on {self.resource}"
        where = "" if self.resource in (None, DEFAULT_RESOURCE) else f" on {self.resource}"
        return f"{self.entity_id}{where}"

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready description."""
        return {
            "mode": str(self.mode),
            "entity_id": self.entity_id,
            "resource": self.resource,
            "until": None if self.until is None else self.until.isoformat(),
        }


def strictest(switches: Iterable[Access], now: int) -> Access | None:
    """The switch that holds, of all that concern a call, the nearest first. ``None``: limits are enforced."""
    observing: Access | None = None
    for switch in switches:
        if switch.holds_at(now):
            if switch.mode is AccessMode.BLOCK:
                return switch
            observing = observing or switch
    return observing


def live(switches: Iterable[Access], now: int) -> tuple[Access, ...]:
    """Those that hold, the one that decides first."""
    found = [switch for switch in switches if switch.holds_at(now)]
    return tuple(sorted(found, key=lambda switch: switch.mode is not AccessMode.BLOCK))
