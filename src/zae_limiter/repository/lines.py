"""Waiting in line: who is next at a bucket, within one process.

Whoever may wait joins the line of the bucket that lacks. Only the head of a line tries; it tries when its
tokens are due, or when something is given back or configured. Nobody overtakes: a request that does not
wait must leave in the bucket what those in line wait for (see ``Draw.reserved``). A ticket that leaves,
served or not, rings the next.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from zae_limiter.running.plan import Bell

BucketKey = tuple[str, str]
"""Entity and resource."""


class Ticket:
    """A place in a line."""

    __slots__ = ("amounts", "bell", "key")

    def __init__(self, key: BucketKey, amounts: Mapping[str, int]) -> None:
        self.key = key
        self.amounts = amounts
        self.bell = Bell()


class Lines:
    """The lines at all buckets of one repository. False while nobody waits anywhere."""

    __slots__ = ("_lock", "by_bucket")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.by_bucket: dict[BucketKey, list[Ticket]] = {}

    def __bool__(self) -> bool:
        return bool(self.by_bucket)

    def join(self, key: BucketKey, amounts: Mapping[str, int]) -> Ticket:
        """Stand at the end of a line."""
        ticket = Ticket(key, amounts)
        with self._lock:
            self.by_bucket.setdefault(key, []).append(ticket)
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Step out, and let the next one try."""
        with self._lock:
            line = self.by_bucket[ticket.key]
            line.remove(ticket)
            if not line:
                del self.by_bucket[ticket.key]
            heads = line[:1]
        for head in heads:
            head.bell.ring()

    def is_head(self, ticket: Ticket) -> bool:
        """Whether it is this one's turn."""
        with self._lock:
            return self.by_bucket[ticket.key][0] is ticket

    def waited_for(self, resource: str, ahead_of: Ticket | None = None) -> dict[str, dict[str, int]]:
        """What stands in line on a resource (before ``ahead_of``, in its own line): entity → limit → tokens."""
        sums: dict[str, dict[str, int]] = {}
        with self._lock:
            for (entity_id, line_resource), line in self.by_bucket.items():
                if line_resource != resource:
                    continue
                totals: dict[str, int] = {}
                for ticket in line:
                    if ticket is ahead_of:
                        break
                    for name, amount in ticket.amounts.items():
                        totals[name] = totals.get(name, 0) + amount
                if totals:
                    sums[entity_id] = totals
        return sums

    def ring(self, keys: Iterable[BucketKey]) -> None:
        """Something came back to these buckets: their heads may try."""
        with self._lock:
            heads = [line[0] for key in keys if (line := self.by_bucket.get(key))]
        for head in heads:
            head.bell.ring()

    def ring_all(self) -> None:
        """Limits or hierarchies changed: every head may try."""
        with self._lock:
            keys = list(self.by_bucket)
        self.ring(keys)
