"""The forms of one limit in a write to its bucket. Pure.

**A limit that refills** has two, and a change of terms or a new period adds to them. ``write_forms`` has their theory,
and puts the forms of all limits together.

**A limit of calls in flight** has one. ``tk`` is what is free, and a count for every due time says what is lent until
then. **What is free and all counts together are the ceiling after every write**, over all shards of a bucket: nothing
accrues and nothing is clamped, so every change is an ``ADD`` to both sides.

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
from typing import NamedTuple

from zae_limiter.balances import ZONE_CHANGES_MS
from zae_limiter.bucket import MILLI, Balance, HeldBalance, SteppedBalance, key_of, rebase
from zae_limiter.models.limit import Limit, even_rate
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot
from zae_limiter.stores.dynamodb.expressions import Update
from zae_limiter.stores.dynamodb.intents import Intent, SlotMoves, Watched
from zae_limiter.stores.dynamodb.items import due_attribute


class Change(NamedTuple):
    """What an intent means to every limit of a bucket at ``now``.

    ``rebased``: the baseline moves to ``now``. ``bounded``: the write sets the expiry time, and therefore demands that
    no limit is deeper in debt than was seen. ``back_to``: the baseline moves there instead, because a clock was wrong.
    """

    intent: Intent
    now: int
    rebased: bool
    bounded: bool
    back_to: int | None = None


def move(write: Update, balance: Balance, limit: Limit, change: Change, *, guess: int, active: bool) -> int:
    """Move one limit's tokens. Returns the milliseconds it may then take to be full."""
    fresh = balance if limit is balance.limit else rebase(balance, limit, change.now)
    if _loses_extra(balance, fresh, change):
        return _end_extra(write, balance, limit, change, active=active)
    return _move_by_form(write, balance, fresh, change, guess=guess, active=active)


def _move_by_form(write: Update, balance: Balance, fresh: Balance, change: Change, *, guess: int, active: bool) -> int:
    """Move one limit's tokens by one of the two forms; ``fresh``: under its new terms."""
    intent, now, rebased, bounded, back_to = change
    tk = f"b_{balance.name}_tk"
    a = balance.since_rf(now)
    burst, gain = fresh.bx, raised_by(balance, fresh)
    ceiling = min(balance.bx, burst - gain) - a
    shift = a + gain if rebased else 0
    if rebased:
        _write_period(write, balance, fresh, now, back_to)
        shift += _lift(write, balance, fresh, intent)
    if intent.fill and intent.fills(balance.name):
        write.set(tk, ceiling + shift)
        return time_to_end(fresh, 0, now)
    delta = intent.deltas.get(balance.name, 0)
    if rebased and isinstance(balance, SteppedBalance) and forgives(balance, now):
        return _begin_period(write, balance, fresh, change, gain, active=active)
    up, down = max(-delta, 0), max(delta, 0)
    _watch(write, balance, intent, a + gain, ceiling)
    if balance.name in intent.exactly:
        level = _move_exactly(write, balance, intent, shift, now)
        return time_to_end(fresh, burst - level, now)
    needed = _needed_of(balance.name, intent, active=active)
    floor = None if needed is None else needed - a - gain
    above = ceiling - up  # may lie below the floor: what comes back may be more than the bucket holds
    if floor is not None:
        above = max(above, floor - 1)
    elif bounded:
        floor = min(balance.tk, balance.bx - a) - balance.bx
    if guess > ceiling - up and (delta or rebased) and (floor is None or floor <= ceiling):
        write.demand(tk, ">", above)
        write.set(tk, ceiling + shift - down)
        least = ceiling + a + gain - down
    else:
        if floor is not None:
            write.demand(tk, ">=", floor)
        if delta or rebased:
            write.demand(tk, "<=", ceiling - up)
            write.add(tk, shift + up - down)
        least = (ceiling if floor is None else floor) + a + gain - down
    write.add(f"b_{balance.name}_tc", intent.counts(balance.name))
    return time_to_end(fresh, burst - least, now, lifted=bool(intent.lifts))


def _lift(write: Update, balance: Balance, fresh: Balance, intent: Intent) -> int:
    """Note what a limit holds above its burst in this period. Returns by how much its tokens rise."""
    lifted = intent.lifts.get(balance.name, 0) if isinstance(fresh, SteppedBalance) else 0
    if lifted:
        write.set(f"b_{balance.name}_ex", fresh.extra + lifted)
    return lifted


def ends_extra(balance: Balance, now: int) -> bool:
    """Whether a period has begun, and what was extra in the one before is to end."""
    return bool(balance.extra) and isinstance(balance, SteppedBalance) and balance.calendar.ordinal(now) > balance.pn


def _loses_extra(balance: Balance, fresh: Balance, change: Change) -> bool:
    """Whether what was extra ends by a write: with its period, or with the calendar."""
    return change.rebased and bool(balance.extra) and (not fresh.extra or ends_extra(balance, change.now))


def _end_extra(write: Update, balance: Balance, limit: Limit, change: Change, *, active: bool) -> int:
    """Let go of what was extra. That depends on what is left of all, which must therefore be what was seen."""
    intent, now, _, _, back_to = change
    name, after = balance.name, rebase(balance, limit, now)
    level, delta = after.tk, intent.deltas.get(balance.name, 0)
    _write_period(write, balance, after, now, back_to)
    needed, watched = _needed_of(name, intent, active=active), intent.watched.get(name, Watched())
    count_refusals(write, f"b_{name}_sn", watched.refusals)
    write.demand(f"b_{name}_tk", "=", balance.tk)
    if (needed is not None and needed > level) or (watched.below is not None and watched.below <= level):
        write.demand_absent(f"b_{name}_tk")  # it holds less, or more: refused
    if intent.fill and intent.fills(name):
        level, delta = after.bx, 0
    elif name in intent.most:
        level = min(level, intent.most[name])
    level = min(level + max(-delta, 0), after.bx) - max(delta, 0)
    lifted = _lift(write, balance, after, intent)
    if not lifted:
        write.remove(f"b_{name}_ex")
    write.set(f"b_{name}_tk", level + lifted)
    write.add(f"b_{name}_tc", intent.counts(name))
    return time_to_end(after, after.bx - level, now, lifted=bool(lifted))


def time_to_end(balance: Balance, milli: int, now: int, *, lifted: bool = False) -> int:
    """Milliseconds from ``now`` until so much has accrued, and what is extra has ended."""
    if balance.extra or lifted:
        milli = max(milli, 1)
    return time_to_fill(balance.limit, milli, balance.shards, now)


def _watch(write: Update, balance: Balance, intent: Intent, more: int, ceiling: int) -> None:
    """Count what a limit that only watches would have refused, if it holds so little: ``tk`` and so much ``more``."""
    watched = intent.watched.get(balance.name)
    if watched is None:
        return
    count_refusals(write, f"b_{balance.name}_sn", watched.refusals)
    if watched.below is not None and watched.below <= ceiling + more:  # else it never holds that
        write.demand(f"b_{balance.name}_tk", "<", watched.below - more)


def count_refusals(write: Update, counter: str, refusals: int) -> None:
    """Count so many refusals of a limit that only watches. What is counted no longer must have been counted."""
    if refusals < 0:
        write.demand(counter, ">=", -refusals * MILLI)
    write.add(counter, refusals * MILLI)


def _move_exactly(write: Update, balance: Balance, intent: Intent, shift: int, now: int) -> int:
    """Move a limit that must hold what it was seen to hold. Returns its level after that."""
    delta = intent.deltas.get(balance.name, 0)
    tk, level = f"b_{balance.name}_tk", min(balance.level(now) - delta, balance.bx)
    write.demand(tk, "=", balance.tk)
    if delta or shift:
        write.set(tk, level - balance.since_rf(now) + shift)
    write.add(f"b_{balance.name}_tc", intent.counts(balance.name))
    return level


def raised_by(balance: Balance, fresh: Balance) -> int:
    """By how much new terms raise a limit at once: the difference of the amounts, while the calendar is the same.

    An even limit refills soon, so there a raised burst may wait. What is raised in mid-month must count in that month.
    """
    if isinstance(balance, SteppedBalance) and isinstance(fresh, SteppedBalance):
        return fresh.step - balance.step if balance.calendar.boundaries == fresh.calendar.boundaries else 0
    return 0


def _write_period(write: Update, balance: Balance, fresh: Balance, now: int, back_to: int | None) -> None:
    """The number of the period in which a rebased limit stands: with the same calendar never an earlier one."""
    if not isinstance(fresh, SteppedBalance):
        if isinstance(balance, SteppedBalance):
            write.remove(f"b_{balance.name}_pn")
        return
    number = fresh.calendar.ordinal(now if back_to is None else back_to)
    if isinstance(balance, SteppedBalance) and balance.calendar.boundaries == fresh.calendar.boundaries:
        number = max(number, balance.pn) if back_to is None else number
        if number == balance.pn:
            return
    write.set(f"b_{balance.name}_pn", number)


def forgives(balance: SteppedBalance, now: int) -> bool:
    """Whether a period has begun that owes nothing to the one before."""
    return not balance.calendar.carry_debt and balance.calendar.ordinal(now) > balance.pn


def _begin_period(
    write: Update, balance: SteppedBalance, fresh: Balance, change: Change, gain: int, *, active: bool
) -> int:
    """Let a period begin full, less what is taken, whatever was left of the one before: the baseline guards it."""
    delta = change.intent.deltas.get(balance.name, 0)
    full, down = min(balance.bx + gain, fresh.bx), max(delta, 0)
    needed = _needed_of(balance.name, change.intent, active=active)
    watched = change.intent.watched.get(balance.name, Watched())
    count_refusals(write, f"b_{balance.name}_sn", watched.refusals)
    if (needed is not None and needed > full) or (watched.below is not None and watched.below <= full):
        write.demand_absent(f"b_{balance.name}_tk")  # it never holds that, or always does: refused
    lifted = change.intent.lifts.get(balance.name, 0)
    write.set(f"b_{balance.name}_tk", full - down + lifted)
    write.add(f"b_{balance.name}_tc", change.intent.counts(balance.name))
    return time_to_end(fresh, fresh.bx - full + down, change.now, lifted=bool(lifted))


def lower_to(write: Update, balance: Balance, most: int, change: Change) -> int:
    """Let one limit fall to ``most``, if it is above. Returns the milliseconds it may then take to be full."""
    now, tk = change.now, f"b_{balance.name}_tk"
    if _loses_extra(balance, balance, change):
        return _end_extra(write, balance, balance.limit, change, active=False)
    a = balance.since_rf(now)
    if change.rebased:
        _write_period(write, balance, balance, now, change.back_to)
    if not (isinstance(balance, SteppedBalance) and forgives(balance, now)):  # else it is full, whatever it has
        write.demand(tk, ">", most - a)
    write.set(tk, most if change.rebased else most - a)
    return time_to_end(balance, balance.bx - most, now)


def _needed_of(name: str, intent: Intent, *, active: bool) -> int | None:
    """How much a limit must hold for a write to be done; ``None``: it may be in debt."""
    watched = intent.watched.get(name)
    if watched is not None and intent.needed is not None:
        return watched.least
    if intent.needed is not None and active:
        return intent.needed.get(name, 0)
    delta = intent.deltas.get(name, 0)
    return max(delta, 0) if intent.held and delta else None


def time_to_fill(limit: Limit, milli: int, shards: int, now: int) -> int:
    """Milliseconds from ``now`` until so much has accrued, rounded up generously for a share."""
    if limit.periods is None:
        amount, seconds = even_rate(limit)
        return -(-milli * shards * seconds // amount)
    if milli <= 0:
        return 0
    calendar = limit.periods
    periods = -(-milli // max(limit.refill_amount * MILLI // shards, 1)) if calendar.carry_debt else 1
    return calendar.start(calendar.ordinal(now) + periods) - now + ZONE_CHANGES_MS


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
    count_refusals(write, f"h_{balance.name}_sn", watched.refusals)
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
