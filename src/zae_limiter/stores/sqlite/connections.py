"""The connections of one process: one that writes, one that reads, and some aside for what takes longer.

SQLite keeps the locks of a file per process, in memory. A child would inherit that memory without the locks, so
no connection may be open while the process forks: all are closed before, and opened again when they are next
needed, on both sides. A file that was removed or replaced underneath is noticed and opened anew, or a process
would go on writing into a file that no other process sees.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from zae_limiter.stores.sqlite.schema import prepare, version_of
from zae_limiter.stores.sqlite.tables import Connection

logger = logging.getLogger("zae_limiter")

LOOK_AFTER_FILE_S = 0.1
"""How often it is checked that the file is still the one that was opened."""

LOG_KEPT_BYTES = 4 * 2**20
"""To what the log shrinks when it starts over."""

LONGEST_WAIT_BEFORE_FORK_S = 5.0
"""How long a fork waits for reports that are being read."""

SIDE_FILES = ("-wal", "-shm")
Identity: TypeAlias = tuple[int, int] | None

_PARENTS: list[Connection] = []
"""Connections that were open at a fork all the same: kept in the child, so that nothing closes them."""


class Connections:
    """Opens the file when it is first needed."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = path  # where links lead to
        self._open: dict[str, Connection] = {}
        self._files: dict[str, list[Identity]] = {}
        self._look_at: dict[str, float] = {}
        self._aside = 0
        self._forking = self._unusable = False
        self._aside_changed = threading.Condition()

    def get(self, purpose: str, clock: Callable[[], int]) -> Connection:
        """The connection for one purpose. A thread that uses it must be alone with it."""
        connection = self._open.get(purpose)
        if connection is not None and time.monotonic() >= self._look_at.get(purpose, 0.0):
            self._look_after_file(purpose)
            connection = self._open.get(purpose)
        if connection is None:
            connection = self._open[purpose] = self.prepared(clock)
            self._files[purpose] = self._identities()
        return connection

    def prepared(self, clock: Callable[[], int]) -> Connection:
        """A new connection to a file of this layout. The caller closes it."""
        connection = self.connect()
        try:
            prepare(connection, self.path, clock())
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def aside(self, clock: Callable[[], int]) -> Iterator[Connection]:
        """A connection of one's own, for as long as it takes."""
        with self._aside_changed:
            while self._forking:
                self._aside_changed.wait()
            self._aside += 1
        try:
            connection = self.prepared(clock)
            try:
                yield connection
            finally:
                connection.close()
        finally:
            with self._aside_changed:
                self._aside -= 1
                self._aside_changed.notify_all()

    def before_fork(self) -> None:
        """Let no thread open a connection aside until the fork is over, and wait for those that are open."""
        give_up = time.monotonic() + LONGEST_WAIT_BEFORE_FORK_S
        with self._aside_changed:
            self._forking = True
            while self._aside and time.monotonic() < give_up:
                self._aside_changed.wait(0.1)

    def after_fork_in_parent(self) -> None:
        with self._aside_changed:
            self._forking = False
            self._aside_changed.notify_all()

    def connect(self) -> Connection:
        """A new connection, set up as all are."""
        if self._unusable:
            raise OSError("this process was forked while its parent read a long report from the file")
        self._create_file()
        connection = sqlite3.connect(
            self._file,
            timeout=0,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            factory=Connection,
        )
        try:
            version_of(connection, self.path)  # before anything is changed: the file may be another program's
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA wal_autocheckpoint = 0")  # never in the way of an acquire: maintenance.py
            connection.execute(f"PRAGMA journal_size_limit = {LOG_KEPT_BYTES}")
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self, purpose: str) -> None:
        """Close the connection of one purpose. A thread that does must be alone with it."""
        connection = self._open.pop(purpose, None)
        if connection is not None:
            connection.close()

    def forget_parent(self) -> None:
        """In a forked child: these are not ours."""
        _PARENTS.extend(self._open.values())
        self._open = {}
        # SQLite would believe in locks that this process does not hold: rather nothing than a lost count.
        self._unusable = self._aside > 0
        self._aside, self._forking, self._aside_changed = 0, False, threading.Condition()

    def wal_size(self) -> int:
        """Bytes that wait to be moved from the log into the file."""
        try:
            return os.stat(f"{self._file}-wal").st_size
        except FileNotFoundError:
            return 0

    def _create_file(self) -> None:
        """SQLite would create it readable for all users, and where a link leads to, with the other files beside it."""
        folder = Path(self.path).parent
        if not folder.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = os.path.realpath(self.path)
        with suppress(FileExistsError):
            os.close(os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))

    def _look_after_file(self, purpose: str) -> None:
        self._look_at[purpose] = time.monotonic() + LOOK_AFTER_FILE_S
        opened, found = self._files[purpose], self._identities()
        if found[0] == opened[0]:
            return
        logger.warning("%s was removed or replaced while in use; opening it anew", self.path)
        moved = _identity(self._file) == opened[0]  # a link leads elsewhere now: the file and its log are still whole
        for name, was, is_ in zip(SIDE_FILES, opened[1:], found[1:], strict=True):
            # They belong to the file that is gone; SQLite would take them for those of its successor.
            if was is not None and is_ == was and not moved:
                with suppress(OSError):
                    os.unlink(self._file + name)
        self.close(purpose)

    def _identities(self) -> list[Identity]:
        return [_identity(self.path), *(_identity(self._file + name) for name in SIDE_FILES)]


def _identity(path: str) -> Identity:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
