"""From a file to a manifest: everything in it is checked, and all problems are reported at once, each at its place.

``read_manifest`` raises :class:`~zae_limiter.manifests.problems.ManifestError` or returns what can be applied, except
for what only a store can know (whether a parent that the manifest does not name exists).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeVar

from zae_limiter.exceptions import ValidationError
from zae_limiter.manifests.model import (
    SYSTEM,
    Level,
    Manifest,
    Place,
    Profile,
    Settings,
    Switch,
    Thing,
    access_thing,
    cycles,
    entity_thing,
    limits_of,
    resource_defaults,
)
from zae_limiter.manifests.problems import ManifestError, Problem, shown
from zae_limiter.manifests.value_parser import ValueParser
from zae_limiter.manifests.yaml_nodes import MappingNode, Node, SequenceNode, parse
from zae_limiter.models.choices import AccessMode, OnUnavailable
from zae_limiter.naming import (
    DEFAULT_RESOURCE,
    check_config_resource,
    check_entity_id,
    check_namespace,
    check_resource,
    is_reserved,
)
from zae_limiter.repository.arguments import check_display_name, check_metadata

FORMAT_VERSION = 1

TOP_KEYS = ("manifest", "version", "namespace", "system", "resources", "entities", "access")
ACCESS_KEYS = ("system", "resources", "entities")
SYSTEM_KEYS = ("limits", "on_unavailable")
ENTITY_KEYS = ("name", "parent", "cascade", "metadata", "create", "limits")
PROFILE_KEYS = ("name", "parent", "cascade", "metadata")

NAME_RULE = "letters, digits and _ . -, beginning with a letter or digit, at most 64 characters"
_MANIFEST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,63}").fullmatch

Value = TypeVar("Value")


def read_manifest(content: bytes | str, source: str = "manifest") -> Manifest:
    """The manifest in a file. ``source`` is how messages call the file."""
    problems: list[Problem] = []
    root = parse(content, problems)
    reader = _ManifestParser(problems)
    if root is None and not problems:
        problems.append(Problem(Place(1, 1), "is empty; a manifest begins with a line like manifest: NAME"))
    name, namespace = reader.read(root) if root is not None else (None, None)
    if problems or name is None:
        raise ManifestError(source, problems)
    return Manifest(name, reader.things, namespace, source, reader.places, reader.parent_places)


def check_manifest_name(value: object) -> str:
    """What a manifest is called, in its file, in the records and in the audit trail."""
    if not isinstance(value, str) or not _MANIFEST_NAME(value):
        raise ValidationError("manifest", value, f"must be {NAME_RULE}")
    return value


class _ManifestParser(ValueParser):
    """Walks through the tree once and collects things and problems."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(problems)
        self.things: dict[Thing, Settings] = {}
        self.places: dict[Thing, Place] = {}
        self.parent_places: dict[str, Place] = {}

    def read(self, root: Node) -> tuple[str | None, str | None]:
        """Everything; the name of the manifest and of its namespace."""
        top = self.table(root, "a manifest", TOP_KEYS)
        if top is None:
            return None, None
        name = self._header(top)
        namespace = self._optional(top, "namespace", lambda node: self._checked(node, "namespace", check_namespace))
        self._system(top)
        for place, resource, node in self._section(top, "resources"):
            self._resource(place, resource, node)
        for place, entity_id, node in self._section(top, "entities"):
            self._entity(place, entity_id, node)
        self._access(top)
        self._refuse_cycles()
        return name, namespace

    # Sections

    def _header(self, top: MappingNode) -> str | None:
        version = top.entries.get("version")
        if version is not None and self.whole_number(version[1], "version") not in (None, FORMAT_VERSION):
            self.problem(version[1].place, f"version must be {FORMAT_VERSION}, the only one there is so far")
        if "manifest" not in top.entries:
            message = "has no name; begin it with a line like manifest: NAME, under which is recorded what it manages"
            self.problem(top.place, message)
            return None
        return self._checked(top.entries["manifest"][1], "manifest", check_manifest_name)

    def _system(self, top: MappingNode) -> None:
        if "system" not in top.entries:
            return
        place, node = top.entries["system"]
        table = self.table(node, "system", SYSTEM_KEYS)
        if table is None:
            return
        policy = self._optional(table, "on_unavailable", self._policy)
        if "limits" not in table.entries:
            self.problem(place, "system needs limits, a list like [rpm:100, tpm:10000]")
            return
        limits = self.limits(table.entries["limits"][1], "system limits")
        if limits:
            self._found(SYSTEM, place, Level(limits, policy or OnUnavailable.BLOCK))

    def _resource(self, place: Place, name: str, node: Node) -> None:
        if name == DEFAULT_RESOURCE:
            self.problem(place, f"{DEFAULT_RESOURCE} is for entities; limits of every resource belong under system")
            return
        if not self.valid(place, name, check_resource):
            return
        if isinstance(node, MappingNode) and set(node.entries) == {"limits"}:
            self.problem(node.place, f"write the limits of {name} as a list, without the word limits")
            return
        limits = self.limits(node, f"limits of {name}")
        if limits:
            self._found(resource_defaults(name), place, Level(limits))

    def _entity(self, place: Place, entity_id: str, node: Node) -> None:
        if not self.valid(place, entity_id, check_entity_id):
            return
        if is_reserved(entity_id):
            self.problem(place, f"{shown(entity_id)} is reserved for the records of manifests; choose another id")
            return
        if self.is_empty(node):
            self._found(entity_thing(entity_id), place, Profile())
            return
        table = self.table(node, f"entity {entity_id}", ENTITY_KEYS)
        if table is None:
            return
        create = self._optional(table, "create", lambda value: self.flag(value, "create"))
        levels = self._entity_limits(entity_id, table)
        if create is False:
            self._refuse_profile(place, entity_id, table)
        else:
            self._found(entity_thing(entity_id), place, self._profile(entity_id, table))
        for resource, (where, level) in levels.items():
            self._found(limits_of(entity_id, resource), where, level)

    def _access(self, top: MappingNode) -> None:
        """The access switches."""
        if "access" not in top.entries or self.is_empty(top.entries["access"][1]):
            return
        table = self.table(top.entries["access"][1], "access", ACCESS_KEYS)
        if table is None:
            return
        if "system" in table.entries:
            self._switch(access_thing(), *table.entries["system"])
        for place, resource, node in self._section(table, "resources"):
            if self.valid(place, resource, check_resource):
                self._switch(access_thing(resource=resource), place, node)
        for place, entity_id, node in self._section(table, "entities"):
            if not self.valid(place, entity_id, check_entity_id):
                continue
            by_resource = node.entries if isinstance(node, MappingNode) else {DEFAULT_RESOURCE: (place, node)}
            for resource, (where, said) in by_resource.items():
                if self.valid(where, resource, check_config_resource):
                    self._switch(access_thing(entity_id, resource), where, said)

    def _switch(self, thing: Thing, place: Place, node: Node) -> None:
        text = self.text(node, thing.label)
        if text is None:
            return
        if text not in (AccessMode.BLOCK, AccessMode.OBSERVE):
            self.problem(node.place, f"{thing.label} must be block or observe, not {shown(text)}")
            return
        self._found(thing, place, Switch(AccessMode(text)))

    def _entity_limits(self, entity_id: str, table: MappingNode) -> dict[str, tuple[Place, Level]]:
        if "limits" not in table.entries:
            return {}
        place, node = table.entries["limits"]
        by_resource: dict[str, tuple[Place, Node]] = {}
        if isinstance(node, SequenceNode):
            by_resource = {DEFAULT_RESOURCE: (place, node)}
        elif isinstance(node, MappingNode):
            by_resource = node.entries
        else:
            self.wrong_shape(node, f"limits of {entity_id}", "a list, or a mapping of resources to lists")
        found = {}
        for resource, (where, value) in by_resource.items():
            if self.valid(where, resource, check_config_resource):
                limits = self.limits(value, f"limits of {entity_id} on {resource}")
                if limits:
                    found[resource] = where, Level(limits)
        return found

    def _profile(self, entity_id: str, table: MappingNode) -> Profile:
        name = self._optional(table, "name", lambda node: self._checked(node, "name", check_display_name))
        parent = self._optional(table, "parent", lambda node: self._checked(node, "parent", check_entity_id))
        cascade = self._optional(table, "cascade", lambda node: self.flag(node, "cascade"))
        metadata = self._optional(table, "metadata", self._metadata)
        if parent is not None:
            self.parent_places[entity_id] = table.entries["parent"][1].place
            if is_reserved(parent):
                self.problem(self.parent_places[entity_id], f"{parent} keeps a record; it cannot be a parent")
        return Profile(name, parent, bool(cascade), metadata or {})

    def _refuse_profile(self, place: Place, entity_id: str, table: MappingNode) -> None:
        """With ``create: false`` an entity is not managed here, only its limits are."""
        for key in PROFILE_KEYS:
            if key in table.entries:
                message = f"{key} cannot be managed with create: false, which leaves the entity to others; remove one"
                self.problem(table.entries[key][0], message)
        limits = table.entries.get("limits", (place, MappingNode(place)))[1]
        if isinstance(limits, MappingNode) and not limits.entries:
            self.problem(place, f"{entity_id} has create: false and no limits, so there is nothing to manage")

    # Values

    def _policy(self, node: Node) -> OnUnavailable | None:
        text = self.text(node, "on_unavailable")
        if text is None:
            return None
        if text not in list(OnUnavailable):
            self.problem(node.place, f"on_unavailable must be allow, block or local, not {shown(text)}")
            return None
        return OnUnavailable(text)

    def _metadata(self, node: Node) -> dict[str, str] | None:
        table = self.table(node, "metadata")
        if table is None:
            return None
        texts = {key: self.text(value, f"metadata {shown(key)}") for key, (_, value) in table.entries.items()}
        metadata = {key: value for key, value in texts.items() if value is not None}
        self.valid(node.place, metadata, check_metadata)
        return metadata

    def _checked(self, node: Node, what: str, check: Callable[[object], object]) -> str | None:
        """A text that passes a check."""
        text = self.text(node, what)
        return text if text is not None and self.valid(node.place, text, check) else None

    def _optional(self, table: MappingNode, key: str, read: Callable[[Node], Value | None]) -> Value | None:
        """The value of a key; an empty one counts as absent."""
        if key not in table.entries or self.is_empty(table.entries[key][1]):
            return None
        return read(table.entries[key][1])

    # Structure

    def _section(self, top: MappingNode, key: str) -> Iterator[tuple[Place, str, Node]]:
        if key in top.entries and not self.is_empty(top.entries[key][1]):
            section = self.table(top.entries[key][1], key)
            if section is not None:
                for name, (place, node) in section.entries.items():
                    yield place, name, node

    def _found(self, thing: Thing, place: Place, settings: Settings) -> None:
        self.things[thing] = settings
        self.places[thing] = place

    def _refuse_cycles(self) -> None:
        """An entity that would be its own ancestor, as far as the manifest itself says so."""
        parents = {
            thing.entity_id: settings.parent_id
            for thing, settings in self.things.items()
            if isinstance(settings, Profile)
        }
        for _, cycle in cycles(parents, parents.get):
            message = f"{cycle[0]} would be its own ancestor: {' → '.join(cycle[:8])}"
            self.problem(self.parent_places[cycle[0]], message + (" → …" if len(cycle) > 8 else ""))
