"""What a manifest can speak of, and what it says.

A *thing* is what is managed as a whole: the system's limits, a resource's, an entity, an entity's limits for one
resource, or an access switch. What a thing is like are its *settings*. What is wanted and what exists are both
mappings of things to settings, which is why they can be compared.

The hierarchy of a manifest may have cycles until it is checked, so the functions that walk it stop at them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from zae_limiter.exceptions import ValidationError
from zae_limiter.models.access import Access
from zae_limiter.models.choices import AccessMode, OnUnavailable
from zae_limiter.models.entity import Entity
from zae_limiter.models.limit import Limit
from zae_limiter.naming import DEFAULT_RESOURCE, TOTAL_RESOURCE, check_config_resource, check_entity_id, check_resource
from zae_limiter.stores.protocol import Scope


class Kind(StrEnum):
    """What sort of thing."""

    SYSTEM = "system"
    RESOURCE = "resource"
    ENTITY = "entity"
    LIMITS = "limits"
    ACCESS = "access"


@dataclass(frozen=True, slots=True, order=True)
class Thing:
    """Something that a manifest manages as a whole. As text it is one line: ``limits acme gpt-4``."""

    kind: Kind
    entity_id: str = ""
    resource: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.kind, self.entity_id, self.resource)))

    @property
    def label(self) -> str:
        """How messages name it."""
        if self.kind is Kind.ACCESS:
            return f"access of {Access(AccessMode.ENFORCE, self.entity_id or None, self.resource or None).label}"
        if self.kind is not Kind.LIMITS:
            return str(self)
        if self.resource == TOTAL_RESOURCE:
            return f"total of {self.entity_id}"
        every = self.resource == DEFAULT_RESOURCE
        return f"limits of {self.entity_id}" + ("" if every else f" on {self.resource}")

    @property
    def audited_as(self) -> str:
        """The subject of its events in the audit trail."""
        return Scope(self.entity_id or None, self.resource or None).audited_as

    @classmethod
    def parse(cls, line: str) -> Thing:
        """The thing of which ``line`` is the text. Raises ``ValidationError``."""
        match line.split(" "):
            case ["system"]:
                return SYSTEM
            case ["resource", resource]:
                return resource_defaults(check_resource(resource))
            case ["entity", entity_id]:
                return entity_thing(check_entity_id(entity_id))
            case ["limits", entity_id, resource]:
                return limits_of(check_entity_id(entity_id), check_config_resource(resource))
            case ["access"]:
                return access_thing()
            case ["access", resource]:
                return access_thing(resource=check_resource(resource))
            case ["access", entity_id, resource]:
                return access_thing(check_entity_id(entity_id), check_config_resource(resource))
        words = "must be system, resource NAME, entity ID, limits ID RESOURCE or access [ID] [RESOURCE]"
        raise ValidationError("thing", line, words)


SYSTEM = Thing(Kind.SYSTEM)


def resource_defaults(resource: str) -> Thing:
    """The limits of a resource."""
    return Thing(Kind.RESOURCE, resource=resource)


def entity_thing(entity_id: str) -> Thing:
    """An entity itself: its name, parent, cascade and metadata."""
    return Thing(Kind.ENTITY, entity_id)


def limits_of(entity_id: str, resource: str) -> Thing:
    """An entity's own limits for one resource, or for all (``_default_``)."""
    return Thing(Kind.LIMITS, entity_id, resource)


def access_thing(entity_id: str = "", resource: str = "") -> Thing:
    """The access switch of the system, of a resource, or of an entity on one resource or on all (``_default_``)."""
    return Thing(Kind.ACCESS, entity_id, resource)


@dataclass(frozen=True, slots=True)
class Switch:
    """What an access switch says. A manifest says no end: what ends by itself is an operator's."""

    mode: AccessMode
    until: str | None = None

    def agrees_with(self, other: Settings) -> bool:
        """Whether both mean the same."""
        return self == other

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready description."""
        return {"mode": str(self.mode)} | ({} if self.until is None else {"until": self.until})


@dataclass(frozen=True, slots=True)
class Level:
    """The limits of one level; of the system, also what to do while the store is unavailable."""

    limits: tuple[Limit, ...]
    on_unavailable: OnUnavailable | None = None

    def agrees_with(self, other: Settings) -> bool:
        """Whether both mean the same: the order of limits means nothing, and no policy means ``block``."""
        return isinstance(other, Level) and self._meaning() == other._meaning()

    def _meaning(self) -> tuple[Any, ...]:
        return frozenset(self.limits), self.on_unavailable or OnUnavailable.BLOCK

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready description."""
        described: dict[str, Any] = {"limits": [limit.as_dict() for limit in self.limits]}
        if self.on_unavailable is not None:
            described["on_unavailable"] = str(self.on_unavailable)
        return described


@dataclass(frozen=True, slots=True)
class Profile:
    """What an entity is like."""

    name: str | None = None
    parent_id: str | None = None
    cascade: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, entity: Entity) -> Profile:
        """The part of an entity that a manifest says."""
        return cls(entity.name, entity.parent_id, entity.cascade, dict(entity.metadata))

    def agrees_with(self, other: Settings) -> bool:
        """Whether both mean the same."""
        return self == other

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready description."""
        return {
            "name": self.name,
            "parent": self.parent_id,
            "cascade": self.cascade,
            "metadata": dict(self.metadata),
        }


Settings: TypeAlias = Level | Profile | Switch
State: TypeAlias = Mapping[Thing, Settings]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where in a file, counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a file says: what the things it names should be like. ``places`` tells where it says so."""

    name: str
    things: State
    namespace: str | None = None
    source: str = "manifest"
    places: Mapping[Thing, Place] = field(default_factory=dict)
    parent_places: Mapping[str, Place] = field(default_factory=dict)

    @property
    def signature(self) -> str:
        """Its name in the audit trail."""
        return f"manifest:{self.name}"


ParentOf: TypeAlias = Callable[[str], str | None]


def walk_up(entity_id: str, parent_of: ParentOf, known: Container[str]) -> tuple[list[str], str | None]:
    """An entity and its ancestors, up to one that is ``known``, or that was met before: a cycle.

    The second is where it ended; ``None`` if that was a root.
    """
    way: dict[str, None] = {}
    step: str | None = entity_id
    while step is not None and step not in known and step not in way:
        way[step] = None
        step = parent_of(step)
    return list(way), step


def cycles(entity_ids: Iterable[str], parent_of: ParentOf) -> Iterator[tuple[str, list[str]]]:
    """Every cycle above some entities, once: where it was entered, and its entities, the first again at the end."""
    seen: set[str] = set()
    for entity_id in entity_ids:
        way, end = walk_up(entity_id, parent_of, seen)
        if end is not None and end in way:
            yield entity_id, [*way[way.index(end) :], end]
        seen.update(way)
