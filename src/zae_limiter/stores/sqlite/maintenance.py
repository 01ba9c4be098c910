"""Maintenance of the file, in the background of the acquires that make it necessary.

Two things: moving the log into the file (a *checkpoint*, which waits for the disk and so must never happen
inside an acquire), and deleting what has expired, in small chunks (``chunked_delete.py``).
Both run in a thread that lives only as long as there is something to do.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from functools import partial

from zae_limiter.running.plan import Interrupted
from zae_limiter.stores.embedded.tables import AUDIT_RETENTION_MS, USAGE_RETENTION_MS
from zae_limiter.stores.sqlite.chunked_delete import delete_chunk, delete_idle_buckets
from zae_limiter.stores.sqlite.connections import Connections
from zae_limiter.stores.sqlite.errors import is_busy
from zae_limiter.stores.sqlite.gate import FIRST_PAUSE_S, Gate
from zae_limiter.stores.sqlite.tables import Connection
from zae_limiter.stores.sqlite.transactions import transact

logger = logging.getLogger("zae_limiter")

COMMITS_BETWEEN_LOOKS = 256
CHECKPOINT_AT_BYTES = 16 * 2**20
SWEEP_EVERY_S = 10.0
ROWS_PER_CHUNK = 100
PAUSE_BETWEEN_CHUNKS_S = 0.005
LONGEST_WAIT_FOR_GATE_S = 5.0


class Maintenance:
    """Decides after a commit whether something is due, and does it in a thread of its own."""

    def __init__(self, connections: Connections, gate: Gate) -> None:
        self._connections = connections
        self._gate = gate
        self._commits = 0
        self._now = 0
        self._swept_at = time.monotonic()
        self._thread: threading.Thread | None = None
        self._closing = False

    def after_commit(self, now: int) -> None:
        """Called by the thread that has just written, at that bucket time (0: it did not say)."""
        self._commits += 1
        self._now = now or self._now
        sweep = self._now > 0 and time.monotonic() - self._swept_at > SWEEP_EVERY_S
        if sweep or (
            self._commits % COMMITS_BETWEEN_LOOKS == 0 and self._connections.wal_size() > CHECKPOINT_AT_BYTES
        ):
            self._start(sweep)

    def run_now(self, now: int) -> None:
        """Do all of it, here."""
        self._run(now, sweep=True)

    def close(self) -> None:
        """Wait for what is being done. A process too short-lived to sweep deletes a chunk of each kind as it goes."""
        self._closing = True
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        elif self._now:
            self._run(self._now, sweep=True)
        self._closing = False
        self._now = 0

    def pause(self) -> None:
        """Let the thread that is at work come to an end soon."""
        self._closing = True

    def resume(self) -> None:
        """Go on as before :meth:`pause`."""
        self._closing = False

    def _start(self, sweep: bool) -> None:
        if self._thread is not None and self._thread.is_alive():
            return
        if sweep:
            self._swept_at = time.monotonic()
        self._thread = threading.Thread(
            target=self._run, args=(self._now, sweep), name="zae-limiter-maintenance", daemon=True
        )
        self._thread.start()

    def _run(self, now: int, sweep: bool) -> None:
        try:
            with self._connections.aside(lambda: now) as connection:
                if sweep:
                    self._sweep(connection, now)
                self._checkpoint(connection)
        except Interrupted as stop:
            raise stop.cause from None
        except (sqlite3.Error, OSError) as error:
            busy = isinstance(error, sqlite3.OperationalError) and is_busy(error)
            level = logging.DEBUG if busy else logging.WARNING
            logger.log(level, "maintenance of %s failed, will try again: %s", self._connections.path, error)

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        """Move the log while others write; then the rest while none does, so that the log starts over."""
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        self._without_writers(lambda: connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone())

    def _sweep(self, connection: Connection, now: int) -> None:
        most = ROWS_PER_CHUNK
        deletions: tuple[Callable[[Connection], int], ...] = (
            lambda connection: delete_idle_buckets(connection, now, most),
            lambda connection: delete_chunk(connection, "leases", "expires_ms < ?", now, most),
            lambda connection: delete_chunk(connection, "usage", "hour < ?", now - USAGE_RETENTION_MS, most),
            lambda connection: delete_chunk(connection, "audit", "at_ms < ?", now - AUDIT_RETENTION_MS, most),
        )
        for deletion in deletions:
            chunk = partial(transact, connection, "BEGIN IMMEDIATE", deletion)
            while self._without_writers(chunk) == most and not self._closing:
                time.sleep(PAUSE_BETWEEN_CHUNKS_S)

    def _without_writers(self, work: Callable[[], object]) -> object:
        """Do it while no acquire writes; ``None`` if there was no such moment."""
        started = time.monotonic()
        while (waited := time.monotonic() - started) < LONGEST_WAIT_FOR_GATE_S:
            with self._gate.threads:
                try:
                    if self._gate.enter(waited):
                        return work()
                finally:
                    self._gate.leave()
            if self._closing:
                break
            time.sleep(FIRST_PAUSE_S)
        self._gate.give_up()
        return None
