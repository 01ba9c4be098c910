"""The fast path of a grant on SQLite: an optimistic draw (``optimistic_write.py``) on a route that is known.

A route that is not known, of an entity that this process has not met of late, is read in one statement with the row
of its bucket.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from zae_limiter.bucket import MILLI, Balance
from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.naming import MAX_AMOUNT
from zae_limiter.running.plan import Interrupted
from zae_limiter.stores.embedded.bounded_dict import BoundedDict
from zae_limiter.stores.embedded.clock_correction import WrittenAhead
from zae_limiter.stores.limit_statuses import names_known
from zae_limiter.stores.open_leases import SharedMark
from zae_limiter.stores.protocol import (
    DeferredGrant,
    Denial,
    Draw,
    FastPath,
    Grant,
    Leg,
    Outcome,
    Posting,
    Receipt,
    Settlement,
)
from zae_limiter.stores.sqlite.optimistic_write import (
    TRIES,
    Change,
    SettleRequest,
    SettlingSpace,
    write_rows,
)
from zae_limiter.stores.sqlite.tables import Connection, SqliteTables
from zae_limiter.stores.sqlite.transactions import Write, transact


class DrawingSpace(SettlingSpace, Protocol):
    """What a draw asks of its namespace."""

    fast_paths: FastPaths

    def write_at_once(self, request: Write[Any], /) -> Any:
        """Do it now, or answer ``NOT_YET``."""

    def draw_in_transaction(self, connection: Connection, draw: Draw, now: int, proven: int | None) -> Outcome:
        """What the whole transaction does."""


class FastPaths(BoundedDict[tuple[str, str], FastPath]):
    """The fast paths of a namespace. For a route that is not known it gives one that finds it."""

    __slots__ = ("_space",)

    def __init__(self, space: DrawingSpace, most: int) -> None:
        super().__init__(most)
        self._space = space

    def __missing__(self, key: tuple[str, str]) -> FastPath:
        known = self._old.get(key)
        if known is None:
            return SqliteFastPath(self._space, *key)
        self[key] = known
        return known


def serves(legs: Sequence[Leg]) -> bool:
    """Whether a fast path serves these legs. If the entity itself has no limits, a client may have some for it."""
    return bool(legs) and bool(legs[0].limits) and all(leg.is_plain for leg in legs)


class SqliteFastPath:
    """A route: its legs, and the epoch of the namespace in which they were resolved. No legs: it is not known yet."""

    __slots__ = ("_entity_id", "_resource", "_space", "epoch", "is_plain", "legs", "ns", "shared_mark")

    def __init__(
        self,
        space: DrawingSpace,
        entity_id: str,
        resource: str,
        legs: tuple[Leg, ...] = (),
        ns: int = 0,
        epoch: int = 0,
    ) -> None:
        self._space = space
        self._entity_id = entity_id
        self._resource = resource
        self.legs = legs
        self.shared_mark = SharedMark()
        self.is_plain = serves(legs)
        self.ns = ns
        self.epoch = epoch

    def draw(self, wanted: object, now: int, receipt: Receipt) -> bool | Denial:
        """Draw, without waiting for the gate. On a route that is not known a grant only: the plan checks the names."""
        legs = self.legs
        if type(wanted) is not dict or (legs and not (self.is_plain and are_amounts_of(wanted, legs))):
            return False
        draw = Draw(self._entity_id, self._resource, wanted.copy())  # the caller may change theirs later
        outcome: Any = None
        try:
            outcome = self._space.write_at_once(DrawRequest(self._space, draw, now, None, self))
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
        return outcome if isinstance(outcome, Denial) and not outcome.observed else False

    def find(self, tables: SqliteTables) -> bool:
        """Find the route of a bucket that is there, and note it. ``False``: it was not found."""
        if type(self._entity_id) is not str or type(self._resource) is not str:
            return False  # the names are as the caller gave them; those of a bucket have been looked at
        legs = tables.read_route_and_row(self._space.namespace, self._entity_id, self._resource)
        if legs is None:
            return False
        self.legs, self.ns, self.epoch = legs, tables.ns, tables.epoch()
        self.is_plain = serves(legs)
        self._space.fast_paths[self._entity_id, self._resource] = self
        return True

    def settle(
        self, grant: Grant | DeferredGrant, totals: Mapping[str, int], now: int, settlement: Settlement
    ) -> bool:
        """Settle, without waiting for the gate."""
        assert isinstance(grant, Grant)
        wanted = grant.wanted
        deltas = {
            name: (total - before) * MILLI
            for name, total in totals.items()
            if total != (before := wanted.get(name, 0))
        }
        postings = [
            Posting(leg, deltas if len(paid) == len(deltas) else {name: deltas[name] for name in paid})
            for leg in grant.legs
            if (paid := leg.names & deltas.keys())
        ]
        if not postings:
            settlement.postings = ()
            return True
        try:
            done: bool = self._space.write_at_once(SettleRequest(self._space, postings, now, None, settlement)) is True
            return done
        except (ZAELimiterError, WrittenAhead):
            return False  # the plan meets it again, and handles it
        except Interrupted as stop:
            raise stop.cause from None

    lends = False  # rows with slots are not written optimistically

    def end(self, grant: DeferredGrant) -> bool:
        raise AssertionError("a grant by SQLite is not deferred")

    def wanted(self, deferred: DeferredGrant) -> Mapping[str, int]:
        raise AssertionError("a grant by SQLite is not deferred")

    def grant(self, deferred: DeferredGrant) -> Grant:
        raise AssertionError("a grant by SQLite is not deferred")


def are_amounts_of(wanted: Mapping[Any, Any], legs: tuple[Leg, ...]) -> bool:
    """Whether these are amounts of limits that the legs know."""
    known = legs[0].known
    for name, amount in wanted.items():
        if type(amount) is not int or not 0 <= amount <= MAX_AMOUNT:
            return False
        if name not in known and name not in names_known(legs):
            return False
    return True


class DrawRequest(Write[Outcome | None]):
    """A draw: optimistic where that can decide it, else by the whole transaction.

    With a ``path`` that is not known yet no more is done than can be on it: the reply may be ``None``.
    """

    __slots__ = ("draw", "path", "proven", "space")

    def __init__(
        self, space: DrawingSpace, draw: Draw, now: int, proven: int | None, path: SqliteFastPath | None = None
    ) -> None:
        self.space = space
        self.draw = draw
        self.now = now
        self.proven = proven
        self.path = path
        self.result = None

    def run(self, connection: Connection) -> Outcome | None:
        path = self.path
        is_known = path is None or path.legs
        grant = self._draw_optimistically(connection)
        if grant is not None or not is_known:
            return grant
        return transact(connection, "BEGIN IMMEDIATE", self._draw_whole)

    def _draw_whole(self, connection: Connection) -> Outcome:
        return self.space.draw_in_transaction(connection, self.draw, self.now, self.proven)

    def _draw_optimistically(self, connection: Connection) -> Grant | None:
        tables = connection.tables.get(self.space.namespace)
        if tables is None or connection.in_transaction:  # a transaction that two interrupts have left open
            return None
        path = self.path
        if path is None or not path.legs:
            path = self._found(tables)
        if path is None or path.ns != tables.ns or not path.is_plain:
            return None
        for _ in range(TRIES):
            drawn = self._drawn(tables, path)
            if drawn is None:
                return None
            grant, changes = drawn
            if write_rows(connection, path.ns, path.epoch, changes, 1, self.now, grant):
                return grant
            tables.forget_rows(path.legs)
        return None

    def _found(self, tables: SqliteTables) -> SqliteFastPath | None:
        """The route of a draw that came without one. ``None``: it is not one that repeats."""
        draw = self.draw
        if draw.limits is not None or draw.legs is not None or draw.reserved or self.proven is not None:
            return None
        if draw.record is not None:
            return None
        path: Any = self.path or self.space.fast_paths[draw.entity_id, draw.resource]
        # It is noted before anything is taken: nothing may come between that and the reply.
        known = (path.legs or path.find(tables)) and path.is_plain
        return path if known and are_amounts_of(draw.wanted, path.legs) else None

    def _drawn(self, tables: SqliteTables, path: SqliteFastPath) -> tuple[Grant, list[Change]] | None:
        """The grant, and what every row has after it. ``None``: that is the whole transaction's."""
        wanted, now = self.draw.wanted, self.now
        balances: tuple[Balance, ...] = ()
        left: list[int] = []
        changes = []
        for leg in path.legs:
            row = tables.row(leg)
            drawn = None if row is None else row.drawn(leg, wanted, now)
            if row is None or drawn is None:
                return None
            balances += row.balances
            left += drawn[0]
            changes.append((leg, row, drawn[1]))
        return Grant(path.legs, wanted, balances, left, now, path), changes
