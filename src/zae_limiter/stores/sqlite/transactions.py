"""What the plans of this store ask for: transactions, and how one is run."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from zae_limiter.running.plan import NOT_YET, Interrupted, Request
from zae_limiter.stores.protocol import Settlement
from zae_limiter.stores.sqlite.tables import Connection

Result = TypeVar("Result")


class Transaction(Request[Result], Generic[Result]):
    """Run a function on a connection, all or nothing. ``result`` is set as soon as it is done, so that
    a caller that is interrupted before the reply arrives can know."""

    __slots__ = ("now", "result", "settlement", "work")  # now: bucket time, 0 if the transaction does not say

    def __init__(
        self, work: Callable[[Connection], Result], now: int = 0, settlement: Settlement | None = None
    ) -> None:
        self.work = work
        self.now = now
        self.result: Result | None = None
        self.settlement = settlement

    def run(self, connection: Connection) -> Result:
        """Do it."""
        return transact(connection, "BEGIN", self.work)


class Write(Transaction[Result]):
    """A transaction that changes something."""

    __slots__ = ()

    def run(self, connection: Connection) -> Result:
        return transact(connection, "BEGIN IMMEDIATE", self.work, self.settlement)


class Read(Transaction[Result]):
    """A transaction that reads a few rows."""

    __slots__ = ()


class Scan(Transaction[Result]):
    """A transaction that may read many rows."""

    __slots__ = ()


def transact(
    connection: Connection, begin: str, work: Callable[[Connection], Result], settlement: Settlement | None = None
) -> Result:
    """Do it all or not at all. Once it is committed nothing is left of the ``settlement``."""
    result: Any = NOT_YET
    try:
        if connection.in_transaction:  # a second interrupt came where the first was dealt with
            connection.execute("ROLLBACK")
        connection.execute(begin)
        result = work(connection)
        connection.execute("COMMIT")
        if settlement is not None:
            settlement.postings = ()
        done: Result = result
        return done
    except BaseException as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        elif result is not NOT_YET and not isinstance(error, sqlite3.Error):
            # The interrupt came after the commit: it is done, and the caller must know.
            if settlement is not None:
                settlement.postings = ()
            if not isinstance(error, Exception):
                raise Interrupted(error, reply=result) from None
        raise
