"""The same random programs on memory and on Redis: every answer must be the same.

    python tests/redis/behaviour/redis_programs.py --seconds 600 --seed 1

A program changes limits of all kinds at every level, moves entities in a tree, acquires, settles, fails, looks,
deletes, leaves leases open, renews and ends them later, and lets time pass. What memory and Redis answer is compared
step by step. Memory is told to forget no bucket: Redis keeps one for months, and one that was full and is gone differs
from one that is full when the next change raises its limits.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from engines.redis_servers import RedisServer, flush
from zae_limiter import Limit, SyncRateLimiter
from zae_limiter.exceptions import ZAELimiterError
from zae_limiter.repository.sync_repository import SyncRepository
from zae_limiter.stores.memory import tables as memory_tables
from zae_limiter.stores.memory.store import MemoryStore
from zae_limiter.stores.protocol import Store
from zae_limiter.stores.redis.store import RedisStore
from zae_limiter.stores.redis.urls import servers_of
from zae_limiter.testing import FakeClock

ENTITIES = ("org", "team", "key-1", "key-2")
RESOURCES = ("gpt", "claude")
NAMES = ("rpm", "tpm", "usd", "calls")
ZONES = ("UTC", "UTC", "Europe/Berlin", "America/New_York")
EVERY = ("month", "month", "day", "week", "hour", "5hour", "3min", "7sec")
PAUSES_MS = (0, 0, 1, 7, 999, 1_000, 60_001, 1_800_000, 3_600_000, 7_200_000, 90_000_000)
STEPS = 120

Step = Callable[[SyncRateLimiter], Any]


def some_limits(rng: random.Random) -> list[Limit]:
    return [some_limit(rng, name) for name in rng.sample(NAMES, rng.randint(1, len(NAMES)))]


def some_limit(rng: random.Random, name: str) -> Limit:
    enforce = rng.random() < 0.8
    kind = rng.random()
    if kind < 0.25:
        amount = rng.choice((1, 3, 10, 1_000, 10**15))
        return Limit.calendar(
            name,
            amount,
            rng.choice(EVERY),
            rng.choice((amount, amount, min(2 * amount + 1, 10**15))),
            tz=rng.choice(ZONES),
            start=rng.choice((None, None, "07:30", "2026-01-05T09:00")),
            carry_debt=rng.random() < 0.7,
            enforce=enforce,
        )
    if kind < (0.7 if name == "calls" else 0.35):
        return Limit.concurrent(
            name, rng.choice((1, 3, 20, 10**6)), ttl=rng.choice((10, 11, 60, 3_600)), enforce=enforce
        )
    return Limit(
        name,
        capacity := rng.choice((1, 3, 10, 1_000, 10**15)),
        rng.choice((1, 2, 7, 10, 999, 10**6, 10**15)),
        rng.choice((1, 3, 60, 3_600, 86_400, 366 * 86_400)),
        rng.choice((capacity, 1, 5, 20, 10**15)),
        enforce=enforce,
    )


def amounts(rng: random.Random) -> dict[str, int]:
    names = rng.sample(NAMES, rng.randint(1, 2))
    return {name: rng.choice((0, 1, 1, 2, 5, 100, 10**15)) for name in names}


def acquiring(rng: random.Random) -> Step:
    entity, resource, wanted = rng.choice(ENTITIES), rng.choice(RESOURCES), amounts(rng)
    limits = some_limits(rng) if rng.random() < 0.15 else None
    more = [
        (rng.choice(("adjust", "consume", "settle", "fail", "flush")), amounts(rng)) for _ in range(rng.randint(0, 2))
    ]
    signs = [rng.choice((1, 1, -1)) for _ in more]

    def step(limiter: SyncRateLimiter) -> Any:
        told: list[Any] = []
        try:
            with limiter.acquire(entity, resource, wanted, limits=limits) as lease:
                told.append([_status(status) for status in lease.statuses])
                for (what, given), sign in zip(more, signs, strict=True):
                    told.append(_answer(lambda: _use(lease, what, given, sign)))  # noqa: B023 (called at once)
                    if what == "fail":
                        raise ZeroDivisionError
                told.append(lease.consumed)
        except ZeroDivisionError:
            told.append("failed")
        return told

    return step


def _use(lease: Any, what: str, given: Mapping[str, int], sign: int) -> Any:
    if what == "adjust":
        return lease.adjust({name: sign * amount for name, amount in given.items()})
    if what == "flush":
        return lease.flush()
    if what in ("consume", "settle"):
        return getattr(lease, what)(given)
    return None


OPEN: dict[SyncRateLimiter, list[Any]] = {}
"""Leases that a program has left open."""


def leaving_open(rng: random.Random) -> Step:
    entity, resource, wanted = (
        rng.choice(ENTITIES),
        rng.choice(RESOURCES),
        {**amounts(rng), "calls": rng.randint(1, 3)},
    )

    def step(limiter: SyncRateLimiter) -> Any:
        context = limiter.acquire(entity, resource, wanted)
        lease = context.__enter__()
        OPEN.setdefault(limiter, []).append((context, lease))
        return [_status(status) for status in lease.statuses], _holds(lease)

    return step


def going_on(rng: random.Random) -> Step:
    """Renew, change or end a lease that was left open."""
    which, what, fails = rng.random(), rng.choice(("renew", "renew", "end", "end", "adjust")), rng.random() < 0.3
    given, sign = {**amounts(rng), "calls": rng.randint(0, 2)}, rng.choice((1, 1, -1))

    def step(limiter: SyncRateLimiter) -> Any:
        leases = OPEN.setdefault(limiter, [])
        if not leases:
            return None
        place = int(which * len(leases))
        context, lease = leases[place]
        if what == "renew":
            lease.renew()
        elif what == "adjust":
            _use(lease, "adjust", given, sign)
            lease.flush()
        else:
            del leases[place]
            error = ZeroDivisionError() if fails else None
            context.__exit__(type(error) if error else None, error, None)
        return _holds(lease)

    return step


def _holds(lease: Any) -> Any:
    return [(hold.entity_id, hold.resource, hold.limit_name, hold.amount, hold.due, hold.ttl) for hold in lease.holds]


def changing(rng: random.Random) -> Step:
    entity, resource = rng.choice(ENTITIES), rng.choice((*RESOURCES, "_default_", "*"))
    limits, parent, cascade = some_limits(rng), rng.choice((None, *ENTITIES[:2])), rng.random() < 0.8
    on = rng.choice(RESOURCES)
    propagate = rng.random() < 0.8
    changes: list[Step] = [
        lambda limiter: limiter.set_limits(entity, limits, resource=resource, propagate=propagate),
        lambda limiter: limiter.set_limits(entity, limits, resource=resource, propagate=propagate),
        lambda limiter: limiter.delete_limits(entity, resource=resource),
        lambda limiter: limiter.set_resource_defaults(on, limits, propagate=propagate),
        lambda limiter: limiter.delete_resource_defaults(on),
        lambda limiter: limiter.set_system_defaults(limits, propagate=propagate),
        lambda limiter: limiter.create_entity(entity, parent_id=parent, cascade=cascade),
        lambda limiter: limiter.update_entity(entity, parent_id=parent, cascade=cascade),
        lambda limiter: limiter.delete_entity(entity),
        lambda limiter: limiter.reset(entity, on),
    ]
    return rng.choice(changes)


def crediting(rng: random.Random) -> Step:
    """Grant tokens, also above what a budget holds, under keys that come again; or lower a level."""
    entity, resource, given = rng.choice(ENTITIES), rng.choice((*RESOURCES, "*")), amounts(rng)
    key, above = f"inv-{rng.randint(1, 20)}", rng.random() < 0.7
    changes: list[Step] = [
        lambda limiter: limiter.grant(entity, resource, given, key=key, above=above),
        lambda limiter: limiter.grant(entity, resource, given, key=key, above=above),
        lambda limiter: limiter.lower(entity, resource, given),
    ]
    return rng.choice(changes)


def reading(rng: random.Random) -> Step:
    entity, resource = rng.choice(ENTITIES), rng.choice(RESOURCES)
    name, wanted = rng.choice(NAMES), amounts(rng)
    reads: list[Step] = [
        lambda limiter: limiter.available(entity, resource),
        lambda limiter: limiter.available(entity, "*"),
        lambda limiter: limiter.time_until_available(entity, resource, wanted),
        lambda limiter: _buckets(limiter.get_status(entity)),
        lambda limiter: _usage(limiter, entity),
        lambda limiter: limiter.get_limits(entity, resource=resource),
        lambda limiter: [_event(event) for event in limiter.get_audit_events(entity).items],
        lambda limiter: limiter.list_entities().items,
        lambda limiter: limiter.list_resources_with_defaults().items,
        lambda limiter: limiter.list_entities_with_custom_limits(resource).items,
        lambda limiter: _gaps(limiter, entity),
        lambda limiter: limiter.get_resource_capacity(resource, name),
    ]
    return rng.choice(reads)


def _event(event: Any) -> Any:
    return event.timestamp, event.action, event.resource, event.details


def _status(status: Any) -> Any:
    return (
        status.entity_id,
        status.resource,
        status.limit_name,
        status.available,
        status.exceeded,
        status.retry_after_seconds,
        status.source,
        status.seconds_to_full,
        status.enforced,
        status.resets_at,
        status.at_latest,
    )


def _buckets(status: Any) -> Any:
    return [
        (
            bucket.resource,
            bucket.total_events,
            [
                (level.limit_name, level.available, level.total_consumed, level.seconds_to_full)
                for level in bucket.limits
            ],
        )
        for bucket in status.buckets
    ]


def _usage(limiter: SyncRateLimiter, entity: str) -> Any:
    """Without what was not taken: one store may name a limit in an hour in which it came too late to be used, or an
    hour in which nothing was."""
    rows = [
        (row.resource, row.window_type, row.window_start, _taken(row.counters), row.total_events, row.would_refuse)
        for row in limiter.get_usage_snapshots(entity_id=entity, limit=1000).items
    ]
    return [row for row in rows if any(row[3:])]


def _taken(counters: Mapping[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in counters.items() if amount}


def _gaps(limiter: SyncRateLimiter, entity: str) -> Any:
    return [
        (chain.resource, chain.limit_name) for chain in limiter.repository.verify_usage(entity).chains if chain.gaps
    ]


def _answer(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except ZAELimiterError as error:
        return type(error).__name__, str(error)


def limiter_on(store: Store, clock: FakeClock) -> SyncRateLimiter:
    return SyncRateLimiter(SyncRepository(store, clock=clock))


KINDS = {acquiring: 6, leaving_open: 2, going_on: 3, changing: 2, reading: 3}
"""Of so many steps in all, each kind has so many."""

WITH_CREDITS = {**KINDS, crediting: 3}


def play(
    seed: int,
    open_redis: Callable[[], Store],
    kinds: Mapping[Callable[[random.Random], Step], int] = KINDS,
    steps: int = STEPS,
) -> str | None:
    """Play one program; what differed first, or nothing."""
    memory_tables.LOOKED_AT_PER_NEW_BUCKET = 0
    rng = random.Random(seed)
    clocks = FakeClock(), FakeClock()
    redis = open_redis(), open_redis()
    memory = MemoryStore()
    limiters = [(limiter_on(memory, clocks[0]), limiter_on(one, clocks[1])) for one in redis]
    try:
        for number in range(steps):
            kind = rng.choices(list(kinds), list(kinds.values()))[0]
            step = kind(rng)
            pause = rng.choice(PAUSES_MS)
            for clock in clocks:
                clock.advance(milliseconds=pause)
            on_memory, on_redis = rng.choice(limiters)
            expected, found = _answer(lambda: step(on_memory)), _answer(lambda: step(on_redis))  # noqa: B023
            if expected != found:
                return f"seed {seed}, step {number}, {kind.__name__}: memory {expected!r}, redis {found!r}"
        for entity in ENTITIES:
            if _gaps(limiters[0][1], entity):
                return f"seed {seed}: usage of {entity} has gaps"
        return None
    finally:
        OPEN.clear()
        for store in redis:
            store.close()


def play_on(server: RedisServer, seed: int, *, with_credits: bool = False) -> str | None:
    """Play one program on an emptied server."""
    flush([server])
    servers = servers_of(urlsplit(server.url))
    return play(seed, lambda: RedisStore(servers, deadline=20.0), WITH_CREDITS if with_credits else KINDS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", default="redis-6.2")
    parser.add_argument("--credits", action="store_true", help="with steps that grant tokens and lower levels")
    chosen = parser.parse_args()
    played, differed = 0, []
    with RedisServer(chosen.kind) as server:
        give_up_at = time.monotonic() + chosen.seconds
        while time.monotonic() < give_up_at and len(differed) < 10:
            difference = play_on(server, chosen.seed + played, with_credits=chosen.credits)
            played += 1
            if difference:
                differed.append(difference)
                print(difference[:3000], flush=True)
    print(f"{played} programs of {STEPS} steps, {len(differed)} of them with a difference")
    return bool(differed)


if __name__ == "__main__":
    sys.exit(main())
