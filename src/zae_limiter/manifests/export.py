"""From what exists to a manifest that says exactly that."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from zae_limiter.manifests.limit_syntax import format_limit
from zae_limiter.manifests.model import SYSTEM, Kind, Level, Profile, Settings, State, Switch, entity_thing
from zae_limiter.models.limit import Limit
from zae_limiter.naming import DEFAULT_RESOURCE

WIDTH = 100
INDENT = "  "
LONGEST_PLAIN_KEY = 120
"""A key that YAML may find without a question mark has to be on one line of at most 1024 characters."""

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-/@]*(:[A-Za-z0-9_.\-/@]+)*").fullmatch
_TAKEN = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
"""Words that some reader of YAML takes for something else."""

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def as_document(name: str, state: State) -> dict[str, Any]:
    """The manifest as plain data: what JSON and YAML readers get from it."""
    document: dict[str, Any] = {"manifest": name}
    system = state.get(SYSTEM)
    if isinstance(system, Level):
        document["system"] = _without_none(
            {
                "on_unavailable": None if system.on_unavailable is None else str(system.on_unavailable),
                "limits": [_limit(limit) for limit in system.limits],
            }
        )
    resources = {
        thing.resource: [_limit(limit) for limit in settings.limits]
        for thing, settings in sorted(state.items(), key=lambda item: item[0])
        if thing.kind is Kind.RESOURCE and isinstance(settings, Level)
    }
    return document | _without_none(
        {"resources": resources or None, "entities": _entities(state) or None, "access": _access(state) or None}
    )


def write_manifest(name: str, state: State, *, comment: str | None = None) -> str:
    """The manifest as a file."""
    head = [f"# {comment}"] if comment else []
    return "\n".join([*head, *_block(as_document(name, state), "")]) + "\n"


def _access(state: State) -> dict[str, Any]:
    """Every access switch."""
    found: dict[str, Any] = {}
    entities: dict[str, dict[str, str]] = {}
    resources: dict[str, str] = {}
    for thing, settings in sorted(state.items(), key=lambda item: item[0]):
        if thing.kind is not Kind.ACCESS or not isinstance(settings, Switch):
            continue
        if thing.entity_id:
            entities.setdefault(thing.entity_id, {})[thing.resource] = str(settings.mode)
        elif thing.resource:
            resources[thing.resource] = str(settings.mode)
        else:
            found["system"] = str(settings.mode)
    if resources:
        found["resources"] = resources
    if entities:
        found["entities"] = {
            name: said[DEFAULT_RESOURCE] if set(said) == {DEFAULT_RESOURCE} else said
            for name, said in entities.items()
        }
    return found


def _entities(state: State) -> dict[str, dict[str, Any]]:
    """Every entity that has anything, by id."""
    limits: dict[str, dict[str, Any]] = {}
    for thing, settings in sorted(state.items(), key=lambda item: item[0]):
        if thing.kind is Kind.LIMITS and isinstance(settings, Level):
            limits.setdefault(thing.entity_id, {})[thing.resource] = [_limit(limit) for limit in settings.limits]
    ids = sorted({thing.entity_id for thing in state if thing.entity_id and thing.kind is not Kind.ACCESS})
    return {entity_id: _entity(state.get(entity_thing(entity_id)), limits.get(entity_id)) for entity_id in ids}


def _entity(profile: Settings | None, limits: Mapping[str, Any] | None) -> dict[str, Any]:
    if limits is not None and set(limits) == {DEFAULT_RESOURCE}:
        limits = limits[DEFAULT_RESOURCE]
    if not isinstance(profile, Profile):
        return {"create": False, "limits": limits}
    return _without_none(
        {
            "name": profile.name,
            "parent": profile.parent_id,
            "cascade": profile.cascade or None,
            "metadata": dict(profile.metadata) or None,
            "limits": limits,
        }
    )


def _limit(limit: Limit) -> str | dict[str, Any]:
    return format_limit(limit) or limit.as_dict()


def _without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if value is not None}


# YAML


def _block(table: Mapping[str, Any], indent: str) -> Iterator[str]:
    """A table, line by line."""
    for key, value in table.items():
        word = _scalar(key)
        opening = f"{indent}{word}:" if len(word) <= LONGEST_PLAIN_KEY else f"{indent}? {word}\n{indent}:"
        if isinstance(value, dict) and value:
            yield opening
            yield from _block(value, indent + INDENT)
        elif isinstance(value, list) and not _fits(opening, value):
            yield opening
            for item in value:
                yield f"{indent}{INDENT}- {_flow(item)}"
        else:
            yield f"{opening} {_flow(value)}"


def _fits(opening: str, items: list[Any]) -> bool:
    return all(isinstance(item, str) for item in items) and len(f"{opening} {_flow(items)}") <= WIDTH


def _flow(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(key)}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else _scalar(value)


def _scalar(text: str) -> str:
    """A text as a word if every reader takes it for a text, else in quotes."""
    if _WORD(text) and text.lower() not in _TAKEN:
        return text
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character == " " or (character.isprintable() and character != "\ufeff"):
        return character
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
