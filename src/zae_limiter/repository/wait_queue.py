"""Waiting for tokens: which caller is next at a bucket, within one process; and its place among all processes.

A caller that may wait joins the queue of the bucket that lacks tokens. Only the head of a queue tries; it tries when
its tokens are due, or when something is given back or configured. Nothing overtakes: every request must leave in a
bucket what those that came earlier wait for there (see ``Draw.reserved``), and a caller that does not wait comes last.

Earlier means earlier over all queues, by one count of arrivals that a waiter keeps when it moves to another
bucket. So the oldest of all never yields, and two that wait at different buckets of one hierarchy cannot
wait for each other for ever.

Where a store keeps claims, the head of a queue also has a ticket: its draws that are denied leave a claim, and draws
of other processes that come later must leave what it wants.

A task may stand in a queue when its event loop is stopped, and never leave. So a place in a queue ends: at once if the
loop is closed, else a moment after the time for which it was to be held.
"""

from __future__ import annotations

import os
import threading
from bisect import insort
from collections.abc import Hashable, Iterable, Mapping
from itertools import count
from typing import NamedTuple
from weakref import WeakValueDictionary

from zae_limiter.naming import TOTAL_RESOURCE
from zae_limiter.running.clocks import Clock
from zae_limiter.running.plan import WakeUp
from zae_limiter.stores.open_leases import OpenLeases
from zae_limiter.stores.protocol import Ticket

GRACE_MS = 1_000
"""How long after its deadline a waiter is taken for gone: on a busy machine it may only be late."""

BucketKey = tuple[str, str]
"""Entity and resource; ``*`` for the total of an entity."""


class WaitDeadline(NamedTuple):
    """When a waiter gives up, and by which timer."""

    give_up_at: int
    timer: Clock


class Waiter:
    """A caller in a queue."""

    __slots__ = ("also_lacking", "amounts", "arrival", "deadline", "key", "wake_up")

    def __init__(
        self, key: BucketKey, amounts: Mapping[str, int], arrival: int, deadline: WaitDeadline | None
    ) -> None:
        self.key = key
        self.also_lacking: frozenset[BucketKey] = frozenset()
        """Other buckets that lack tokens for it as well."""
        self.amounts = amounts
        self.arrival = arrival
        self.deadline = deadline
        self.wake_up = WakeUp()

    def surely_gone_at(self, timer: Clock) -> int | None:
        """When it has left by itself if it still can, by this timer; ``None``: it has no deadline on this timer."""
        if self.deadline is None or self.deadline.timer is not timer:
            return None
        return self.deadline.give_up_at + GRACE_MS

    def is_gone(self, timer: Clock, now: int) -> bool:
        """Whether it can never leave by itself: its event loop is closed, or stood still beyond its deadline."""
        gone_at = self.surely_gone_at(timer)
        return self.wake_up.is_abandoned or (gone_at is not None and gone_at < now)


class WaitQueue:
    """The queues at all buckets of one namespace. False while no caller waits."""

    __slots__ = ("__weakref__", "_also_lacking", "_arrivals", "_lock", "_tickets", "by_bucket", "open_leases")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrivals = 0
        self._tickets = count()
        self.by_bucket: dict[BucketKey, list[Waiter]] = {}
        self._also_lacking: dict[BucketKey, dict[Waiter, None]] = {}
        self.open_leases = OpenLeases()

    def __bool__(self) -> bool:
        return bool(self.by_bucket)

    def join(self, key: BucketKey, amounts: Mapping[str, int], deadline: WaitDeadline | None = None) -> Waiter:
        """Stand at the end of a queue, until the deadline at most."""
        with self._lock:
            self._arrivals += 1
            waiter = Waiter(key, amounts, self._arrivals, deadline)
            self._enqueue(waiter)
        return waiter

    def ticket(self, patience_ms: int) -> Ticket:
        """A place in the line of all processes, for a caller that waits so long."""
        return Ticket(next(self._tickets), patience_ms)

    def drop_abandoned(self, timer: Clock, now: int) -> None:
        """Drop the waiters that can never leave by themselves: their event loop is closed, or was stopped until their
        deadline was over. They must not hold up the others."""
        with self._lock:
            waiters = [waiter for queue in self.by_bucket.values() for waiter in queue]
            gone = [waiter for waiter in waiters if waiter.is_gone(timer, now)]
            for waiter in gone:
                self._set_also_lacking(waiter, frozenset())
                self._dequeue(waiter)
        for resource in {waiter.key[1] for waiter in gone}:
            self._wake_heads(resource)

    def move(self, waiter: Waiter, key: BucketKey) -> None:
        """Go to another queue, before those that arrived later."""
        with self._lock:
            self._dequeue(waiter)
            waiter.key = key
            self._enqueue(waiter)
        self._wake_heads(key[1])

    def note_lacking(self, waiter: Waiter, keys: Iterable[BucketKey]) -> None:
        """Note which buckets lack tokens for it: it stands at one of them, and is woken for the others too."""
        also_lacking = frozenset(keys) - {waiter.key}
        if also_lacking == waiter.also_lacking:
            return
        with self._lock:
            self._set_also_lacking(waiter, also_lacking)

    def leave(self, waiter: Waiter) -> None:
        """Leave the queue. What it waited for is free: every head on this resource, and at totals, may try."""
        with self._lock:
            self._set_also_lacking(waiter, frozenset())
            self._dequeue(waiter)
        self._wake_heads(waiter.key[1])

    def _set_also_lacking(self, waiter: Waiter, also_lacking: frozenset[BucketKey]) -> None:
        for key in waiter.also_lacking:
            waiters = self._also_lacking[key]
            del waiters[waiter]
            if not waiters:
                del self._also_lacking[key]
        waiter.also_lacking = also_lacking
        for key in also_lacking:
            self._also_lacking.setdefault(key, {})[waiter] = None

    def _enqueue(self, waiter: Waiter) -> None:
        insort(self.by_bucket.setdefault(waiter.key, []), waiter, key=lambda other: other.arrival)

    def _dequeue(self, waiter: Waiter) -> None:
        queue = self.by_bucket.get(waiter.key, [])
        if waiter in queue:  # else it was taken for gone
            queue.remove(waiter)
            if not queue:
                del self.by_bucket[waiter.key]

    def _wake_heads(self, resource: str) -> None:
        with self._lock:
            keys = [key for key in self.by_bucket if TOTAL_RESOURCE in (resource, key[1]) or key[1] == resource]
        self.wake(keys)

    def head_before(self, waiter: Waiter) -> Waiter | None:
        """The waiter whose turn comes first at its bucket; ``None``: it is its own turn."""
        with self._lock:
            queue = self.by_bucket.get(waiter.key)
            return None if not queue or queue[0] is waiter or waiter not in queue else queue[0]

    def is_head(self, waiter: Waiter) -> bool:
        """Whether it is this one's turn."""
        return self.head_before(waiter) is None

    def waited_for(self, resource: str, by: Waiter | None = None) -> dict[BucketKey, dict[str, int]]:
        """What those that came earlier wait for on a resource, and at totals: bucket → limit → tokens.

        Earlier than ``by``; without it, all of them.
        """
        sums: dict[BucketKey, dict[str, int]] = {}
        with self._lock:
            for key, queue in self.by_bucket.items():
                if key[1] not in (resource, TOTAL_RESOURCE):
                    continue
                totals: dict[str, int] = {}
                for waiter in queue:
                    if by is not None and waiter.arrival >= by.arrival:
                        break
                    for name, amount in waiter.amounts.items():
                        totals[name] = totals.get(name, 0) + amount
                if totals:
                    sums[key] = totals
        return sums

    def wake(self, keys: Iterable[BucketKey]) -> None:
        """Something came back to these buckets: their heads may try, and the heads elsewhere that lack it too."""
        heads: dict[Waiter, None] = {}
        with self._lock:
            for key in keys:
                if queue := self.by_bucket.get(key):
                    heads[queue[0]] = None
                for waiter in self._also_lacking.get(key, ()):
                    if (there := self.by_bucket.get(waiter.key)) and there[0] is waiter:
                        heads[waiter] = None
        for head in heads:
            head.wake_up.wake()

    def wake_all(self) -> None:
        """Limits or hierarchies changed: every head may try."""
        with self._lock:
            keys = list(self.by_bucket)
        self.wake(keys)

    def forget_parent(self) -> None:
        """In a forked child: the waiters are callers of the parent."""
        self._lock = threading.Lock()
        self.by_bucket.clear()
        self._also_lacking.clear()
        self.open_leases.forget_parent()


_QUEUES: WeakValueDictionary[Hashable, WaitQueue] = WeakValueDictionary()
_QUEUES_LOCK = threading.Lock()


def wait_queue_of(place: Hashable) -> WaitQueue:
    """The queue of one namespace of one store: the same for all limiters of this process."""
    with _QUEUES_LOCK:
        wait_queue = _QUEUES.get(place)
        if wait_queue is None:
            wait_queue = _QUEUES[place] = WaitQueue()
        return wait_queue


def _after_fork_in_child() -> None:
    global _QUEUES_LOCK
    _QUEUES_LOCK = threading.Lock()
    for wait_queue in list(_QUEUES.values()):
        wait_queue.forget_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
