"""The fast path of a warm grant on SQLite: an optimistic draw.

The process that wrote a bucket last knows what is in its row, and need not read it: one statement takes the tokens if
the row is still the same in every column that matters, the namespace too. SQLite makes a transaction of a statement by
itself, so that is all an acquire costs. If the row is another one, nothing changes, and the draw is done by the whole
transaction, which reads. So what is cached (``row_cache.py``) can be out of date, and never wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from zae_limiter.bucket import Balance, take
from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.naming import MAX_AMOUNT
from zae_limiter.running.plan import Interrupted, Request
from zae_limiter.stores.embedded.clock_correction import WrittenAhead
from zae_limiter.stores.protocol import DeferredGrant, Denial, Draw, Grant, Leg, Outcome, Receipt, Settlement
from zae_limiter.stores.sqlite.row_cache import CachedRow
from zae_limiter.stores.sqlite.tables import Connection
from zae_limiter.stores.sqlite.transactions import Write, transact
from zae_limiter.stores.windows import HOUR_MS


class DrawingSpace(Protocol):
    """What a fast path asks of its namespace."""

    namespace: str

    def attempt(self, request: Request[Any], /) -> Any:
        """Do it now, or answer ``NOT_YET``."""

    def draw_request(self, draw: Draw, now: int) -> Write[Outcome]:
        """The whole transaction of a draw."""


class SqliteFastPath:
    """A route that was granted before: its legs, and the number and epoch of the namespace they were resolved in."""

    __slots__ = ("_epoch", "_ns", "_space", "legs")

    def __init__(self, space: DrawingSpace, legs: tuple[Leg, ...], ns: int, epoch: int) -> None:
        self._space = space
        self.legs = legs
        self._ns = ns
        self._epoch = epoch

    def draw(self, wanted: object, now: int, receipt: Receipt) -> bool | Denial:
        """Try the optimistic draw, then the whole transaction, without waiting for the gate."""
        own = self.legs[0]
        if type(wanted) is not dict or not are_amounts_of(wanted, own):
            return False
        wanted = wanted.copy()  # the caller may change theirs later
        space = self._space
        outcome: Any = None
        try:
            outcome = space.attempt(OptimisticDraw(space.namespace, self._ns, self._epoch, self.legs, wanted, now))
            if outcome is None:
                outcome = space.attempt(space.draw_request(Draw(own.entity_id, own.resource, wanted), now))
        except (ZAELimiterError, WrittenAhead):
            return False  # the plan meets it again, and handles it
        except Interrupted as stop:
            outcome = stop.reply
            raise stop.cause from None
        finally:
            if outcome.__class__ is Grant:
                receipt._grant = outcome
        if outcome.__class__ is Grant:
            return True
        return outcome if isinstance(outcome, Denial) else False

    def settle(
        self, grant: Grant | DeferredGrant, totals: Mapping[str, int], now: int, settlement: Settlement
    ) -> bool:
        """The plan does it: one transaction."""
        return False

    def wanted(self, deferred: DeferredGrant) -> Mapping[str, int]:
        raise AssertionError("a grant by SQLite is not deferred")

    def grant(self, deferred: DeferredGrant) -> Grant:
        raise AssertionError("a grant by SQLite is not deferred")


def are_amounts_of(wanted: dict[Any, Any], leg: Leg) -> bool:
    """Whether these are amounts of limits that the leg has."""
    for name, amount in wanted.items():
        if type(amount) is not int or not 0 <= amount <= MAX_AMOUNT or name not in leg.names:
            return False
    return True


class AnotherRow(Exception):
    """A row is not as it is cached: undo the others."""


class OptimisticDraw(Write[Grant | None]):
    """Draw if every row is as it is cached and has enough. ``None``: it was not so, and nothing was changed."""

    __slots__ = ("_epoch", "_legs", "_namespace", "_ns", "_wanted")

    def __init__(
        self, namespace: str, ns: int, epoch: int, legs: tuple[Leg, ...], wanted: Mapping[str, int], now: int
    ) -> None:
        self._namespace = namespace
        self._ns = ns
        self._epoch = epoch
        self._legs = legs
        self._wanted = wanted
        self.now = now
        self.result = None

    def run(self, connection: Connection) -> Grant | None:
        tables = connection.tables.get(self._namespace)
        if tables is None:
            return None
        now = self.now
        rows: list[CachedRow] = []
        balances: tuple[Balance, ...] = ()
        floors: list[int] = []
        for leg in self._legs:
            try:
                row = tables.row_cache[leg.entity_id, leg.resource]
            except KeyError:
                return None
            if now - row.hour >= HOUR_MS or row.limits != leg.limits or row.is_far_ahead(now):
                return None  # the whole transaction begins the hour, adopts the limits, or corrects the time
            row.restore()
            rows.append(row)
            balances += row.balances
            floors += row.floors
        left = take(balances, self._wanted, now)
        if left is None:
            return None
        for tk, floor in zip(left, floors, strict=True):
            if tk < floor:
                return None  # the whole transaction moves its expiry
        return self._write(connection, rows, Grant(self._legs, self._wanted, balances, left, now))

    def _write(self, connection: Connection, rows: list[CachedRow], grant: Grant) -> Grant | None:
        if len(rows) == 1:
            before = connection.total_changes
            try:
                # One statement, which is a transaction by itself.
                return grant if rows[0].write(connection, self._ns, self._epoch, grant.legs[0], self.now) else None
            except Exception:
                raise
            except BaseException as interrupt:
                if connection.total_changes == before:
                    raise
                # It came after the statement: the tokens are taken, and the caller must know.
                raise Interrupted(interrupt, reply=grant) from None

        def work(connection: Connection) -> Grant:
            for leg, row in zip(grant.legs, rows, strict=True):
                if not row.write(connection, self._ns, self._epoch, leg, self.now):
                    raise AnotherRow
            return grant

        try:
            return transact(connection, "BEGIN IMMEDIATE", work)
        except AnotherRow:
            return None
