"""The audit trail."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from zae_limiter import AuditEvent, Limit
from zae_limiter.cli.output.console import shown
from zae_limiter.cli.output.text_tables import Column, Row
from zae_limiter.cli.views.formats import NOTHING, iso, limits_in_words, moment
from zae_limiter.naming import DEFAULT_RESOURCE, RESOURCE_SUBJECT

COLUMNS = (
    Column("time (UTC)", rigid=True),
    Column("action", rigid=True),
    Column("subject"),
    Column("resource"),
    Column("by"),
    Column("event", rigid=True, style="dim"),
)
LABEL = 10

SHORT_ID = 10
"""As much of an id as says the moment: enough to find the event by, unless another happened at the same one."""


def event_document(event: AuditEvent) -> dict[str, Any]:
    """An event for programs."""
    return {
        "event_id": event.event_id,
        "timestamp": iso(event.timestamp),
        "action": event.action,
        "entity_id": event.entity_id,
        "resource": event.resource,
        "principal": event.principal,
        "details": dict(event.details),
    }


def event_rows(event: AuditEvent) -> list[Row]:
    """An event in a list."""
    return [
        (
            moment(event.timestamp),
            event.action,
            event.entity_id,
            NOTHING if event.entity_id.startswith(RESOURCE_SUBJECT) else _where(event.resource),
            event.principal or NOTHING,
            event.event_id[:SHORT_ID],
        )
    ]


def event_picture(event: AuditEvent) -> RenderableType:
    """An event for people, with everything it says."""
    fields = [
        ("time", f"{moment(event.timestamp)} UTC"),
        ("subject", event.entity_id),
        ("resource", _where(event.resource)),
        ("by", event.principal or NOTHING),
        *_details(event.details),
    ]
    label = max(LABEL, *(len(key) + 2 for key, _ in fields))
    return Group(
        Text.assemble((shown(event.action), "bold"), (f"  {event.event_id}", "dim")),
        *(Text.assemble((f"{shown(key):{label}}", "dim"), shown(value)) for key, value in fields),
    )


def _details(details: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What an event says of a change, field by field: how it was, an arrow, and how it is."""
    if details.keys() != {"from", "to"}:
        return [(key, _in_words(key, value)) for key, value in details.items()]
    before, after = (side if isinstance(side, Mapping) else {} for side in (details["from"], details["to"]))
    fields = []
    for key in dict.fromkeys((*before, *after)):
        was, now = (_in_words(key, side[key]) if key in side else NOTHING for side in (before, after))
        if was != now or was != NOTHING:
            fields.append((key, was if was == now else f"{was} → {now}"))
    return fields


def _where(resource: str | None) -> str:
    """A resource; what is set for all of them is filed under a name of its own."""
    return NOTHING if resource is None else "all" if resource == DEFAULT_RESOURCE else resource


def _in_words(key: str, value: Any) -> str:
    if key == "limits" and isinstance(value, list):
        try:
            return limits_in_words([Limit(**limit) for limit in value])
        except (TypeError, ValueError):
            pass
    if key == "limits" and isinstance(value, Mapping):
        return "; ".join(f"{_where(name)}: {_in_words(key, limits)}" for name, limits in value.items()) or NOTHING
    if value is None:
        return NOTHING
    return value if isinstance(value, str) else json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value
