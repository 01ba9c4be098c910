"""The writes of nearly every lease: a draw from an undivided bucket that obeys the terms it is drawn by, and in which
no limit rests; and a settlement there, of limits that the bucket has. Pure.

They are the writes that :func:`~zae_limiter.stores.dynamodb.write_forms.update` makes, told without putting them
together step by step: the forms that the limits take name the shape of a write, and what is left are the numbers.
``write_forms`` has the theory, and a test holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from zae_limiter.bucket import MILLI
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot
from zae_limiter.stores.dynamodb.expressions import Shape, Update, Value
from zae_limiter.stores.dynamodb.intents import NOTHING
from zae_limiter.stores.dynamodb.write_load import LOAD_TK, reset_level

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
