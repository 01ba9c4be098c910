"""Limits that come to a bucket and leave it: those that a change of terms takes away are retired, and end once they
are full; those that are settled after they have ended come back. Pure.

``write_forms`` says why that mints nothing and loses no count.
"""

from __future__ import annotations

from collections.abc import Mapping

from zae_limiter.bucket import MILLI, WOULD_REFUSE, Balance, HeldBalance, SteppedBalance, balance_of, key_of
from zae_limiter.models.limit import MAX_ENDED, MAX_RETIRED, Limit, too_many_retired
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot
from zae_limiter.stores.dynamodb.expressions import Update
from zae_limiter.stores.dynamodb.intents import CASCADED, DENIED, Intent, SlotMoves, Watched
from zae_limiter.stores.dynamodb.items import due_attribute, prefix_of, terms_of
from zae_limiter.stores.dynamodb.limit_forms import Change, begin_slots, lent_for, time_to_fill
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
        if isinstance(balance, HeldBalance):
            if guess != balance.bx or any(balance.counts.values()):
                return False
        elif balance.extra or guess < balance.bx - balance.since_rf(now):
            return False
        counted = bool(balance.tc) or balance.name in self._snapshot.tallied
        is_free = balance.name not in self._ended and balance.name + WOULD_REFUSE not in self._ended
        return (not counted and not balance.sn) or (is_free and len(self._ended) + 1 < MAX_ENDED)

    def end(self, balance: Balance, now: int) -> None:
        """Let go of it, if it is full."""
        name, write, place = balance.name, self._write, prefix_of(balance.limit) + balance.name
        if isinstance(balance, HeldBalance):  # full: what is free is all there is
            write.demand(f"{place}_tk", "=", balance.bx)
            for due in balance.counts:
                write.remove(due_attribute(name, due))
            write.remove(f"{place}_hb")
        else:
            write.demand(f"{place}_tk", ">=", balance.bx - balance.since_rf(now))
        self._end_count(name, f"{place}_tc", counted=bool(balance.tc) or name in self._snapshot.tallied)
        if balance.sn or not balance.limit.enforce:
            self._end_count(name + WOULD_REFUSE, f"{place}_sn", counted=bool(balance.sn))
        else:
            write.remove(f"{place}_sn")  # it may have watched before: there, and 0, when what it counted was undone
        for field in ("tk", "tc", *terms_of(balance.limit)):
            write.remove(f"{place}_{field}")
        if balance.limit.periods is not None:
            write.remove(f"{place}_pn")
        self._changed = True

    def _end_count(self, name: str, counter: str, *, counted: bool) -> None:
        """Keep what was counted to the end of the hour, if anything was."""
        write = self._write
        if counted:
            write.copy(f"e_{name}", counter)
            self._ended.add(name)
            self._counted = True
        elif name.endswith(WOULD_REFUSE):
            write.demand_nothing_in(counter)  # it is there, and 0, when a refusal was undone
        else:
            write.demand(counter, "=", 0)
        if name.endswith(WOULD_REFUSE):
            write.remove(counter)

    def keep(self, balance: Balance, limit: Limit | None) -> None:
        """Keep it: in force, or retired."""
        self.kept.add(balance.name)
        self._retired += limit is None
        self._changed |= (limit is None) != (key_of(balance.limit) in self._snapshot.retired)

    def begin(self, limit: Limit, amount: int, refusals: int = 0) -> None:
        """Count a limit that the bucket does not have: within an hour, on from where it ended."""
        place = prefix_of(limit) + limit.name
        self._begin_count(limit.name, f"{place}_tc", amount)
        if refusals or limit.name + WOULD_REFUSE in self._ended:
            self._begin_count(limit.name + WOULD_REFUSE, f"{place}_sn", refusals * MILLI)

    def _begin_count(self, name: str, counter: str, amount: int) -> None:
        if name in self._ended:
            self._write.set_sum(counter, f"e_{name}", amount)
            self._write.remove(f"e_{name}")
            self._ended.discard(name)
            self._changed = True
        else:
            self._write.set(counter, amount)

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
    write.demand_absent(f"{prefix_of(limit)}{limit.name}_tk")
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
        delta = intent.deltas.get(limit.name, 0)
        burst = _begin_limit(write, limit, snapshot, now)
        if intent.held and delta > burst and limit.name not in intent.exactly:
            write.demand(f"b_{limit.name}_tk", ">=", delta)  # it does not hold that: refused
        write.set(f"b_{limit.name}_tk", burst - max(delta, 0))
        departures.begin(limit, intent.counts(limit.name))
        for field, value in terms_of(limit).items():
            if field != "cp":
                write.set(f"b_{limit.name}_{field}", value)
        longest = max(longest, time_to_fill(limit, max(delta, 0), snapshot.shards, now))
    write.set("rv", write_id)
    return longest


def add_limit(write: Update, limit: Limit, change: Change, snapshot: BucketSnapshot, departures: Departures) -> int:
    """A limit the bucket does not have: full, less what is taken."""
    intent, place = change.intent, prefix_of(limit) + limit.name
    burst = _begin_limit(write, limit, snapshot, change.now)
    refusals = intent.watched.get(key_of(limit), Watched()).refusals
    for field, value in terms_of(limit).items():
        write.set(f"{place}_{field}", value)
    if limit.is_held:
        moves = intent.slots.get(limit.name, SlotMoves())
        begun = begin_slots(limit, moves, Watched(), change.now, shard=snapshot.shard, shards=snapshot.shards)
        for attribute, value in begun.items():
            write.set(attribute, value)
        departures.begin(limit, moves.counted, refusals)
        return lent_for(limit, moves.entered, change.now)
    taken, lifted = max(intent.deltas.get(limit.name, 0), 0), intent.lifts.get(limit.name, 0)
    if lifted:
        write.set(f"{place}_ex", lifted)
    write.set(f"{place}_tk", burst + lifted - taken)
    departures.begin(limit, taken, refusals)
    return time_to_fill(limit, taken + lifted, snapshot.shards, change.now)


def write_terms(write: Update, balance: Balance, limit: Limit | None, *, retired: bool) -> None:
    """The terms that change. A limit that was taken away is retired: it loses its ``cp``, and keeps the others."""
    place = prefix_of(balance.limit) + balance.name
    if limit is None:
        if not retired:
            write.remove(f"{place}_cp")
        return
    stored, after = terms_of(balance.limit), terms_of(limit)
    before = {} if retired else stored
    for field, value in after.items():
        if before.get(field) != value:
            write.set(f"{place}_{field}", value)
    for field in sorted(stored.keys() - after.keys()):
        write.remove(f"{place}_{field}")


def demand_absence(write: Update, intent: Intent, snapshot: BucketSnapshot, back: tuple[Limit, ...]) -> None:
    """What must be as it was seen, and was not there, must not be there."""
    if intent.exactly:
        for name in sorted(intent.exactly.difference(snapshot.balances, (limit.name for limit in back))):
            write.demand_absent(f"b_{name}_tk")
