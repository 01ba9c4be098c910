"""Namespaces and entities: one with its ancestors and limits, and lists of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from zae_limiter import Entity, Limit, NamespaceInfo
from zae_limiter.cli.output.console import Output, shown
from zae_limiter.cli.output.text_tables import Column, Row
from zae_limiter.cli.views.formats import NOTHING, iso, moment
from zae_limiter.cli.views.limits import limits_table

COLUMNS = (
    Column("entity"),
    Column("name"),
    Column("parent"),
    Column("cascade", rigid=True),
    Column("created (UTC)", rigid=True),
)
LABEL = 10


def entity_document(entity: Entity) -> dict[str, Any]:
    """An entity for programs."""
    return {
        "entity_id": entity.id,
        "name": entity.name,
        "parent_id": entity.parent_id,
        "cascade": entity.cascade,
        "metadata": dict(entity.metadata),
        "version": entity.version,
        "created_at": iso(entity.created_at),
    }


def entity_rows(entity: Entity) -> list[Row]:
    """An entity in a list."""
    return [
        (
            entity.id,
            entity.name or NOTHING,
            entity.parent_id or NOTHING,
            "yes" if entity.cascade else "no",
            moment(entity.created_at),
        )
    ]


def shown_entity_document(entity: Entity, ancestors: Sequence[str], limits: Sequence[Limit]) -> dict[str, Any]:
    """An entity for programs, with what is above it and its own limits for every resource."""
    return {
        **entity_document(entity),
        "ancestors": list(ancestors),
        "limits": [limit.as_dict() for limit in limits],
    }


def entity_picture(
    output: Output, entity: Entity, ancestors: Sequence[str], limits: Sequence[Limit]
) -> RenderableType:
    """An entity for people."""
    notes = [f"{key} = {value}" for key, value in sorted(entity.metadata.items())]
    lines: list[RenderableType] = [
        Text(entity.id, style="bold"),
        _field("name", entity.name or NOTHING),
        _field("below", " → ".join(ancestors) or NOTHING),
        _field(
            "cascade", "yes: also takes from its parent" if entity.cascade else "no: takes from its own bucket only"
        ),
        _field("created", f"{moment(entity.created_at)} UTC, now at version {entity.version}"),
        *(_field("" if place else "metadata", note) for place, note in enumerate(notes)),
    ]
    if limits:
        lines += [Text(), Text("Own limits, for every resource without own ones"), limits_table(output, limits)]
    return Group(*lines)


def _field(label: str, value: str) -> Text:
    return Text.assemble((f"{label:{LABEL}}", "dim"), shown(value))


NAMESPACE_COLUMNS = (Column("namespace"), Column("created (UTC)", rigid=True), Column("deleted (UTC)", rigid=True))


def namespace_document(info: NamespaceInfo) -> dict[str, Any]:
    """A namespace for programs."""
    return {
        "name": info.name,
        "id": info.id,
        "created_at": iso(info.created_at),
        "deleted_at": iso(info.deleted_at),
    }


def namespace_rows(info: NamespaceInfo) -> list[Row]:
    """A namespace in a list."""
    return [(info.name, moment(info.created_at), moment(info.deleted_at))]
