"""The write of nearly every acquire: a draw from an undivided bucket that obeys the terms it is drawn by, and in
which no limit rests. Pure.

It is the write that :func:`~zae_limiter.stores.dynamodb.write_forms.update` makes, told without putting it together
step by step: the forms that the limits take name its shape, and what is left are the numbers. ``write_forms`` has
the theory, and a test holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from zae_limiter.bucket import MILLI, accrued_in_a_second
from zae_limiter.stores.dynamodb.expressions import Shape, Update, Value
from zae_limiter.stores.dynamodb.items import BucketSnapshot
from zae_limiter.stores.dynamodb.write_load import LOAD_TK, reset_level

LAST_S = 253_402_300_799
"""The last second of the year 9999: nothing expires later, however long it takes to fill."""

UNTOUCHED, BELOW, AT_CEILING = range(3)
"""What becomes of a limit: only looked at for debt, or drawn from by one of the two forms."""


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
            form, least = UNTOUCHED, floor + accrued
            values.append(floor)
        elif (guesses.get(name, balance.tk) if guesses else balance.tk) > ceiling >= floor:
            form, least = AT_CEILING, burst - delta
            values += (ceiling, ceiling - delta, delta)
        else:
            form, least = BELOW, floor + accrued - delta
            values += (floor, ceiling, -delta, delta)
        limit = balance.limit
        to_fill = -((least - burst) * limit.refill_period_seconds // limit.refill_amount)
        if to_fill > longest:
            longest = to_fill
        forms = forms * 3 + form
    level = None if age_ms is None else reset_level(snapshot, now, age_ms)
    if level is None:
        values.append(-load)
    else:
        values.append(level - accrued_in_a_second(snapshot.load_burst, rf, now) - load)
    values += (1, expires_at(epoch_s, longest + late, ttl_margin_s))
    return _shape_of(tuple(snapshot.balances), forms, level is None), values


def expires_at(epoch_s: int, full_in_ms: int, margin_s: int) -> int:
    """The second in which a bucket may go that is full so many milliseconds after ``epoch_s``."""
    return min(epoch_s + -(-full_in_ms // MILLI) + margin_s, LAST_S)


@lru_cache(2048)
def _shape_of(names: tuple[str, ...], forms: int, load_moves: bool) -> Shape:
    steps = Update()
    for attribute in ("rf", "cv", "shard_count"):
        steps.demand(attribute, "=", "")
    steps.push_write_id("", None)
    for place, name in enumerate(names):
        tk, form = f"b_{name}_tk", forms // 3 ** (len(names) - 1 - place) % 3
        if form == AT_CEILING:
            steps.demand(tk, ">", 0)
            steps.set(tk, 0)
        else:
            steps.demand(tk, ">=", 0)
        if form == BELOW:
            steps.demand(tk, "<=", 0)
            steps.add(tk, 1)
        if form != UNTOUCHED:
            steps.add(f"b_{name}_tc", 1)
    if load_moves:
        steps.add(LOAD_TK, 1)
    else:
        steps.set(LOAD_TK, 0)
    steps.add("ev", 1)
    steps.set("ttl", 0)
    return steps.shape()
