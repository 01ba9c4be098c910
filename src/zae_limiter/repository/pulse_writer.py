"""The pulse of a process: counts of what its limiters decide, written every few seconds by a thread.

There is one per opened store, whatever the number of its namespaces, and nothing is written before the first decision.
The thread ends an hour after the last one, and with :meth:`PulseWriter.close`. A pulse that cannot be written is
written the next time: acquires never wait for it. A forked child counts anew, for what its parent counted is told by
its parent. Under a clock that drives waiting itself (``testing.FakeClock``) there is no thread: ``write_pulse()``
writes.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from secrets import token_hex
from weakref import WeakSet

from zae_limiter.models.events import Event, Observer
from zae_limiter.models.pulse import MINUTES_OF_TOTALS
from zae_limiter.pulses.pulse_counts import PulseCounts
from zae_limiter.pulses.pulse_text import to_text
from zae_limiter.running.clocks import Clock, WaitingClock
from zae_limiter.running.plan import READ_CLOCK, AwaitWakeUp, Plan, WakeUp
from zae_limiter.stores.protocol import Space, Store

logger = logging.getLogger("zae_limiter")

WRITE_EVERY_MS = 10_000
LIFETIME_MS = 45_000
"""So long a pulse lives: a process that misses four is taken for gone."""

MOST_PULSES = 500
"""The pulses of so many processes are read."""

LONGEST_CLOSE_S = 5.0

_WRITERS: WeakSet[PulseWriter] = WeakSet()


class PulseWriter:
    """Counts per namespace, and writes."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._process = token_hex(8)
        self._counts: dict[str, tuple[Space, PulseCounts]] = {}
        self._has_thread = not isinstance(clock, WaitingClock)
        self._lock = threading.Lock()
        self._wake_up = WakeUp()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._failing = False
        _WRITERS.add(self)

    def observer(self, namespace: str, space: Space, also: Observer | None) -> Callable[[Event], None]:
        """What counts the events of a namespace; ``also`` is told before."""
        with self._lock:
            counts = self._counts.setdefault(namespace, (space, PulseCounts()))[1]

        def count(event: Event) -> None:
            counts(event)
            if self._thread is None and self._has_thread:
                self._start()

        if also is None:
            return count

        def tell_both(event: Event) -> None:
            counts(event)
            if self._thread is None and self._has_thread:
                self._start()
            also(event)

        return tell_both

    def write(self, namespace: str) -> Plan[None]:
        """Write the pulse of a namespace, if anything was counted there."""
        space, counts = self._counts[namespace]
        now = yield from READ_CLOCK
        if counts.last_event_s:
            text = to_text(counts.counted(now / 1000))
            yield from space.put_pulse(self._process, text, now + LIFETIME_MS, now)

    def close(self) -> None:
        """End the thread."""
        self._closed = True
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            self._wake_up.wake()
            thread.join(LONGEST_CLOSE_S)

    def finish(self) -> Plan[None]:
        """Write what was counted since, once the thread has ended."""
        yield from self._write_all()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="zae-limiter-pulse", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        from zae_limiter.running.sync_driver import SyncDriver  # a process without a pulse needs none

        try:
            SyncDriver(self._clock, self._store.perform).run(self._beating())
        except Exception:
            logger.exception("the pulse of this process is not written any more; the next decision begins it anew")
        finally:
            self._thread = None

    def _beating(self) -> Plan[None]:
        yield from AwaitWakeUp(self._wake_up, WRITE_EVERY_MS // 10)  # the first one soon
        while not self._closed:
            now = yield from READ_CLOCK
            yield from self._write_all()
            last = max((counts.last_event_s for _, counts in list(self._counts.values())), default=0.0)
            if now / 1000 - last > 60 * MINUTES_OF_TOTALS:
                return
            yield from AwaitWakeUp(self._wake_up, WRITE_EVERY_MS)

    def _write_all(self) -> Plan[None]:
        try:
            for namespace in list(self._counts):
                yield from self.write(namespace)
            self._failing = False
        except Exception as error:
            if not self._failing:
                logger.warning("the pulse of this process could not be written, will try again: %s", error)
            self._failing = True

    def _forget_parent(self) -> None:
        self._process = token_hex(8)
        for _, counts in self._counts.values():
            counts.clear()
        self._lock = threading.Lock()
        self._wake_up = WakeUp()
        self._thread = None


def _after_fork_in_child() -> None:
    for writer in list(_WRITERS):
        writer._forget_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
