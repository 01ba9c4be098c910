"""The changes that make a namespace what a manifest says. Pure: from what is wanted and what exists.

**What is managed.** What the manifest names, and what its record has from earlier runs. What the record has and the
manifest no longer names is deleted; everything else in the namespace is left alone.

**What stops everything.** A *conflict* is something that only a person can decide. With one conflict nothing is
applied at all:

- a thing that another manifest manages (``take_over`` decides for this one);
- an entity to delete that would take along what this manifest does not manage: children, or limits
  (``keep_removed`` decides to let it stay);
- a parent that does not exist, or that would close a cycle.

**Order.** Entities come first, those above before those below, in the hierarchy as it will be: then each step finds
its parent in place and no step closes a cycle on the way. Limits follow, wide levels before narrow ones, then access
switches. What is deleted comes last, narrow before wide and children before parents, so that no entity is without
limits in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from zae_limiter.manifests.model import (
    Kind,
    Level,
    Manifest,
    Place,
    Profile,
    Settings,
    Thing,
    cycles,
    entity_thing,
    walk_up,
)
from zae_limiter.manifests.record_format import Record
from zae_limiter.manifests.replaced_limits import replaced_limits
from zae_limiter.models.level_changes import ReplacedLimit
from zae_limiter.models.limit import Limit


class Action(StrEnum):
    """What happens to a thing."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Existing:
    """What a thing is like now. ``version`` is that of an entity."""

    settings: Settings
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Dependents:
    """What goes with an entity, or keeps it from going: its children, and the resources it has limits for."""

    children: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Situation:
    """What was found in a namespace, as far as a manifest is concerned.

    ``parents`` has the existing entities that the manifest does not name but needs as ancestors, and their parents;
    ``dependents`` what hangs on the entities that may be deleted; ``wider`` the levels that it does not name and that
    stand behind some that it does.
    """

    record: Record
    others: Mapping[Thing, str] = field(default_factory=dict)
    actual: Mapping[Thing, Existing] = field(default_factory=dict)
    parents: Mapping[str, str | None] = field(default_factory=dict)
    dependents: Mapping[str, Dependents] = field(default_factory=dict)
    wider: Mapping[Thing, Existing] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """One step. ``managed``: the record had the thing already. ``replaced`` are the limits of wider levels that will
    no longer hold, because this level has others."""

    action: Action
    thing: Thing
    before: Settings | None
    after: Settings | None
    version: int | None = None
    managed: bool = True
    replaced: tuple[ReplacedLimit, ...] = ()


@dataclass(frozen=True, slots=True)
class Conflict:
    """Something that a person has to decide."""

    thing: Thing
    message: str
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """What would be done, in order, and what stands against it.

    ``adopted`` are things that are as they should be and become managed; ``released`` things that are no longer
    managed and stay as they are; ``gone`` those that were to be deleted and do not exist; ``taken`` the things that
    other manifests lose, with the manifest.
    """

    manifest: Manifest
    record: Record
    changes: Sequence[Change]
    conflicts: Sequence[Conflict]
    adopted: Sequence[Thing]
    released: Sequence[Thing]
    gone: Sequence[Thing]
    taken: Mapping[Thing, str]
    unchanged: int

    @property
    def wanted(self) -> frozenset[Thing]:
        """What will be managed in the end."""
        return frozenset(self.manifest.things)

    @property
    def is_recorded(self) -> bool:
        """Whether the record says already what it will say in the end."""
        return self.record.things == self.wanted and self.record.finished and not self.taken

    @property
    def is_done(self) -> bool:
        """Whether there is nothing to do at all."""
        return not self.changes and not self.conflicts and self.is_recorded

    def count(self, action: Action) -> int:
        """How many changes of one kind."""
        return sum(change.action is action for change in self.changes)


def plan_changes(
    manifest: Manifest, situation: Situation, *, take_over: bool = False, keep_removed: bool = False
) -> ChangePlan:
    """The plan that makes a namespace what a manifest says."""
    return _Planner(manifest, situation, take_over=take_over, keep_removed=keep_removed).change_plan()


class _Planner:
    def __init__(self, manifest: Manifest, situation: Situation, *, take_over: bool, keep_removed: bool) -> None:
        self._manifest = manifest
        self._wanted = manifest.things
        self._situation = situation
        self._take_over = take_over
        self._managed = situation.record.things
        limited = {thing.entity_id for thing in self._wanted if thing.kind is Kind.LIMITS}
        gone = [thing for thing in sorted(self._managed) if thing not in self._wanted]
        self._deleted = [
            thing
            for thing in gone
            if thing in situation.actual
            and thing not in situation.others
            and not keep_removed
            and not (thing.kind is Kind.ENTITY and thing.entity_id in limited)
        ]
        self._gone = [thing for thing in gone if thing not in situation.actual]
        not_there = {*self._deleted, *self._gone}
        self._released = [thing for thing in gone if thing not in not_there]
        self._deleted_entities = {thing.entity_id for thing in self._deleted if thing.kind is Kind.ENTITY}

    def change_plan(self) -> ChangePlan:
        actual = self._situation.actual
        made = [change for thing in self._wanted if (change := self._making(thing)) is not None]
        depth = self._depths()
        made.sort(key=lambda change: (_STEP[change.thing.kind], depth.get(change.thing.entity_id, 0)))
        removed = [
            Change(Action.DELETE, thing, actual[thing].settings, None, actual[thing].version)
            for thing in self._deleted
        ]
        below = self._depths_of_deleted()
        removed.sort(key=lambda change: (_LAST_STEP[change.thing.kind], -below.get(change.thing.entity_id, 0)))
        touched = {change.thing for change in made}
        as_wanted = [thing for thing in self._wanted if thing not in touched]
        return ChangePlan(
            manifest=self._manifest,
            record=self._situation.record,
            changes=(*made, *removed),
            conflicts=tuple(self._conflicts()),
            adopted=tuple(thing for thing in as_wanted if thing not in self._managed),
            released=tuple(self._released),
            gone=tuple(self._gone),
            taken={thing: self._situation.others[thing] for thing in self._wanted if thing in self._situation.others},
            unchanged=sum(thing in self._managed for thing in as_wanted),
        )

    def _making(self, thing: Thing) -> Change | None:
        wanted, found = self._wanted[thing], self._situation.actual.get(thing)
        managed = thing in self._managed
        if found is None:
            return Change(Action.CREATE, thing, None, wanted, managed=managed, replaced=self._replaced(thing))
        if wanted.agrees_with(found.settings):
            return None
        return Change(Action.UPDATE, thing, found.settings, wanted, found.version, managed, self._replaced(thing))

    def _replaced(self, thing: Thing) -> tuple[ReplacedLimit, ...]:
        resources = {
            known.resource for known in (*self._wanted, *self._situation.wider) if known.kind is Kind.RESOURCE
        }
        return replaced_limits(thing, self._limits_after, resources)

    def _limits_after(self, thing: Thing) -> tuple[Limit, ...]:
        settings = self._wanted.get(thing)
        if settings is None and thing not in self._deleted:
            found = self._situation.actual.get(thing) or self._situation.wider.get(thing)
            settings = None if found is None else found.settings
        return settings.limits if isinstance(settings, Level) else ()

    # The hierarchy as it will be

    def _entities(self) -> dict[str, Thing]:
        """The entities that are wanted, or that something is wanted of; with the first such thing."""
        entities: dict[str, Thing] = {}
        for thing in self._wanted:
            if thing.entity_id:
                entities.setdefault(thing.entity_id, thing)
        return entities

    def _parent_of(self, entity_id: str) -> str | None:
        wanted = self._wanted.get(entity_thing(entity_id))
        if isinstance(wanted, Profile):
            return wanted.parent_id
        return self._situation.parents.get(entity_id)

    def _depths(self) -> dict[str, int]:
        """How far below its root each wanted entity will be; those in a cycle count as roots."""
        depths: dict[str, int] = {}
        for wanted in self._entities():
            way, end = walk_up(wanted, self._parent_of, depths)
            depth = depths.get(end, -1) if end is not None else -1
            for entity_id in reversed(way):
                depth += 1
                depths[entity_id] = depth
        return depths

    def _depths_of_deleted(self) -> dict[str, int]:
        """How far each entity to delete is below the topmost of them, as the hierarchy is now."""
        above: dict[str, str] = {}
        for entity_id in self._deleted_entities:
            found = self._situation.actual[entity_thing(entity_id)].settings
            if isinstance(found, Profile) and found.parent_id in self._deleted_entities:
                above[entity_id] = found.parent_id
        depths: dict[str, int] = {}
        for entity_id in self._deleted_entities:
            chain = [entity_id]
            while chain[-1] in above and len(chain) <= len(self._deleted_entities):
                chain.append(above[chain[-1]])
            depths[entity_id] = len(chain)
        return depths

    # Conflicts

    def _conflicts(self) -> Iterator[Conflict]:
        if not self._take_over:
            yield from self._managed_elsewhere()
        yield from self._without_parent()
        yield from self._cycles()
        for entity_id in sorted(self._deleted_entities):
            yield from self._dependents_left(entity_id)

    def _managed_elsewhere(self) -> Iterator[Conflict]:
        for thing in self._wanted:
            other = self._situation.others.get(thing)
            if other is not None:
                message = f"{thing.label} is managed by manifest {other!r}; remove it from one, or use --take-over"
                yield self._conflict(thing, message)

    def _without_parent(self) -> Iterator[Conflict]:
        for thing, settings in self._wanted.items():
            parent = settings.parent_id if isinstance(settings, Profile) else None
            if parent is None or entity_thing(parent) in self._wanted or parent in self._situation.parents:
                continue
            message = f"{parent}, the parent of {thing.entity_id}, does not exist; add it to entities, or create it"
            yield Conflict(thing, message, self._manifest.parent_places.get(thing.entity_id))

    def _cycles(self) -> Iterator[Conflict]:
        """Cycles that go through entities which the manifest does not name; the parser found the others."""
        entities = self._entities()
        for entity_id, cycle in cycles(entities, self._parent_of):
            message = f"{entity_id} would become its own ancestor: {' → '.join(cycle)}"
            yield Conflict(entities[entity_id], message, self._manifest.parent_places.get(entity_id))

    def _dependents_left(self, entity_id: str) -> Iterator[Conflict]:
        thing = entity_thing(entity_id)
        dependents = self._situation.dependents.get(entity_id, Dependents())
        children = [child for child in dependents.children if self._stays_below(child, entity_id)]
        children += [
            other.entity_id
            for other, settings in self._wanted.items()
            if isinstance(settings, Profile)
            and settings.parent_id == entity_id
            and other.entity_id not in dependents.children
        ]
        own = {gone.resource for gone in self._deleted if gone.kind is Kind.LIMITS and gone.entity_id == entity_id}
        limits = [resource for resource in dependents.resources if resource not in own]
        way_out = "keep it in the manifest, remove those first, or use --keep-removed"
        if children:
            message = f"{entity_id} is no longer in the manifest but is the parent of {_some(children)}; {way_out}"
            yield self._conflict(thing, message)
        if limits:
            message = f"deleting {entity_id} would delete its limits for {_some(limits)}, not managed here; {way_out}"
            yield self._conflict(thing, message)

    def _stays_below(self, child: str, parent: str) -> bool:
        """Whether an entity that is a child now will still be one."""
        wanted = self._wanted.get(entity_thing(child))
        if isinstance(wanted, Profile):
            return wanted.parent_id == parent
        return child not in self._deleted_entities

    def _conflict(self, thing: Thing, message: str) -> Conflict:
        return Conflict(thing, message, self._manifest.places.get(thing))


_STEP = {Kind.ENTITY: 0, Kind.SYSTEM: 1, Kind.RESOURCE: 2, Kind.LIMITS: 3, Kind.ACCESS: 4}
_LAST_STEP = {Kind.ACCESS: 0, Kind.LIMITS: 1, Kind.RESOURCE: 2, Kind.SYSTEM: 3, Kind.ENTITY: 4}


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
