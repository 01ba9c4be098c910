"""A hold: slots of a limit of calls in flight that a lease has."""

from __future__ import annotations

from datetime import datetime

from zae_limiter.models.moments import at


class Hold:
    """Slots that a lease holds: ``amount`` of one limit, until it ends. It is 0 once they are given back.

    If the lease never ends they come back when they are due. Renewing moves that. ``life`` tells which life of the
    bucket they belong to, and ``ttl`` for how many seconds they were taken.
    """

    __slots__ = ("__weakref__", "amount", "due", "entity_id", "life", "limit_name", "resource", "ttl")

    def __init__(
        self, entity_id: str, resource: str, limit_name: str, amount: int, due: int, ttl: int, life: int | str
    ) -> None:
        self.entity_id = entity_id
        self.resource = resource
        self.limit_name = limit_name
        self.amount = amount
        self.due = due
        self.ttl = ttl
        self.life = life

    @property
    def due_at(self) -> datetime:
        """When they come back if the lease neither ends nor renews them."""
        return at(self.due * 1000)

    def __repr__(self) -> str:
        return f"<Hold of {self.amount} {self.limit_name} by {self.entity_id} on {self.resource} until {self.due_at}>"
