"""What the plans of this store ask for: transactions, and how one is run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from zae_limiter.running.plan import NOT_YET, Interrupted, Request
from zae_limiter.stores.sqlite.tables import Connection

Result = TypeVar("Result")


class Transaction(Request[Result], Generic[Result]):
    """Run a function on a connection, all or nothing. ``result`` is set as soon as it is done, so that
    whoever is interrupted before the reply arrives can know."""

    __slots__ = ("now", "result", "work")  # now: bucket time, 0 if the transaction does not say

    def __init__(self, work: Callable[[Connection], Result], now: int = 0) -> None:
        self.work = work
        self.now = now
        self.result: Result | None = None

    def run(self, connection: Connection) -> Result:
        """Do it."""
        return transact(connection, "BEGIN", self.work)


class Write(Transaction[Result]):
    """A transaction that changes something."""

    __slots__ = ()

    def run(self, connection: Connection) -> Result:
        return transact(connection, "BEGIN IMMEDIATE", self.work)


class Read(Transaction[Result]):
    """A transaction that reads a few rows."""

    __slots__ = ()


class Scan(Transaction[Result]):
    """A transaction that may read many rows."""

    __slots__ = ()


def transact(connection: Connection, begin: str, work: Callable[[Connection], Result]) -> Result:
    result: Any = NOT_YET
    try:
        connection.execute(begin)
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        elif result is not NOT_YET and not isinstance(error, Exception):
            # The interrupt came after the commit: it is done, and whoever asked must know.
            raise Interrupted(error, reply=result) from None
        raise
    else:
        done: Result = result
        return done
