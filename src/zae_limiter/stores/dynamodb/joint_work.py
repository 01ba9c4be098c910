"""Calls in flight in a batch, and what limits that only watch say to its draws. Pure.

A batch is the sum of its writes. Slots that come back, and those that are overdue, may be lent again in the same
write. Draws are judged in order, each behind those before it; for a limit that only watches that comes to a window:
the write is done only if it meets a level at which every one of these verdicts is right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zae_limiter.bucket import HeldBalance, key_of
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot
from zae_limiter.stores.dynamodb.bucket_writer import BucketWrite
from zae_limiter.stores.dynamodb.intents import Intent, Watched
from zae_limiter.stores.dynamodb.slot_work import DrawWork, SettleWork, SlotSums, level_by


class JointWork:
    """What all writes of a batch do together. Where no limit lends or watches, nothing."""

    def __init__(
        self, snapshot: BucketSnapshot, settled: Sequence[BucketWrite], now: int, guesses: Mapping[str, int]
    ) -> None:
        self._snapshot, self._now = snapshot, max(now, snapshot.rf)
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
            balance = self._snapshot.holds.get(name)
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
        for balance in (*self._snapshot.balances.values(), *self._snapshot.holds.values()):
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
