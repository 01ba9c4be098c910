"""Leases that have a record."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from zae_limiter import LeaseInfo
from zae_limiter.cli.output.console import shown
from zae_limiter.cli.output.text_tables import Column, Row
from zae_limiter.cli.views.formats import NOTHING, iso, moment

COLUMNS = (
    Column("token", rigid=True),
    Column("entity"),
    Column("resource"),
    Column("state", rigid=True),
    Column("consumed"),
    Column("granted (UTC)", rigid=True),
)
LABEL = 10


def lease_document(lease: LeaseInfo) -> dict[str, Any]:
    """A lease for programs."""
    return {
        "id": lease.id,
        "token": lease.token,
        "entity_id": lease.entity_id,
        "resource": lease.resource,
        "state": lease.state,
        "granted": dict(lease.granted),
        "consumed": dict(lease.consumed),
        "granted_at": iso(lease.granted_at),
        "expires_at": iso(lease.expires_at),
    }


def lease_rows(lease: LeaseInfo) -> list[Row]:
    """A lease in a list."""
    consumed = amounts_in_words(lease.consumed)
    return [(lease.token, lease.entity_id, lease.resource, lease.state, consumed, moment(lease.granted_at))]


def lease_picture(lease: LeaseInfo) -> RenderableType:
    """A lease for people."""
    fields = (
        ("entity", lease.entity_id),
        ("resource", lease.resource),
        ("granted", f"{amounts_in_words(lease.granted)}  {moment(lease.granted_at)} UTC"),
        ("consumed", amounts_in_words(lease.consumed)),
        ("expires", f"{moment(lease.expires_at)} UTC"),
    )
    return Group(
        Text.assemble((shown(lease.token), "bold"), (f"  {lease.state}", "dim")),
        *(Text.assemble((f"{key:{LABEL}}", "dim"), shown(value)) for key, value in fields),
    )


def amounts_in_words(amounts: Any) -> str:
    """Amounts by limit."""
    return ", ".join(f"{name} {amount:,}" for name, amount in amounts.items() if amount) or NOTHING
