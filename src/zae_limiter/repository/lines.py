"""Waiting in line: who is next at a bucket, within one process.

Whoever may wait joins the line of the bucket that lacks. Only the head of a line tries; it tries when its
tokens are due, or when something is given back or configured. Nobody overtakes: every request must leave in a
bucket what those who came earlier wait for there (see ``Draw.reserved``), and who does not wait comes last.

Earlier means earlier over all lines, by one count of arrivals that a ticket keeps when it moves to another
bucket. So the oldest of all yields to nobody, and two who wait at different buckets of one hierarchy cannot
wait for each other for ever.
"""

from __future__ import annotations

import os
import threading
from bisect import insort
from collections.abc import Hashable, Iterable, Mapping
from weakref import WeakValueDictionary

from zae_limiter.running.plan import Bell

BucketKey = tuple[str, str]
"""Entity and resource."""


class Ticket:
    """A place in a line."""

    __slots__ = ("also", "amounts", "arrival", "bell", "key")

    def __init__(self, key: BucketKey, amounts: Mapping[str, int], arrival: int) -> None:
        self.key = key
        self.also: frozenset[BucketKey] = frozenset()
        """Other buckets that lack for it as well."""
        self.amounts = amounts
        self.arrival = arrival
        self.bell = Bell()


class Lines:
    """The lines at all buckets of one namespace. False while nobody waits anywhere."""

    __slots__ = ("__weakref__", "_also", "_arrivals", "_lock", "by_bucket")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrivals = 0
        self.by_bucket: dict[BucketKey, list[Ticket]] = {}
        self._also: dict[BucketKey, dict[Ticket, None]] = {}

    def __bool__(self) -> bool:
        return bool(self.by_bucket)

    def join(self, key: BucketKey, amounts: Mapping[str, int]) -> Ticket:
        """Stand at the end of a line."""
        with self._lock:
            self._arrivals += 1
            ticket = Ticket(key, amounts, self._arrivals)
            self._stand(ticket)
        return ticket

    def move(self, ticket: Ticket, key: BucketKey) -> None:
        """Go to another line, before those who arrived later."""
        with self._lock:
            self._step_out(ticket)
            ticket.key = key
            self._stand(ticket)
        self._ring_heads(key[1])

    def lacks(self, ticket: Ticket, entities: Iterable[str]) -> None:
        """Whose buckets lack for it: it stands at one of them, and what comes back to the others concerns it too."""
        also = frozenset((entity_id, ticket.key[1]) for entity_id in entities) - {ticket.key}
        if also == ticket.also:
            return
        with self._lock:
            self._note_also(ticket, also)

    def leave(self, ticket: Ticket) -> None:
        """Step out. What it waited for is free: every head on this resource may try."""
        with self._lock:
            self._note_also(ticket, frozenset())
            self._step_out(ticket)
        self._ring_heads(ticket.key[1])

    def _note_also(self, ticket: Ticket, also: frozenset[BucketKey]) -> None:
        for key in ticket.also:
            tickets = self._also[key]
            del tickets[ticket]
            if not tickets:
                del self._also[key]
        ticket.also = also
        for key in also:
            self._also.setdefault(key, {})[ticket] = None

    def _stand(self, ticket: Ticket) -> None:
        insort(self.by_bucket.setdefault(ticket.key, []), ticket, key=lambda other: other.arrival)

    def _step_out(self, ticket: Ticket) -> None:
        line = self.by_bucket[ticket.key]
        line.remove(ticket)
        if not line:
            del self.by_bucket[ticket.key]

    def _ring_heads(self, resource: str) -> None:
        with self._lock:
            keys = [key for key in self.by_bucket if key[1] == resource]
        self.ring(keys)

    def is_head(self, ticket: Ticket) -> bool:
        """Whether it is this one's turn."""
        with self._lock:
            return self.by_bucket[ticket.key][0] is ticket

    def waited_for(self, resource: str, by: Ticket | None = None) -> dict[str, dict[str, int]]:
        """What those who came earlier wait for on a resource: entity → limit → tokens.

        Earlier than ``by``; without it, all of them.
        """
        sums: dict[str, dict[str, int]] = {}
        with self._lock:
            for (entity_id, line_resource), line in self.by_bucket.items():
                if line_resource != resource:
                    continue
                totals: dict[str, int] = {}
                for ticket in line:
                    if by is not None and ticket.arrival >= by.arrival:
                        break
                    for name, amount in ticket.amounts.items():
                        totals[name] = totals.get(name, 0) + amount
                if totals:
                    sums[entity_id] = totals
        return sums

    def ring(self, keys: Iterable[BucketKey]) -> None:
        """Something came back to these buckets: their heads may try, and those of other lines for whom they lack."""
        heads: dict[Ticket, None] = {}
        with self._lock:
            for key in keys:
                if line := self.by_bucket.get(key):
                    heads[line[0]] = None
                for ticket in self._also.get(key, ()):
                    if self.by_bucket[ticket.key][0] is ticket:
                        heads[ticket] = None
        for head in heads:
            head.bell.ring()

    def ring_all(self) -> None:
        """Limits or hierarchies changed: every head may try."""
        with self._lock:
            keys = list(self.by_bucket)
        self.ring(keys)

    def forget_parent(self) -> None:
        """In a forked child: those who wait stayed behind."""
        self._lock = threading.Lock()
        self.by_bucket.clear()
        self._also.clear()


_LINES: WeakValueDictionary[Hashable, Lines] = WeakValueDictionary()
_LINES_LOCK = threading.Lock()


def lines_at(place: Hashable) -> Lines:
    """The lines of one namespace of one store: the same for everybody in this process who uses it."""
    with _LINES_LOCK:
        lines = _LINES.get(place)
        if lines is None:
            lines = _LINES[place] = Lines()
        return lines


def _after_fork_in_child() -> None:
    global _LINES_LOCK
    _LINES_LOCK = threading.Lock()
    for lines in list(_LINES.values()):
        lines.forget_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
