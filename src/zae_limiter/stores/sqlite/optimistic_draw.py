"""Draws on buckets as this process left them.

Whoever wrote a bucket last knows what is in its row, and need not read it: one statement takes the tokens if the row
is still the same in every column that matters, the namespace too. SQLite makes a transaction of a statement by itself,
so that is all an acquire costs. If the row is another one, nothing changes, and the draw is done the long way, which
reads. So what is known here can be out of date, and never wrong.
"""

from __future__ import annotations

from collections.abc import Mapping

from zae_limiter.bucket import Balance, take
from zae_limiter.running.plan import Interrupted
from zae_limiter.stores.protocol import Grant, Leg
from zae_limiter.stores.sqlite.row_cache import KnownBucket
from zae_limiter.stores.sqlite.tables import Connection
from zae_limiter.stores.sqlite.transactions import Write, transact
from zae_limiter.stores.windows import HOUR_MS


class AnotherRow(Exception):
    """A row is not as it is known: undo the others."""


class KnownDraw(Write[Grant | None]):
    """Draw if every row is as it is known and has enough. ``None`` says no more than that this was not so."""

    __slots__ = ("_legs", "_namespace", "_wanted", "_where")

    def __init__(
        self, namespace: str, where: tuple[int, int], legs: tuple[Leg, ...], wanted: Mapping[str, int], now: int
    ) -> None:
        """``where`` is the number of the namespace, and its epoch."""
        self._namespace = namespace
        self._where = where
        self._legs = legs
        self._wanted = wanted
        self.now = now
        self.result = None

    def run(self, connection: Connection) -> Grant | None:
        tables = connection.tables.get(self._namespace)
        if tables is None:
            return None
        legs, now = self._legs, self.now
        buckets: list[KnownBucket] = []
        balances: tuple[Balance, ...] = ()
        floors: list[int] = []
        for leg in legs:
            try:
                bucket = tables.known[leg.entity_id, leg.resource]
            except KeyError:
                return None
            if now - bucket.hour >= HOUR_MS or bucket.limits != leg.limits or bucket.is_far_ahead(now):
                return None  # a new hour is begun, new terms are adopted, a wrong time is mended the long way
            bucket.restore()
            buckets.append(bucket)
            balances += bucket.balances
            floors += bucket.floors
        left = take(balances, self._wanted, now)
        if left is None:
            return None
        for tk, floor in zip(left, floors, strict=True):
            if tk < floor:
                return None  # its expiry has to move, the long way
        grant = Grant(legs, self._wanted, balances, left, now)
        return self._write(connection, buckets, grant)

    def _write(self, connection: Connection, buckets: list[KnownBucket], grant: Grant) -> Grant | None:
        if len(buckets) == 1:
            before = connection.total_changes
            try:
                # One statement, which is a transaction by itself.
                return grant if buckets[0].write(connection, *self._where, grant.legs[0], self.now) else None
            except Exception:
                raise
            except BaseException as interrupt:
                if connection.total_changes == before:
                    raise
                # It came after the statement: it is done, and whoever asked must know.
                raise Interrupted(interrupt, reply=grant) from None

        def work(connection: Connection) -> Grant:
            for leg, bucket in zip(grant.legs, buckets, strict=True):
                if not bucket.write(connection, *self._where, leg, self.now):
                    raise AnotherRow
            return grant

        try:
            return transact(connection, "BEGIN IMMEDIATE", work)
        except AnotherRow:
            return None
