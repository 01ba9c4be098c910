"""The forms every change of a bucket takes. Pure: from a snapshot and an intent to one conditional UpdateItem.

**Why they are exact.** A bucket's level is ``min(tk + a, bx)``, where ``a`` is what accrued since the baseline
``rf``. ``rf`` stands still while tokens come and go, so for a given ``now`` the accrual ``a`` is a number the client
can compute, and the only thing it cannot know is ``tk`` at the moment of the write. Each limit of a write therefore
takes one of two forms, told apart by a condition on ``tk``:

======================  ==============================  ===================================
                        below the ceiling               at the ceiling
======================  ==============================  ===================================
condition               ``floor <= tk <= C - up``       ``tk > C - up``, ``tk >= floor``
effect                  ``ADD tk  shift + up - down``   ``SET tk = C + shift - down``
======================  ==============================  ===================================

with ``C = bx - a`` (what ``tk`` is when the bucket is full), ``up`` what comes back, ``down`` what is taken. The
conditions exclude each other and cover everything, so a wrong guess costs a call and never a token: the refusal
brings the snapshot for the right one.

A *rebase* moves the baseline to ``now`` and sets new terms: then ``C = min(old bx, new bx) - a`` and everything
shifts by ``a``; otherwise ``shift`` is 0. The ``floor`` is what makes it a *draw* (the tokens must be there, for
limits that are not named at least no debt), and for a *settlement* it only bounds how deep the debt can be, so that
the expiry time written along cannot forgive any. A pure credit has no floor and leaves the expiry time alone. A shard
of a sharded bucket settles only what it holds, and gets nothing back while it is in debt (``held``): a debt is that of
all shards, and is written to all of them at once, each ``exactly`` as it was seen. A limit that a shard has no longer,
or not yet, is full there: it is settled as if it were there, and comes back as a retired one.

**Guards.** Every write also demands the baseline, the config version and the number of shards it was computed for,
and that its own write id is not among the four recent writers: what is applied once is not applied twice.

**Limits that are taken away** are retired: they go on filling under the terms they had. A change of terms that finds
one full removes it, since one that is full and one that was never there are the same. What it counted stays until the
hour is over, because the usage of that hour is read from it. ``rv`` guards which limits are retired: within a
millisecond one may come back by ``limits=`` under other terms and be retired again, and version and baseline would be
what they were.

**In short.** The writes of nearly every lease, :func:`plain_draw` and :func:`plain_settlement`, are told without being
put together step by step: the forms that the limits take name the shape of a write, and what is left are the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from zae_limiter.bucket import MILLI, HeldBalance, SteppedBalance, accrued_in_a_second, key_of
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot
from zae_limiter.stores.dynamodb.departures import (
    Departures,
    add_limit,
    bring_back_retired,
    coming_back,
    demand_absence,
    demand_same_retired,
    write_terms,
)
from zae_limiter.stores.dynamodb.expressions import Shape, Update, Value
from zae_limiter.stores.dynamodb.intents import (
    NO_SLOTS,
    NONE_WATCHED,
    NOTHING,
    Intent,
    SlotMoves,
    Terms,
    Watched,
)
from zae_limiter.stores.dynamodb.items import RECENT_WRITERS, prefix_of, terms_of
from zae_limiter.stores.dynamodb.limit_forms import (
    Change,
    begin_slots,
    demand_unknown,
    lent_for,
    lower_to,
    move,
    move_slots,
    time_to_fill,
)
from zae_limiter.stores.dynamodb.schema import Key, encode_item, gsi2_bucket, gsi3_bucket, gsi4, ns_of, number_in
from zae_limiter.stores.dynamodb.write_load import (
    LOAD_TK,
    PARTITION_WCU,
    WRITE,
    load_attributes,
    load_level_at,
    reset_level,
)

FULL_BY = "full_by"
"""What ``ttl`` is to a bucket, for a shard of a sharded one: when it is surely full. Single shards must not expire."""


def update(
    snapshot: BucketSnapshot,
    intent: Intent,
    *,
    now: int,
    write_id: str,
    epoch_s: int,
    ttl_margin_s: int,
    guesses: Mapping[str, int] = NOTHING,
    anchor: str | None = None,
    load: int = WRITE,
    age_ms: int | None = None,
) -> Update:
    """The write that does ``intent`` to the bucket of ``snapshot``, if that is how the bucket still is.

    ``guesses`` has what ``tk`` may be by now, where it may differ from the snapshot. ``load`` is what the bucket's
    write load is charged, and ``age_ms`` how old the snapshot is, if that is known.
    """
    terms = intent.terms
    back = coming_back(snapshot, intent.concerned, intent.owed) if intent.owed and terms is None else ()
    lends = any(moves.entered for moves in intent.slots.values())
    takes = (*intent.deltas.values(), bool(intent.most), bool(intent.lifts), lends)
    begun = intent.rebase or bool(back) or begins_anew(snapshot, now)
    # Our clock may be behind that of the client which set the baseline. The number of a period never changes under a
    # baseline and a version that stay: what is computed for the one must not be done to the other.
    # So what is extra, which is of one period.
    moves = (begun and terms is None) or any(balance.extra for balance in snapshot.balances.values())
    late = max(snapshot.rf + (moves and (begun or terms is not None)) - now, 0)
    now += late
    change = Change(
        intent,
        now,
        # A client that does not know of a limit that comes back must not write: the baseline moves with it.
        rebased=terms is not None or begun,
        bounded=intent.needed is not None or terms is not None or any(delta > 0 for delta in takes),
    )
    write = _guarded(snapshot, write_id, anchor)
    if intent.not_written is not None:
        write.demand_not_written(intent.not_written)
    if change.rebased or intent.fill:
        demand_same_retired(write, snapshot)
    if intent.slots:
        write.demand("inc", "=", snapshot.inc if intent.life is None else intent.life)
        demand_unknown(write, snapshot, intent.slots)
    if terms is None:
        longest = _move_all(write, snapshot, change, guesses)
        if back:
            longest = max(longest, bring_back_retired(write, back, intent, snapshot, write_id, now))
    else:
        longest = _adopt(write, snapshot, change, terms, write_id, guesses)
    demand_absence(write, intent, snapshot, back)
    if change.rebased and now != snapshot.rf:
        write.set("rf", now)
    _weigh(write, snapshot, now, load, rebased=change.rebased, age_ms=age_ms)
    write.add("ev", intent.grants)
    for attribute, amount in intent.tallies.items():
        write.add(attribute, amount)
    if change.bounded:
        write.set("ttl" if snapshot.shards == 1 else FULL_BY, expires_at(epoch_s, longest + late, ttl_margin_s))
    return write


def begins_anew(snapshot: BucketSnapshot, now: int) -> bool:
    """Whether a period has begun of a limit that carries no debt into it, or had something extra in the one before.

    Its first write moves the baseline.
    """
    return any(
        isinstance(balance, SteppedBalance)
        and (balance.extra or not balance.calendar.carry_debt)
        and balance.calendar.ordinal(now) > balance.pn
        for balance in snapshot.balances.values()
    )


def _guarded(snapshot: BucketSnapshot, write_id: str, anchor: str | None = None) -> Update:
    """A write that is done once, and only to a bucket whose baseline, version and number of shards are as seen."""
    write = Update()
    write.demand("rf", "=", snapshot.rf)
    write.demand("cv", "=", snapshot.cv)
    write.demand("shard_count", "=", snapshot.shards)
    write.push_write_id(write_id, anchor)
    return write


def _move_all(write: Update, snapshot: BucketSnapshot, change: Change, guesses: Mapping[str, int]) -> int:
    """Move every limit under the terms it has. Returns the milliseconds they may then take to be full."""
    longest = 0
    for lending in snapshot.holds.values():
        longest = max(longest, move_slots(write, lending, lending.limit, change))
    for name, balance in snapshot.balances.items():
        guess, active = guesses.get(name, balance.tk), name not in snapshot.retired
        most = change.intent.most.get(name)
        if most is not None and balance.level(change.now) > most:
            longest = max(longest, lower_to(write, balance, most, change))
        else:
            longest = max(longest, move(write, balance, balance.limit, change, guess=guess, active=active))
    return longest


def _adopt(
    write: Update,
    snapshot: BucketSnapshot,
    change: Change,
    terms: Terms,
    write_id: str,
    guesses: Mapping[str, int],
) -> int:
    """Move every limit, and let ``terms`` hold from then on. Returns the milliseconds they may take to be full."""
    longest = 0
    intent, now = change.intent, change.now
    limits = {key_of(limit): limit for limit in terms.leg.limits}
    departures = Departures(write, snapshot, write_id)
    departures.kept.update(limit.name for limit in terms.leg.limits)
    for balance in (*snapshot.balances.values(), *snapshot.holds.values()):
        key, name = key_of(balance.limit), balance.name
        limit, is_held = limits.get(key), isinstance(balance, HeldBalance)
        guess = balance.tk if is_held else guesses.get(name, balance.tk)
        moved = name in intent.slots if is_held else bool(intent.deltas.get(name))
        if limit is None and not moved and departures.may_end(balance, guess, now):
            departures.end(balance, now)
            continue
        active, obeyed = limit is not None, limit or balance.limit
        if isinstance(balance, HeldBalance):
            longest = max(longest, move_slots(write, balance, obeyed, change))
        else:
            longest = max(longest, move(write, balance, obeyed, change, guess=guess, active=active))
        departures.keep(balance, limit)
        write_terms(write, balance, limit, retired=key in snapshot.retired)
    for limit in terms.leg.limits:
        if snapshot.balance_of(limit) is None:
            longest = max(longest, add_limit(write, limit, change, snapshot, departures))
    departures.finish(intent.tallies)
    _write_version(write, snapshot, terms)
    return longest


def _weigh(write: Update, snapshot: BucketSnapshot, now: int, load: int, *, rebased: bool, age_ms: int | None) -> None:
    """Charge the write load of the bucket. It never refuses anything."""
    burst = snapshot.load_burst
    accrued = accrued_in_a_second(burst, snapshot.rf, now)
    level = None if age_ms is None else reset_level(load_level_at(snapshot, now), burst, age_ms)
    if level is None:
        write.add(LOAD_TK, accrued - load if rebased else -load)
    else:
        write.set(LOAD_TK, level - load if rebased else level - accrued - load)


def _write_version(write: Update, snapshot: BucketSnapshot, terms: Terms) -> None:
    if terms.cv != snapshot.cv:
        write.set("cv", terms.cv)
    write.set("cascade", terms.cascade)
    if terms.parent_id is None:
        write.remove("parent_id")
    else:
        write.set("parent_id", terms.parent_id)


def brought_back(snapshot: BucketSnapshot, *, ahead: int, now: int, write_id: str) -> Update:
    """A bucket that was written by a clock that is wrong goes on from ``now``, with what it held at ``ahead``.

    A rebase, but for two things. What accrued is counted up to ``ahead``, the latest moment it was written for:
    what was above the ceiling then is forgotten, and only that moment tells how much. And the baseline moves back.
    No other write may come in between: if it was for a moment still later, this one would void what tells of it.
    """
    write = _guarded(snapshot, write_id)
    write.demand(RECENT_WRITERS[0], "=", snapshot.recent_writers[0])
    demand_same_retired(write, snapshot)
    change = Change(Intent({}, rebase=True), ahead, rebased=True, bounded=False, back_to=now)
    _move_all(write, snapshot, change, NOTHING)
    write.set("rf", now if now != snapshot.rf else now + 1)
    write.set(LOAD_TK, snapshot.load_burst - WRITE)
    return write


def restamp(snapshot: BucketSnapshot, cv: str, *, write_id: str) -> Update:
    """Only another version: the bucket's limits are gone, and clients that know them must notice."""
    write = _guarded(snapshot, write_id)
    write.set("cv", cv)
    write.add(LOAD_TK, -WRITE)
    return write


def new_item(
    key: Key,
    terms: Terms,
    deltas: Mapping[str, int],
    *,
    now: int,
    write_id: str,
    inc: str,
    grants: int,
    epoch_s: int,
    ttl_margin_s: int,
    wcu: int = PARTITION_WCU,
    tallies: Mapping[str, int] = NOTHING,
    slots: Mapping[str, SlotMoves] = NO_SLOTS,
    watched: Mapping[str, Watched] = NONE_WATCHED,
    usage: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """A bucket that begins its life: full, less what is taken."""
    ns, entity_id, resource = ns_of(key), terms.leg.entity_id, terms.leg.resource
    attributes: dict[str, Any] = {
        "PK": key.pk,
        "SK": key.sk,
        "entity_id": entity_id,
        "resource": resource,
        "rf": now,
        "cv": terms.cv,
        "inc": inc,
        "ev": grants,
        "shard_count": 1,
        "cascade": terms.cascade,
        "parent_id": terms.parent_id,
        **dict.fromkeys(RECENT_WRITERS, "-"),
        "w0": write_id,
        **gsi2_bucket(ns, entity_id, resource, 0),
        **gsi3_bucket(ns, entity_id, resource, 0),
        **gsi4(ns, key.pk, "BUCKET"),
        **load_attributes(wcu * MILLI),
        **tallies,
    }
    longest = 0
    for limit in terms.leg.limits:
        place, saying = prefix_of(limit) + limit.name, watched.get(key_of(limit), Watched())
        for field, value in terms_of(limit).items():
            attributes[f"{place}_{field}"] = value
        if limit.is_held:
            moves = slots.get(limit.name, SlotMoves())
            attributes |= begin_slots(limit, moves, saying, now)
            attributes[f"{place}_tc"] = moves.counted
            longest = max(longest, lent_for(limit, moves.entered, now))
            continue
        delta = deltas.get(limit.name, 0)
        taken = max(delta, 0)
        attributes[f"{place}_tk"] = limit.burst * MILLI - taken
        attributes[f"{place}_tc"] = delta if usage is None else usage.get(limit.name, 0)
        if saying.refusals:
            attributes[f"{place}_sn"] = saying.refusals * MILLI
        if limit.periods is not None:
            attributes[f"{place}_pn"] = limit.periods.ordinal(now)
        longest = max(longest, time_to_fill(limit, max(taken, limit.burst * MILLI), 1, now))
    attributes["ttl"] = expires_at(epoch_s, longest, ttl_margin_s)
    return encode_item(attributes)


def lifted_item(item: Mapping[str, Any], lifts: Mapping[str, int]) -> dict[str, Any]:
    """A bucket that begins its life with so much more of these calendar limits, in this period."""
    lifted = dict(item)
    for name, milli in lifts.items():
        tk = f"b_{name}_tk"
        lifted |= encode_item({tk: number_in(item[tk]) + milli, f"b_{name}_ex": milli})
    return lifted


# In short: an undivided bucket that obeys the terms it is drawn by, in which no limit rests, lends or only watches.
# A test holds these against ``update``.

LAST_S = 253_402_300_799
"""The last second of the year 9999: nothing expires later, however long it takes to fill."""

UNTOUCHED, FLOOR, BELOW, BELOW_FROM_FLOOR, AT_CEILING = range(5)
"""What becomes of a limit: nothing, only a look at how deep its debt is, or one of the two forms; the one below the
ceiling with or without a floor."""

_FORMS: Final = 5


def plain_draw(
    snapshot: BucketSnapshot,
    taken: Mapping[str, int],
    needed: Mapping[str, int],
    *,
    now: int,
    write_id: str,
    guesses: Mapping[str, int],
    load: int,
    age_ms: int | None,
    epoch_s: int,
    ttl_margin_s: int,
    tallies: Mapping[str, int] = NOTHING,
) -> tuple[Shape, list[Value]]:
    """One grant that takes ``taken``, if every limit holds what is ``needed``: its shape, and the values for it."""
    rf = snapshot.rf
    late = max(rf - now, 0)
    now += late
    values: list[Value] = [rf, snapshot.cv, 1, write_id]
    forms = longest = 0
    for name, balance in snapshot.balances.items():
        accrued, burst, delta = balance.since_rf(now), balance.bx, taken.get(name, 0)
        ceiling, floor = burst - accrued, needed.get(name, 0) - accrued
        if not delta:
            form, least = FLOOR, floor + accrued
            values.append(floor)
        elif (guesses.get(name, balance.tk) if guesses else balance.tk) > ceiling >= floor:
            form, least = AT_CEILING, burst - delta
            values += (ceiling, ceiling - delta, delta)
        else:
            form, least = BELOW_FROM_FLOOR, floor + accrued - delta
            values += (floor, ceiling, -delta, delta)
        to_fill = -((least - burst) * balance.rp // balance.ra)
        if to_fill > longest:
            longest = to_fill
        forms = forms * _FORMS + form
    load_accrued = (now - rf) * snapshot.load_burst // MILLI
    level = None if age_ms is None else reset_level(snapshot.load_level + load_accrued, snapshot.load_burst, age_ms)
    values += (
        -load if level is None else level - load_accrued - load,
        1,
        *tallies.values(),
        min(epoch_s + -(-(longest + late) // MILLI) + ttl_margin_s, LAST_S),  # expires_at, in place
    )
    return _shape_of(tuple(snapshot.balances), forms, level is None, True, True, tuple(tallies)), values


def plain_settlement(
    snapshot: BucketSnapshot,
    deltas: Mapping[str, int],
    *,
    now: int,
    write_id: str,
    grants: int,
    load: int,
    age_ms: int | None,
    epoch_s: int,
    ttl_margin_s: int,
    tallies: Mapping[str, int] = NOTHING,
) -> tuple[Shape, list[Value]]:
    """What takes the positive ``deltas`` and gives back the negative ones, all of limits that the bucket has."""
    rf = snapshot.rf
    late = max(rf - now, 0)
    now += late
    values: list[Value] = [rf, snapshot.cv, 1, write_id]
    forms = longest = 0
    is_bounded = max(deltas.values(), default=0) > 0  # it sets the expiry time
    for name, balance in snapshot.balances.items():
        accrued, burst, tk, delta = balance.since_rf(now), balance.bx, balance.tk, deltas.get(name, 0)
        ceiling = burst - accrued
        full = ceiling + delta if delta < 0 else ceiling  # with what comes back
        least = burst - delta if delta > 0 else burst
        if delta and tk > full:
            form = AT_CEILING
            values += (full, least - accrued, delta)
        elif is_bounded:
            floor = min(tk, ceiling) - burst
            least += floor - ceiling
            form = BELOW_FROM_FLOOR if delta else FLOOR
            values += (floor, full, -delta, delta) if delta else (floor,)
        elif delta:
            form = BELOW
            values += (full, -delta, delta)
        else:
            form = UNTOUCHED
        to_fill = -((least - burst) * balance.rp // balance.ra)
        if to_fill > longest:
            longest = to_fill
        forms = forms * _FORMS + form
    load_accrued = (now - rf) * snapshot.load_burst // MILLI
    level = None if age_ms is None else reset_level(snapshot.load_level + load_accrued, snapshot.load_burst, age_ms)
    values.append(-load if level is None else level - load_accrued - load)
    if grants:
        values.append(grants)
    values += tallies.values()
    if is_bounded:
        values.append(min(epoch_s + -(-(longest + late) // MILLI) + ttl_margin_s, LAST_S))
    shape = _shape_of(tuple(snapshot.balances), forms, level is None, grants != 0, is_bounded, tuple(tallies))
    return shape, values


def expires_at(epoch_s: int, full_in_ms: int, margin_s: int) -> int:
    """The second in which a bucket may go that is full so many milliseconds after ``epoch_s``."""
    return min(epoch_s + -(-full_in_ms // MILLI) + margin_s, LAST_S)


@lru_cache(2048)
def _shape_of(
    names: tuple[str, ...], forms: int, load_moves: bool, grants: bool, is_bounded: bool, tallies: tuple[str, ...]
) -> Shape:
    """The shape of a write to a bucket with these limits; the values here only say of what kind they are."""
    steps = Update()
    steps.demand("rf", "=", 0)
    steps.demand("cv", "=", "")
    steps.demand("shard_count", "=", 1)
    steps.push_write_id("", None)
    for place, name in enumerate(names):
        tk, form = f"b_{name}_tk", forms // _FORMS ** (len(names) - 1 - place) % _FORMS
        if form in (FLOOR, BELOW_FROM_FLOOR):
            steps.demand(tk, ">=", 0)
        if form in (BELOW, BELOW_FROM_FLOOR):
            steps.demand(tk, "<=", 0)
            steps.add(tk, 1)
        if form == AT_CEILING:
            steps.demand(tk, ">", 0)
            steps.set(tk, 0)
        if form not in (UNTOUCHED, FLOOR):
            steps.add(f"b_{name}_tc", 1)
    if load_moves:
        steps.add(LOAD_TK, 1)
    else:
        steps.set(LOAD_TK, 0)
    if grants:
        steps.add("ev", 1)
    for attribute in tallies:
        steps.add(attribute, 1)
    if is_bounded:
        steps.set("ttl", 0)
    return steps.shape()
