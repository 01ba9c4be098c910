"""Limits that come to a bucket and leave it: those that a change of terms takes away are retired, and end once they
are full; those that are settled after they have ended come back. Pure.

``write_forms`` says why that mints nothing and loses no count.
"""

from __future__ import annotations

from collections.abc import Mapping

from zae_limiter.bucket import Balance, SteppedBalance, balance_of
from zae_limiter.models.limit import MAX_ENDED, MAX_RETIRED, Limit, too_many_retired
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot
from zae_limiter.stores.dynamodb.expressions import Update
from zae_limiter.stores.dynamodb.intents import Intent
from zae_limiter.stores.dynamodb.items import terms_of
from zae_limiter.stores.dynamodb.limit_forms import Change, time_to_fill
from zae_limiter.stores.dynamodb.tallies import CASCADED, DENIED
from zae_limiter.stores.dynamodb.write_ids import write_id_time
from zae_limiter.stores.windows import hour_of


class Departures:
    """The limits that are not in force after a write: which are retired, and what those that end have counted."""

    def __init__(self, write: Update, snapshot: BucketSnapshot, write_id: str) -> None:
        self._write = write
        self._snapshot = snapshot
        self._write_id = write_id
        self._retired = 0
        self._changed = False
        self._hour = max(hour_of(write_id_time(write_id)), snapshot.eh)  # in which usage counts the write
        self._ended = set(snapshot.ended) if snapshot.eh == self._hour else set[str]()
        self._counted = False
        self.kept: set[str] = set()

    def may_end(self, balance: Balance, guess: int, now: int) -> bool:
        """Whether a limit that is not in force seems to be full, and there is room for what it counted."""
        counted = balance.tc or balance.name in self._snapshot.tallied
        return guess >= balance.bx - balance.since_rf(now) and (not counted or len(self._ended) < MAX_ENDED)

    def end(self, balance: Balance, now: int) -> None:
        """Let go of it, if it is full."""
        name, write = balance.name, self._write
        write.demand(f"b_{name}_tk", ">=", balance.bx - balance.since_rf(now))
        if balance.tc or name in self._snapshot.tallied:
            write.copy(f"e_{name}", f"b_{name}_tc")
            self._ended.add(name)
            self._counted = True
        else:
            write.demand(f"b_{name}_tc", "=", 0)
        for field in ("tk", "tc", *terms_of(balance.limit)):
            write.remove(f"b_{name}_{field}")
        if balance.limit.periods is not None:
            write.remove(f"b_{name}_pn")
        self._changed = True

    def keep(self, name: str, limit: Limit | None) -> None:
        """Keep it: in force, or retired."""
        self.kept.add(name)
        self._retired += limit is None
        self._changed |= (limit is None) != (name in self._snapshot.retired)

    def begin(self, name: str, amount: int) -> None:
        """Count a limit that the bucket does not have: within an hour, on from where it ended."""
        if name in self._ended:
            self._write.set_sum(f"b_{name}_tc", f"e_{name}", amount)
            self._write.remove(f"e_{name}")
            self._ended.discard(name)
            self._changed = True
        else:
            self._write.set(f"b_{name}_tc", amount)

    def finish(self, tallies: Mapping[str, int]) -> None:
        """Say what changed, and let go of what was counted in earlier hours; ``tallies`` are being added to."""
        snapshot, write = self._snapshot, self._write
        if self._retired > max(MAX_RETIRED, len(snapshot.retired)):
            raise too_many_retired(snapshot.entity_id, snapshot.resource, self._retired)
        if snapshot.eh < self._hour and snapshot.ended:
            for name in sorted(snapshot.ended.keys() - self._ended):
                write.remove(f"e_{name}")
            self._changed = True
        for name in sorted(snapshot.tallied - self.kept - self._ended):
            for attribute in (CASCADED + name, DENIED + name):
                if attribute not in tallies:
                    write.remove(attribute)
        if self._counted and snapshot.eh < self._hour:
            write.set("eh", self._hour)
        if self._changed:
            write.set("rv", self._write_id)


def demand_same_retired(write: Update, snapshot: BucketSnapshot) -> None:
    """The same limits must be retired, under the same terms."""
    if snapshot.rv:
        write.demand("rv", "=", snapshot.rv)
    else:
        write.demand_absent("rv")


def coming_back(snapshot: BucketSnapshot, deltas: Mapping[str, int], owed: tuple[Limit, ...]) -> tuple[Limit, ...]:
    """The limits that have ended and are settled after all, as far as there is room."""
    if deltas.keys() <= snapshot.balances.keys():
        return ()
    missing = [limit for limit in owed if deltas.get(limit.name) and limit.name not in snapshot.balances]
    return tuple(missing[: max(MAX_RETIRED - len(snapshot.retired), 0)])


def _begin_limit(write: Update, limit: Limit, snapshot: BucketSnapshot, now: int) -> int:
    """Begin a limit that the bucket does not have. Returns how much its shard holds of it when it is full."""
    fresh = balance_of(limit, now, shard=snapshot.shard, shards=snapshot.shards)
    write.demand_absent(f"b_{limit.name}_tk")
    if isinstance(fresh, SteppedBalance):
        write.set(f"b_{limit.name}_pn", fresh.pn)
    return fresh.bx


def bring_back_retired(
    write: Update, limits: tuple[Limit, ...], intent: Intent, snapshot: BucketSnapshot, write_id: str, now: int
) -> int:
    """Bring limits back as retired: full, less what is taken. Returns the milliseconds they may take to be full."""
    longest = 0
    departures = Departures(write, snapshot, write_id)
    for limit in limits:
        delta = intent.deltas[limit.name]
        burst = _begin_limit(write, limit, snapshot, now)
        if intent.held and delta > burst and limit.name not in intent.exactly:
            write.demand(f"b_{limit.name}_tk", ">=", delta)  # it does not hold that: refused
        write.set(f"b_{limit.name}_tk", burst - max(delta, 0))
        departures.begin(limit.name, delta)
        for field, value in terms_of(limit).items():
            if field != "cp":
                write.set(f"b_{limit.name}_{field}", value)
        longest = max(longest, time_to_fill(limit, max(delta, 0), snapshot.shards, now))
    write.set("rv", write_id)
    return longest


def add_limit(write: Update, limit: Limit, change: Change, snapshot: BucketSnapshot, departures: Departures) -> int:
    """A limit the bucket does not have: full, less what is taken."""
    burst = _begin_limit(write, limit, snapshot, change.now)
    taken = max(change.intent.deltas.get(limit.name, 0), 0)
    write.set(f"b_{limit.name}_tk", burst - taken)
    departures.begin(limit.name, taken)
    for field, value in terms_of(limit).items():
        write.set(f"b_{limit.name}_{field}", value)
    return time_to_fill(limit, taken, snapshot.shards, change.now)


def write_terms(write: Update, name: str, balance: Balance, limit: Limit | None, *, retired: bool) -> None:
    """The terms that change. A limit that was taken away is retired: it loses its ``cp``, and keeps the others."""
    if limit is None:
        if not retired:
            write.remove(f"b_{name}_cp")
        return
    stored, after = terms_of(balance.limit), terms_of(limit)
    before = {} if retired else stored
    for field, value in after.items():
        if before.get(field) != value:
            write.set(f"b_{name}_{field}", value)
    for field in stored.keys() - after.keys():
        write.remove(f"b_{name}_{field}")


def demand_absence(write: Update, intent: Intent, snapshot: BucketSnapshot, back: tuple[Limit, ...]) -> None:
    """What must be as it was seen, and was not there, must not be there."""
    if intent.exactly:
        for name in sorted(intent.exactly.difference(snapshot.balances, (limit.name for limit in back))):
            write.demand_absent(f"b_{name}_tk")
