"""Several that follow one stream share its shards, and one that is missing is replaced."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

from scripted_streams import Stream, record
from usage_model import DEADLINE_MS, EPOCH_S, TABLE, answer

from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.requests import MachineTime, ReadMachineTime
from zae_limiter.stores.dynamodb.table_client import TableClient
from zae_limiter.stores.dynamodb.write_ids import WriteIds
from zae_limiter_aggregator.aggregation import Aggregation
from zae_limiter_aggregator.follower import Position
from zae_limiter_aggregator.membership import ABSENT_AFTER_S, Membership, owner_of

SHARDS = [f"shard-{number:02}" for number in range(24)]


class World:
    """A stream of many shards, one record in each, and a clock."""

    def __init__(self) -> None:
        self.stream = Stream(**{shard: [[record(number)]] for number, shard in enumerate(SHARDS, 1)})
        self.seconds = 0

    def run(self, plan: Plan[Any], *, ahead_s: int = 0) -> Any:
        reply: Any = None
        while True:
            try:
                request = plan.throw(reply) if isinstance(reply, Exception) else plan.send(reply)
            except StopIteration as finished:
                return finished.value
            if isinstance(request, ReadMachineTime):
                reply = MachineTime(self.seconds * 1_000, EPOCH_S + self.seconds + ahead_s)
            else:
                reply = answer(request, self.stream.ask)

    def add(self) -> None:
        """Another record in every shard."""
        for place, pages in enumerate(self.stream.shards.values(), 1):
            pages.append([record(len(SHARDS) * len(pages) + place)])


def asking(client: str) -> TableClient:
    return TableClient(TABLE, deadline_ms=DEADLINE_MS, write_ids=WriteIds(client))


def member(world: World, client: str, *, sharing: bool = True) -> Aggregation:
    found = Aggregation(asking(client), empty_pages=1, sharing=sharing)
    world.run(found.begin())
    return found


def count_available(world: World, *members: Aggregation) -> list[int]:
    """How many records each counts now."""
    before = [each.tally.records for each in members]
    for each in members:
        world.run(each.count_available())
    return [each.tally.records - earlier for each, earlier in zip(members, before, strict=True)]


def heartbeat(world: World, *members: Aggregation) -> None:
    """Let every follower see all others."""
    for _ in range(2):
        world.seconds += 11
        count_available(world, *members)


def test_shards_are_spread_and_only_those_of_one_who_leaves_change_hands() -> None:
    names = [f"member-{number}" for number in range(4)]
    shards = [f"shardId-{number:020}" for number in range(400)]
    before = {shard: owner_of(shard, names) for shard in shards}
    assert all(60 < count < 140 for count in Counter(before.values()).values())
    after = {shard: owner_of(shard, names[1:]) for shard in shards}
    assert {before[shard] for shard in shards if before[shard] != after[shard]} == {"member-0"}


def test_one_alone_reads_everything() -> None:
    world = World()
    assert count_available(world, member(world, "0a")) == [len(SHARDS)]


def test_each_record_is_counted_by_one_of_them() -> None:
    world = World()
    members = [member(world, client) for client in ("0a", "0b", "0c")]
    heartbeat(world, *members)
    world.add()
    counted = count_available(world, *members)
    assert sum(counted) == len(SHARDS)
    assert all(counted)


def test_one_that_joins_goes_on_where_the_others_are() -> None:
    world = World()
    first = member(world, "0a")
    count_available(world, first)
    world.add()
    second = member(world, "0b")
    heartbeat(world, first, second)
    world.add()
    counted = count_available(world, first, second)
    assert sum(counted) == len(SHARDS)
    assert world.stream.grants() == 3 * len(SHARDS)


def test_one_that_dies_is_missed_after_a_while_and_its_shards_are_read_on() -> None:
    world = World()
    first, second = member(world, "0a"), member(world, "0b")
    heartbeat(world, first, second)
    world.run(second._save())
    world.add()
    some = count_available(world, first)[0]
    assert 0 < some < len(SHARDS)
    world.seconds += ABSENT_AFTER_S + 1
    assert count_available(world, first) == [len(SHARDS) - some]


def test_one_that_ends_says_so_and_is_replaced_at_once() -> None:
    world = World()
    first, second = member(world, "0a"), member(world, "0b")
    heartbeat(world, first, second)
    world.run(second.end())
    world.add()
    world.seconds += 11
    assert count_available(world, first) == [len(SHARDS)]


def test_one_that_shares_nothing_reads_everything_beside_the_others() -> None:
    world = World()
    first, second = member(world, "0a"), member(world, "0b")
    heartbeat(world, first, second)
    alone = member(world, "0c", sharing=False)
    world.add()
    assert count_available(world, alone)[0] >= len(SHARDS)
    assert world.run(Membership(asking("0d")).heartbeat()) >= first._present
    assert len(first._present) == 2


def test_one_whose_clock_is_far_off_is_not_waited_for() -> None:
    """It would seem to be there for as long as its clock is ahead."""
    world = World()
    for ahead_s in (3_600, -3_600):
        world.run(Membership(asking("0b")).heartbeat(), ahead_s=ahead_s)
    assert len(world.run(Membership(asking("0a")).heartbeat())) == 1


def test_a_shard_waits_for_the_one_it_came_from_only_if_both_are_read_by_the_same() -> None:
    """The order does not matter; a parent that another follower reads would be waited for until that is known."""
    world = World()
    members = [member(world, client) for client in ("0a", "0b")]
    heartbeat(world, *members)
    world.stream.parents = {shard: parent for parent, shard in pairwise(SHARDS)}
    world.add()
    counted = sum(count_available(world, *members))
    assert 0 < counted < len(SHARDS)
    waiting = [
        shard
        for parent, shard in pairwise(SHARDS)
        if any(each._owns(shard) and each._owns(parent) for each in members)
    ]
    assert counted == len(SHARDS) - len(waiting)
    assert Position() not in members[0]._positions.values()
