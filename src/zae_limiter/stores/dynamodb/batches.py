"""A batch: the writes of several callers to one bucket, as one write. Pure.

What comes back and what is taken at the same moment is taken from each other first, so that nothing of it is lost at
the ceiling. Draws are served first come first served, and may use what comes back; what is taken without asking is
booked after them, and refuses none. A draw that does not fit behind those before it is left out, and learns from the
write how the bucket is. A shard of a divided bucket settles only what it holds, and gets nothing back while it is in
debt. So what is settled is booked before the draws there, and left out likewise if it does not fit: then it concerns
all shards. Only a shard that a wrong clock has written bears it alone.

Slots of calls in flight that come back, and those that are overdue, may be lent again in the same write. Draws are
judged in order, each behind those before it; for a limit that only watches that comes to a window: the write is done
only if it meets a level at which every one of these verdicts is right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from zae_limiter.bucket import HeldBalance, balance_of, key_of
from zae_limiter.models.limit import Limit
from zae_limiter.stores.dynamodb.bucket_cache import is_far_ahead
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot
from zae_limiter.stores.dynamodb.bucket_write import BucketWrite
from zae_limiter.stores.dynamodb.departures import coming_back
from zae_limiter.stores.dynamodb.intents import Intent, Watched
from zae_limiter.stores.dynamodb.slot_work import DrawWork, SettleWork, SlotSums, level_by


class Batch(NamedTuple):
    """Writes that go out together, and the intent that is all of them."""

    writes: Sequence[BucketWrite]
    intent: Intent


def batch_of(snapshot: BucketSnapshot, writes: Sequence[BucketWrite], now: int, guesses: Mapping[str, int]) -> Batch:
    """Those of ``writes`` that the bucket seems to hold together; if none, the first alone: it will be told."""
    settled = [write for write in writes if write.needed is None]
    draws = [write for write in writes if write.needed is not None]
    if snapshot.shards > 1:
        return _batch_on_shard(snapshot, settled, draws, now, guesses)
    joint = JointWork(snapshot, settled, now, guesses)
    deltas: dict[str, int] = {}
    back: dict[str, int] = {}
    for write in settled:
        for name, delta in write.deltas.items():
            deltas[name] = deltas.get(name, 0) + delta
            if delta < 0:
                back[name] = back.get(name, 0) - delta
    joint.come_back(back)
    left = {
        name: min(guesses.get(name, balance.tk) + balance.since_rf(now), balance.bx) + back.get(name, 0)
        for name, balance in snapshot.balances.items()
        if name not in snapshot.retired and balance.limit.enforce
    }
    needed = {name: -back.get(name, 0) for name in left}
    return _batch(joint, settled, draws, left, Intent(deltas, needed), dict(needed))


def _batch_on_shard(
    snapshot: BucketSnapshot,
    settled: Sequence[BucketWrite],
    draws: Sequence[BucketWrite],
    now: int,
    guesses: Mapping[str, int],
) -> Batch:
    left = {
        name: min(guesses.get(name, balance.tk) + balance.since_rf(now), balance.bx)
        for name, balance in snapshot.balances.items()
    }
    deltas: dict[str, int] = {}
    alone = is_far_ahead(snapshot, now)
    held = [write for write in settled if _is_held(write, snapshot, left, deltas, alone=alone)]
    if not held and not draws:
        held = list(settled[:1])
        deltas = dict(held[0].deltas) if held else {}
    joint = JointWork(snapshot, held, now, guesses)
    joint.come_back({name: -delta for name, delta in deltas.items()})
    active = {
        name: left[name]
        for name, balance in snapshot.balances.items()
        if name not in snapshot.retired and balance.limit.enforce
    }
    booked = {name: deltas.get(name, 0) for name in active}
    needed = {name: delta if alone else max(delta, 0) for name, delta in booked.items()}
    return _batch(joint, held, draws, active, Intent(deltas, needed, held=not alone), booked)


def _batch(
    joint: JointWork,
    settled: Sequence[BucketWrite],
    draws: Sequence[BucketWrite],
    left: Mapping[str, int],
    intent: Intent,
    booked: dict[str, int],
) -> Batch:
    """What is settled, and those of the draws that fit into what is ``left``; if there is none of either, the first.

    ``intent`` has what is moved and needed by what is settled; ``booked``: so much of that comes before the draws.
    """
    drawn = dict.fromkeys(left, 0)
    granted = [write for write in draws if joint.fits(write) and _fits(write, left, drawn) and joint.draw(write)]
    if not granted and not settled:
        granted = [write for write in draws[:1] if joint.draw(write)]
    deltas, needed = dict(intent.deltas), dict(intent.needed or {})
    for write in granted:
        wanted = write.needed or {}
        for name, before in booked.items():
            needed[name] = max(needed[name], before + wanted.get(name, 0))
        _draw(write, booked)
        for name, delta in write.deltas.items():
            deltas[name] = deltas.get(name, 0) + delta
    writes = [*settled, *granted]
    whole = intent._replace(
        deltas=deltas,
        needed=needed if granted else None,
        grants=sum(write.grants for write in writes),
        owed=_owed(joint.snapshot, deltas, settled),
        tallies=_tallies(writes),
    )
    return Batch(writes, joint.told_in(whole))


def _tallies(writes: Sequence[BucketWrite]) -> dict[str, int]:
    """What writes count together beside what they take."""
    sums: dict[str, int] = {}
    for write in writes:
        for attribute, amount in write.tallies().items():
            sums[attribute] = sums.get(attribute, 0) + amount
    return sums


def _is_held(
    write: BucketWrite, snapshot: BucketSnapshot, left: dict[str, int], deltas: dict[str, int], *, alone: bool
) -> bool:
    """Whether a shard that has so much ``left`` holds what is settled, or bears it ``alone``; if so it is settled."""
    for limit in coming_back(snapshot, write.deltas, write.leg.limits):
        full = balance_of(limit, snapshot.rf, shard=snapshot.shard, shards=snapshot.shards)
        left.setdefault(limit.name, full.bx)
    if not alone and any(name in left and left[name] < max(delta, 0) for name, delta in write.deltas.items()):
        return False
    for name, delta in write.deltas.items():
        if name in left:
            left[name] -= delta
        deltas[name] = deltas.get(name, 0) + delta
    return True


def _owed(snapshot: BucketSnapshot, deltas: Mapping[str, int], settled: Sequence[BucketWrite]) -> tuple[Limit, ...]:
    """The limits of those who settle, if some of what they settle the bucket has no longer."""
    if deltas.keys() <= snapshot.balances.keys():
        return ()
    return tuple({limit.name: limit for write in settled for limit in write.leg.limits}.values())


def _fits(write: BucketWrite, left: Mapping[str, int], drawn: dict[str, int]) -> bool:
    """Whether a draw fits behind what was ``drawn`` before; if so it is drawn too."""
    wanted = write.needed or {}
    if any(amount - drawn[name] < wanted.get(name, 0) for name, amount in left.items()):
        return False
    _draw(write, drawn)
    return True


def _draw(write: BucketWrite, drawn: dict[str, int]) -> None:
    """Note what a draw takes of limits that refuse; what it takes of those that watch is judged apart."""
    for name, delta in write.deltas.items():
        if name in drawn:
            drawn[name] += delta


class JointWork:
    """What all writes of a batch do together. Where no limit lends or watches, nothing."""

    def __init__(
        self, snapshot: BucketSnapshot, settled: Sequence[BucketWrite], now: int, guesses: Mapping[str, int]
    ) -> None:
        self.snapshot, self._now = snapshot, max(now, snapshot.rf)
        self._is_idle = snapshot.is_refilled and all(write.work is None for write in settled)
        if self._is_idle:
            return
        self._sums = SlotSums(snapshot)
        self._lent: dict[str, int] = {}
        self._needed: dict[str, int] = {}
        self._watched: dict[str, Watched] = {}
        ending = frozenset(
            id(hold)
            for write in settled
            if isinstance(write.work, SettleWork)
            for hold, slots in write.work.changes
            if slots < 0
        )
        for write in settled:
            if isinstance(write.work, SettleWork):
                write.work.decide(snapshot, now, ending)
                self._sums.add(write.work.slots)
                for key, saying in write.work.watched.items():
                    self._watch(key, saying)
        self._levels: dict[str, int] = {}
        for balance in (*snapshot.balances.values(), *snapshot.holds.values()):
            key = key_of(balance.limit)
            if key not in snapshot.retired:
                held = isinstance(balance, HeldBalance)
                level = self._sums.free(balance.name, self._now) if held else level_by(balance, guesses, self._now)
                self._levels[key] = level
        self._back: Mapping[str, int] = {}

    def come_back(self, back: Mapping[str, int]) -> None:
        """So much of limits that refill comes back in the same write: draws may use it."""
        if not self._is_idle:
            self._back = back
            for name, amount in back.items():
                if name in self._levels:
                    self._levels[name] += amount

    def fits(self, write: BucketWrite) -> bool:
        """Whether a draw finds the slots it asks for behind those before it."""
        work = write.work
        if self._is_idle or not isinstance(work, DrawWork):
            return True
        for name in work.lends:
            balance = self.snapshot.holds.get(name)
            if balance is not None and balance.limit.enforce:
                asked = (write.needed or {}).get(name, work.lends[name])
                if self._levels.get(key_of(balance.limit), 0) < asked:
                    return False
        return True

    def draw(self, write: BucketWrite) -> bool:
        """Let a draw be one of them, and tell it what it lends until when and who would have refused it."""
        work = write.work
        if self._is_idle or not isinstance(work, DrawWork):
            return True
        dues: dict[str, int] = {}
        refused: set[str] = set()
        for balance in (*self.snapshot.balances.values(), *self.snapshot.holds.values()):
            key, asked = key_of(balance.limit), work.asked(balance)
            if asked is None or key not in self._levels:
                continue
            if not balance.limit.enforce and not self._passes(key, asked):
                refused.add(key)
                continue
            self._levels[key] -= asked
            if isinstance(balance, HeldBalance):
                dues[balance.name] = self._lend(balance, asked, (write.needed or {}).get(balance.name, asked))
            elif not balance.limit.enforce:
                self._lent[key] = self._lent.get(key, 0) + asked
        work.settle_on(dues, frozenset(refused))
        write.deltas = work.taken()
        return True

    def _passes(self, key: str, asked: int) -> bool:
        """Whether a limit that only watches has enough for a draw behind those before it; and note the verdict."""
        needs = self._lent.get(key, 0) + asked - self._came_back(key)
        passes = self._levels[key] >= asked
        known = self._watched.get(key, Watched())
        if passes:
            least = needs if known.least is None else max(known.least, needs)
            self._watched[key] = known._replace(least=least)
        else:
            below = needs if known.below is None else min(known.below, needs)
            self._watched[key] = known._replace(below=below, refusals=known.refusals + 1)
        return passes

    def _came_back(self, key: str) -> int:
        return self._sums.back(key[:-1]) if key.endswith("/") else self._back.get(key, 0)

    def _lend(self, balance: HeldBalance, asked: int, needed: int) -> int:
        name, key = balance.name, key_of(balance.limit)
        before = self._lent.get(key, 0)
        if balance.limit.enforce:
            behind = before + needed - self._sums.back(name)
            self._needed[name] = max(self._needed.get(name, behind), behind)
        self._lent[key] = before + asked
        due = balance.due_time(self._now)
        self._sums.enter(name, due, asked)
        self._sums.count(name, asked)
        return due

    def _watch(self, key: str, saying: Watched) -> None:
        known = self._watched.get(key, Watched())
        self._watched[key] = known._replace(refusals=known.refusals + saying.refusals)

    def told_in(self, intent: Intent) -> Intent:
        """The intent of the batch, with all of this."""
        if self._is_idle:
            return intent
        return intent._replace(slots=self._sums.moves(self._needed), watched=self._watched)
