"""Calls in flight in simulated time: real limiters, leases and stores of several processes, over the model.

Each process joins its writes. Requests are lost, come late and twice, answers are lost, clocks differ, buckets are
divided, limits change, buckets are reset and deleted, and processes die in the middle of a call. After every write
the table is read, by rules of its own, and held against what must be so:

- what is free and what is lent are the limit, over all shards of a bucket;
- no count is below zero, and nothing is lent for longer than 1.25 of the time and what clocks differ by.

While they run: no more calls are in flight than the limit says. Afterwards: what limits that only watch have counted
is what leases were told, slots that were given back are free at once, and when all clients are dead every slot is
back after 1.25 of its time.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from simulation.lease_worlds import TABLE, SimulatedTable, cancel_some, go_on_uncancelled
from simulation.model.model import Model
from simulation.model.tables import Key
from simulation.virtual_loop import START_MS, LoopClock, VirtualLoop, run
from zae_limiter import Limit, RateLimiter, RateLimiterUnavailable, RateLimitExceeded, Repository
from zae_limiter.exceptions import ValidationError
from zae_limiter.running.sync_driver import SyncDriver
from zae_limiter.stores.dynamodb import write_load
from zae_limiter.stores.dynamodb.store import DynamoStore

RESOURCE = "gpt"
TTL, TTL_ABOVE = 12, 20
MOST_SHARDS = 4
TREE = {"key": "org", "solo": None}
RPM = Limit.per_second("rpm", 200)
BUDGET = Limit.calendar("budget", 40, "7sec", carry_debt=False)
SPEND = Limit.per_second("spend", 4, enforce=False)
WATCHED = Limit.concurrent("watched", 1, ttl=TTL, enforce=False)


def limits_of(calls: int, ttl: int = TTL) -> list[Limit]:
    """The limits of an entity: one of every kind."""
    return [RPM, BUDGET, SPEND, WATCHED, Limit.concurrent("calls", calls, ttl=ttl)]


Slots = tuple[str, str, str]
"""Those of a limit: entity, resource, name."""

NO_DIFFERENCES: Mapping[Slots, int] = {}

ABOVE = [RPM, Limit.concurrent("calls", 2, ttl=TTL_ABOVE)]


@dataclass(frozen=True)
class Habits:
    """How busy a run is, and what happens to it."""

    clients: int = 3
    tasks: int = 12
    acts: int = 5
    cancels: int = 0
    dies: float = 0.0
    """How many calls never end."""
    overstays: float = 0.0
    """How many calls last longer than their slots, and do not renew them."""
    lost: float = 0.0
    unanswered: float = 0.0
    late: float = 0.0
    twice: float = 0.0
    throttled: float = 0.0
    skew_ms: int = 0
    wcu: int = 1_000
    changes: tuple[str, ...] = ()


NO_TROUBLES = Habits()
LOSSES = {"lost": 0.03, "unanswered": 0.04, "late": 0.02}

PROFILES = {
    "plain": Habits(),
    "cancelled": Habits(cancels=25),
    "losses": Habits(**LOSSES, cancels=5),
    "unanswered": Habits(unanswered=0.15),
    "overstaying": Habits(overstays=0.3, unanswered=0.02),
    "doubled": Habits(twice=0.02, unanswered=0.02),
    "clocks": Habits(skew_ms=1_000, dies=0.1),
    "deaths": Habits(dies=0.25, unanswered=0.02),
    "divided": Habits(wcu=0, dies=0.1),
    "divided, losses": Habits(wcu=0, dies=0.1, **LOSSES),
    "changed": Habits(changes=("raise", "lower", "ttl"), dies=0.1),
    "removed": Habits(changes=("remove", "reset", "delete"), dies=0.1, unanswered=0.02),
    "everything": Habits(
        wcu=0, dies=0.1, skew_ms=500, cancels=5, changes=("raise", "lower", "ttl", "remove", "reset"), **LOSSES
    ),
}


class Violation(AssertionError):
    """Something that must never be so."""


class SkewedClock(LoopClock):
    """The clock of a process that is ahead of the others, or behind."""

    def __init__(self, loop: VirtualLoop, skew_ms: int) -> None:
        super().__init__(loop)
        self._skew_ms = skew_ms

    def __call__(self) -> int:
        return super().__call__() + self._skew_ms


class JudgedModel(Model):
    """The model, looked at after every write."""

    world: SlotWorld | None = None

    def call(self, operation: str, params: Mapping[str, Any], *, now_s: float = 0) -> Any:
        try:
            return super().call(operation, params, now_s=now_s)
        finally:
            if self.world is not None and operation in ("UpdateItem", "PutItem", "TransactWriteItems", "DeleteItem"):
                self.world.judge()


def share(slots: int, shard: int, shards: int) -> int:
    """How many of so many slots a shard begins with."""
    each, rest = divmod(slots, shards)
    return each + (shard < rest)


class SlotWorld:
    """One run."""

    def __init__(self, profile: str, seed: int) -> None:
        self.profile, self.seed = profile, seed
        self.habits = PROFILES[profile]
        self.chance = random.Random(f"{profile} {seed}")
        self.loop = VirtualLoop()
        self.clock = LoopClock(self.loop)
        self.model = JudgedModel()
        self.table = SimulatedTable(self.clock, self.chance, NO_TROUBLES, self.model)
        self.happened: Counter[str] = Counter()
        self.in_flight: Counter[str] = Counter()
        self.most = {"key": 3, "solo": 3, "org": 2}
        """The highest that was ever set: while a bucket is divided, up to the old number may be in flight."""
        self.told: Counter[tuple[str, str]] = Counter()
        self.abandoned: list[Any] = []
        self.failed_calls = 0
        self.writes = 0
        self._read: dict[Key, tuple[Any, Mapping[Slots, int]]] = {}
        """Every item as it was last judged."""
        self._sums: Counter[Slots] = Counter()

    # Judging

    def judge(self) -> None:
        """What is free and what is lent are the limit. Only items that the write changed are read again."""
        self.writes += 1
        items, known = self.model.tables[TABLE].items, self._read
        for place in [place for place in known if place not in items]:
            self._count(known.pop(place)[1], -1)
        for place, item in items.items():
            before = known.get(place)
            if before is not None and before[0] is item:
                continue
            if before is not None:
                self._count(before[1], -1)
            known[place] = (item, self._differences(place[0], item))
            self._count(known[place][1])
        for place, difference in self._sums.items():
            if difference:
                what = "minted" if difference > 0 else "lost"
                raise Violation(f"{abs(difference)} of {place} are {what} at {self.clock.timer()} ms")

    def _count(self, differences: Mapping[Slots, int], sign: int = 1) -> None:
        for place, difference in differences.items():
            self._sums[place] += sign * difference

    def _differences(self, pk: str, item: Mapping[str, Any]) -> Mapping[Slots, int]:
        """By how much what one item has free and what it lends are more than its share, by limit."""
        if "/BUCKET#" not in pk:
            return NO_DIFFERENCES
        found: Counter[Slots] = Counter()
        latest = (START_MS + self.clock.timer() + 2 * self.habits.skew_ms) // 1000 + max(TTL_ABOVE, 40) * 5 // 4 + 2
        entity, resource = item["entity_id"]["S"], item["resource"]["S"]
        shard, shards = int(pk.rpartition("#")[2]), int(item["shard_count"]["N"])
        for attribute, value in item.items():
            prefix, field = attribute[:2], attribute[-3:]
            if prefix == "h_" and field == "_tk":
                found[entity, resource, attribute[2:-3]] += int(value["N"])
            elif prefix == "h_" and field == "_bx":
                found[entity, resource, attribute[2:-3]] -= 1000 * share(int(value["N"]) // 1000, shard, shards)
            elif prefix == "x_":
                number = int(value["N"])
                found[entity, resource, attribute[11:]] += number
                if number < 0 or int(attribute[2:10], 16) > latest:
                    raise Violation(f"{pk} has {attribute} = {number}")
        return found

    # Processes

    def play(self) -> None:
        """From the first acquire to the last check."""
        store = self.table.store()
        SyncDriver(self.clock, store.perform).run(store.create(self.clock()))
        self.model.world = self
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(write_load, "MOST_SHARDS", MOST_SHARDS)
            run(self.loop, self._main())

    def _limiter(self, *, skewed: bool = True) -> tuple[DynamoStore, RateLimiter]:
        store, skew = self.table.store(wcu=self.habits.wcu), self.habits.skew_ms if skewed else 0
        clock = SkewedClock(self.loop, self.chance.randint(-skew, skew))
        return store, RateLimiter(Repository(store, clock=clock))

    async def _main(self) -> None:
        habits = self.habits
        store, setter = self._limiter(skewed=False)
        await setter.set_system_defaults(limits_of(3))
        await setter.create_entity("org")
        await setter.set_limits("org", ABOVE)
        for entity, parent in TREE.items():
            await setter.create_entity(entity, parent_id=parent, cascade=parent is not None)
        self.table.troubles = habits  # nothing goes wrong before it begins, and when it is over
        processes = [(store, setter), *(self._limiter() for _ in range(habits.clients))]
        limiters = [limiter for _, limiter in processes[1:]]
        tasks = [asyncio.ensure_future(self._live(limiters[number % len(limiters)])) for number in range(habits.tasks)]
        meanwhile = self._change(setter), cancel_some(tasks, self.chance, habits.cancels, 300)
        others = [asyncio.ensure_future(one) for one in meanwhile]
        await asyncio.gather(*tasks)
        for other in others:
            other.cancel()
        await asyncio.wait(others)
        self.table.troubles = NO_TROUBLES
        for one, _ in processes:
            await one.aclose()
        await self._check(habits, sum(limiter.repository.unresolved for _, limiter in processes))

    async def _change(self, setter: RateLimiter) -> None:
        """What operators do meanwhile."""
        while self.habits.changes:
            await asyncio.sleep(self.chance.uniform(0.3, 3))
            what, calls = self.chance.choice(self.habits.changes), self.chance.randint(1, 6)
            with suppress(RateLimiterUnavailable, ValidationError):
                if what in ("raise", "lower"):
                    self.most["solo"] = max(self.most["solo"], calls)
                    await setter.set_limits("solo", limits_of(calls), resource=RESOURCE)
                elif what == "ttl":
                    await setter.set_limits("solo", limits_of(3, self.chance.choice((10, 30))), resource=RESOURCE)
                elif what == "remove":
                    await setter.set_limits("solo", [RPM, BUDGET, SPEND], resource=RESOURCE)
                elif what == "reset":
                    self.in_flight["solo"] = -100  # what runs is forgotten
                    await setter.reset("solo")
                else:
                    self.in_flight["solo"] = -100
                    await setter.delete_entity("solo")
                    await setter.create_entity("solo")
            self.happened[what] += 1

    # Calls

    async def _live(self, limiter: RateLimiter) -> None:
        for _ in range(self.habits.acts):
            try:
                await asyncio.sleep(self.chance.randint(0, 1_500) / 1000)
                await self._call(limiter)
            except asyncio.CancelledError:
                go_on_uncancelled()
                self.happened["cancelled"] += 1

    async def _call(self, limiter: RateLimiter) -> None:
        chance = self.chance
        entity = chance.choice(list(TREE))
        wanted = {"rpm": 1, "calls": chance.choice((1, 1, 2))}
        for name, amounts in {"budget": (0, 5), "spend": (0, 2, 6), "watched": (0, 1)}.items():
            if amount := chance.choice(amounts):
                wanted[name] = amount
        waiting = limiter.acquire(entity, RESOURCE, wanted, timeout=chance.choice((0, 0, 2)))
        try:
            lease = await waiting.__aenter__()
        except (RateLimitExceeded, ValidationError):
            self.happened["refused"] += 1
            return
        except RateLimiterUnavailable:
            self.happened["unavailable"] += 1
            return
        self.happened["granted"] += 1
        for status in lease.refused_by:
            self.told[status.entity_id, status.limit_name] += 1
            self.happened["would be refused"] += 1
        running = {hold.entity_id: hold.amount for hold in lease.holds if hold.limit_name == "calls"}
        for place, slots in running.items():
            self.in_flight[place] += slots
            if self.in_flight[place] > self.most[place]:
                raise Violation(f"{self.in_flight[place]} calls of {place} are in flight at {self.clock.timer()} ms")
        error: BaseException | None = None
        try:
            await asyncio.sleep(chance.choice((0, 0.02, 0.3, 2, 8)))
            if chance.random() < 0.3:
                with suppress(RateLimiterUnavailable):
                    await lease.renew()
                    self.happened["renewed"] += 1
                await asyncio.sleep(chance.choice((0.02, 0.3, 2)))
            if chance.random() < self.habits.dies:
                self.abandoned.append(lease)
                self.happened["died"] += 1
                return
            if chance.random() < self.habits.overstays:
                self.happened["overstayed"] += 1
                for place, slots in running.items():
                    self.in_flight[place] -= slots
                running = {}
                await asyncio.sleep(TTL_ABOVE * 2)
            if chance.random() < 0.2:
                raise LookupError
        except (LookupError, asyncio.CancelledError) as stop:
            error = stop
        finally:
            for place, slots in running.items():  # from now on others may have them
                self.in_flight[place] -= slots
        await waiting.__aexit__(type(error) if error else None, error, None)
        if isinstance(error, asyncio.CancelledError):
            raise error

    # Afterwards

    async def _check(self, habits: Habits, unresolved: int) -> None:
        """What is there when all clients are gone."""
        store, fresh = self._limiter(skewed=False)
        is_sure = not (unresolved or self.abandoned or habits.lost or habits.late or habits.changes or habits.twice)
        if is_sure:
            await self._check_all_free(fresh, "at once")
        if not (unresolved or habits.changes or habits.lost or habits.late or habits.twice or habits.cancels):
            self._check_told()
        longest = max(TTL_ABOVE, 30) * 5 // 4 + 1 + 2 * habits.skew_ms // 1000
        await asyncio.sleep(longest + 1)
        await self._check_all_free(fresh, "when they are due")
        await store.aclose()

    async def _check_all_free(self, fresh: RateLimiter, when: str) -> None:
        for entity in (*TREE, "org"):
            for bucket in (await fresh.get_status(entity)).buckets:
                for level in bucket.limits:
                    if level.limit.is_held and level.available != level.limit.burst:
                        raise Violation(f"{level.available} of {level.limit} of {entity} are free {when}")

    def _check_told(self) -> None:
        counted: Counter[tuple[str, str]] = Counter()
        for (pk, _), item in self.model.snapshot(TABLE).items():
            if "/BUCKET#" in pk:
                for attribute, value in item.items():
                    if attribute[:2] in ("b_", "h_") and attribute.endswith("_sn"):
                        counted[item["entity_id"]["S"], attribute[2:-3]] += int(value["N"]) // 1000
        if +counted != +self.told:
            raise Violation(f"{dict(counted)} would have been refused, and {dict(self.told)} was told")
