"""Where a namespace's keys are: looked up once by name, and again when the server says that it is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zae_limiter.exceptions import NamespaceNotFoundError, RateLimiterUnavailable, ValidationError
from zae_limiter.models.limit import too_many_retired
from zae_limiter.running.clocks import machine_timer
from zae_limiter.running.plan import Plan
from zae_limiter.stores.redis.keys import namespace_key, prefix_of, tag_of
from zae_limiter.stores.redis.periods import KnownCalendars
from zae_limiter.stores.redis.write_marks import Mark, Marks
from zae_limiter.stores.windows import DAYS_KEPT

if TYPE_CHECKING:
    from zae_limiter.stores.redis.registry import Registry

GONE, DELETED, TOO_MUCH, TOO_LATE, TOO_MANY_RETIRED, FORGOTTEN = -3, -4, -5, -6, -7, -13
"""What a script answers that does nothing."""


class Home:
    """The keys of one namespace, and this process's marks there."""

    __slots__ = ("_registry", "calendars", "found", "key", "marks", "namespace", "prefix", "tag", "usage_days")

    marks: Marks

    def __init__(self, registry: Registry, namespace: str, usage_days: int = DAYS_KEPT) -> None:
        self._registry = registry
        self.namespace = namespace
        self.usage_days = usage_days
        self.calendars = KnownCalendars()
        self.found = False
        self.tag = self.prefix = self.key = ""

    def find(self) -> Plan[None]:
        """Look it up, unless it is known."""
        if self.found:
            return
        record = yield from self._registry.live(self.namespace)
        self.tag = tag_of(record.id)
        prefix = prefix_of(self.tag)
        if prefix != self.prefix:
            self.prefix, self.key, self.marks = prefix, namespace_key(prefix), Marks(prefix, self.usage_days)
        self.found = True

    def mark(self) -> Mark:
        """A mark for one write."""
        return self.marks.next(machine_timer())

    def refused(self, reply: list[int]) -> None:
        """A script would do nothing: raise why, or look the namespace up again."""
        code = reply[0]
        if code == TOO_LATE:
            raise RateLimiterUnavailable("the server got it after the deadline, and did nothing")
        if code == FORGOTTEN:
            what = (
                "calls in flight were lent, and the server does not know any more until when: they come back when due"
            )
            raise RateLimiterUnavailable(what, ambiguous=True)
        if code == TOO_MUCH:
            raise ValidationError("amount", None, "the balance or the counter of a limit would pass 8e15 tokens")
        if code == TOO_MANY_RETIRED:
            _, _, entity_id, resource, retired = reply
            raise too_many_retired(entity_id.decode(), resource.decode(), retired)  # type: ignore[attr-defined]
        self.found = False
        if code == DELETED:
            raise NamespaceNotFoundError(self.namespace, deleted=True)
