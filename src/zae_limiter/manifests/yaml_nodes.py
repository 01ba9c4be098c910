"""YAML as a tree in which every node knows its place.

Only plain data is allowed. Aliases, anchors and tags are refused where they stand, so nothing can multiply or become
an object; so are a second document and a key said twice. How deep and how long a text may be is bounded before
anything is built. Scalars keep the text they were written with; :func:`kind_of` says what YAML 1.2 takes it for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import yaml

from zae_limiter.manifests.model import Place
from zae_limiter.manifests.problems import Problem, shown

MOST_BYTES = 4_000_000
MOST_DEPTH = 12

Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The one written in C is twenty times as fast, where there is one."""

_NOT_IN_YAML = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_HINTS = {
    "\t": "indent with spaces, not with tabs",
    "@": "a text that begins with @ needs quotes",
    "`": "a text that begins with ` needs quotes",
    "%": "a text that begins with % needs quotes",
}

ScalarKind: TypeAlias = Literal["text", "nothing", "yes or no", "whole number", "number"]

_KINDS: tuple[tuple[ScalarKind, re.Pattern[str]], ...] = (
    ("nothing", re.compile(r"null|Null|NULL|~|")),
    ("yes or no", re.compile(r"true|True|TRUE|false|False|FALSE")),
    ("whole number", re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")),
    (
        "number",
        re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"),
    ),
)


@dataclass(frozen=True, slots=True)
class ScalarNode:
    """A word, a number, a text."""

    place: Place
    text: str
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class SequenceNode:
    """A list."""

    place: Place
    items: list[Node] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MappingNode:
    """Keys and values, in their order."""

    place: Place
    entries: dict[str, tuple[Place, Node]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RefusedNode:
    """Stands for a node that is not allowed; it has been reported already."""

    place: Place


Node: TypeAlias = ScalarNode | SequenceNode | MappingNode | RefusedNode


def kind_of(scalar: ScalarNode) -> ScalarKind:
    """What a scalar is: quoted ones are text, others what YAML 1.2 takes them for."""
    if scalar.quoted:
        return "text"
    return next((kind for kind, pattern in _KINDS if pattern.fullmatch(scalar.text)), "text")


def parse(content: bytes | str, problems: list[Problem]) -> Node | None:
    """The tree of a text, or nothing if it is none. What is wrong is added to ``problems``."""
    try:
        text = _readable(content)
        try:
            return _Builder(problems).document(yaml.parse(text, Loader=Parser))
        except yaml.MarkedYAMLError as error:
            raise _explain(error, text) from None
        except (yaml.YAMLError, ValueError, OverflowError) as error:
            raise _Unusable(Place(1, 1), f"is not YAML: {shown(str(error))}") from None
    except _Unusable as error:
        problems.append(error.problem)
        return None


class _Unusable(Exception):
    """There is no point in reading on."""

    def __init__(self, place: Place, message: str) -> None:
        self.problem = Problem(place, message)


class _Builder:
    """Turns the parser's events into a tree."""

    def __init__(self, problems: list[Problem]) -> None:
        self._problems = problems

    def document(self, events: Iterator[yaml.Event]) -> Node | None:
        root: Node | None = None
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    raise _Unusable(_start(event), "begins a second document; a file has one manifest")
                root = self._node(next(events), events, 0)
        return root

    def _node(self, event: yaml.Event, events: Iterator[yaml.Event], depth: int) -> Node:
        place = _start(event)
        if depth > MOST_DEPTH:
            raise _Unusable(place, f"is nested deeper than {MOST_DEPTH} levels, which no manifest is")
        if isinstance(event, yaml.AliasEvent):
            return self._refuse(place, f"aliases (*{str(event.anchor)[:40]}) are not allowed; write it out")
        strange = self._unsupported(event)
        if isinstance(event, yaml.ScalarEvent):
            node: Node = ScalarNode(place, event.value, quoted=event.style not in (None, ""))
        elif isinstance(event, yaml.SequenceStartEvent):
            node = self._sequence(place, events, depth)
        else:
            node = self._mapping(place, events, depth)
        return self._refuse(place, strange) if strange else node

    def _sequence(self, place: Place, events: Iterator[yaml.Event], depth: int) -> SequenceNode:
        listing = SequenceNode(place)
        for event in events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            listing.items.append(self._node(event, events, depth + 1))
        return listing

    def _mapping(self, place: Place, events: Iterator[yaml.Event], depth: int) -> MappingNode:
        table = MappingNode(place)
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key = self._node(event, events, depth + 1)
            value = self._node(next(events), events, depth + 1)
            if isinstance(key, RefusedNode):
                continue
            if not isinstance(key, ScalarNode):
                self._refuse(key.place, "a key must be a word, not a list or a mapping")
            elif key.text in table.entries:
                first = table.entries[key.text][0].line
                self._refuse(key.place, f"{shown(key.text)} is here twice; the first is on line {first}")
            else:
                table.entries[key.text] = key.place, value
        return table

    def _unsupported(self, event: Any) -> str | None:
        if event.anchor is not None:
            return f"anchors (&{event.anchor[:40]}) are not allowed; write it out where it is needed"
        if event.tag is not None:
            return f"tags ({shown(event.tag)}) are not allowed; remove it"
        return None

    def _refuse(self, place: Place, message: str) -> RefusedNode:
        self._problems.append(Problem(place, message))
        return RefusedNode(place)


def _start(event: Any) -> Place:
    return Place(event.start_mark.line + 1, event.start_mark.column + 1)


def _readable(content: bytes | str) -> str:
    """The text of a file: not too large, in UTF-8, without control characters."""
    if len(content) > MOST_BYTES:
        raise _Unusable(Place(1, 1), f"is larger than {MOST_BYTES:,} bytes; split it into several manifests")
    try:
        text = content if isinstance(content, str) else content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode("utf-8", errors="replace")
        raise _Unusable(_place_at(before, len(before)), "is not UTF-8; save the file in that encoding") from None
    strange = _NOT_IN_YAML.search(text)
    if strange:
        message = f"the character U+{ord(strange[0]):04X} must not be in a file; in a quoted text it can be escaped"
        raise _Unusable(_place_at(text, strange.start()), message)
    return text


def _explain(error: yaml.MarkedYAMLError, text: str) -> _Unusable:
    """What the parser says, and the usual cause where there is one."""
    mark = error.problem_mark or error.context_mark
    problem = (error.problem or error.context or "it cannot be parsed").strip()
    if mark is None:
        return _Unusable(Place(1, 1), f"is not YAML: {problem}")
    lines = [*text.splitlines(), ""]
    line = lines[min(mark.line, len(lines) - 1)]
    hint = _HINTS.get(line[mark.column : mark.column + 1])
    if hint is None and problem.startswith("mapping values are not allowed"):
        hint = "a text with a colon and a space in it needs quotes"
    return _Unusable(Place(mark.line + 1, mark.column + 1), f"is not YAML: {problem}" + (f"; {hint}" if hint else ""))


def _place_at(text: str, position: int) -> Place:
    before = text[:position]
    return Place(before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1)
