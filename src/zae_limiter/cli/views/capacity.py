"""The capacity of a resource: how much all live buckets hold together, and each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from zae_limiter import EntityCapacity, ResourceCapacity
from zae_limiter.cli.output.bars import level_bar, level_number
from zae_limiter.cli.output.console import Output
from zae_limiter.cli.output.text_tables import Column, Row, table

COLUMNS = (
    Column("entity"),
    Column("level", rigid=True),
    Column("left", numbers=True),
    Column("capacity", numbers=True),
    Column("used", numbers=True),
)
BAR = 20


def capacity_document(capacity: ResourceCapacity, entities: Sequence[EntityCapacity], more: bool) -> dict[str, Any]:
    """One limit of a resource for programs."""
    return {
        "limit_name": capacity.limit_name,
        "total_capacity": capacity.total_capacity,
        "total_available": capacity.total_available,
        "utilization_pct": capacity.utilization_pct,
        "entities": [
            {
                "entity_id": entity.entity_id,
                "capacity": entity.capacity,
                "available": entity.available,
                "utilization_pct": entity.utilization_pct,
                "in_total": entity.in_total,
            }
            for entity in entities
        ],
        "more": more,
    }


def capacity_picture(output: Output, capacity: ResourceCapacity, entities: Sequence[EntityCapacity]) -> RenderableType:
    """One limit of a resource for people: the sum of all buckets, then each."""
    title = Text.assemble((capacity.limit_name, "bold"), f" on {capacity.resource}")
    if not capacity.total_capacity:
        return Group(title, Text("no live buckets", style="dim"))
    total = _row("all buckets", capacity.total_available, capacity.total_capacity, capacity.utilization_pct)
    rows = [_row(e.entity_id, e.available, e.capacity, e.utilization_pct) for e in entities]
    return Group(title, table(output, COLUMNS, [total, *rows]))


def _row(name: str, available: int, capacity: int, used: float) -> Row:
    return name, level_bar(available, capacity, BAR), level_number(available), f"{capacity:,}", f"{used:,.1f} %"
