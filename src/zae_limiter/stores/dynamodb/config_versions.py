"""Which config a bucket obeys: the version it carries (``cv``), which version may follow which, and how a bucket
stands under the terms that hold. Pure.

Every config item has a counter that grows with each change, deletions included. A bucket carries the counters of
all the items from which its limits were resolved, and every write is guarded by them. So a client that knows an
older config cannot write by it, and a client that knows a newer one rebases the bucket first: :func:`adopted` is
the bucket as that write will see it.

An ancestor without limits has no bucket to carry its counters. The bucket below it does, after its own: they are
the *way* from there to the next bucket. When such an ancestor gets limits, or leads elsewhere, it is that bucket
which all clients meet at a version they do not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from zae_limiter.bucket import (
    MILLI,
    Balance,
    HeldBalance,
    accrued_in_a_second,
    balance_of,
    force_consume,
    key_of,
    rebase,
    refill_bucket,
)
from zae_limiter.models.limit import Limit
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot
from zae_limiter.stores.dynamodb.intents import Intent, SlotMoves, Terms, Watched
from zae_limiter.stores.dynamodb.limit_forms import after_moves
from zae_limiter.stores.protocol import Leg

FENCE = "!"
"""How the version of a bucket begins that is being removed: no client has it, so every client must look again."""

LAST_FENCE = FENCE + "~"
"""It sorts after every fence."""

_CALL = "~"
_STEP = "/"


class Versions(NamedTuple):
    """The counters of the items that resolution reads: four levels, the total, and the entity itself."""

    system: int
    resource: int
    entity_default: int
    entity: int
    total: int
    meta: int

    def __str__(self) -> str:
        return ".".join(map(str, self))

    @property
    def passed_by(self) -> str:
        """The step of a way over an entity that has no limits."""
        return f"{_STEP}{self.entity_default}.{self.entity}.{self.total}.{self.meta}"

    @property
    def of_total(self) -> str:
        """The version of the entity's total: that is one bucket for all resources, and no level concerns it."""
        return str(Versions(0, 0, 0, 0, self.total, self.meta))


def of_call(limits: Iterable[Limit], total: int, meta: int) -> str:
    """The version of limits given with a call: they have no counter, only a digest. The total holds besides."""
    terms = ";".join(
        f"{limit.name},{limit.capacity},{limit.burst},{limit.refill_amount},{limit.refill_period_seconds}"
        + ("" if limit.is_plain else f",{limit.periods},{limit.hold_seconds},{limit.enforce}")
        for limit in limits
    )
    return f"{_CALL}{blake2b(terms.encode(), digest_size=6).hexdigest()}.{total}.{meta}"


def fence_of(deletion: int) -> str:
    """The version of a bucket whose namespace was deleted, by the change of its record that did it.

    Every deletion has a fence of its own, and later ones sort after earlier ones. A client that met the fence of one
    deletion, and has found the namespace recovered since, cannot take the fence of the next one for it.
    """
    return f"{FENCE}{deletion:09d}"


def is_fence(cv: str) -> bool:
    """Whether a bucket with this version is being removed, with its entity or with its namespace."""
    return cv.startswith(FENCE)


def may_follow(ours: str, theirs: str, *, seen_before: bool) -> bool:
    """Whether a bucket at version ``theirs`` may be rebased to ``ours``; if not, resolve again.

    Counters are ordered: ours must be nowhere behind. A digest and a fence are not; ``seen_before`` says that
    ours was resolved after theirs was seen, so it is the newer one (even if its counters are behind, as after a
    restored backup).
    """
    if seen_before:
        return True
    if is_fence(theirs):
        return False
    my_own, *my_way = ours.split(_STEP)
    their_own, *their_way = theirs.split(_STEP)
    mine, other = _counters(my_own), _counters(their_own)
    if any(ours < theirs for ours, theirs in zip(mine[-2:], other[-2:], strict=False)):
        return False
    if mine[-1] == other[-1] and not _is_nowhere_behind(my_way, their_way):
        return False
    if ours.startswith(_CALL):
        return True
    if theirs.startswith(_CALL):
        return False  # what the bucket obeyed before that call may be newer than ours
    return len(mine) == len(other) and all(ours >= theirs for ours, theirs in zip(mine, other, strict=True))


def _is_nowhere_behind(my_way: Sequence[str], their_way: Sequence[str]) -> bool:
    """Whether one way is surely no older than another from the same entity, step by step.

    Each step ends with the counter of the entity itself: where that is higher, the way has led elsewhere since.
    """
    if len(my_way) != len(their_way):
        return False
    for my_step, their_step in zip(my_way, their_way, strict=True):
        mine, other = _counters(my_step), _counters(their_step)
        if len(mine) != len(other) or any(ours < theirs for ours, theirs in zip(mine, other, strict=True)):
            return False
        if mine[-1] > other[-1]:
            return True
    return True


def _counters(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdecimal()] or [0]


NEVER_MS = 10**12


def adopted(snapshot: BucketSnapshot | None, terms: Terms, now: int) -> tuple[Balance, ...]:
    """The limits of ``terms`` as they stand; those of a bucket that does not exist are full."""
    limits = terms.leg.limits
    if snapshot is None:
        return tuple(balance_of(limit, now) for limit in limits)
    known = snapshot.balances
    if snapshot.cv == terms.cv and not terms.leg.held and known.keys() >= terms.leg.names:
        return tuple([known[limit.name] for limit in limits])
    now, is_obeyed = max(now, snapshot.rf), snapshot.cv == terms.cv
    found = []
    for limit in limits:
        balance = snapshot.balance_of(limit)
        if balance is None:
            balance = balance_of(limit, now, shard=snapshot.shard, shards=snapshot.shards)
        elif not is_obeyed or balance.limit != limit:
            balance = rebase(balance, limit, now)
        found.append(balance)
    return tuple(found)


def brought_back_snapshot(snapshot: BucketSnapshot, ahead: int, now: int) -> BucketSnapshot:
    """A bucket that was written by a clock that is wrong, as it is once it goes on from ``now``."""
    balances = {}
    for name, balance in snapshot.balances.items():
        at_ahead = rebase(balance, balance.limit, ahead)
        at_ahead.go_back(now)
        balances[name] = at_ahead
    holds = {name: lending.with_tokens(lending.tk, lending.tc) for name, lending in snapshot.holds.items()}
    for lending in holds.values():
        lending.go_back(now)
    return snapshot.replaced(rf=now, balances=balances, holds=holds, load_level=snapshot.load_burst)


def after_write(
    snapshot: BucketSnapshot, intent: Intent, now: int, write_id: str, terms: Terms | None = None
) -> BucketSnapshot:
    """What a transaction left of the bucket, which it does not tell itself; ``terms`` are those it has, or has now.

    Limits that were taken away are said to be retired, also if they have ended: the next write to the bucket learns
    that.
    """
    if terms is None:
        terms = Terms(Leg(snapshot.entity_id, snapshot.resource, snapshot.limits, "call"), snapshot.cv)
    rebased = snapshot.cv != terms.cv
    rf = max(now, snapshot.rf) if rebased else snapshot.rf
    kept = {key_of(balance.limit): balance for balance in adopted(snapshot, terms, now)}
    retired = {
        key: rebase(balance, balance.limit, rf) if rebased else balance
        for balance in (*snapshot.balances.values(), *snapshot.holds.values())
        if (key := key_of(balance.limit)) not in kept
    }
    balances: dict[str, Balance] = {}
    holds: dict[str, HeldBalance] = {}
    for key, balance in (kept | retired).items():
        name, saying = balance.name, intent.watched.get(key, Watched())
        if isinstance(balance, HeldBalance):
            before = snapshot.holds.get(name)
            gain = 0 if before is None else balance.bx - before.bx
            moves = intent.slots.get(name, SlotMoves())
            holds[name] = after_moves(balance, moves, saying, gain, max(now, snapshot.rf))
        else:
            taken = intent.deltas.get(name, 0)
            tk = force_consume(balance, taken, now) if taken else balance.tk
            balances[name] = balance.with_tokens(tk, balance.tc + taken)
            balances[name].sn = balance.sn + saying.refusals
    return snapshot.replaced(
        rf=rf,
        cv=terms.cv,
        balances=balances,
        holds=holds,
        retired=frozenset(retired),
        ev=snapshot.ev + intent.grants,
        recent_writers=(write_id, *snapshot.recent_writers[:-1]),
        load_level=snapshot.load_level + accrued_in_a_second(snapshot.load_burst, snapshot.rf, rf),
        rv=write_id if rebased else snapshot.rv,
    )


def needed_of(terms: Terms, wanted: Mapping[str, int], reserved: Mapping[str, int]) -> dict[str, int]:
    """Millitokens each named limit must hold: what is wanted, and what others wait for."""
    return {
        name: (amount + reserved.get(name, 0)) * MILLI
        for name, amount in wanted.items()
        if amount and name in terms.leg.names
    }


def lacking(balances: tuple[Balance, ...], needed: Mapping[str, int], now: int) -> list[Balance]:
    """The limits that do not hold what is needed: nothing, for those not named, means no debt.

    One that only watches lacks nothing, and one of calls in flight judges only who wants a slot.
    """
    return [
        balance
        for balance in balances
        if refill_bucket(balance, now) < needed.get(balance.name, 0) and judges(balance.limit, needed)
    ]


def judges(limit: Limit, needed: Mapping[str, int]) -> bool:
    """Whether a limit may refuse a draw that needs so much."""
    return limit.enforce and (not limit.is_held or limit.name in needed)


SLOT_DENIAL_MS = 250
"""For how long a denial for want of a slot is believed without asking again: any call may end."""


def due_at(balance: Balance, needed: int, now: int) -> int:
    """When it will, or may be asked for again; far away, if never."""
    if balance.limit.is_held:
        return now + SLOT_DENIAL_MS
    return now + NEVER_MS if needed > balance.bx - balance.extra else balance.due(needed, now)
