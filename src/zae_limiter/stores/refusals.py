"""What every store refuses, in the same words."""

from __future__ import annotations

from zae_limiter.exceptions import ValidationError


def has_children(entity_id: str) -> ValidationError:
    """The refusal to delete an entity that others have as their parent."""
    return ValidationError("entity_id", entity_id, "has children; delete them or give them another parent")


def own_ancestor(entity_id: str, parent_id: str | None) -> ValidationError:
    """The refusal of a circle."""
    return ValidationError("parent_id", parent_id, f"{entity_id!r} would become an ancestor of itself")


def not_deleted_yet(namespace: str) -> ValidationError:
    """The refusal to purge a namespace that is in use."""
    return ValidationError("namespace", namespace, "must be deleted before it is purged")
