"""Draws on buckets as this process left them.

Whoever wrote a bucket last knows what is in its row, and need not read it: one statement takes the tokens if the row
is still the same in every column that matters, the namespace too. SQLite makes a transaction of a statement by itself,
so that is all an acquire costs. If the row is another one, nothing changes, and the draw is done the long way, which
reads. So what is known here can be out of date, and never wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from zae_limiter.bucket import Balance, take
from zae_limiter.running.plan import Interrupted
from zae_limiter.stores.embedded.draws import HOUR_MS
from zae_limiter.stores.protocol import Grant, Leg
from zae_limiter.stores.sqlite.known_rows import KnownBucket
from zae_limiter.stores.sqlite.tables import Connection
from zae_limiter.stores.sqlite.transactions import transact


def draw_known(
    connection: Connection,
    known: Mapping[tuple[str, str], KnownBucket],
    where: tuple[int, int],
    legs: tuple[Leg, ...],
    wanted: Mapping[str, int],
    now: int,
) -> Grant | None:
    """The grant, if every row is as it is known and has enough; else ``None``, and nothing happened.

    ``where`` is the namespace and its epoch. SQLite's errors are raised, and nothing happened either.
    """
    buckets = []
    balances: tuple[Balance, ...] = ()
    for leg in legs:
        try:
            bucket = known[leg.entity_id, leg.resource]
        except KeyError:
            return None
        if bucket.limits != leg.limits or now - bucket.hour >= HOUR_MS:
            return None  # new terms are adopted, and a new hour is begun, the long way
        buckets.append(bucket)
        balances += bucket.restored()
    left = take(balances, wanted, now)
    if left is None or not all(bucket.suffices() for bucket in buckets):
        return None
    grant = Grant(legs, wanted, balances, left, now)
    if len(legs) == 1:
        return _at_once(connection, grant, lambda: buckets[0].write(connection, *where, legs[0]))

    def work(connection: Connection) -> Grant:
        for leg, bucket in zip(legs, buckets, strict=True):
            if not bucket.write(connection, *where, leg):
                raise AnotherRow
        return grant

    try:
        return transact(connection, "BEGIN IMMEDIATE", work)
    except AnotherRow:
        return None


class AnotherRow(Exception):
    """A row is not as it is known: undo the others."""


def _at_once(connection: Connection, grant: Grant, write: Callable[[], bool]) -> Grant | None:
    """One statement, which is a transaction by itself."""
    before = connection.total_changes
    try:
        return grant if write() else None
    except Exception:
        raise
    except BaseException as interrupt:
        if connection.total_changes == before:
            raise
        # It came after the statement: it is done, and whoever asked must know.
        raise Interrupted(interrupt, reply=grant) from None
