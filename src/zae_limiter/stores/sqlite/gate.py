"""A fair door in front of SQLite's write lock.

SQLite lets one writer in at a time and has the others poll with growing pauses, so under load one process can
wait for a second while the others come and go. This gate keeps the waits short. It is about fairness and
speed only: what keeps the data right is SQLite's own lock, so a lost gate file or a platform without
``flock`` costs time, never a token.

There are two locks on two files. The process that holds the *room* writes. A process that finds it taken first
takes the *turnstile*, and keeps that until it has the room: so at most one process stands before the
room, and it is next. A process that leaves the room may slip in again past the turnstile, because that
saves a change of process, but only ``TURNS_IN_A_ROW`` times; then it has to queue as well.

Nothing here waits for another process: :meth:`Gate.enter` tries, and says whether it worked. A caller that has to
wait pauses (:meth:`Gate.pauses`; a thread sleeps, a task awaits) and tries again: soon if its process is next, for
until then no process writes, and else at leisure. The kernel drops the locks of a process that dies, however it dies.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

try:
    import fcntl
except ImportError:  # Windows: SQLite's own lock, without the fairness
    fcntl = None  # type: ignore[assignment]

TURNS_IN_A_ROW = 100
"""How often one process may write before it must let another through: about three milliseconds' worth."""

FIRST_PAUSE_S = 0.000_05
LONGEST_PAUSE_S = 0.001
PAUSE_OF_THE_NEXT_S = 0.000_1

LONGEST_WAIT_S = 0.1
"""A caller that has waited this long goes past the gate: it may be held by a process that was stopped."""


class Gate:
    """The gate of one file, for all threads of one process.

    ``threads`` keeps the threads of this process apart; hold it (``with gate.threads``) around everything
    else. An interrupt can land anywhere, so every lock on a file can be let go of without knowing whether it
    is held, and :meth:`give_up` lets go of all.
    """

    __slots__ = ("_at_turnstile", "_files", "_given_up", "_path", "_turns", "threads")

    def __init__(self, path: str) -> None:
        self._path = path
        self.threads = threading.Lock()
        self._files: tuple[int, int] | None = None
        self._turns = 0
        self._at_turnstile = False
        self._given_up = False

    def enter(self, waited: float = 0.0) -> bool:
        """Try to get the room, having waited so many seconds. A caller that tried must :meth:`leave`.

        One that has waited stands at the turnstile between tries, and so must go on trying, or :meth:`give_up`.
        """
        if self._files is None and not self._open_files():
            return True  # nowhere to put a gate: if that is an error, SQLite will say so better
        assert self._files is not None
        room, turnstile = self._files
        if self._at_turnstile:
            if self._enter_as_next(room):
                return True
        elif self._turns < TURNS_IN_A_ROW:
            if _try_lock(room):
                self._turns += 1
                return True
        elif not waited and _try_lock(turnstile):
            # This process had its turns, and no other wants one.
            self._at_turnstile = True
            if self._enter_as_next(room):
                return True
            self._leave_turnstile()
        if waited and not self._at_turnstile:
            self._at_turnstile = _try_lock(turnstile)
        if waited > LONGEST_WAIT_S:
            self._leave_turnstile()
            return True
        return False

    def leave(self) -> None:
        """Let the next one in."""
        if self._given_up:
            self._given_up = False
            self._at_turnstile = True
            self._leave_turnstile()
        if self._files is not None:
            fcntl.flock(self._files[0], fcntl.LOCK_UN)

    def give_up(self) -> None:
        """Stop trying: leave room and turnstile to others."""
        self._given_up = True
        if self.threads.acquire(blocking=False):  # else the thread that is in does it when it leaves
            try:
                self.leave()
            finally:
                self.threads.release()

    def pauses(self) -> Iterator[float]:
        """How long to wait between tries: little by little longer, until this process is next."""
        pause = FIRST_PAUSE_S
        while True:
            yield PAUSE_OF_THE_NEXT_S if self._at_turnstile else pause
            pause = min(pause * 1.5, LONGEST_PAUSE_S)

    def close(self) -> None:
        """Let go of the files, and so of every lock on them that this process alone holds."""
        files, self._files, self._at_turnstile = self._files, None, False
        for file in files or ():
            os.close(file)

    def _enter_as_next(self, room: int) -> bool:
        if not _try_lock(room):
            return False
        self._turns = 0
        self._leave_turnstile()
        return True

    def _leave_turnstile(self) -> None:
        if self._at_turnstile and self._files is not None:
            fcntl.flock(self._files[1], fcntl.LOCK_UN)
        self._at_turnstile = False

    def _open_files(self) -> bool:
        if fcntl is None:
            return False
        files: list[int] = []
        beside = os.path.realpath(self._path)  # every path to the file leads to the same gate
        try:
            for name in ("gate", "turn"):
                files.append(os.open(f"{beside}-{name}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError:
            for file in files:
                os.close(file)
            return False
        self._files = files[0], files[1]
        return True


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
