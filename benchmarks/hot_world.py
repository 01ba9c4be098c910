"""A simulated fleet at one hot bucket: the real plans over the model of DynamoDB, in simulated time.

It is the simulator of the tests without those who judge every write, so that it is fast enough for tens of thousands
of acquires a second. A partition takes so many write units a second, with a burst of one second, and refuses what is
more; a call takes 2 to 4 milliseconds each way. Processes are asked at random, whether earlier answers came or not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import heappop
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from simulation.clients import Client, Task
from simulation.faults import Faults
from simulation.fleet import Fleet
from simulation.network import Network
from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.models.entity import Entity
from zae_limiter.models.limit import Limit
from zae_limiter.running.plan import READ_CLOCK, Plan
from zae_limiter.stores.dynamodb.items import key_of
from zae_limiter.stores.dynamodb.operations import acquire_sharded
from zae_limiter.stores.dynamodb.operations.shard_life import split
from zae_limiter.stores.dynamodb.requests import Answer, Call, Refused
from zae_limiter.stores.dynamodb.schema import Key, bucket_key
from zae_limiter.stores.protocol import Draw, Grant, Scope

ENTITY, RESOURCE, LIMIT = "hot", "gpt-4", "rps"
SECOND = 1_000_000
FASTEST_MS, SLOWEST_MS = 2, 4


@dataclass(frozen=True, slots=True)
class Setting:
    """Who asks how much of what."""

    processes: int
    offered: int
    """Acquires per second, of all processes together."""
    limit: int
    """Tokens per second; also the burst."""
    seconds: float
    warm_up: float = 0.2
    shards: int = 1
    """How many there are at the beginning."""
    filled: float = 0.5
    """How much of its burst the bucket holds at the beginning."""
    saved: float = 0.05
    """How many seconds' worth of writes a partition has saved at most when the measuring begins."""
    children: int = 0
    """If there are any, they are asked for, and the hot entity is their parent."""
    coalesce: bool = True
    divide: bool = True
    """Whether hot buckets are divided (further than they are at the beginning)."""
    wcu: int = 1_000
    """What a partition takes per second."""
    seed: int = 1


@dataclass(slots=True)
class Course:
    """What became of it, after the warming up."""

    setting: Setting
    granted: int = 0
    denied: int = 0
    unavailable: int = 0
    wcu: int = 0
    reads: int = 0
    throttled: int = 0
    failed: int = 0
    """Writes that were refused by their condition."""
    latencies: list[int] = field(default_factory=list)
    """Of grants, in microseconds."""
    shards: list[tuple[float, int]] = field(default_factory=list)
    """How many there were, by second."""
    granted_by_tenth: dict[int, int] = field(default_factory=dict)
    wcu_by_tenth: dict[int, int] = field(default_factory=dict)

    @property
    def admitted_per_second(self) -> float:
        return self.granted / self.setting.seconds

    @property
    def wcu_per_acquire(self) -> float:
        """Write units per acquire that was granted."""
        return self.wcu / max(self.granted, 1)

    @property
    def final_shards(self) -> int:
        return self.shards[-1][1] if self.shards else 1

    def quantile_ms(self, share: float) -> float:
        """So large a share of the grants took no longer."""
        if not self.latencies:
            return float("nan")
        ordered = sorted(self.latencies)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)] / 1000

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        setting = self.setting
        return {
            "processes": setting.processes,
            "offered_per_second": setting.offered,
            "limit_per_second": setting.limit,
            "partition_wcu": setting.wcu,
            "children": setting.children,
            "coalesce": setting.coalesce,
            "divide": setting.divide,
            "seconds": setting.seconds,
            "admitted_per_second": round(self.admitted_per_second),
            "denied_per_second": round(self.denied / setting.seconds),
            "unavailable": self.unavailable,
            "p50_ms": round(self.quantile_ms(0.5), 2),
            "p99_ms": round(self.quantile_ms(0.99), 2),
            "wcu_per_acquire": round(self.wcu_per_acquire, 4),
            "reads_per_acquire": round(self.reads / max(self.granted, 1), 4),
            "throttled_per_second": round(self.throttled / setting.seconds),
            "failed_conditions_per_second": round(self.failed / setting.seconds),
            "shards": self.final_shards,
            "shards_over_time": [[round(at, 2), count] for at, count in self.shards],
            "admitted_by_tenth_of_a_second": [self.granted_by_tenth[tenth] for tenth in sorted(self.granted_by_tenth)],
        }


class Meter(Network):
    """The network, with a meter."""

    fleet: HotFleet

    def _affordable(self, places: list[tuple[str, str]], cost: int) -> bool:
        affordable = super()._affordable(places, cost)
        course = self.fleet.course
        if course is not None:
            if affordable:
                units = cost * len(places)
                tenth = self.fleet.now_us * 10 // SECOND
                course.wcu += units
                course.wcu_by_tenth[tenth] = course.wcu_by_tenth.get(tenth, 0) + units
            else:
                course.throttled += 1
        return affordable

    def drain(self) -> None:
        """No partition has more saved than the setting says."""
        now, most = self.fleet.now_us, self.faults.partition_wcu * self.fleet.setting.saved
        for pk, (saved, since) in self._partitions.items():
            left = min(saved + (now - since) * self.faults.partition_wcu / SECOND, most)
            self._partitions[pk] = (left, now)
        for pk, _ in self.fleet.items:
            self._partitions.setdefault(pk, (most, now))


class HotFleet(Fleet):
    """A fleet that is not watched."""

    network: Meter
    course: Course | None = None

    def __init__(self, setting: Setting) -> None:
        faults = Faults(partition_wcu=setting.wcu, fastest_trip=FASTEST_MS, slowest_trip=SLOWEST_MS)
        super().__init__(setting.seed, faults)
        self.network = Meter(self, faults)
        self.setting = setting

    def apply(self, call: Call, verb: Any, **about: Any) -> Answer:
        course = self.course
        try:
            answer = self.model.call(call.operation, call.params, now_s=self.now_us / 1e6)
        except Refused as refusal:
            if course is not None:
                course.failed += 1
            return refusal
        if course is not None and "Get" in call.operation:
            course.reads += 1
        return answer

    def note(self, *about: Any) -> None:
        """It is not asked for."""

    def doubt(self, *about: Any) -> None:
        """Nor that."""

    def run_until(self, moment: int) -> None:
        """Let everything happen that happens before."""
        events = self._events
        while events and events[0][0] < moment:
            self.now_us, _, act, arguments = heappop(events)
            act(*arguments)
        self.now_us = moment

    def member(self) -> Client:
        """One more process, with the features that are switched on."""
        client = self.client()
        client.space.namespace.client.wcu = self.setting.wcu
        client.space.batching.coalesce = self.setting.coalesce
        return client


@contextmanager
def as_they_are(setting: Setting) -> Iterator[None]:
    """No bucket is split, unless the setting says so."""
    may_split = acquire_sharded.may_split
    if not setting.divide:
        acquire_sharded.may_split = lambda first, now: False
    try:
        yield
    finally:
        acquire_sharded.may_split = may_split


def course_of(setting: Setting) -> Course:
    """Let it happen."""
    with as_they_are(setting):
        return _course_of(setting)


def _course_of(setting: Setting) -> Course:
    fleet = HotFleet(setting)
    asked = _prepare(fleet)
    members = [fleet.member() for _ in range(setting.processes)]
    began = fleet.now_us
    measured_from = began + int(setting.warm_up * SECOND)
    over = measured_from + int(setting.seconds * SECOND)
    course = Course(setting)

    def arrive(member: Client, asked: Sequence[str]) -> None:
        entity_id = asked[int(fleet.rng.random() * len(asked))]
        member.start(_caller(member, entity_id, course, measured_from, over))
        wait = int(fleet.rng.expovariate(setting.offered / setting.processes) * SECOND)
        if fleet.now_us + wait < over:
            fleet.after(wait, arrive, member, asked)

    def look() -> None:
        course.shards.append(((fleet.now_us - measured_from) / SECOND, len(shards_in(fleet))))
        for member in members:
            member.tasks = [task for task in member.tasks if task.alive]
        if fleet.now_us < over:
            fleet.after(SECOND // 10, look)

    for place, member in enumerate(members):
        theirs = asked[place % len(asked) :: setting.processes]  # a child is asked for at one process
        wait = int(fleet.rng.expovariate(setting.offered / setting.processes) * SECOND)
        fleet.after(wait, arrive, member, theirs)
    fleet.run_until(measured_from)
    fleet.network.drain()
    fleet.course = course
    look()
    fleet.run_until(over)
    return course


def _caller(
    member: Client, entity_id: str, course: Course, measured_from: int, over: int
) -> Callable[[Task], Plan[None]]:
    fleet = member.fleet

    def life(task: Task) -> Plan[None]:
        began = fleet.now_us
        try:
            outcome = yield from member.space.draw(Draw(entity_id, RESOURCE, {LIMIT: 1}), (yield from READ_CLOCK))
        except RateLimiterUnavailable:
            outcome = None
        if not measured_from <= fleet.now_us < over:
            return
        if outcome is None:
            course.unavailable += 1
        elif isinstance(outcome, Grant):
            course.granted += 1
            tenth = fleet.now_us * 10 // SECOND
            course.granted_by_tenth[tenth] = course.granted_by_tenth.get(tenth, 0) + 1
            course.latencies.append(fleet.now_us - began)
        else:
            course.denied += 1

    return life


def _prepare(fleet: HotFleet) -> Sequence[str]:
    """The limits, the buckets and the shards there are at the beginning; returns whom to ask for."""
    setting = fleet.setting
    first = fleet.member()
    space = first.space
    scope, limits = Scope(ENTITY, RESOURCE), (Limit.per_second(LIMIT, setting.limit),)
    fleet.at_once(space.set_config(scope, limits, None, None, False, fleet.now))
    asked: list[str] = [ENTITY]
    if setting.children:
        plenty = (Limit.per_second(LIMIT, 10**6),)
        fleet.at_once(space.set_config(Scope(), plenty, None, None, False, fleet.now))
        fleet.at_once(space.create_entity(Entity(ENTITY), None, fleet.now))
        asked = [f"child-{number}" for number in range(setting.children)]
        for name in asked:
            child = Entity(name, parent_id=ENTITY, cascade=True)
            fleet.at_once(space.create_entity(child, None, fleet.now))
    for name in asked:
        fleet.at_once(space.draw(Draw(name, RESOURCE, {LIMIT: 0}), fleet.now))
    taken = int(setting.limit * (1 - setting.filled))
    if taken:
        fleet.at_once(space.draw(Draw(ENTITY, RESOURCE, {LIMIT: taken}), fleet.now))
    while len(shards_in(fleet)) < setting.shards:
        for key, item in list(shards_in(fleet).items()):
            until = fleet.at_once(space.namespace.client.new_deadline())
            fleet.at_once(split(space.namespace.client, key, item, fleet.now, until))
    return asked


def shards_in(fleet: Fleet) -> dict[Key, Any]:
    """The shards of the hot bucket, as they are."""
    ns = fleet.items[("_/SYSTEM#", "#NAMESPACE#default")]["ns"]["S"]
    first = bucket_key(ns, ENTITY, RESOURCE)
    stem = first.pk.rpartition("#")[0]
    count = int(fleet.items[first]["shard_count"]["N"])
    places = [(f"{stem}#{shard}", first.sk) for shard in range(count)]
    return {key_of(fleet.items[place]): fleet.items[place] for place in places if place in fleet.items}
