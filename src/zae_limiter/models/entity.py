"""Who is limited."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Entity:
    """A key, user, project or organisation.

    With ``cascade`` every acquire of this entity also takes from its parent (and on upwards while the
    parents cascade too). ``version`` grows with every change.
    """

    id: str
    name: str | None = None
    parent_id: str | None = None
    cascade: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict)
    version: int = 1
    created_at: datetime | None = None
