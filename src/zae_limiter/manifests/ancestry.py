"""Ways up a hierarchy that may not be one yet: whoever walks must notice a circle."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from typing import TypeAlias

ParentOf: TypeAlias = Callable[[str], str | None]


def way_up(entity_id: str, parent_of: ParentOf, known: Container[str]) -> tuple[list[str], str | None]:
    """An entity and its ancestors, up to one that is ``known``, or that the way itself has met: a circle.

    The second is where it ended; ``None`` if that was a root.
    """
    way: dict[str, None] = {}
    step: str | None = entity_id
    while step is not None and step not in known and step not in way:
        way[step] = None
        step = parent_of(step)
    return list(way), step


def circles(entity_ids: Iterable[str], parent_of: ParentOf) -> Iterator[tuple[str, list[str]]]:
    """Every circle above some entities, once: from whom it was met, and its entities, the first again at the end."""
    seen: set[str] = set()
    for entity_id in entity_ids:
        way, end = way_up(entity_id, parent_of, seen)
        if end is not None and end in way:
            yield entity_id, [*way[way.index(end) :], end]
        seen.update(way)
