"""Plans and outcomes described: in words for people, as JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from zae_limiter.manifests.apply import Outcome
from zae_limiter.manifests.change_plan import Action, Change, ChangePlan, Conflict
from zae_limiter.manifests.limit_syntax import format_limit
from zae_limiter.manifests.model import Level, Manifest, Profile, Settings, Switch, Thing
from zae_limiter.models.choices import OnUnavailable
from zae_limiter.models.limit import Limit

MARKS: Mapping[Action, str] = {Action.CREATE: "+", Action.UPDATE: "~", Action.DELETE: "-"}


class Detail(NamedTuple):
    """One property of a thing before and after; ``None`` where it has none. ``label`` goes before both, if any."""

    label: str
    before: str | None
    after: str | None

    @property
    def mark(self) -> str:
        """Whether it comes, goes or changes."""
        if self.before is None:
            return "+"
        return "-" if self.after is None else "~"


def details(before: Settings | None, after: Settings | None) -> list[Detail]:
    """What differs between two settings, property by property."""
    old, new = _properties(before), _properties(after)
    labels = {key: label for properties in (old, new) for key, (label, _) in properties.items()}
    pairs = [Detail(label, _value(old, key), _value(new, key)) for key, label in labels.items()]
    return [pair for pair in pairs if pair.before != pair.after]


def described_limit(limit: Limit) -> str:
    """A limit in one word, or in a few if one cannot say it."""
    word = format_limit(limit)
    if word is not None:
        return word
    refill = f"{limit.refill_amount} per {limit.refill_period_seconds}sec"
    watches = "" if limit.enforce else ", shadow"
    return f"{limit.name}: {refill}, capacity {limit.capacity}, burst {limit.burst}{watches}"


def summary(change_plan: ChangePlan) -> str:
    """A plan in one line."""
    counts = [
        (change_plan.count(Action.CREATE), "to create"),
        (change_plan.count(Action.UPDATE), "to update"),
        (change_plan.count(Action.DELETE), "to delete"),
        (len(change_plan.adopted), "to adopt as it is"),
        (len(change_plan.released), "to release as it is"),
        (len(change_plan.gone), "gone already"),
    ]
    told = [f"{count} {words}" for count, words in counts if count]
    if not told and change_plan.unchanged:
        return f"Nothing to change: all {change_plan.unchanged} as the manifest says."
    if not told:
        return "Nothing to change: the manifest names nothing and manages nothing."
    return ", ".join(told) + f"; {change_plan.unchanged} unchanged."


def as_dict(change: Change, manifest: Manifest) -> dict[str, Any]:
    """A JSON-ready description of a change."""
    return {
        "action": str(change.action),
        **thing_as_dict(change.thing),
        "before": None if change.before is None else change.before.as_dict(),
        "after": None if change.after is None else change.after.as_dict(),
        "managed": change.managed,
        "replaced": [replaced.as_dict() for replaced in change.replaced],
        "line": line_of(change.thing, manifest),
    }


def conflict_as_dict(conflict: Conflict) -> dict[str, Any]:
    """A JSON-ready description of a conflict."""
    return {
        **thing_as_dict(conflict.thing),
        "message": conflict.message,
        "line": conflict.place.line if conflict.place else None,
    }


def thing_as_dict(thing: Thing) -> dict[str, str | None]:
    """A JSON-ready description of what a thing is."""
    return {
        "kind": str(thing.kind),
        "entity_id": thing.entity_id or None,
        "resource": thing.resource or None,
    }


def line_of(thing: Thing, manifest: Manifest) -> int | None:
    """The line on which a manifest names a thing."""
    place = manifest.places.get(thing)
    return None if place is None else place.line


def change_plan_as_dict(change_plan: ChangePlan) -> dict[str, Any]:
    """A JSON-ready description of a plan."""
    return {
        "manifest": change_plan.manifest.name,
        "changes": [as_dict(change, change_plan.manifest) for change in change_plan.changes],
        "conflicts": [conflict_as_dict(conflict) for conflict in change_plan.conflicts],
        "adopted": [thing_as_dict(thing) for thing in change_plan.adopted],
        "released": [thing_as_dict(thing) for thing in change_plan.released],
        "gone": [thing_as_dict(thing) for thing in change_plan.gone],
        "unchanged": change_plan.unchanged,
        "last_run_finished": change_plan.record.finished,
    }


def outcome_as_dict(change_plan: ChangePlan, outcome: Outcome) -> dict[str, Any]:
    """A JSON-ready description of what was applied."""
    manifest = change_plan.manifest
    return {
        "manifest": manifest.name,
        "done": [as_dict(change, manifest) for change in outcome.done],
        "remaining": [as_dict(change, manifest) for change in outcome.remaining],
        "error": None if outcome.error is None else str(outcome.error),
    }


def note_on(change: Change) -> str | None:
    """What is unusual about a change."""
    if change.action is Action.DELETE:
        return "no longer in the manifest"
    if change.action is Action.UPDATE and not change.managed:
        return "exists, not managed so far"
    return None


def _properties(settings: Settings | None) -> dict[str, tuple[str, str]]:
    """Each property that says something, as label and value, under a key that is the same before and after."""
    found: dict[str, tuple[str, str]] = {}
    if isinstance(settings, Switch):
        until = "" if settings.until is None else f" until {settings.until}"
        return {"mode": ("", f"{settings.mode}{until}")}
    if isinstance(settings, Level):
        found |= {f"limit {limit.name}": ("", described_limit(limit)) for limit in settings.limits}
        if settings.on_unavailable not in (None, OnUnavailable.BLOCK):
            found["on_unavailable"] = "on_unavailable", str(settings.on_unavailable)
    elif isinstance(settings, Profile):
        if settings.name is not None:
            found["name"] = "name", quoted(settings.name)
        if settings.parent_id is not None:
            found["parent"] = "parent", settings.parent_id
        if settings.cascade:
            found["cascade"] = "", "cascade"
        found |= {
            f"metadata {key}": (f"metadata {quoted(key)}:", quoted(value)) for key, value in settings.metadata.items()
        }
    return found


def _value(properties: Mapping[str, tuple[str, str]], key: str) -> str | None:
    return properties[key][1] if key in properties else None


def quoted(text: str) -> str:
    """Foreign text on one line: what does not print is escaped."""
    return repr(text) if text.isprintable() else ascii(text)
