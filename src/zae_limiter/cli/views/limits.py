"""Limits as they were set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from zae_limiter import Limit, LimitsSet, OnUnavailable, ReplacedLimit
from zae_limiter.cli.output.console import Output
from zae_limiter.cli.output.text_tables import Column, Row, table
from zae_limiter.cli.views.formats import limits_in_words, rate

COLUMNS = (Column("limit"), Column("rate", numbers=True), Column("burst", numbers=True))
CAPACITY = Column("capacity", numbers=True)


def limits_table(output: Output, limits: Sequence[Limit]) -> Table:
    """A line for each. The capacity is shown only if one has another than its refill."""
    if all(limit.is_held or limit.capacity == limit.refill_amount for limit in limits):
        return table(output, COLUMNS, [limit_row(limit) for limit in limits])
    return table(output, (*COLUMNS, CAPACITY), [(*limit_row(limit), f"{limit.capacity:,}") for limit in limits])


def limit_row(limit: Limit) -> Row:
    """A limit in a table."""
    return limit.name, rate(limit), f"{limit.burst:,}"


def limits_document(limits: Sequence[Limit]) -> list[dict[str, Any]]:
    """Limits for programs."""
    return [limit.as_dict() for limit in limits]


def entity_limits_document(entity_id: str, resource: str, limits: Sequence[Limit]) -> dict[str, Any]:
    """An entity's own limits for programs."""
    return {"entity_id": entity_id, "resource": resource, "limits": limits_document(limits)}


def resource_limits_document(resource: str, limits: Sequence[Limit]) -> dict[str, Any]:
    """A resource's limits for programs."""
    return {"resource": resource, "limits": limits_document(limits)}


def system_limits_document(limits: Sequence[Limit], on_unavailable: OnUnavailable | None) -> dict[str, Any]:
    """The system's limits and policy for programs."""
    policy = None if on_unavailable is None else str(on_unavailable)
    return {"limits": limits_document(limits), "on_unavailable": policy}


def replaced_document(changed: LimitsSet | None) -> dict[str, Any]:
    """The limits of wider levels that no longer hold, for programs; nothing if nothing was set."""
    return {} if changed is None else {"replaced": [replaced.as_dict() for replaced in changed.replaced]}


def replaced_lines(replaced_limits: Iterable[ReplacedLimit], *, merge_hint: bool) -> list[Text]:
    """The same for people: a line for each level they belong to."""
    by_level: dict[str, list[Limit]] = {}
    for replaced in replaced_limits:
        by_level.setdefault(_level_of(replaced), []).append(replaced.limit)
    lines = [
        Text(f"No longer holds here: {limits_in_words(limits)}, of {level}.", style="yellow")
        for level, limits in by_level.items()
    ]
    if lines and merge_hint:
        lines.append(Text("A level replaces wider ones whole; --merge keeps their limits.", style="dim"))
    return lines


def _level_of(replaced: ReplacedLimit) -> str:
    if replaced.source == "resource":
        return f"all entities on {replaced.resource}"
    return "all entities on all resources" if replaced.source == "system" else "the entity on all resources"
