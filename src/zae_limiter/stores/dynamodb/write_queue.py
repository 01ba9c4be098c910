"""Desks: where those of one process who want to write to the same bucket meet, so that one writes for all.

While a write to a bucket is in flight, whoever comes next waits in line. When it is over the first in line leads: it
writes once for everybody who waits by then, tells each of them what became of theirs, and lets the next one lead. So
nobody waits for longer than the write in flight and their own. Nothing runs beside the callers; a desk exists while
somebody is at it.

Desks are shared by threads and event loops. A leader who never comes back (its loop was stopped, its thread died) is
given up when its time is over.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

from zae_limiter.running.plan import Bell
from zae_limiter.stores.dynamodb.bucket_writer import Booking
from zae_limiter.stores.dynamodb.schema import Key

GRACE_MS = 1_000
"""How long after its deadline a leader is given up."""


class Desk:
    """One bucket that is being written to, and those who wait for that."""

    __slots__ = ("line", "over_at", "seen")

    def __init__(self, over_at: int, seen: int) -> None:
        self.line: deque[Booking] = deque()
        self.over_at = over_at
        self.seen = seen  # the latest time at which a caller came


class Desks:
    """All desks of one client."""

    __slots__ = ("_desks", "_lock", "_pid")

    def __init__(self) -> None:
        self._desks: dict[Key, Desk] = {}
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def enter_if_free(self, booking: Booking, now: int, give_up_at: int) -> bool:
        """Whether nobody is writing to its bucket: then it may, until it leaves. Machine time."""
        if self._pid != os.getpid():  # whoever was at a desk when this process was forked is not here
            self._desks, self._lock, self._pid = {}, threading.Lock(), os.getpid()
        with self._lock:
            desk = self._desks.get(booking.key)
            if desk is not None and now <= desk.over_at + GRACE_MS:
                desk.seen = max(desk.seen, now)
                return False
            mine = self._desks[booking.key] = Desk(give_up_at, now)
            if desk is not None:  # whoever leads there has no company any more, should it come back
                mine.line, desk.line = desk.line, deque()
            booking.desk = mine
            return True

    def enter(self, booking: Booking, now: int, give_up_at: int) -> bool:
        """Likewise; if somebody is, wait in line: the bell will ring."""
        while not self.enter_if_free(booking, now, give_up_at):
            with self._lock:
                desk = self._desks.get(booking.key)
                if desk is not None:
                    booking.bell, booking.verdict, booking.give_up_at = Bell(), None, give_up_at
                    desk.line.append(booking)
                    return False
        return True

    def company(self, leader: Booking, joins: Callable[[Booking], bool]) -> list[Booking]:
        """Those in line whom the leader can write for; they are in line no more."""
        with self._lock:
            desk = leader.desk
            assert isinstance(desk, Desk)
            company: list[Booking] = []
            left: deque[Booking] = deque()
            for booking in desk.line:
                (company if joins(booking) else left).append(booking)
            desk.line = left
            return company

    def leave(self, booking: Booking) -> None:
        """Its write is over: the next in line leads."""
        desk, booking.desk = booking.desk, None
        with self._lock:
            if not isinstance(desk, Desk) or self._desks.get(booking.key) is not desk:
                return
            if not desk.line:
                del self._desks[booking.key]
                return
            # Whoever has been given up by now is in an event loop that was stopped: it must not lead.
            alive = deque(one for one in desk.line if one.give_up_at + GRACE_MS >= desk.seen)
            desk.line = alive or desk.line
            following = desk.line.popleft()
            following.desk, desk.over_at = desk, max(desk.over_at, following.give_up_at)
        if following.bell is not None:
            following.bell.ring()

    def withdraw(self, booking: Booking) -> bool:
        """Wait no longer. False: too late, somebody is writing for it, or it is its turn."""
        with self._lock:
            desk = self._desks.get(booking.key)
            if desk is None or booking not in desk.line:
                return False
            desk.line.remove(booking)
            return True
