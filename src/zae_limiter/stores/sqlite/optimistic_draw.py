"""The fast path of a grant on SQLite: an optimistic draw.

The process that wrote a bucket last knows what is in its row, and need not read it: one statement takes the tokens if
the row is still the same in every column that matters, the namespace too. SQLite makes a transaction of a statement by
itself, so that is all an acquire costs. What is cached (``row_cache.py``) can be out of date, and never wrong: if the
row is another one, nothing changes, and it is read. So is the row of an entity that this process has not met of late,
in one statement with all that its route depends on.

What an optimistic draw cannot decide is left to the whole transaction: a new bucket, a new hour, limits that changed,
an expiry that moves, and every denial.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from zae_limiter.bucket import Balance, would_take
from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.naming import MAX_AMOUNT
from zae_limiter.running.plan import Interrupted, Request
from zae_limiter.stores.embedded.bounded_dict import BoundedDict
from zae_limiter.stores.embedded.clock_correction import WrittenAhead
from zae_limiter.stores.protocol import Denial, Draw, FastPath, Grant, Leg, Outcome, Receipt
from zae_limiter.stores.sqlite.row_cache import CachedRow
from zae_limiter.stores.sqlite.tables import Connection, SqliteTables
from zae_limiter.stores.sqlite.transactions import Write, transact
from zae_limiter.stores.windows import HOUR_MS


class DrawingSpace(Protocol):
    """What a draw asks of its namespace."""

    namespace: str
    fast_paths: FastPaths

    def attempt(self, request: Request[Any], /) -> Any:
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
            return UnknownRoute(self._space, *key)
        self[key] = known
        return known


class SqliteFastPath:
    """A route: its legs, and the number and epoch of the namespace they were resolved in."""

    __slots__ = ("_space", "epoch", "legs", "ns")

    def __init__(self, space: DrawingSpace, legs: tuple[Leg, ...], ns: int, epoch: int) -> None:
        self._space = space
        self.legs = legs
        self.ns = ns
        self.epoch = epoch

    def draw(self, wanted: object, now: int, receipt: Receipt) -> bool | Denial:
        """Draw, without waiting for the gate."""
        own = self.legs[0]
        if type(wanted) is not dict or not are_amounts_of(wanted, own):
            return False
        draw = Draw(own.entity_id, own.resource, wanted.copy())  # the caller may change theirs later
        return draw_at_once(DrawRequest(self._space, draw, now, route=self), receipt)

    def grant(self, wanted: Mapping[str, int] | None, now: int, numbers: Sequence[int]) -> Grant:
        raise AssertionError("a grant by SQLite is not deferred")


class UnknownRoute:
    """A route that this process does not know, or no longer. A draw on a bucket that is there finds it."""

    __slots__ = ("_entity_id", "_resource", "_space")

    def __init__(self, space: DrawingSpace, entity_id: str, resource: str) -> None:
        self._space = space
        self._entity_id = entity_id
        self._resource = resource

    def draw(self, wanted: object, now: int, receipt: Receipt) -> bool | Denial:
        """Draw on a bucket that is there. All else is the plan's, which looks at the names first."""
        if type(wanted) is not dict or type(self._entity_id) is not str or type(self._resource) is not str:
            return False
        draw = Draw(self._entity_id, self._resource, wanted.copy())
        return draw_at_once(DrawRequest(self._space, draw, now, whole=False), receipt)

    def grant(self, wanted: Mapping[str, int] | None, now: int, numbers: Sequence[int]) -> Grant:
        raise AssertionError("a grant by SQLite is not deferred")


def draw_at_once(request: DrawRequest, receipt: Receipt) -> bool | Denial:
    """As :meth:`FastPath.draw`."""
    outcome: Any = None
    try:
        outcome = request.space.attempt(request)
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


def are_amounts_of(wanted: Mapping[Any, Any], leg: Leg) -> bool:
    """Whether these are amounts of limits that the leg has."""
    for name, amount in wanted.items():
        if type(amount) is not int or not 0 <= amount <= MAX_AMOUNT or name not in leg.names:
            return False
    return True


class AnotherRow(Exception):
    """A row is not as it is cached: undo the others."""


class DrawRequest(Write[Outcome | None]):
    """A draw: optimistic where that can decide it, else by the whole transaction (or ``None``, without ``whole``)."""

    __slots__ = ("draw", "proven", "route", "space", "whole")

    def __init__(
        self,
        space: DrawingSpace,
        draw: Draw,
        now: int,
        *,
        route: SqliteFastPath | None = None,
        proven: int | None = None,
        whole: bool = True,
    ) -> None:
        self.space = space
        self.draw = draw
        self.now = now
        self.route = route
        self.proven = proven
        self.whole = whole
        self.result = None

    def run(self, connection: Connection) -> Outcome | None:
        grant = self._draw_optimistically(connection)
        if grant is not None or not self.whole:
            return grant
        return transact(connection, "BEGIN IMMEDIATE", self._draw_whole)

    def _draw_whole(self, connection: Connection) -> Outcome:
        return self.space.draw_in_transaction(connection, self.draw, self.now, self.proven)

    def _draw_optimistically(self, connection: Connection) -> Grant | None:
        """Draw on the rows as they are cached; if one is another one by now, on the rows as they are read."""
        tables = connection.tables.get(self.space.namespace)
        if tables is None or connection.in_transaction:  # one that two interrupts have left open: it is to be undone
            return None
        route = self.route or self._found_route(tables)
        if route is None or route.ns != tables.ns:
            return None
        for _ in range(2):
            rows = tables.rows_of(route.legs)
            drawn = None if rows is None else self._drawn(route.legs, rows)
            if rows is None or drawn is None:
                return None
            balances, left, amounts = drawn
            grant = Grant(route.legs, self.draw.wanted, balances, left, self.now)
            if self._write(connection, route, rows, grant, amounts):
                return grant
            tables.forget_rows(route.legs)
        return None

    def _found_route(self, tables: SqliteTables) -> SqliteFastPath | None:
        """The route of a draw that did not come with one. ``None``: it is not one that repeats."""
        draw = self.draw
        if draw.limits is not None or draw.legs is not None or draw.reserved or self.proven is not None:
            return None
        space = self.space
        known = space.fast_paths[draw.entity_id, draw.resource]
        if not isinstance(known, SqliteFastPath):
            legs = tables.read_route_and_row(space.namespace, draw.entity_id, draw.resource)
            if legs is None:
                return None
            # It is noted before anything is taken: nothing may come between that and the reply.
            known = SqliteFastPath(space, legs, tables.ns, tables.epoch())
            space.fast_paths[draw.entity_id, draw.resource] = known
        return known if are_amounts_of(draw.wanted, known.legs[0]) else None

    def _drawn(
        self, legs: tuple[Leg, ...], rows: list[CachedRow]
    ) -> tuple[tuple[Balance, ...], list[int], list[int]] | None:
        """The balances of these rows, what is left in each, what is taken from it. ``None``: not to be done here."""
        now = self.now
        balances: tuple[Balance, ...] = ()
        floors: tuple[int, ...] = ()
        for leg, row in zip(legs, rows):  # noqa: B905 (they have one length)
            if now - row.hour >= HOUR_MS or row.limits != leg.limits or row.is_far_ahead(now):
                return None  # the whole transaction begins the hour, adopts the limits, or corrects the time
            row.restore()
            balances += row.balances
            floors += row.floors
        taken = would_take(balances, self.draw.wanted, now)
        if taken is None:
            return None
        left, amounts = taken
        for tk, floor in zip(left, floors):  # noqa: B905 (they have one length)
            if tk < floor:
                return None  # the whole transaction moves its expiry
        return balances, left, amounts

    def _write(
        self, connection: Connection, route: SqliteFastPath, rows: list[CachedRow], grant: Grant, amounts: list[int]
    ) -> bool:
        ns, epoch, now = route.ns, route.epoch, self.now
        if len(rows) == 1:
            before = connection.total_changes
            try:
                # One statement, which is a transaction by itself.
                return rows[0].write(connection, ns, epoch, route.legs[0], grant.left, amounts, now)
            except Exception:
                raise
            except BaseException as interrupt:
                if connection.total_changes == before:
                    raise
                # It came after the statement: the tokens are taken, and the caller must know.
                raise Interrupted(interrupt, reply=grant) from None

        def work(connection: Connection) -> Grant:
            done = 0
            for leg, row in zip(route.legs, rows, strict=True):
                end = done + len(row.balances)
                if not row.write(connection, ns, epoch, leg, grant.left[done:end], amounts[done:end], now):
                    raise AnotherRow
                done = end
            return grant

        try:
            return transact(connection, "BEGIN IMMEDIATE", work) is grant
        except AnotherRow:
            return False
