"""The SQLite store: the embedded verbs, each as one transaction.

A transaction is tried at once, in the calling thread or in the event loop: it takes some tens of
microseconds and waits for no disk. If the gate is taken, a thread sleeps and a task awaits before the next
try, up to the deadline. Only scans, which may read many rows, go to a thread when called from a loop.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from zae_limiter.exceptions import NamespaceNotFoundError
from zae_limiter.models.access import Access
from zae_limiter.models.choices import OnUnavailable
from zae_limiter.models.holds import Hold
from zae_limiter.running.clocks import machine_clock
from zae_limiter.running.plan import NOT_YET, Interrupted, Plan, Request, assign
from zae_limiter.stores.embedded.access_verbs import AccessVerbs
from zae_limiter.stores.embedded.bucket_verbs import BucketVerbs, may_repeat
from zae_limiter.stores.embedded.clock_correction import UNCORRECTED, retried_by_the_clock
from zae_limiter.stores.embedded.config_verbs import ConfigVerbs
from zae_limiter.stores.embedded.lease_verbs import LeaseVerbs
from zae_limiter.stores.embedded.operator_verbs import OperatorVerbs
from zae_limiter.stores.embedded.propagation_verbs import PropagationVerbs
from zae_limiter.stores.embedded.report_verbs import PulseVerbs, ReportVerbs
from zae_limiter.stores.embedded.routes import MAX_ROUTES
from zae_limiter.stores.embedded.tables import Tables
from zae_limiter.stores.lease_records import RecordChange, RecordedSettlement, RecordMoved, void_change
from zae_limiter.stores.protocol import Draw, Grant, Outcome, Posting, Settlement
from zae_limiter.stores.sqlite.connections import Connections
from zae_limiter.stores.sqlite.errors import error_of, is_busy, too_busy
from zae_limiter.stores.sqlite.gate import Gate
from zae_limiter.stores.sqlite.maintenance import Maintenance
from zae_limiter.stores.sqlite.namespace_verbs import NamespaceVerbs
from zae_limiter.stores.sqlite.optimistic_draw import DrawRequest, FastPaths, SqliteFastPath
from zae_limiter.stores.sqlite.optimistic_write import SettleRequest
from zae_limiter.stores.sqlite.tables import Connection, SqliteTables
from zae_limiter.stores.sqlite.transactions import (
    Read,
    Scan,
    Transaction,
    Write,
)

Result = TypeVar("Result")

READER_WAIT_S = 0.1
"""How long a thread blocks for others that read before it looks at its deadline."""


class RenewRequest(Write[Any]):
    """Renews holds. They change once it is committed, before another thread of this process can give them back."""

    __slots__ = ()

    def run(self, connection: Connection) -> Any:
        lost, changes = super().run(connection)
        assign(changes.changed, changes.names, changes.values)
        return lost


class SqliteSpace(
    BucketVerbs, LeaseVerbs, OperatorVerbs, ConfigVerbs, PropagationVerbs, AccessVerbs, ReportVerbs, PulseVerbs
):
    """One namespace of the file."""

    slot_pauses_ms = (50, 250)

    def __init__(self, store: SqliteStore, namespace: str) -> None:
        self.write_at_once = store.write_at_once
        self.namespace = namespace
        self.fast_paths = FastPaths(self, MAX_ROUTES)
        self._used_last: SqliteTables | None = None

    def draw(self, draw: Draw, now: int) -> Plan[Outcome]:
        return retried_by_the_clock(partial(self._draw_once, draw), now)

    def _draw_once(self, draw: Draw, now: int, proven: int | None) -> Plan[Outcome]:
        request = DrawRequest(self, draw, now, proven)
        try:
            outcome = yield from request
            assert outcome is not None
            # What a plan granted a plan settles: between the two there may be more than this store.
            return outcome._replace(path=None) if isinstance(outcome, Grant) else outcome
        except BaseException:
            done = request.result
            if isinstance(done, Grant) and not done.is_repeated:  # an interrupt on the way back
                undoing = RecordedSettlement(done.give_back(), void_change(done.record))
                with suppress(RecordMoved):  # a repetition of the request was answered by it: the lease goes on there
                    yield from SettleRequest(self, done.give_back(), now, UNCORRECTED, undoing)
            raise

    def draw_in_transaction(self, connection: Connection, draw: Draw, now: int, proven: int | None) -> Outcome:
        tables = self._begin(connection)
        outcome, _ = self._draw(tables, draw, now, proven=proven)
        if isinstance(outcome, Grant) and may_repeat(tables, draw, now):
            entity_id, resource = draw.entity_id, draw.resource
            path = SqliteFastPath(self, entity_id, resource, outcome.legs, tables.ns, tables.epoch())
            before = self.fast_paths.get((entity_id, resource))
            if before is not None:
                path.shared_mark = before.shared_mark  # some of its leases may be open
            self.fast_paths[entity_id, resource] = path
            return outcome._replace(path=path if path.is_plain else None)
        return outcome

    def settle(self, postings: Sequence[Posting], now: int, settlement: Settlement | None = None) -> Plan[None]:
        def work(now: int, proven: int | None) -> Plan[bool]:
            return iter(SettleRequest(self, postings, now, proven, settlement))

        yield from retried_by_the_clock(work, now)

    def settle_in_transaction(
        self,
        connection: Connection,
        postings: Sequence[Posting],
        now: int,
        proven: int | None,
        change: RecordChange | None,
    ) -> bool:
        self._settle(self._begin(connection), postings, now, proven=proven, change=change)
        return True

    def renew(self, holds: Sequence[Hold], now: int) -> Plan[Sequence[Hold]]:
        def work(now: int, proven: int | None) -> Plan[Sequence[Hold]]:
            return iter(RenewRequest(lambda connection: self._renew(self._begin(connection), holds, now, proven), now))

        return retried_by_the_clock(work, now)

    def remembered_on_unavailable(self) -> OnUnavailable | None:
        return None if self._used_last is None else self._used_last.routes.on_unavailable

    def remembered_access(self, entity_id: str, resource: str, now: int) -> Access | None:
        used = self._used_last
        return None if used is None else used.routes.remembered_access(entity_id, resource, now)

    def _write(self, work: Callable[[Tables], Result]) -> Plan[Result]:
        return iter(Write(lambda connection: work(self._begin(connection))))

    def _read(self, work: Callable[[Tables], Result]) -> Plan[Result]:
        return iter(Read(lambda connection: work(self._begin(connection))))

    def _scan(self, work: Callable[[Tables], Result]) -> Plan[Result]:
        return iter(Scan(lambda connection: work(self._begin(connection))))

    def _begin(self, connection: Connection) -> SqliteTables:
        """This namespace's tables, as the transaction that has just begun sees them."""
        row = connection.execute(
            "SELECT id, epoch, deleted_ms FROM namespaces WHERE name = ?", (self.namespace,)
        ).fetchone()
        if row is None or row[2] is not None:
            raise NamespaceNotFoundError(self.namespace, deleted=row is not None)
        tables = connection.tables.get(self.namespace)
        if tables is None:
            tables = connection.tables[self.namespace] = SqliteTables(connection)
        tables.begin(row[0], row[1])
        self._used_last = tables
        return tables


class SqliteStore(NamespaceVerbs):
    """Every namespace in one file."""

    def __init__(self, path: str, *, deadline: float = 2.0) -> None:
        self._path = os.path.abspath(path)
        self.identity = ("sqlite", os.path.realpath(path))
        self._deadline = deadline
        self._connections = Connections(self._path)
        self._gate = Gate(self._path)
        self._reader_lock = threading.Lock()
        self._maintenance = Maintenance(self._connections, self._gate)
        self._spaces: dict[str, SqliteSpace] = {}
        self._closed = False
        _STORES.add(self)

    def __repr__(self) -> str:
        return f"SqliteStore({self._path!r})"

    def space(self, namespace: str, *, corrected: bool = False) -> SqliteSpace:
        return self._spaces.setdefault(namespace, SqliteSpace(self, namespace))

    # Performing

    def attempt(self, request: Request[Any], /) -> Any:
        if isinstance(request, Write):
            return self.write_at_once(request)
        return NOT_YET if isinstance(request, Scan) else self._try_read(request)

    def perform(self, request: Request[Any], /) -> Any:
        started = time.monotonic()
        waited = 0.0
        try:
            for pause in self._gate.pauses():
                reply = self._try(request, waited, block=True)
                if reply is not NOT_YET:
                    return reply
                if waited > self._deadline:
                    raise too_busy(self._path, self._deadline)
                time.sleep(pause)
                waited = time.monotonic() - started
        except BaseException:
            self._gate.give_up()
            raise

    async def perform_async(self, request: Request[Any], /) -> Any:
        if isinstance(request, Scan):
            return await asyncio.to_thread(self.perform, request)
        started = time.monotonic()
        waited = 0.0
        try:
            for pause in self._gate.pauses():
                reply = self._try(request, waited)
                if reply is not NOT_YET:
                    return reply
                if waited > self._deadline:
                    raise too_busy(self._path, self._deadline)
                await asyncio.sleep(pause)
                waited = time.monotonic() - started
        except BaseException:
            self._gate.give_up()
            raise

    def _try(self, request: Request[Any], waited: float, *, block: bool = False) -> Any:
        if isinstance(request, Write):
            return self.write_at_once(request, waited, block)
        return self._scan(request) if isinstance(request, Scan) else self._try_read(request, block)

    def write_at_once(self, request: Write[Any], waited: float = 0.0, block: bool = False) -> Any:
        """Do it now, or answer ``NOT_YET``. With ``block``, wait for the other threads of this process."""
        gate = self._gate
        if not block and gate.threads.locked():
            return NOT_YET
        result: Any = NOT_YET
        try:
            with gate.threads:
                try:
                    if not gate.enter(waited):
                        return NOT_YET
                    connection = self._connections.get("write", machine_clock)
                    result = request.result = request.run(connection)
                finally:
                    gate.leave()
                    if self._closed:
                        self._let_go()
            if not self._closed:
                self._maintenance.after_commit(request.now)
            return result
        except Exception as error:
            return self._not_done(error)
        except Interrupted as stop:
            request.result = stop.reply
            gate.give_up()
            raise
        except BaseException as interrupt:
            gate.give_up()
            if result is NOT_YET:
                raise
            # It came after the commit: it is done, and the caller must know.
            raise Interrupted(interrupt, reply=result) from None

    def _try_read(self, request: Request[Any], block: bool = False) -> Any:
        assert isinstance(request, Transaction)
        if not self._reader_lock.acquire(timeout=READER_WAIT_S if block else 0):
            return NOT_YET
        try:
            return request.run(self._connections.get("read", machine_clock))
        except Exception as error:
            return self._not_done(error)
        finally:
            if self._closed:
                self._connections.close("read")
            self._reader_lock.release()

    def _scan(self, request: Transaction[Any]) -> Any:
        """On a connection of its own: it may take long, and no other caller shall wait for it."""
        try:
            with self._connections.aside(machine_clock) as connection:
                return request.run(connection)
        except Exception as error:
            return self._not_done(error)

    def _not_done(self, error: Exception) -> Any:
        """The answer to a request that could not be done right now, or else the error in the caller's words."""
        if isinstance(error, sqlite3.OperationalError) and is_busy(error):
            return NOT_YET
        if isinstance(error, (sqlite3.Error, OSError)):
            raise error_of(self._path, error) from error
        raise error

    # The file itself

    def create(self, now: int) -> Plan[None]:
        yield from Write(lambda connection: None)

    def ping(self) -> Plan[None]:
        yield from Write(lambda connection: None)

    def close(self) -> None:
        """Let go of the file. A lease that ends later opens it once more, and lets go of it at once."""
        self._closed = True
        self._maintenance.close()
        with self._reader_lock:
            self._connections.close("read")
        with self._gate.threads:
            self._let_go()

    def _let_go(self) -> None:
        self._connections.close("write")
        self._gate.close()

    async def aclose(self) -> None:
        await asyncio.to_thread(self.close)

    def _before_fork(self) -> None:
        """No transaction may be under way, and no connection open: see ``connections.py``."""
        self._maintenance.pause()
        self._connections.before_fork()
        self._gate.threads.acquire()
        self._reader_lock.acquire()
        self._connections.close("read")
        self._connections.close("write")

    def _after_fork_in_parent(self) -> None:
        self._connections.after_fork_in_parent()
        self._maintenance.resume()
        self._reader_lock.release()
        self._gate.threads.release()

    def _after_fork_in_child(self) -> None:
        self._connections.forget_parent()
        self._gate.close()
        self._gate = Gate(self._path)
        self._reader_lock = threading.Lock()
        self._maintenance = Maintenance(self._connections, self._gate)


_STORES: weakref.WeakSet[SqliteStore] = weakref.WeakSet()
_HELD_FOR_FORK: list[SqliteStore] = []


def _before_fork() -> None:
    for store in sorted(_STORES, key=id):
        store._before_fork()
        _HELD_FOR_FORK.append(store)


def _after_fork_in_parent() -> None:
    while _HELD_FOR_FORK:
        _HELD_FOR_FORK.pop()._after_fork_in_parent()


def _after_fork_in_child() -> None:
    while _HELD_FOR_FORK:
        _HELD_FOR_FORK.pop()._after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
