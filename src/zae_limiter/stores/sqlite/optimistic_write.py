"""Optimistic writes: rows are written on the condition that they are as this process knows them.

The process that wrote a bucket last knows what is in its row, and need not read it: one statement writes the new
balances if the row is still the same in every column that matters, the namespace too. SQLite makes a transaction of a
statement by itself, so that is all that an acquire costs, or a settlement. What is cached (``row_cache.py``) can be
out of date, and never wrong: if the row is another one, nothing changes, and it is read.

What is out of the ordinary is left to the whole transaction: a new bucket, a new hour, limits that changed, a clock
that was wrong, an expiry that moves, and every denial. So is a connection on which two interrupts have left a
transaction open: what is written into that would be undone with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from zae_limiter.running.plan import Interrupted
from zae_limiter.stores.lease_records import RecordChange
from zae_limiter.stores.protocol import Leg, Posting, Settlement
from zae_limiter.stores.sqlite.row_cache import CachedRow, Numbers
from zae_limiter.stores.sqlite.tables import Connection, SqliteTables
from zae_limiter.stores.sqlite.transactions import Write, transact

TRIES = 2
"""With the rows as they are cached, and then as they are read. If they are others again, limits have changed."""

Change: TypeAlias = tuple[Leg, CachedRow, Numbers]
"""What one row is to have."""


class AnotherRow(Exception):
    """A row is not as it is cached: undo the others."""


def write_row(
    connection: Connection,
    ns: int,
    epoch: int,
    change: Change,
    events: int,
    now: int,
    reply: object,
    settlement: Settlement | None = None,
) -> bool:
    """Write one row, and count so many events more, if it is as it is cached. It takes one statement.

    Once it is written nothing is left of the ``settlement``, and an interrupt says so with the ``reply``.
    """
    leg, row, numbers = change
    before = connection.total_changes
    try:
        done = row.write(connection, ns, epoch, leg, numbers, events, now)
        if done and settlement is not None:
            settlement.postings = ()
        return done
    except Exception:
        raise
    except BaseException as interrupt:
        if connection.total_changes == before:
            raise
        # It came after the statement: that is done, and the caller must know.
        if settlement is not None:
            settlement.postings = ()
        raise Interrupted(interrupt, reply=reply) from None


def write_rows(
    connection: Connection,
    ns: int,
    epoch: int,
    changes: Sequence[Change],
    events: int,
    now: int,
    reply: object,
    settlement: Settlement | None = None,
) -> bool:
    """As :func:`write_row`, all of them or none."""
    if len(changes) == 1:
        return write_row(connection, ns, epoch, changes[0], events, now, reply, settlement)

    def work(connection: Connection) -> object:
        for leg, row, numbers in changes:
            if not row.write(connection, ns, epoch, leg, numbers, events, now):
                raise AnotherRow
        return reply

    try:
        transact(connection, "BEGIN IMMEDIATE", work, settlement)
    except AnotherRow:
        return False
    return True


class SettlingSpace(Protocol):
    """What a settlement asks of its namespace."""

    namespace: str

    def settle_in_transaction(
        self,
        connection: Connection,
        postings: Sequence[Posting],
        now: int,
        proven: int | None,
        change: RecordChange | None,
    ) -> bool:
        """What the whole transaction does. It answers ``True``."""


class SettleRequest(Write[bool]):
    """A settlement: optimistic where nothing is out of the ordinary, else by the whole transaction."""

    __slots__ = ("postings", "proven", "space")

    def __init__(
        self,
        space: SettlingSpace,
        postings: Sequence[Posting],
        now: int,
        proven: int | None = None,
        settlement: Settlement | None = None,
    ) -> None:
        self.space = space
        self.postings = postings
        self.now = now
        self.proven = proven
        self.settlement = settlement
        self.result = None

    def run(self, connection: Connection) -> bool:
        return self._settle_optimistically(connection) or transact(
            connection, "BEGIN IMMEDIATE", self._settle_whole, self.settlement
        )

    def _settle_whole(self, connection: Connection) -> bool:
        return self.space.settle_in_transaction(connection, self.postings, self.now, self.proven, self._change)

    @property
    def _change(self) -> RecordChange | None:
        return None if self.settlement is None else self.settlement.change

    def _settle_optimistically(self, connection: Connection) -> bool:
        tables = connection.tables.get(self.space.namespace)
        if tables is None or self.proven is not None or self._change is not None or connection.in_transaction:
            return False
        if not all(posting.leg.is_plain and posting.usage_milli is None for posting in self.postings):
            return False
        for _ in range(TRIES):
            changes = self._changes(tables)
            if changes is None:
                return False
            if write_rows(connection, tables.ns, tables.epoch(), changes, 0, self.now, True, self.settlement):
                return True
            tables.forget_rows(posting.leg for posting in self.postings)
        return False

    def _changes(self, tables: SqliteTables) -> list[Change] | None:
        """What every row has when it is booked. ``None``: that is the whole transaction's."""
        changes = []
        for leg, deltas, *_ in self.postings:
            row = tables.row(leg)
            numbers = None if row is None else row.settled(leg, deltas, self.now)
            if row is None or numbers is None:
                return None
            changes.append((leg, row, numbers))
        return changes
