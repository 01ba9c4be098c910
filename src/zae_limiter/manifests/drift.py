"""Drift: where what exists is not what the manifest says, and who changed it last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from zae_limiter.manifests.change_plan import Action, plan_changes
from zae_limiter.manifests.description import line_of, thing_as_dict
from zae_limiter.manifests.inventory import OnProgress, ignore_progress, last_event, read_situation, take_inventory
from zae_limiter.manifests.model import Manifest, Settings, Thing
from zae_limiter.repository.sync_repository import SyncRepository


class Difference(StrEnum):
    """How what exists differs."""

    MISSING = "missing"
    CHANGED = "changed"
    LEFT_OVER = "left over"
    UNMANAGED = "unmanaged"


_OF_ACTION = {
    Action.CREATE: Difference.MISSING,
    Action.UPDATE: Difference.CHANGED,
    Action.DELETE: Difference.LEFT_OVER,
}


@dataclass(frozen=True, slots=True)
class Drift:
    """One thing that is not as the manifest says. ``by`` and ``at`` tell who changed it last, as far as is known."""

    difference: Difference
    thing: Thing
    says: Settings | None
    exists: Settings | None
    by: str | None = None
    at: datetime | None = None

    def as_dict(self, manifest: Manifest) -> dict[str, Any]:
        """A JSON-ready description."""
        return {
            "difference": str(self.difference),
            **thing_as_dict(self.thing),
            "manifest": None if self.says is None else self.says.as_dict(),
            "exists": None if self.exists is None else self.exists.as_dict(),
            "changed_by": self.by,
            "changed_at": None if self.at is None else self.at.isoformat(),
            "line": line_of(self.thing, manifest),
        }


def drift(
    repository: SyncRepository,
    manifest: Manifest,
    *,
    everything: bool = False,
    on_progress: OnProgress = ignore_progress,
) -> Sequence[Drift]:
    """What is not as the manifest says; with ``everything`` also what exists and no manifest manages."""
    situation = read_situation(repository, manifest, on_progress)
    found = []
    for change in plan_changes(manifest, situation, take_over=True).changes:
        event = last_event(repository, change.thing) if change.managed else None
        by, at = (None, None) if event is None else (event.principal, event.timestamp)
        found.append(Drift(_OF_ACTION[change.action], change.thing, change.after, change.before, by, at))
    if everything:
        managed = set(manifest.things) | situation.record.things | set(situation.others)
        known = {thing.resource for thing in managed if thing.resource}
        for thing, settings in take_inventory(repository, known).items():
            if thing not in managed:
                found.append(Drift(Difference.UNMANAGED, thing, None, settings))
    return found
