"""Waiting in line: who is next at a bucket, within one process.

Whoever may wait joins the line of the bucket that lacks. Only the head of a line tries; it tries when its
tokens are due, or when something is given back or configured. Nobody overtakes: every request must leave in a
bucket what those who came earlier wait for there (see ``Draw.reserved``), and who does not wait comes last.

Earlier means earlier over all lines, by one count of arrivals that a ticket keeps when it moves to another
bucket. So the oldest of all yields to nobody, and two who wait at different buckets of one hierarchy cannot
wait for each other for ever.

A task may stand in line when its event loop is stopped, and never leave. So a place in line ends: at once if the loop
is closed, else a moment after the time for which it was to be held.
"""

from __future__ import annotations

import os
import threading
from bisect import insort
from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple
from weakref import WeakValueDictionary

from zae_limiter.running.clocks import Clock
from zae_limiter.running.plan import Bell

GRACE_MS = 1_000
"""How long after its time one who waits is taken for gone: on a busy machine it may only be late."""

BucketKey = tuple[str, str]
"""Entity and resource."""


class Patience(NamedTuple):
    """Until when one stands in line, and by which timer."""

    give_up_at: int
    timer: Clock


class Ticket:
    """A place in a line."""

    __slots__ = ("also", "amounts", "arrival", "bell", "key", "patience")

    def __init__(self, key: BucketKey, amounts: Mapping[str, int], arrival: int, patience: Patience | None) -> None:
        self.key = key
        self.also: frozenset[BucketKey] = frozenset()
        """Other buckets that lack for it as well."""
        self.amounts = amounts
        self.arrival = arrival
        self.patience = patience
        self.bell = Bell()

    def left_at(self, timer: Clock) -> int | None:
        """When it has surely left by itself if it can, by this timer; ``None``: nobody knows."""
        if self.patience is None or self.patience.timer is not timer:
            return None
        return self.patience.give_up_at + GRACE_MS


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

    def join(self, key: BucketKey, amounts: Mapping[str, int], patience: Patience | None = None) -> Ticket:
        """Stand at the end of a line, for so long at most."""
        with self._lock:
            self._arrivals += 1
            ticket = Ticket(key, amounts, self._arrivals, patience)
            self._stand(ticket)
        return ticket

    def drop_abandoned(self, timer: Clock, now: int) -> None:
        """Drop those who can never leave by themselves: their event loop is closed, or was stopped until their time
        was over. They wait for nothing any more, and hold up nobody."""
        with self._lock:
            tickets = [ticket for line in self.by_bucket.values() for ticket in line]
            gone = [one for one in tickets if one.bell.unheard or ((left := one.left_at(timer)) and left < now)]
            for ticket in gone:
                self._note_also(ticket, frozenset())
                self._step_out(ticket)
        for resource in {ticket.key[1] for ticket in gone}:
            self._ring_heads(resource)

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
        line = self.by_bucket.get(ticket.key, [])
        if ticket in line:  # else it was taken for gone
            line.remove(ticket)
            if not line:
                del self.by_bucket[ticket.key]

    def _ring_heads(self, resource: str) -> None:
        with self._lock:
            keys = [key for key in self.by_bucket if key[1] == resource]
        self.ring(keys)

    def head_before(self, ticket: Ticket) -> Ticket | None:
        """Whose turn it is before this one's; ``None``: it is this one's turn."""
        with self._lock:
            line = self.by_bucket.get(ticket.key)
            return None if not line or line[0] is ticket or ticket not in line else line[0]

    def is_head(self, ticket: Ticket) -> bool:
        """Whether it is this one's turn."""
        return self.head_before(ticket) is None

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
                    if (there := self.by_bucket.get(ticket.key)) and there[0] is ticket:
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
