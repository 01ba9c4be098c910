"""What one write does to calls in flight, and what limits that only watch say to it. Pure.

Both depend on how the bucket is: until when a slot is lent, whether a hold is still there, whether a limit that
watches would have refused. So they are decided by a snapshot, for every try anew. **A try whose answer was lost is
repeated as it was**: its write id among the recent writers says that it was done, and then this must be what was done.
Where that is not possible any more, the lost try is voided first.

A hold is looked for where its lease took it, in the life of the shard and under the due time that it names. Only a
snapshot that was read since may say that it is over: with an older one the write is tried as if it were there, and is
refused if it is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from zae_limiter.bucket import MILLI, Balance, HeldBalance, key_of
from zae_limiter.models.holds import Hold
from zae_limiter.models.limit import Limit
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot
from zae_limiter.stores.dynamodb.intents import NO_SLOTS, NONE_WATCHED, NOTHING, SlotMoves, Watched
from zae_limiter.stores.protocol import HoldChange, Leg

NO_ONE: frozenset[str] = frozenset()


def life_on(shard: int, inc: str) -> str:
    """Which life of which shard a hold belongs to."""
    return f"{shard}:{inc}"


def shard_and_inc(hold: Hold) -> tuple[int, str]:
    """The inverse. A hold that was never taken from a bucket of this store is in no life of shard 0."""
    shard, _, inc = str(hold.life).partition(":")
    return (int(shard), inc) if inc and shard.isdecimal() else (0, "")


class DrawWork:
    """What a draw lends, and what limits that only watch say to it.

    ``refused`` has the keys (``bucket.key_of``) of those that would have refused: nothing is taken from them.
    """

    __slots__ = ("dues", "lends", "refused", "slots", "wanted", "watched")

    fresh = False

    def __init__(self, leg: Leg, wanted: Mapping[str, int]) -> None:
        self.wanted = {name: milli for name, milli in wanted.items() if name not in leg.held}
        """What it takes of limits that refill, unless they only watch and lack."""
        self.lends = {name: milli for name, milli in wanted.items() if name in leg.held}
        self.dues: Mapping[str, int] = NOTHING
        self.refused = NO_ONE
        self.slots: Mapping[str, SlotMoves] = NO_SLOTS
        self.watched: Mapping[str, Watched] = NONE_WATCHED

    def asked(self, balance: Balance) -> int | None:
        """What it wants of a limit; ``None`` if the limit has no say in it."""
        if balance.limit.is_held:
            return self.lends.get(balance.name)
        return self.wanted.get(balance.name, 0)

    def judge(
        self, balances: Iterable[Balance], needed: Mapping[str, int], now: int, guesses: Mapping[str, int]
    ) -> None:
        """Decide by the limits as they stand: until when is lent, and who would have refused."""
        dues: dict[str, int] = {}
        refused: set[str] = set()
        slots: dict[str, SlotMoves] = {}
        watched: dict[str, Watched] = {}
        for balance in balances:
            limit, asked, name = balance.limit, self.asked(balance), balance.name
            if asked is None:
                continue
            lacks = not limit.enforce and level_by(balance, guesses, now) < asked
            if not limit.enforce:
                watched[key_of(limit)] = Watched(None, asked, 1) if lacks else Watched(asked)
            if lacks:
                refused.add(key_of(limit))
            elif isinstance(balance, HeldBalance):
                dues[name] = balance.due_time(now)
                asks = needed.get(name, asked) if limit.enforce else None
                slots[name] = SlotMoves(entered={dues[name]: asked}, needed=asks, counted=asked)
        self.dues, self.refused, self.slots, self.watched = dues, frozenset(refused), slots, watched

    def settle_on(self, dues: Mapping[str, int], refused: frozenset[str]) -> None:
        """Note what was decided for it together with others."""
        self.dues, self.refused = dues, refused
        self.slots = {
            name: SlotMoves(entered={due: self.lends[name]}, counted=self.lends[name]) for name, due in dues.items()
        }
        self.watched = {key: Watched(None, None, 1) for key in refused}

    def lent(self, parts: Mapping[str, int], watching: frozenset[str]) -> dict[str, SlotMoves]:
        """What one of several shards lends."""
        return {
            name: SlotMoves(
                entered={self.dues[name]: milli}, needed=None if name in watching else milli, counted=milli
            )
            for name, milli in parts.items()
            if name in self.dues
        }

    def taken(self) -> Mapping[str, int]:
        """What it takes of limits that refill."""
        return {name: milli for name, milli in self.wanted.items() if name not in self.refused}

    def is_possible(self, snapshot: BucketSnapshot, balances: Iterable[Balance], now: int) -> bool:
        """Whether what was decided can still be done to a bucket as it was seen."""
        for balance in balances:
            asked, refused = self.asked(balance), key_of(balance.limit) in self.refused
            lacks = asked is not None and balance.level(max(now, snapshot.rf)) < asked
            if asked is not None and not balance.limit.enforce and lacks != refused:
                return False
            if isinstance(balance, HeldBalance) and self.dues.get(balance.name, balance.hb + 1) <= balance.hb:
                return False
        return True

    def holds(self, leg: Leg, life: str, lent: Mapping[str, int]) -> list[Hold]:
        """What it holds of what one shard has ``lent``, once it is done."""
        ttls = {limit.name: limit.hold_seconds or 0 for limit in leg.limits}
        return [
            Hold(leg.entity_id, leg.resource, name, milli // MILLI, self.dues[name], ttls[name], life)
            for name, milli in lent.items()
            if name in self.dues
        ]

    @property
    def counted(self) -> dict[str, int]:
        return {name: moves.counted for name, moves in self.slots.items()}

    def note_done(self) -> None:
        """Nothing: its holds are those of the grant."""

    def let_go(self) -> bool:
        """A draw takes again what it may have taken. It has something left to do."""
        return True

    @property
    def gives_back(self) -> bool:
        return False


class HoldAfter(NamedTuple):
    """What a hold is once a write is done."""

    hold: Hold
    amount: int
    due: int
    ttl: int
    life: int | str


class SettleWork:
    """What a settlement gives back and takes of calls in flight, and which holds it renews.

    ``undo``: it was never used, so it is not counted; ``unrefused`` has the keys of limits that only watch and counted
    a refusal. ``lost`` has the holds that were not there any more.
    """

    __slots__ = ("_after", "changes", "fresh", "lost", "renewals", "slots", "undo", "unrefused", "watched")

    def __init__(
        self,
        changes: Sequence[HoldChange] = (),
        renewals: Sequence[Hold] = (),
        *,
        undo: bool = False,
        unrefused: frozenset[str] = NO_ONE,
    ) -> None:
        self.changes = changes
        self.renewals = renewals
        self.undo = undo
        self.unrefused = unrefused
        self.fresh = False
        """The bucket was seen since this write began."""
        self.slots: Mapping[str, SlotMoves] = NO_SLOTS
        self.watched: Mapping[str, Watched] = NONE_WATCHED
        self.lost: list[Hold] = []
        self._after: list[HoldAfter] = []

    def decide(self, snapshot: BucketSnapshot, now: int, ending: frozenset[int] = frozenset()) -> None:
        """Decide by a bucket as it was seen. Holds that others end in the same write (``ending``) are not renewed."""
        sums = SlotSums(snapshot)
        self.lost, self._after = [], []
        now = max(now, snapshot.rf)
        for hold, slots in self.changes:
            if slots > 0:
                self._take(hold, slots, snapshot, sums, now)
                continue
            amount = min(-slots, hold.amount) * MILLI
            if amount and self._is_there(hold, amount, snapshot, sums):
                sums.leave(hold.limit_name, hold.due, amount)
                sums.count(hold.limit_name, -amount if self.undo else 0)
            self._after.append(HoldAfter(hold, max(hold.amount + slots, 0), hold.due, hold.ttl, hold.life))
        for hold in self.renewals:
            if hold.amount and id(hold) not in ending:
                self._renew(hold, snapshot, sums, now)
        self.slots = sums.moves()
        self.watched = {key: Watched(refusals=-1) for key in self.unrefused if self._is_counted(key, snapshot)}

    def _is_there(self, hold: Hold, amount: int, snapshot: BucketSnapshot, sums: SlotSums) -> bool:
        """Whether a hold can be where it was taken; what only an old snapshot says is not believed."""
        if not self.fresh:
            return shard_and_inc(hold)[1] != ""
        balance = snapshot.holds.get(hold.limit_name)
        if balance is None or balance.hb >= hold.due or shard_and_inc(hold)[1] != snapshot.inc:
            return False
        return balance.counts.get(hold.due, 0) - sums.left_at(hold.limit_name, hold.due) >= amount

    def _is_counted(self, key: str, snapshot: BucketSnapshot) -> bool:
        """Whether a limit that only watched can have counted a refusal; by an old snapshot it may have since."""
        balance = snapshot.holds.get(key[:-1]) if key.endswith("/") else snapshot.balances.get(key)
        return balance is not None and (balance.sn > 0 or not self.fresh)

    def _take(self, hold: Hold, slots: int, snapshot: BucketSnapshot, sums: SlotSums, now: int) -> None:
        """Take slots without asking, for a hold that is as if it were taken now."""
        balance = snapshot.holds.get(hold.limit_name)
        if balance is None:
            self._after.append(HoldAfter(hold, 0, hold.due, hold.ttl, hold.life))
            return
        due = balance.due_time(now)
        sums.enter(hold.limit_name, due, slots * MILLI)
        sums.count(hold.limit_name, slots * MILLI)
        self._after.append(HoldAfter(hold, slots, due, balance.ttl, life_on(snapshot.shard, snapshot.inc)))

    def _renew(self, hold: Hold, snapshot: BucketSnapshot, sums: SlotSums, now: int) -> None:
        milli, balance = hold.amount * MILLI, snapshot.holds.get(hold.limit_name)
        if not self._is_there(hold, milli, snapshot, sums):
            self.lost.append(hold)
            self._take(hold, hold.amount, snapshot, sums, now)
            return
        if balance is None:
            sums.leave(hold.limit_name, hold.due, milli)  # by an old snapshot: it will be refused
            return
        later = max(balance.due_time(now), hold.due)
        if later != hold.due:
            sums.leave(hold.limit_name, hold.due, milli)
            sums.enter(hold.limit_name, later, milli)
        self._after.append(HoldAfter(hold, hold.amount, later, balance.ttl, hold.life))

    def begin_life(self, limits: Sequence[Limit], life: str, now: int) -> None:
        """Decide for a bucket that is gone and begins anew under these limits: nothing is lent there but what is
        taken, and what is renewed is lost and taken again."""
        held = {limit.name: HeldBalance(limit, now) for limit in limits if limit.is_held}
        slots: dict[str, SlotMoves] = {}
        self.watched, self.lost, self._after = NONE_WATCHED, [], []
        taken = [change for change in self.changes if change.slots > 0]
        for hold in self.renewals:
            if hold.amount:
                self.lost.append(hold)
                taken.append(HoldChange(hold, hold.amount))
        for hold, amount in taken:
            balance = held.get(hold.limit_name)
            if balance is None:
                self._after.append(HoldAfter(hold, 0, hold.due, hold.ttl, hold.life))
                continue
            due, before = balance.due_time(now), slots.get(hold.limit_name, SlotMoves())
            entered = sum(before.entered.values()) + amount * MILLI
            slots[hold.limit_name] = SlotMoves(entered={due: entered}, counted=entered)
            self._after.append(HoldAfter(hold, amount, due, balance.ttl, life))
        for hold, amount in self.changes:
            if amount < 0:
                self._after.append(HoldAfter(hold, max(hold.amount + amount, 0), hold.due, hold.ttl, hold.life))
        self.slots = slots

    def holds_to_take(self) -> list[Hold]:
        """Those that take slots in a bucket that was gone."""
        return [hold for hold, slots in self.changes if slots > 0] + [hold for hold in self.renewals if hold.amount]

    def forget(self) -> None:
        """What it was to give back is gone."""
        self._after = [
            HoldAfter(hold, max(hold.amount + slots, 0), hold.due, hold.ttl, hold.life)
            for hold, slots in self.changes
            if slots < 0
        ]
        self.slots, self.watched = NO_SLOTS, NONE_WATCHED

    def is_possible(self, snapshot: BucketSnapshot) -> bool:
        """Whether what was decided can still be done to a bucket as it was seen."""
        for name, moves in self.slots.items():
            balance = snapshot.holds.get(name)
            if balance is None or min((*moves.left, *moves.entered), default=balance.hb + 1) <= balance.hb:
                return False
            if any(balance.counts.get(due, 0) < amount for due, amount in moves.left.items()):
                return False
        return True

    @property
    def life(self) -> str | None:
        """The life of the shard that it gives back to, if it is not known to be that which was seen."""
        if self.fresh:
            return None
        for hold in (*(hold for hold, slots in self.changes if slots < 0), *self.renewals):
            if hold not in self.lost and (inc := shard_and_inc(hold)[1]):
                return inc
        return None

    @property
    def counted(self) -> dict[str, int]:
        return {name: moves.counted for name, moves in self.slots.items() if moves.counted}

    @property
    def gives_back(self) -> bool:
        return any(moves.left for moves in self.slots.values())

    @property
    def does_nothing(self) -> bool:
        """Whether nothing of what it was to change is there any more."""
        return not self.slots and not self.watched

    def note_done(self) -> None:
        """Let every hold be what it is now."""
        after, self._after = self._after, []
        for hold, amount, due, ttl, life in after:
            hold.due, hold.ttl, hold.life, hold.amount = due, ttl, life, amount
        self.changes, self.renewals = (), ()

    def let_go(self) -> bool:
        """No client can tell whether it was done: what could come back twice comes back when it is due, and what was
        to be renewed is taken again. Whether there is something left to do."""
        for hold, slots in self.changes:
            if slots < 0:
                hold.amount = max(hold.amount + slots, 0)
        again = [hold for hold in self.renewals if hold.amount]
        for hold in again:
            hold.life, hold.due = 0, 0  # it is in no life that is known: taken again
        self.changes = [change for change in self.changes if change.slots > 0]
        self.unrefused, self.fresh = NO_ONE, True
        return bool(self.changes or again)

    def left(self) -> tuple[HoldChange, ...]:
        """What is to be tried again."""
        return tuple(self.changes)


Work: TypeAlias = DrawWork | SettleWork


class SlotSums:
    """The slots of one bucket that move together."""

    __slots__ = ("_back", "_counted", "_entered", "_left", "_snapshot")

    def __init__(self, snapshot: BucketSnapshot) -> None:
        self._snapshot = snapshot
        self._left: dict[str, dict[int, int]] = {}
        self._entered: dict[str, dict[int, int]] = {}
        self._counted: dict[str, int] = {}
        self._back: dict[str, int] = {}

    def leave(self, name: str, due: int, amount: int) -> None:
        """So much leaves a due time."""
        _add(self._left.setdefault(name, {}), due, amount)

    def enter(self, name: str, due: int, amount: int) -> None:
        """So much is lent until then."""
        _add(self._entered.setdefault(name, {}), due, amount)

    def count(self, name: str, amount: int) -> None:
        """So much began, or never did."""
        if amount:
            self._counted[name] = self._counted.get(name, 0) + amount

    def left_at(self, name: str, due: int) -> int:
        return self._left.get(name, {}).get(due, 0)

    def add(self, slots: Mapping[str, SlotMoves]) -> None:
        """What another write moves."""
        for name, moves in slots.items():
            for due, amount in moves.left.items():
                self.leave(name, due, amount)
            for due, amount in moves.entered.items():
                self.enter(name, due, amount)
            self.count(name, moves.counted)
            back = sum(moves.left.values()) - sum(moves.entered.values())
            self._back[name] = self._back.get(name, 0) + max(back, 0)

    def back(self, name: str) -> int:
        """What comes back of a limit by other writes; what they renew or take unasked does not."""
        return self._back.get(name, 0)

    def free(self, name: str, now: int) -> int:
        """What a draw may use of a limit: what is free, and what comes back or is overdue."""
        balance = self._snapshot.holds[name]
        left = self._left.get(name, {})
        overdue = sum(count for due, count in balance.counts.items() if due * MILLI <= now and due not in left)
        return balance.tk + overdue + self.back(name)

    def moves(self, needed: Mapping[str, int] = NOTHING) -> dict[str, SlotMoves]:
        """All of it, by limit."""
        names = dict.fromkeys((*self._left, *self._entered))
        return {
            name: SlotMoves(
                self._left.get(name, {}), self._entered.get(name, {}), needed.get(name), self._counted.get(name, 0)
            )
            for name in names
        }


def _add(sums: dict[int, int], due: int, amount: int) -> None:
    sums[due] = sums.get(due, 0) + amount


def level_by(balance: Balance, guesses: Mapping[str, int], now: int) -> int:
    """The level of a limit, if its tokens are what is guessed."""
    if balance.limit.is_held:
        return balance.level(now)
    return min(guesses.get(balance.name, balance.tk) + balance.since_rf(now), balance.bx)
