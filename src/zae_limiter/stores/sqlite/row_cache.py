"""The rows that this process wrote last, so that an optimistic draw need not read them.

Text and numbers are kept as they were written, beside the balances and not in them: a transaction may change those
and then be rolled back.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from zae_limiter.bucket import FURTHEST_AHEAD_MS, Bucket
from zae_limiter.stores.embedded.tables import BUCKET_MARGIN_MS
from zae_limiter.stores.protocol import Leg
from zae_limiter.stores.sqlite.rows import numbers_to_text

MAX_CACHED_ROWS = 20_000

NEVER_MS = 1 << 62
"""When a bucket expires that takes longer than this to fill: a column has 64 bits."""

NO_FLOOR = -(1 << 128)

_DRAW = (
    "UPDATE buckets SET events = ?, tokens = ?"
    " WHERE ns = ? AND entity_id = ? AND resource = ?"
    " AND events = ? AND tokens = ? AND rf = ? AND hour = ? AND terms = ? AND expires_ms = ?"
    " AND (SELECT epoch FROM namespaces WHERE id = ? AND deleted_ms IS NULL) = ?"
)


class CachedRow:
    """A row of ``buckets`` as it was last written."""

    __slots__ = (
        "balances",
        "events",
        "expires",
        "floors",
        "hour",
        "latest",
        "limits",
        "numbers",
        "rf",
        "terms",
        "tokens",
    )

    def __init__(self, bucket: Bucket, terms: str, tokens: str, expires: int) -> None:
        self.limits = bucket.limits
        self.balances = bucket.balances
        self.numbers = [(balance.tk, balance.tc) for balance in bucket.balances]
        full_by = expires - BUCKET_MARGIN_MS
        # With less than this a bucket is not full again in time, and its expiry has to move.
        self.floors = tuple(
            [NO_FLOOR if expires == NEVER_MS else balance.least_full_by(full_by) for balance in bucket.balances]
        )
        self.events = bucket.events
        self.tokens = tokens
        self.rf = bucket.rf
        self.latest = bucket.latest
        self.hour = bucket.hour
        self.terms = terms
        self.expires = expires

    def restore(self) -> None:
        """Put into the balances what the row has."""
        for balance, (tk, tc) in zip(self.balances, self.numbers):  # noqa: B905 (they have one length)
            balance.tk, balance.tc = tk, tc

    def is_far_ahead(self, now: int) -> bool:
        """As :meth:`Bucket.is_far_ahead`."""
        furthest = now + FURTHEST_AHEAD_MS
        return self.rf > furthest or self.latest > furthest

    def write(
        self,
        connection: sqlite3.Connection,
        ns: int,
        epoch: int,
        leg: Leg,
        left: Sequence[int],
        amounts: Sequence[int],
        now: int,
    ) -> bool:
        """Write a draw that leaves so much of every limit and takes these amounts, if the row is as it is cached.

        Then that is cached.
        """
        numbers = [
            (tk, balance.tc + amount)
            for balance, tk, amount in zip(self.balances, left, amounts)  # noqa: B905 (they have one length)
        ]
        latest = now if now > self.latest else self.latest
        tokens = numbers_to_text(numbers, latest)
        events = self.events + 1
        changed = connection.execute(
            _DRAW,
            (
                *(events, tokens, ns, leg.entity_id, leg.resource),
                *(self.events, self.tokens, self.rf, self.hour, self.terms, self.expires),
                *(ns, epoch),
            ),
        )
        if changed.rowcount == 0:
            return False
        self.events, self.tokens, self.numbers, self.latest = events, tokens, numbers, latest
        return True
