"""The form of a limit of calls in flight in a write to its bucket. Pure.

``tk`` is what is free, and a count for every due time says what is lent until then. **What is free and all counts
together are the ceiling after every write**, over all shards of a bucket: nothing accrues and nothing is clamped, so
every change is an ``ADD`` to both sides.

===================  ============================================  =================================================
what                 condition                                     effect
===================  ============================================  =================================================
draw                 ``tk >= needed``, ``hb < due``                ``ADD tk -c, x_due +c, tc +c``
taken unasked        ``hb < due``                                  the same
given back           ``inc``, ``hb < d``, ``x_d >= c``             ``ADD tk +c, x_d -c``
renewed              ``inc``, ``hb < d``, ``hb < e``, ``x_d >= c``  ``ADD x_d -c, x_e +c``
with a *roll*        ``hb = :hb``, ``x_f = :v`` for each overdue   ``ADD tk`` all of them, ``REMOVE x_f``,
                                                                   ``SET hb`` the latest of them
new terms                                                          ``ADD tk`` the difference of the ceilings
filled               ``tk = :tk``, every ``x_f = :v``              ``SET tk`` to the share, ``REMOVE`` all counts
===================  ============================================  =================================================

A roll returns what is overdue. A draw does so that lacks without it, or that opens a due time, which keeps the item
small. It demands every count it takes: else it would return what was given back meanwhile. ``hb``, the latest due
time that was ever rolled, refuses those who give back later; ``inc`` refuses those who took from another life of the
bucket. A bucket with slots expires when all that may be lent is due, to any client.
"""

from __future__ import annotations

from collections.abc import Mapping

from zae_limiter.bucket import MILLI, HeldBalance, key_of
from zae_limiter.models.limit import Limit
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot
from zae_limiter.stores.dynamodb.expressions import Update
from zae_limiter.stores.dynamodb.intents import SlotMoves, Watched
from zae_limiter.stores.dynamodb.items import due_attribute
from zae_limiter.stores.dynamodb.limit_forms import Change

_UNTOUCHED = SlotMoves()
_UNWATCHED = Watched()


def move_slots(write: Update, balance: HeldBalance, limit: Limit, change: Change) -> int:
    """Move the slots of one limit. Returns the milliseconds until all that may be lent is due."""
    intent, now = change.intent, change.now
    fresh = HeldBalance(limit, now, shard=balance.shard, shards=balance.shards)
    gain = fresh.bx - balance.bx
    if change.back_to is not None:
        _bring_back(write, balance, change.back_to)
        return 0
    if intent.fill and intent.fills(balance.name):
        _fill(write, balance, fresh.bx)
        return 0
    moves = intent.slots.get(balance.name, _UNTOUCHED)
    watched = intent.watched.get(key_of(limit), _UNWATCHED)
    rolled = overdue_to_roll(balance, moves, watched, gain, now)
    back = sum(rolled.values())
    _demand_due_times(write, balance, moves, rolled)
    tk = f"h_{balance.name}_tk"
    least = watched.least if moves.needed is None else moves.needed
    if least is not None:
        write.demand(tk, ">=", least - gain - back)
    if watched.below is not None:
        write.demand(tk, "<", watched.below - gain - back)
    evened = intent.evened.get(balance.name, 0)
    if evened < 0:
        write.demand(tk, ">=", -evened)
    left, entered = sum(moves.left.values()), sum(moves.entered.values())
    write.add(tk, gain + back + left - entered + evened)
    for due in sorted({*moves.left, *moves.entered}):
        write.add(due_attribute(balance.name, due), moves.entered.get(due, 0) - moves.left.get(due, 0))
    for due in rolled:
        write.remove(due_attribute(balance.name, due))
    write.add(f"h_{balance.name}_tc", moves.counted)
    write.add(f"h_{balance.name}_sn", watched.refusals * MILLI)
    return lent_for(limit, {**balance.counts, **moves.entered}, now)


def overdue_to_roll(
    balance: HeldBalance, moves: SlotMoves, watched: Watched, gain: int, now: int
) -> Mapping[int, int]:
    """What is overdue and returned by a write: if it lacks without that, or opens a due time."""
    asked = max((one for one in (moves.needed, watched.least, watched.below) if one is not None), default=0)
    if balance.tk + gain >= asked and moves.entered.keys() <= balance.counts.keys():
        return {}
    overdue = {due: count for due, count in sorted(balance.counts.items()) if due * MILLI <= now}
    for due in moves.left:  # a count that something leaves is not returned as a whole
        overdue.pop(due, None)
    latest = max(overdue, default=0)
    return overdue if all(due > latest for due in (*moves.left, *moves.entered)) else {}


def _demand_due_times(write: Update, balance: HeldBalance, moves: SlotMoves, rolled: Mapping[int, int]) -> None:
    name, hb = balance.name, f"h_{balance.name}_hb"
    earliest = min((*moves.left, *moves.entered), default=None)
    if rolled:
        write.demand(hb, "=", balance.hb)
        write.set(hb, max(balance.hb, *rolled))
        for due, count in rolled.items():
            write.demand(due_attribute(name, due), "=", count)
    elif earliest is not None:
        write.demand(hb, "<", earliest)
    for due, amount in moves.left.items():
        write.demand(due_attribute(name, due), ">=", amount)


def _fill(write: Update, balance: HeldBalance, whole: int) -> None:
    """Let every slot be free. What is given back later is none of them: it is due by then, or not after ``hb``."""
    name = balance.name
    write.demand(f"h_{name}_tk", "=", balance.tk)
    write.set(f"h_{name}_tk", whole)
    latest = max(balance.counts, default=balance.hb)
    if latest > balance.hb:
        write.set(f"h_{name}_hb", latest)
    for due, count in balance.counts.items():
        write.demand(due_attribute(name, due), "=", count)
        write.remove(due_attribute(name, due))


def _bring_back(write: Update, balance: HeldBalance, now: int) -> None:
    """Let no hold last longer than one that is taken now. The bucket is as it was seen: the caller demands that."""
    after = balance.with_tokens(balance.tk, balance.tc)
    after.go_back(now)
    if after.hb != balance.hb:
        write.set(f"h_{balance.name}_hb", after.hb)
    for due in balance.counts.keys() - after.counts.keys():
        write.remove(due_attribute(balance.name, due))
    for due, count in after.counts.items():
        if balance.counts.get(due) != count:
            write.set(due_attribute(balance.name, due), count)


def begin_slots(
    limit: Limit, moves: SlotMoves, watched: Watched, now: int, *, shard: int = 0, shards: int = 1
) -> dict[str, int]:
    """The attributes of a limit that its bucket does not have yet, but its terms and its counter."""
    fresh = HeldBalance(limit, now, shard=shard, shards=shards)
    found = {
        f"h_{limit.name}_tk": fresh.bx - sum(moves.entered.values()),
        f"h_{limit.name}_hb": fresh.hb,
        **{due_attribute(limit.name, due): amount for due, amount in moves.entered.items()},
    }
    if watched.refusals:
        found[f"h_{limit.name}_sn"] = watched.refusals * MILLI
    return found


def lent_for(limit: Limit, counts: Mapping[int, int], now: int) -> int:
    """Milliseconds until all is due that is lent, also what others have lent unseen."""
    assert limit.hold_seconds is not None
    longest = limit.hold_seconds + max(limit.hold_seconds // 4, 1)
    return max(max(counts, default=0) * MILLI - now, longest * MILLI)


def after_moves(balance: HeldBalance, moves: SlotMoves, watched: Watched, gain: int, now: int) -> HeldBalance:
    """What :func:`move_slots` leaves of a balance whose terms changed by ``gain`` (it has the new ones already)."""
    before = balance.with_tokens(balance.tk - gain, balance.tc)
    rolled = overdue_to_roll(before, moves, watched, gain, now)
    counts = {due: count for due, count in balance.counts.items() if due not in rolled}
    for due, amount in moves.left.items():
        counts[due] = counts.get(due, 0) - amount
    for due, amount in moves.entered.items():
        counts[due] = counts.get(due, 0) + amount
    free = balance.tk + sum(rolled.values()) + sum(moves.left.values()) - sum(moves.entered.values())
    after = balance.with_tokens(free, balance.tc + moves.counted)
    after.counts, after.hb, after.sn = counts, max(balance.hb, *rolled, 0), balance.sn + watched.refusals
    return after


def demand_unknown(write: Update, snapshot: BucketSnapshot, slots: Mapping[str, SlotMoves]) -> None:
    """What is given back to a limit that the bucket does not seem to have: it must be there all the same."""
    for name, moves in slots.items():
        if name not in snapshot.holds:
            for due, amount in moves.left.items():
                write.demand(due_attribute(name, due), ">=", amount)
