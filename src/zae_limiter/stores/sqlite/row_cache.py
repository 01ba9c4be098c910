"""The rows that this process wrote last, so that an optimistic draw need not read them.

Text and numbers are kept as they were written, beside the balances and not in them: a transaction may change those
and then be rolled back.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import TypeAlias

from zae_limiter.bucket import FURTHEST_AHEAD_MS, Bucket, book, would_take
from zae_limiter.stores.embedded.tables import BUCKET_MARGIN_MS
from zae_limiter.stores.protocol import Leg
from zae_limiter.stores.sqlite.rows import numbers_to_text, told_apart_to_text
from zae_limiter.stores.windows import HOUR_MS

MAX_CACHED_ROWS = 20_000

NEVER_MS = 1 << 62
"""When a bucket expires that takes longer than this to fill: a column has 64 bits."""

NO_FLOOR = -(1 << 128)

Numbers: TypeAlias = list[tuple[int, int]]
"""The tokens and the counter of every limit."""

_WRITE = (
    "UPDATE buckets SET events = ?, tokens = ?"
    " WHERE ns = ? AND entity_id = ? AND resource = ?"
    " AND events = ? AND tokens = ? AND rf = ? AND hour = ? AND terms = ? AND expires_ms = ?"
    " AND (SELECT epoch FROM namespaces WHERE id = ? AND deleted_ms IS NULL) = ?"
)


class CachedRow:
    """A row of ``buckets`` as it was last written."""

    __slots__ = (
        "balances",
        "cascaded",
        "cascaded_events",
        "denials",
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
        self.numbers: Numbers = [(balance.tk, balance.tc) for balance in bucket.balances]
        full_by = expires - BUCKET_MARGIN_MS
        # With less than this a bucket is not full again in time, and the whole transaction moves its expiry.
        self.floors = tuple(
            [NO_FLOOR if expires == NEVER_MS else balance.least_full_by(full_by) for balance in bucket.balances]
        )
        self.cascaded = bucket.cascaded
        self.cascaded_events = bucket.cascaded_events
        self.denials = bucket.denials
        self.events = bucket.events
        self.tokens = tokens
        self.rf = bucket.rf
        self.latest = bucket.latest
        self.hour = bucket.hour
        self.terms = terms
        self.expires = expires

    def drawn(self, leg: Leg, wanted: Mapping[str, int], now: int) -> tuple[list[int], Numbers] | None:
        """What a draw leaves of every limit, and the numbers of the row after it. ``None``: that is not ordinary."""
        if not self._is_ordinary(leg, now):
            return None
        taken = would_take(self.balances, wanted, now)
        if taken is None:
            return None
        left, amounts = taken
        numbers = []
        for balance, tk, amount, floor in zip(self.balances, left, amounts, self.floors):  # noqa: B905 (of one length)
            if tk < floor:
                return None
            balance.tc += amount  # the grant tells it; the next draw begins with what the row has then
            numbers.append((tk, balance.tc))
        return left, numbers

    def settled(self, leg: Leg, deltas: Mapping[str, int], now: int) -> Numbers | None:
        """The numbers of the row after a settlement. ``None``: that is not ordinary."""
        if not self._is_ordinary(leg, now):
            return None
        numbers = []
        for balance, floor in zip(self.balances, self.floors):  # noqa: B905 (they have one length)
            delta = deltas.get(balance.name, 0)
            tk = book(balance, delta, now) if delta else balance.tk
            if tk < floor:
                return None
            numbers.append((tk, balance.tc + delta))
        return numbers

    def _is_ordinary(self, leg: Leg, now: int) -> bool:
        """Whether nothing is to be done before. If so, the balances have what the row has.

        Otherwise the whole transaction begins an hour, adopts the limits of the leg, or corrects the time.
        """
        furthest = now + FURTHEST_AHEAD_MS
        if now - self.hour >= HOUR_MS or self.limits != leg.limits or self.rf > furthest or self.latest > furthest:
            return False
        for balance, (tk, tc) in zip(self.balances, self.numbers):  # noqa: B905 (they have one length)
            balance.tk, balance.tc = tk, tc
        return True

    def write(
        self, connection: sqlite3.Connection, ns: int, epoch: int, leg: Leg, numbers: Numbers, events: int, now: int
    ) -> bool:
        """Write other numbers for ``now``, and so many events more, if the row is as it is cached; then cache that."""
        latest = now if now > self.latest else self.latest
        cascaded, cascaded_events = self.cascaded, self.cascaded_events
        if leg.cascaded is not None:
            cascaded, cascaded_events = self._with_cascaded(leg.cascaded, numbers), cascaded_events + events
        tokens = numbers_to_text(numbers, latest, told_apart_to_text(cascaded_events, cascaded, self.denials))
        events += self.events
        changed = connection.execute(
            _WRITE,
            (
                *(events, tokens, ns, leg.entity_id, leg.resource),
                *(self.events, self.tokens, self.rf, self.hour, self.terms, self.expires),
                *(ns, epoch),
            ),
        )
        if changed.rowcount == 0:
            return False
        self.events, self.tokens, self.numbers, self.latest = events, tokens, numbers, latest
        self.cascaded, self.cascaded_events = cascaded, cascaded_events
        return True

    def _with_cascaded(self, names: frozenset[str], numbers: Numbers) -> dict[str, int]:
        """What other legs have counted too, after a write of these numbers."""
        cascaded = dict(self.cascaded)
        for balance, (_, before), (_, after) in zip(self.balances, self.numbers, numbers, strict=True):
            if after != before and balance.name in names:
                cascaded[balance.name] = cascaded.get(balance.name, 0) + after - before
        return cascaded
