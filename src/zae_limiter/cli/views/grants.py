"""The result of an acquire, granted or denied, and what is available."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from zae_limiter import LimitStatus, RateLimitExceeded
from zae_limiter.cli.output.bars import DEBT
from zae_limiter.cli.output.console import Output
from zae_limiter.cli.output.text_tables import Column, table
from zae_limiter.cli.views.buckets import burst_text
from zae_limiter.cli.views.formats import duration

if TYPE_CHECKING:
    from zae_limiter import SyncLease

COLUMNS = (
    Column("entity"),
    Column("limit"),
    Column("taken", numbers=True),
    Column("left", numbers=True),
    Column("burst", numbers=True),
    Column("from"),
)

SOURCES = {
    "entity": "the entity, for this resource",
    "entity_default": "the entity",
    "resource": "the resource",
    "system": "the system",
    "call": "this call",
}
"""Where limits came from, in words."""


def granted_document(entity_id: str, resource: str, lease: SyncLease) -> dict[str, Any]:
    """A grant for programs."""
    return {
        "granted": True,
        "degraded": lease.degraded,
        "entity_id": entity_id,
        "resource": resource,
        "consumed": lease.consumed,
        "statuses": [status.as_dict() for status in lease.statuses],
    }


def denied_document(entity_id: str, resource: str, error: RateLimitExceeded) -> dict[str, Any]:
    """A denial for programs."""
    return {"granted": False, "entity_id": entity_id, "resource": resource, **error.as_dict(ancestors=True)}


def granted_picture(output: Output, statuses: Sequence[LimitStatus]) -> RenderableType:
    """A grant for people."""
    rows = [
        (
            status.entity_id,
            status.limit_name,
            f"{status.requested:,}",
            Text(f"{status.available:,}", style=DEBT if status.available < 0 else ""),
            burst_text(status),
            SOURCES[status.source],
        )
        for status in statuses
    ]
    return Group(Text("granted", style="bold green"), table(output, COLUMNS, rows))


def available_document(
    entity_id: str, resource: str, available: Mapping[str, int], needed: Mapping[str, int], wait: float | None
) -> dict[str, Any]:
    """What is available for programs; ``wait`` is that for what is needed, if it was asked."""
    document: dict[str, Any] = {"entity_id": entity_id, "resource": resource, "available": dict(available)}
    if wait is not None:
        document["needed"] = dict(needed)
        document["fits_now"] = wait == 0
        document["seconds_until_available"] = None if math.isinf(wait) else wait
    return document


def available_picture(
    output: Output, available: Mapping[str, int], needed: Mapping[str, int], wait: float | None
) -> RenderableType:
    """What is available for people."""
    columns = [Column("limit"), Column("available", numbers=True)]
    if wait is not None:
        columns.append(Column("needed", numbers=True))
    rows = [
        (
            name,
            Text(f"{left:,}", style=DEBT if left < 0 else ""),
            *((f"{needed.get(name, 0):,}",) if wait is not None else ()),
        )
        for name, left in available.items()
    ]
    drawn = table(output, columns, rows)
    return drawn if wait is None else Group(drawn, Text(), _outlook(wait))


def _outlook(wait: float) -> Text:
    if wait == 0:
        return Text("this would be granted now", style="green")
    if math.isinf(wait):
        return Text("this can never be granted: it is more than a burst", style=DEBT)
    return Text(f"this would be granted in {duration(wait)}", style="yellow")
