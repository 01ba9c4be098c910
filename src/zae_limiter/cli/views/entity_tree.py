"""The tree of entities, one line each, drawn as they come. Nothing here recurses, so a tree may be of any depth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from rich.text import Text

from zae_limiter import Entity
from zae_limiter.cli.output.console import shown
from zae_limiter.cli.views.entities import entity_document


class Node(NamedTuple):
    """An entity in its tree. ``lasts`` says for each of its ancestors and itself whether it is the last child."""

    entity: Entity
    lasts: tuple[bool, ...] = ()


def walk(roots: Iterable[Entity], children: Callable[[str], list[Entity]]) -> Iterator[Node]:
    """Every entity below its parent, each before its own children."""
    ahead = [Node(root) for root in roots][::-1]
    while ahead:
        node = ahead.pop()
        yield node
        below = children(node.entity.id)
        ahead += [Node(child, (*node.lasts, child is below[-1])) for child in reversed(below)]


def forest(entities: Iterable[Entity]) -> Iterator[Node]:
    """The trees that entities in any order form; one whose parent is not among them is a root."""
    known = {entity.id: entity for entity in entities}
    below: dict[str, list[Entity]] = {}
    roots = []
    for entity in known.values():
        if entity.parent_id in known:
            below.setdefault(entity.parent_id, []).append(entity)
        else:
            roots.append(entity)
    return walk(roots, lambda entity_id: below.get(entity_id, []))


def node_document(node: Node) -> dict[str, Any]:
    """A node for programs: the entity, and how deep it stands."""
    return {"depth": len(node.lasts), **entity_document(node.entity)}


def branch(node: Node, *, named: bool = True) -> Text:
    """A node for people, ``named`` with its name too. An arrow says that it also takes from its parent."""
    entity = node.entity
    drawn = Text(style="dim")
    if node.lasts:
        *above, last = node.lasts
        drawn.append("".join("   " if over else "│  " for over in above) + ("└─ " if last else "├─ "))
    line = Text.assemble(drawn, (entity.id, "" if node.lasts else "bold"))
    if entity.cascade:
        line.append(" ↑", style="cyan")
    if named and entity.name:
        line.append(f"  {shown(entity.name)}", style="dim")
    return line
