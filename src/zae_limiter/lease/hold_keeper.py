"""The keeper: renews the slots of calls in flight that last longer than half the time they are held for.

There is one per limiter, however many leases it has. It is a thread, for the sync and the async limiter alike, so that
a body that blocks its event loop loses nothing. It begins with the first hold, ends a while after the last, and with
:meth:`HoldKeeper.close`. It knows holds by weak references: a lease that was dropped without being ended is renewed no
longer, and its slots come back when they are due. In a forked child it keeps nothing: the calls are the parent's.

Under a clock that drives waiting itself (``testing.FakeClock``) there is no keeper: time moves when the test says so.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable
from weakref import WeakSet, ref

from zae_limiter.lease.hold_renewal import renew_holds
from zae_limiter.models.holds import Hold
from zae_limiter.repository.core import Core
from zae_limiter.running.clocks import WaitingClock
from zae_limiter.running.plan import READ_CLOCK, AwaitWakeUp, Plan, WakeUp

logger = logging.getLogger("zae_limiter")

LONGEST_WAIT_MS = 30_000
"""After so long it looks at the clock again, which may have been set."""

IDLE_MS = 60_000
"""So long it stays when there is nothing left to renew."""

PAUSE_AFTER_FAILURE_MS = 1_000

MOST_AT_ONCE = 100
"""So many holds are renewed in one transaction."""

LONGEST_CLOSE_S = 5.0

NEVER_MS = 1 << 62
"""When a keeper looks that has nothing to renew: every hold that comes is to be renewed earlier."""

_KEEPERS: WeakSet[HoldKeeper] = WeakSet()


class HoldKeeper:
    """Knows the open holds of one limiter."""

    __slots__ = ("__weakref__", "_closed", "_core", "_holds", "_lock", "_next_at", "_thread", "_wake_up")

    def __init__(self, core: Core) -> None:
        self._core = core
        self._holds: set[ref[Hold]] = set()
        self._lock = threading.Lock()
        self._wake_up = WakeUp()
        self._thread: threading.Thread | None = None
        self._next_at = NEVER_MS
        self._closed = False
        _KEEPERS.add(self)

    @property
    def is_running(self) -> bool:
        """Whether its thread is there."""
        thread = self._thread
        return thread is not None and thread.is_alive()

    def keep(self, holds: Iterable[Hold]) -> None:
        """Renew these from now on, until they are given back."""
        for hold in holds:
            self._holds.add(ref(hold))
            if hold.due * 1000 - hold.ttl * 500 < self._next_at:  # as renewal_at, without a call
                self._look_earlier()

    def _look_earlier(self) -> None:
        """Begin, or wake up: a hold has come that is to be renewed before the thread would look."""
        if self._closed:
            self._holds.clear()
        elif self._thread is None:
            self._start()
        else:
            self._wake_up.wake()

    def let_go(self, holds: Iterable[Hold]) -> None:
        """Renew these no longer."""
        for hold in holds:
            self._holds.discard(ref(hold))

    def close(self) -> None:
        """End the thread. What is held comes back when it is due, or at the end of its lease."""
        self._closed, self._next_at = True, NEVER_MS
        self._holds.clear()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            self._wake_up.wake()
            thread.join(LONGEST_CLOSE_S)

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="zae-limiter-holds", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        from zae_limiter.running.sync_driver import SyncDriver  # an async limiter without holds needs none

        driver = SyncDriver(self._core.clock, self._core.store.perform)
        try:
            driver.run(self._renewing())
        except Exception:
            logger.exception("calls in flight are not renewed any more; the next one begins that anew")
            with self._lock:
                self._thread, self._next_at = None, NEVER_MS

    def _renewing(self) -> Plan[None]:
        """Renew what is due soon, and wait until the next is; end when nothing has been held for a while."""
        idle = False
        while not self._closed:
            now = yield from READ_CLOCK
            pause = 0
            if soon := self._due_soon(now):
                pause = yield from self._renew(soon)
            self._next_at = self._earliest(now)
            wait = max(self._next_at - now, pause, 1)
            if not self._holds:
                if idle and self._end():
                    return
                wait, self._next_at = IDLE_MS, NEVER_MS
            idle = not self._holds
            yield from AwaitWakeUp(self._wake_up, min(wait, IDLE_MS if idle else LONGEST_WAIT_MS))

    def _renew(self, soon: list[Hold]) -> Plan[int]:
        """Renew these. How many milliseconds to wait before the next try, if it failed."""
        try:
            for first in range(0, len(soon), MOST_AT_ONCE):
                if not self._closed:
                    yield from renew_holds(self._core, soon[first : first + MOST_AT_ONCE])
            return 0
        except Exception as error:
            if not self._closed:
                logger.warning("could not renew %d calls in flight, will try again: %s", len(soon), error)
            return PAUSE_AFTER_FAILURE_MS

    def _live(self) -> list[Hold]:
        """The holds of leases that are open; those that are gone are forgotten."""
        live = []
        for known in list(self._holds):
            hold = known()
            if hold is None or not hold.amount:
                self._holds.discard(known)
            else:
                live.append(hold)
        return live

    def _due_soon(self, now: int) -> list[Hold]:
        return [hold for hold in self._live() if renewal_at(hold) <= now]

    def _earliest(self, now: int) -> int:
        return min((renewal_at(hold) for hold in self._live()), default=now + LONGEST_WAIT_MS)

    def _end(self) -> bool:
        """End, unless a hold has come just now."""
        with self._lock:
            thread, self._thread, self._next_at = self._thread, None, NEVER_MS
            if self._holds:  # looked at last: a caller that still saw the thread had added its hold by then
                self._thread = thread
                return False
            return True

    def _forget_parent(self) -> None:
        self._holds.clear()
        self._lock = threading.Lock()
        self._wake_up = WakeUp()
        self._thread, self._next_at = None, NEVER_MS


def keep_holds_of(core: Core) -> None:
    """Let there be a keeper, unless the caller wants none, or time is a test's."""
    if core.keeper is None and core.keep_holds and not isinstance(core.clock, WaitingClock):
        core.keeper = HoldKeeper(core)


def renewal_at(hold: Hold) -> int:
    """When a hold is to be renewed, in milliseconds: half of its time before it is due."""
    return hold.due * 1000 - hold.ttl * 500


def _after_fork_in_child() -> None:
    for keeper in list(_KEEPERS):
        keeper._forget_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
