"""Write queues: callers of one process that write to the same bucket wait for each other, and one writes for all.

While a write to a bucket is in flight, the next callers wait in its queue. When it is over the first of them leads: it
writes once for all that wait by then, tells each of them what became of its write, and lets the next one lead. So no
caller waits for longer than the write in flight and its own. Nothing runs beside the callers; a queue exists while a
write to its bucket is in flight.

Queues are shared by threads and event loops. A leader that never comes back (its loop was stopped, its thread died) is
given up when its time is over.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

from zae_limiter.running.plan import WakeUp
from zae_limiter.stores.dynamodb.bucket_write import BucketWrite
from zae_limiter.stores.dynamodb.schema import Key

GRACE_MS = 1_000
"""How long after its deadline a leader is given up."""


class WriteQueue(deque[BucketWrite]):
    """One bucket that is being written to, and those who wait for that, first come first."""

    __slots__ = ("over_at", "seen")

    over_at: int
    """Until when its leader may take."""
    seen: int
    """The latest time at which a caller came."""


class WriteQueues:
    """All write queues of one client."""

    __slots__ = ("_lock", "_pid", "_queues")

    def __init__(self) -> None:
        self._queues: dict[Key, WriteQueue] = {}
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def lead_if_free(self, write: BucketWrite, now: int, give_up_at: int) -> bool:
        """Whether no write to its bucket is in flight: then it leads, until it leaves. Machine time."""
        if self._pid != os.getpid():  # the callers of the process that was forked are not here
            self._queues, self._lock, self._pid = {}, threading.Lock(), os.getpid()
        with self._lock:
            queue = self._queues.get(write.key)
            if queue is not None and now <= queue.over_at + GRACE_MS:
                queue.seen = max(queue.seen, now)
                return False
            mine = WriteQueue()
            mine.over_at, mine.seen = give_up_at, now
            if queue is not None:  # the leader that is given up has no followers any more, should it come back
                mine.extend(queue)
                queue.clear()
            write.queue = self._queues[write.key] = mine
            return True

    def enter(self, write: BucketWrite, now: int, give_up_at: int) -> bool:
        """Likewise; if there is one, wait in its queue for the wake-up."""
        while not self.lead_if_free(write, now, give_up_at):
            with self._lock:
                queue = self._queues.get(write.key)
                if queue is not None:
                    write.wake_up, write.result, write.give_up_at = WakeUp(), None, give_up_at
                    queue.append(write)
                    return False
        return True

    def take_joinable(self, leader: BucketWrite, joins: Callable[[BucketWrite], bool]) -> list[BucketWrite]:
        """Those in line whom the leader can write for; they are in line no more."""
        with self._lock:
            queue = leader.queue
            assert isinstance(queue, WriteQueue)
            joinable: list[BucketWrite] = []
            left: list[BucketWrite] = []
            for write in queue:
                (joinable if joins(write) else left).append(write)
            queue.clear()
            queue.extend(left)
            return joinable

    def leave(self, write: BucketWrite) -> None:
        """Its write is over: the next in line leads."""
        queue, write.queue = write.queue, None
        with self._lock:
            if not isinstance(queue, WriteQueue) or self._queues.get(write.key) is not queue:
                return
            if not queue:
                del self._queues[write.key]
                return
            # A caller that was given up by now is in an event loop that was stopped: it must not lead.
            alive = [one for one in queue if one.give_up_at + GRACE_MS >= queue.seen]
            if alive:
                queue.clear()
                queue.extend(alive)
            following = queue.popleft()
            following.queue, queue.over_at = queue, max(queue.over_at, following.give_up_at)
        if following.wake_up is not None:
            following.wake_up.wake()

    def withdraw(self, write: BucketWrite) -> bool:
        """Wait no longer. False: too late, a leader is writing for it, or it is its turn."""
        with self._lock:
            queue = self._queues.get(write.key)
            if queue is None or write not in queue:
                return False
            queue.remove(write)
            return True
