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
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from zae_limiter.balances import ZONE_CHANGES_MS
from zae_limiter.bucket import MILLI, Balance, SteppedBalance, accrued_in_a_second, balance_of
from zae_limiter.models.limit import MAX_ENDED, MAX_RETIRED, Limit, even_rate, too_many_retired
from zae_limiter.stores.dynamodb.expressions import Update
from zae_limiter.stores.dynamodb.items import RECENT_WRITERS, BucketSnapshot, terms_of
from zae_limiter.stores.dynamodb.plain_writes import expires_at
from zae_limiter.stores.dynamodb.schema import Key, encode_item, gsi2_bucket, gsi3_bucket, gsi4, ns_of
from zae_limiter.stores.dynamodb.tallies import CASCADED, DENIED, NO_TALLIES
from zae_limiter.stores.dynamodb.write_ids import write_id_time
from zae_limiter.stores.dynamodb.write_load import (
    LOAD_TK,
    PARTITION_WCU,
    WRITE,
    load_attributes,
    load_level_at,
    reset_level,
)
from zae_limiter.stores.protocol import Leg
from zae_limiter.stores.windows import hour_of

NOTHING: Mapping[str, int] = {}

FULL_BY = "full_by"
"""What ``ttl`` is to a bucket, for a shard of a sharded one: when it is surely full. Single shards must not expire."""


class Terms(NamedTuple):
    """What a bucket is to obey: the limits of its leg, and the version they have."""

    leg: Leg
    cv: str
    parent_id: str | None = None
    cascade: bool = False


class Intent(NamedTuple):
    """What a write is to do, in millitokens by limit.

    ``deltas``: positive ones are taken, negative ones come back. ``needed`` makes it a draw: every limit named
    there must hold that much, and no other may be in debt. ``terms``: rebase the bucket to these first;
    ``rebase``: to those it has, so that nothing computed for the old baseline can be done any more.
    ``fill``: fill every limit, or ``only`` these. ``uncounted``: what moves is no usage. ``grants`` is added to the
    count of grants.

    ``held``: what is taken must be there, and nothing comes back to a limit in debt, though it is no draw.
    ``exactly``: these limits must hold what they were seen to hold.
    ``not_written``: this write id must not be among the recent writers.
    ``owed``: limits that ``deltas`` may name although the bucket has them no longer. They come back, full and retired.
    ``tallies``: so much is added to these attributes, which no condition reads (see ``tallies``).
    ``most``: the levels that these limits may have at most. They fall to it, and none rises.
    """

    deltas: Mapping[str, int]
    needed: Mapping[str, int] | None = None
    terms: Terms | None = None
    grants: int = 0
    fill: bool = False
    rebase: bool = False
    held: bool = False
    exactly: frozenset[str] = frozenset()
    not_written: str | None = None
    owed: tuple[Limit, ...] = ()
    only: tuple[str, ...] | None = None
    uncounted: bool = False
    tallies: Mapping[str, int] = NO_TALLIES
    most: Mapping[str, int] = NOTHING

    def fills(self, name: str) -> bool:
        """Whether this limit is filled, if any is."""
        return self.only is None or name in self.only


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
    back = coming_back(snapshot, intent.deltas, intent.owed) if intent.owed and terms is None else ()
    takes = (*intent.deltas.values(), bool(intent.most))
    begun = intent.rebase or bool(back) or begins_anew(snapshot, now)
    # Our clock may be behind that of the client which set the baseline. The number of a period never changes under a
    # baseline and a version that stay: what is computed for the one must not be done to the other.
    late = max(snapshot.rf + (begun and terms is None) - now, 0)
    now += late
    change = _Change(
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
    if terms is None:
        longest = _move_all(write, snapshot, change, guesses)
        if back:
            longest = max(longest, _bring_back(write, back, intent, snapshot, write_id, now))
    else:
        longest = _adopt(write, snapshot, change, terms, write_id, guesses)
    _demand_absence(write, intent, snapshot, back)
    if change.rebased and now != snapshot.rf:
        write.set("rf", now)
    _weigh(write, snapshot, now, load, rebased=change.rebased, age_ms=age_ms)
    write.add("ev", intent.grants)
    for attribute, amount in intent.tallies.items():
        write.add(attribute, amount)
    if change.bounded:
        write.set("ttl" if snapshot.shards == 1 else FULL_BY, expires_at(epoch_s, longest + late, ttl_margin_s))
    return write


class _Change(NamedTuple):
    """What an intent means to every limit of a bucket at ``now``.

    ``rebased``: the baseline moves to ``now``. ``bounded``: the write sets the expiry time, and therefore demands that
    no limit is deeper in debt than was seen. ``back_to``: the baseline moves there instead, because a clock was wrong.
    """

    intent: Intent
    now: int
    rebased: bool
    bounded: bool
    back_to: int | None = None


def begins_anew(snapshot: BucketSnapshot, now: int) -> bool:
    """Whether a period has begun of a limit that carries no debt into it: its first write moves the baseline."""
    return any(
        isinstance(balance, SteppedBalance)
        and not balance.calendar.carry_debt
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


def _move_all(write: Update, snapshot: BucketSnapshot, change: _Change, guesses: Mapping[str, int]) -> int:
    """Move every limit under the terms it has. Returns the milliseconds they may then take to be full."""
    longest = 0
    for name, balance in snapshot.balances.items():
        guess, active = guesses.get(name, balance.tk), name not in snapshot.retired
        most = change.intent.most.get(name)
        if most is not None and balance.level(change.now) > most:
            longest = max(longest, _lower(write, balance, most, change.now))
        else:
            longest = max(longest, _move(write, balance, balance.limit, change, guess=guess, active=active))
    return longest


def _adopt(
    write: Update,
    snapshot: BucketSnapshot,
    change: _Change,
    terms: Terms,
    write_id: str,
    guesses: Mapping[str, int],
) -> int:
    """Move every limit, and let ``terms`` hold from then on. Returns the milliseconds they may take to be full."""
    longest = 0
    intent, now = change.intent, change.now
    limits = {limit.name: limit for limit in terms.leg.limits}
    departures = _Departures(write, snapshot, write_id)
    departures.kept.update(limits)
    for name, balance in snapshot.balances.items():
        limit = limits.get(name)
        guess = guesses.get(name, balance.tk)
        if limit is None and not intent.deltas.get(name) and departures.may_end(balance, guess, now):
            departures.end(balance, now)
            continue
        active = limit is not None
        longest = max(longest, _move(write, balance, limit or balance.limit, change, guess=guess, active=active))
        departures.keep(name, limit)
        _write_terms(write, name, balance, limit, retired=name in snapshot.retired)
    for limit in terms.leg.limits:
        if limit.name not in snapshot.balances:
            longest = max(longest, _add_limit(write, limit, change, snapshot, departures))
    departures.finish(intent.tallies)
    _write_version(write, snapshot, terms)
    return longest


def _move(write: Update, balance: Balance, limit: Limit, change: _Change, *, guess: int, active: bool) -> int:
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
    if balance.name in intent.exactly:
        level = _move_exactly(write, balance, intent, shift, now)
        return _time_to_fill(limit, burst - level, balance.shards, now)
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
    return _time_to_fill(limit, burst - least, balance.shards, now)


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
    write: Update, balance: SteppedBalance, fresh: Balance, change: _Change, gain: int, *, active: bool
) -> int:
    """Let a period begin full, less what is taken, whatever was left of the one before: the baseline guards it."""
    delta = change.intent.deltas.get(balance.name, 0)
    full, down = min(balance.bx + gain, fresh.bx), max(delta, 0)
    needed = _needed_of(balance.name, change.intent, active=active)
    if needed is not None and needed > full:
        write.demand_absent(f"b_{balance.name}_tk")  # it never holds that: refused
    write.set(f"b_{balance.name}_tk", full - down)
    write.add(f"b_{balance.name}_tc", 0 if change.intent.uncounted else delta)
    return _time_to_fill(fresh.limit, fresh.bx - full + down, balance.shards, change.now)


def _lower(write: Update, balance: Balance, most: int, now: int) -> int:
    """Let one limit fall to ``most``, if it is above. Returns the milliseconds it may then take to be full."""
    tk, a = f"b_{balance.name}_tk", balance.since_rf(now)
    write.demand(tk, ">", most - a)
    write.set(tk, most - a)
    return _time_to_fill(balance.limit, balance.bx - most, balance.shards, now)


def _needed_of(name: str, intent: Intent, *, active: bool) -> int | None:
    """How much a limit must hold for a write to be done; ``None``: it may be in debt."""
    if intent.needed is not None and active:
        return intent.needed.get(name, 0)
    delta = intent.deltas.get(name, 0)
    return max(delta, 0) if intent.held and delta else None


def _weigh(write: Update, snapshot: BucketSnapshot, now: int, load: int, *, rebased: bool, age_ms: int | None) -> None:
    """Charge the write load of the bucket. It never refuses anything."""
    burst = snapshot.load_burst
    accrued = accrued_in_a_second(burst, snapshot.rf, now)
    level = None if age_ms is None else reset_level(load_level_at(snapshot, now), burst, age_ms)
    if level is None:
        write.add(LOAD_TK, accrued - load if rebased else -load)
    else:
        write.set(LOAD_TK, level - load if rebased else level - accrued - load)


def demand_same_retired(write: Update, snapshot: BucketSnapshot) -> None:
    """The same limits must be retired, under the same terms."""
    if snapshot.rv:
        write.demand("rv", "=", snapshot.rv)
    else:
        write.demand_absent("rv")


class _Departures:
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


def _bring_back(
    write: Update, limits: tuple[Limit, ...], intent: Intent, snapshot: BucketSnapshot, write_id: str, now: int
) -> int:
    """Bring limits back as retired: full, less what is taken. Returns the milliseconds they may take to be full."""
    longest = 0
    departures = _Departures(write, snapshot, write_id)
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
        longest = max(longest, _time_to_fill(limit, max(delta, 0), snapshot.shards, now))
    write.set("rv", write_id)
    return longest


def _demand_absence(write: Update, intent: Intent, snapshot: BucketSnapshot, back: tuple[Limit, ...]) -> None:
    """What must be as it was seen, and was not there, must not be there."""
    if intent.exactly:
        for name in sorted(intent.exactly.difference(snapshot.balances, (limit.name for limit in back))):
            write.demand_absent(f"b_{name}_tk")


def _add_limit(write: Update, limit: Limit, change: _Change, snapshot: BucketSnapshot, departures: _Departures) -> int:
    """A limit the bucket does not have: full, less what is taken."""
    burst = _begin_limit(write, limit, snapshot, change.now)
    taken = max(change.intent.deltas.get(limit.name, 0), 0)
    write.set(f"b_{limit.name}_tk", burst - taken)
    departures.begin(limit.name, taken)
    for field, value in terms_of(limit).items():
        write.set(f"b_{limit.name}_{field}", value)
    return _time_to_fill(limit, taken, snapshot.shards, change.now)


def _write_terms(write: Update, name: str, balance: Balance, limit: Limit | None, *, retired: bool) -> None:
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
    change = _Change(Intent({}, rebase=True), ahead, rebased=True, bounded=False, back_to=now)
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
    tallies: Mapping[str, int] = NO_TALLIES,
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
        delta = deltas.get(limit.name, 0)
        taken = max(delta, 0)
        attributes[f"b_{limit.name}_tk"] = limit.burst * MILLI - taken
        attributes[f"b_{limit.name}_tc"] = delta
        if limit.periods is not None:
            attributes[f"b_{limit.name}_pn"] = limit.periods.ordinal(now)
        for field, value in terms_of(limit).items():
            attributes[f"b_{limit.name}_{field}"] = value
        longest = max(longest, _time_to_fill(limit, max(taken, limit.burst * MILLI), 1, now))
    attributes["ttl"] = expires_at(epoch_s, longest, ttl_margin_s)
    return encode_item(attributes)


def _time_to_fill(limit: Limit, milli: int, shards: int, now: int) -> int:
    """Milliseconds from ``now`` until so much has accrued, rounded up generously for a share."""
    if limit.periods is None:
        amount, seconds = even_rate(limit)
        return -(-milli * shards * seconds // amount)
    if milli <= 0:
        return 0
    calendar = limit.periods
    periods = -(-milli // max(limit.refill_amount * MILLI // shards, 1)) if calendar.carry_debt else 1
    return calendar.start(calendar.ordinal(now) + periods) - now + ZONE_CHANGES_MS
