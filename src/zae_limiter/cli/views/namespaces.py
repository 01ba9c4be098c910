"""Namespaces."""

from __future__ import annotations

from typing import Any

from zae_limiter.cli.printing.tables import Column, Row
from zae_limiter.cli.views.words import iso, moment
from zae_limiter.models.reports import NamespaceInfo

COLUMNS = (Column("namespace"), Column("created (UTC)", rigid=True), Column("deleted (UTC)", rigid=True))


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
