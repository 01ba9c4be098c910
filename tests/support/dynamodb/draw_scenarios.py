"""Draws and settlements over one to three entities: what is in the table, what is run, and what that does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

from support.dynamodb.scripted_tables import LIMITS, RESOURCE, WANTED, Client, Table
from zae_limiter import Limit
from zae_limiter.bucket import MILLI
from zae_limiter.lease.lease_base import LeaseBase
from zae_limiter.running.plan import Plan
from zae_limiter.stores.protocol import Grant, Leg, Posting, Scope

RECENT_WRITERS = 4
"""So many writes push every id out of the recent writers."""

ENTITIES = ("key", "team", "org")
TAKEN = {name: amount * MILLI for name, amount in WANTED.items()}
HIGHER = (Limit.per_day("rpd", 200), Limit.per_day("tpd", 2_000))


class Case(NamedTuple):
    """A plan to run, and what it does to each limit of each leg when it ends well (positive: taken)."""

    table: Table
    client: Client
    plan: Callable[[], Plan[Any]]
    legs: tuple[str, ...]
    effect: Mapping[str, int]
    to_the_end: bool = False
    is_settlement: bool = False
    never_fails: bool = False
    lease: LeaseBase | None = None

    def grant(self) -> Grant:
        """What was granted, and where."""
        assert self.lease is not None
        assert self.lease._granted is not None
        return self.lease._granted


# Worlds


def hierarchy(height: int) -> Table:
    """``key`` and ``height - 1`` ancestors, with system defaults; every bucket is below its ceiling."""
    return original(height).copy()


@cache
def original(height: int) -> Table:
    table = Table()
    operator = table.operator
    operator.limiter.set_system_defaults(LIMITS)
    entities = ENTITIES[:height]
    for child, parent in reversed(list(zip(entities, [*entities[1:], None], strict=True))):
        operator.limiter.create_entity(child, parent_id=parent, cascade=parent is not None)
    operator.take("key", {"rpd": 40, "tpd": 400})
    table.now += 10_000
    return table


def drain(table: Table, entity_id: str) -> None:
    """Another client takes nearly all of one bucket, and of its ancestors'."""
    levels = table.levels(entity_id)
    other = table.client()
    other.take(entity_id, {"rpd": levels["rpd"] // MILLI - 1}, limits=None)


def others_write(table: Table, times: int = RECENT_WRITERS) -> None:
    other = table.client()
    for _ in range(times):
        other.take("key", {"rpd": 1})


def warm(table: Table) -> Client:
    """A client that knows every bucket."""
    client = table.client()
    client.take("key", {"rpd": 1})
    return client


def drawing(table: Table, client: Client, height: int, *, granted: bool = True, **options: Any) -> Case:
    lease = client.lease(**options)
    return Case(table, client, lease._begin, ENTITIES[:height], TAKEN if granted else {}, lease=lease)


# Draws


def warm_grant(height: int) -> Case:
    table = hierarchy(height)
    return drawing(table, warm(table), height)


def cold_grant(height: int) -> Case:
    table = hierarchy(height)
    return drawing(table, table.client(), height)


def first_grant(height: int) -> Case:
    table = hierarchy(height)
    for entity in ENTITIES[:height]:
        table.remove_bucket(entity)
    return drawing(table, table.client(), height)


def grant_where_one_bucket_is_missing(height: int, place: int, *, known: bool) -> Case:
    table = hierarchy(height)
    client = warm(table) if known else table.client()
    table.remove_bucket(ENTITIES[place])
    return drawing(table, client, height)


def denial_by(height: int, place: int, *, known: bool) -> Case:
    table = hierarchy(height)
    client = warm(table) if known else table.client()
    drain(table, ENTITIES[place])
    return drawing(table, client, height, granted=False)


def denial_where_one_is_missing(height: int, place: int, missing: int) -> Case:
    table = hierarchy(height)
    client = warm(table)
    drain(table, ENTITIES[place])
    table.remove_bucket(ENTITIES[missing])
    return drawing(table, client, height, granted=False)


def grant_after_a_change(height: int) -> Case:
    table = hierarchy(height)
    client = warm(table)
    table.operator.run(table.operator.space.set_config(Scope(), HIGHER, None, None, False, table.now))
    client.space.invalidate_config_cache()
    return drawing(table, client, height)


def denial_after_a_change(height: int) -> Case:
    table = hierarchy(height)
    client = warm(table)
    drain(table, ENTITIES[height - 1])
    table.operator.run(table.operator.space.set_config(Scope(), HIGHER, None, None, False, table.now))
    client.space.invalidate_config_cache()
    return drawing(table, client, height, granted=False)


def grant_of_a_warm_cache_that_is_behind(height: int) -> Case:
    table = hierarchy(height)
    client = warm(table)
    table.operator.limiter.set_system_defaults(HIGHER)
    return drawing(table, client, height)


def grant_with_limits_of_the_call(height: int) -> Case:
    table = hierarchy(height)
    return drawing(table, warm(table), height, limits=[Limit.per_day("rpd", 90), Limit.per_day("tpd", 900)])


def taking_more(height: int) -> Case:
    table = hierarchy(height)
    client = table.client()
    lease = client.take()
    return Case(table, client, lambda: lease._consume_more(**WANTED), ENTITIES[:height], TAKEN, lease=lease)


# Settlements


def settling(height: int, *, known: bool = True, **deltas: int) -> Case:
    table = hierarchy(height)
    client = warm(table) if known else table.client()
    milli = {name: delta * MILLI for name, delta in deltas.items()}
    postings = [Posting(Leg(entity, RESOURCE, LIMITS, "system"), milli) for entity in ENTITIES[:height]]

    def plan() -> Plan[None]:
        return client.space.settle(postings, table.now)

    return Case(table, client, plan, ENTITIES[:height], milli, to_the_end=True, is_settlement=True)


def rebuilding(**deltas: int) -> Case:
    case = settling(2, **deltas)
    for entity in case.legs:
        case.table.remove_bucket(entity)
    return case


def ending(height: int, *, failed: bool, **deltas: int) -> Case:
    table = hierarchy(height)
    client = table.client()
    lease = client.take()
    client.adjust(lease, **deltas)
    milli = {name: delta * MILLI for name, delta in deltas.items()}
    if failed:
        milli = {name: -amount for name, amount in TAKEN.items()}
    return Case(table, client, lambda: lease._end(failed), ENTITIES[:height], milli, True, True, True)


CHANGES = ({"tpd": 70}, {"tpd": -30}, {"rpd": -1, "tpd": 70})
WORDS = {True: "warm", False: "cold"}

SCENARIOS: dict[str, Callable[[], Case]] = {
    **{f"warm grant over {n}": partial(warm_grant, n) for n in (1, 2, 3)},
    **{f"cold grant over {n}": partial(cold_grant, n) for n in (1, 2)},
    **{f"first grant over {n}": partial(first_grant, n) for n in (1, 2, 3)},
    **{
        f"{WORDS[known]} grant over {n}, number {place} is missing": partial(
            grant_where_one_bucket_is_missing, n, place, known=known
        )
        for n, place, known in ((1, 0, True), (2, 0, True), (2, 0, False), (2, 1, True), (2, 1, False), (3, 1, True))
    },
    **{
        f"{WORDS[known]} denial over {n} by number {place}": partial(denial_by, n, place, known=known)
        for n, place, known in ((1, 0, True), (1, 0, False), (2, 0, True), (2, 1, True), (2, 1, False), (3, 2, True))
    },
    **{
        f"denial over {n} by number {place}, number {missing} is missing": partial(
            denial_where_one_is_missing, n, place, missing
        )
        for n, place, missing in ((2, 1, 0), (3, 2, 1))
    },
    **{f"grant over {n} after a change": partial(grant_after_a_change, n) for n in (1, 2)},
    **{f"denial over {n} after a change": partial(denial_after_a_change, n) for n in (1, 2)},
    **{f"grant over {n} with an old cache": partial(grant_of_a_warm_cache_that_is_behind, n) for n in (1, 2)},
    **{f"grant over {n} with limits of the call": partial(grant_with_limits_of_the_call, n) for n in (1, 2)},
    **{f"more over {n}": partial(taking_more, n) for n in (1, 2)},
    **{f"warm settlement of {deltas} over {n}": partial(settling, n, **deltas) for n in (1, 2) for deltas in CHANGES},
    **{f"cold settlement of {deltas} over 2": partial(settling, 2, known=False, **deltas) for deltas in CHANGES},
    "settlement without buckets": partial(rebuilding, tpd=70),
    **{f"failed end over {n}": partial(ending, n, failed=True) for n in (1, 2)},
    **{
        f"end with {deltas} over {n}": partial(ending, n, failed=False, **deltas) for n in (1, 2) for deltas in CHANGES
    },
}
