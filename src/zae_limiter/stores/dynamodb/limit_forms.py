"""The two forms of one limit in a write to its bucket, and what a change of terms or a new period adds to them. Pure.

``write_forms`` has the theory, and puts the forms of all limits together.
"""

from __future__ import annotations

from typing import NamedTuple

from zae_limiter.balances import ZONE_CHANGES_MS
from zae_limiter.bucket import MILLI, Balance, SteppedBalance, balance_of
from zae_limiter.models.limit import Limit, even_rate
from zae_limiter.stores.dynamodb.expressions import Update
from zae_limiter.stores.dynamodb.intents import Intent, Watched


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
    """Move one limit's tokens by one of the two forms. Returns the milliseconds it may then take to be full."""
    intent, now, rebased, bounded, back_to = change
    tk = f"b_{balance.name}_tk"
    a = balance.since_rf(now)
    fresh = balance if limit is balance.limit else balance_of(limit, now, shard=balance.shard, shards=balance.shards)
    burst, gain = fresh.bx, raised_by(balance, fresh)
    ceiling = min(balance.bx, burst - gain) - a
    shift = a + gain if rebased else 0
    if rebased:
        _write_period(write, balance, fresh, now, back_to)
    if intent.fill and intent.fills(balance.name):
        write.set(tk, ceiling + shift)
        return 0
    delta = intent.deltas.get(balance.name, 0)
    if rebased and isinstance(balance, SteppedBalance) and forgives(balance, now):
        return _begin_period(write, balance, fresh, change, gain, active=active)
    up, down = max(-delta, 0), max(delta, 0)
    _watch(write, balance, intent, a + gain, ceiling)
    if balance.name in intent.exactly:
        level = _move_exactly(write, balance, intent, shift, now)
        return time_to_fill(limit, burst - level, balance.shards, now)
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
    write.add(f"b_{balance.name}_tc", 0 if intent.uncounted else delta)
    return time_to_fill(limit, burst - least, balance.shards, now)


def _watch(write: Update, balance: Balance, intent: Intent, more: int, ceiling: int) -> None:
    """Count what a limit that only watches would have refused, if it holds so little: ``tk`` and so much ``more``."""
    watched = intent.watched.get(balance.name)
    if watched is None:
        return
    write.add(f"b_{balance.name}_sn", watched.refusals * MILLI)
    if watched.below is not None and watched.below <= ceiling + more:  # else it never holds that
        write.demand(f"b_{balance.name}_tk", "<", watched.below - more)


def _move_exactly(write: Update, balance: Balance, intent: Intent, shift: int, now: int) -> int:
    """Move a limit that must hold what it was seen to hold. Returns its level after that."""
    delta = intent.deltas.get(balance.name, 0)
    tk, level = f"b_{balance.name}_tk", min(balance.level(now) - delta, balance.bx)
    write.demand(tk, "=", balance.tk)
    if delta or shift:
        write.set(tk, level - balance.since_rf(now) + shift)
    write.add(f"b_{balance.name}_tc", 0 if intent.uncounted else delta)
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
    write.add(f"b_{balance.name}_sn", watched.refusals * MILLI)
    if (needed is not None and needed > full) or (watched.below is not None and watched.below <= full):
        write.demand_absent(f"b_{balance.name}_tk")  # it never holds that, or always does: refused
    write.set(f"b_{balance.name}_tk", full - down)
    write.add(f"b_{balance.name}_tc", 0 if change.intent.uncounted else delta)
    return time_to_fill(fresh.limit, fresh.bx - full + down, balance.shards, change.now)


def lower_to(write: Update, balance: Balance, most: int, now: int) -> int:
    """Let one limit fall to ``most``, if it is above. Returns the milliseconds it may then take to be full."""
    tk, a = f"b_{balance.name}_tk", balance.since_rf(now)
    write.demand(tk, ">", most - a)
    write.set(tk, most - a)
    return time_to_fill(balance.limit, balance.bx - most, balance.shards, now)


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
