"""The proof finds no break where there is none, and tells exactly where there is one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest
from usage_model import TABLE, empty_model, limiter_on, process, records_of, store_on

from simulation.model import Model
from zae_limiter import Repository, SyncRateLimiter, SyncRepository, UsageChain, UsageGap, UsageProof, ValidationError
from zae_limiter.models.limit import Limit
from zae_limiter.models.moments import at
from zae_limiter.stores.open_store import open_store
from zae_limiter.testing.clock import FakeClock

RPD = Limit.per_day("rpd", 1_000)
TPD = Limit.per_day("tpd", 100_000)
HOUR = 3_600


def verified(limiter: SyncRateLimiter, entity_id: str = "a", resource: str | None = None) -> UsageProof:
    return limiter.verify_usage(entity_id, resource)


class World:
    """A table, its stream, and an aggregator that gets the records it is given."""

    def __init__(self) -> None:
        self.model: Model = empty_model()
        self.clock = FakeClock()
        self.limiter = limiter_on(store_on(self.model), self.clock, create=True)
        self.limiter.set_system_defaults([RPD, TPD])

    def take(self, rpd: int = 1, resource: str = "gpt") -> None:
        with self.limiter.acquire("a", resource, {"rpd": rpd}):
            pass

    def hours(self, *amounts: int) -> None:
        """So much in each of some hours, half of it at a time."""
        for amount in amounts:
            self.take(amount)
            self.take(amount)
            self.clock.advance(HOUR)

    def records(self) -> list[dict[str, Any]]:
        return [
            record
            for record in records_of(self.model.changes(TABLE))
            if "/BUCKET#" in record["dynamodb"]["Keys"]["PK"]["S"]
        ]

    def count(self, keep: Callable[[int], bool] = lambda number: True) -> None:
        """Process the records that are to be kept, by their number."""
        process(self.model, [record for number, record in enumerate(self.records()) if keep(number)])

    def links(self) -> dict[str | None, UsageChain]:
        return {link.limit_name: link for link in verified(self.limiter).chains}


@pytest.fixture
def world() -> World:
    return World()


def start_of(world: World, hour: int) -> datetime:
    return at(world.clock.start + hour * HOUR * 1_000)


def test_a_whole_chain_holds(world: World) -> None:
    world.hours(1, 2, 3)
    world.count()
    proof = verified(world.limiter)
    assert proof.holds
    assert [(link.limit_name, link.hours, link.counted, link.behind) for link in proof.chains] == [
        (None, 3, 6, 0),
        ("rpd", 3, 12, 0),
        ("tpd", 3, 0, 0),
    ]


def test_a_bucket_that_is_further_is_no_break(world: World) -> None:
    world.hours(1, 2)
    world.count()
    world.take(7)
    links = world.links()
    assert (links["rpd"].behind, links[None].behind, links["rpd"].gaps) == (7, 1, ())
    world.count()
    assert world.links()["rpd"].behind == 0


def test_a_bucket_that_was_not_counted_is_behind_by_all_of_it(world: World) -> None:
    world.take(5)
    link = world.links()["rpd"]
    assert (link.hours, link.counted, link.behind, link.gaps) == (0, 0, 5, ())


def test_a_record_that_is_lost_within_an_hour_is_made_good_by_the_next(world: World) -> None:
    for _ in range(3):
        world.take(2)
    world.count(lambda number: number != 1)
    assert verified(world.limiter).holds
    assert world.links()["rpd"].counted == 6


def test_a_gap_closes_when_the_lost_record_comes_after_all(world: World) -> None:
    world.hours(1, 2, 3)
    world.count(lambda number: number != 2)
    assert world.links()["rpd"].gaps == (UsageGap(start_of(world, 0), start_of(world, 1), 2),)
    world.count()
    assert verified(world.limiter).holds


def test_a_gap_is_told_between_the_hours_where_it_is(world: World) -> None:
    world.hours(1, 2, 3)
    world.count(lambda number: number != 3)
    links = world.links()
    gap = (start_of(world, 1), start_of(world, 2))
    assert links["rpd"].gaps == (UsageGap(*gap, 2),)
    assert links[None].gaps == (UsageGap(*gap, 1),)
    assert links["tpd"].gaps == ()
    assert (links["rpd"].counted, links["rpd"].behind) == (10, 0)


def test_a_missing_beginning_is_a_break_while_it_is_young_and_expiry_when_it_is_old(world: World) -> None:
    world.hours(1, 2)
    world.count(lambda number: number >= 2)
    link = world.links()["rpd"]
    assert (link.gaps, link.expired) == ((UsageGap(None, start_of(world, 1), 2),), 0)
    world.clock.advance(31 * 24 * HOUR)
    link = world.links()["rpd"]
    assert (link.gaps, link.expired) == ((), 2)


def test_lives_are_kept_apart(world: World) -> None:
    world.limiter.create_entity("a")
    world.take(3)
    world.limiter.delete_entity("a")
    world.take(4)
    world.count()
    proof = verified(world.limiter)
    assert proof.holds
    taken = sorted((link.counted, link.behind is None) for link in proof.chains if link.limit_name == "rpd")
    assert taken == [(3, True), (4, False)]


def test_one_resource_may_be_asked_about(world: World) -> None:
    world.take(1, "gpt")
    world.take(1, "gpt-4")
    world.count()
    assert {link.resource for link in verified(world.limiter).chains} == {"gpt", "gpt-4"}
    assert {link.resource for link in verified(world.limiter, resource="gpt").chains} == {"gpt"}


def test_clocks_that_differ_break_nothing(world: World) -> None:
    late = FakeClock(world.clock.start - 2_000)
    other = limiter_on(store_on(world.model), late)
    world.take(1)
    for _ in range(3):
        with other.acquire("a", "gpt", {"rpd": 2}):
            pass
        world.take(1)
    world.count()
    assert verified(world.limiter).holds
    assert {link.hours for link in verified(world.limiter).chains} == {2}


# A last hour that says more than the bucket


def spoil_last_hour(world: World, **changes: Any) -> None:
    """Change attributes of the last hour by hand; ``None`` removes one."""
    key = max(key for key in world.model.snapshot(TABLE) if key[1].startswith("#USAGE#"))
    item = {**world.model.snapshot(TABLE)[key]}
    for name, value in changes.items():
        if value is None:
            item.pop(name)
        else:
            item[name] = {"N": str(value)}
    world.model.call("PutItem", {"TableName": TABLE, "Item": item})


@pytest.mark.parametrize("aggregated_before", [False, True], ids=["by this version", "by one that kept no mark"])
def test_a_last_hour_that_is_ahead_of_the_bucket_is_a_break(world: World, aggregated_before: bool) -> None:
    world.hours(1, 4, 10)
    world.count()
    spoil_last_hour(world, tc_rpd=530_000, **({"lw": None} if aggregated_before else {}))
    proof = verified(world.limiter)
    assert not proof.holds
    link = world.links()["rpd"]
    assert link.gaps == (UsageGap(start_of(world, 2), None, -500),)
    assert (link.counted, link.behind) == (530, 0)
    assert world.links()["tpd"].gaps == ()
    assert world.links()[None].gaps == ()


def test_grants_that_were_never_given_are_a_break_too(world: World) -> None:
    world.take(3)
    world.count()
    spoil_last_hour(world, ev=7)
    assert world.links()[None].gaps == (UsageGap(start_of(world, 0), None, -6),)


def test_a_last_hour_that_has_seen_the_last_write_and_says_less_is_a_break(world: World) -> None:
    world.take(3)
    world.count()
    spoil_last_hour(world, tc_rpd=1_000)
    assert world.links()["rpd"].gaps == (UsageGap(start_of(world, 0), None, 2),)


def test_what_came_back_and_was_not_counted_yet_is_no_break(world: World) -> None:
    with world.limiter.acquire("a", "gpt", {"rpd": 9}) as lease:
        world.count()
        lease.adjust(rpd=-5)
    link = world.links()["rpd"]
    assert (link.gaps, link.counted, link.behind) == ((), 9, -5)
    world.count()
    link = world.links()["rpd"]
    assert (link.gaps, link.counted, link.behind) == ((), 4, 0)


def test_what_came_back_and_left_the_stream_uncounted_is_a_break(world: World) -> None:
    with world.limiter.acquire("a", "gpt", {"rpd": 9}) as lease:
        world.count()
        lease.adjust(rpd=-5)
    world.clock.advance(25 * HOUR)
    assert world.links()["rpd"].gaps == (UsageGap(start_of(world, 0), None, -5),)


def test_a_limit_that_ended_in_the_bucket_is_no_break(world: World) -> None:
    with world.limiter.acquire("a", "gpt", {"rpd": 2, "tpd": 30}):
        pass
    world.limiter.set_system_defaults([RPD])
    world.clock.advance(25 * HOUR)
    world.take(1)  # the limit that was removed is full by now, and ends
    world.count()
    proof = verified(world.limiter)
    assert proof.holds, [chain for chain in proof.chains if chain.gaps]
    assert world.links()["tpd"].counted == 30
    spoil_last_hour(world, tc_rpd=530_000)
    assert world.links()["rpd"].gaps == (UsageGap(start_of(world, 25), None, -527),)


def test_a_bucket_that_was_created_again_is_not_compared_with_its_former_life(world: World) -> None:
    world.limiter.create_entity("a")
    world.take(9)
    world.count()
    world.limiter.delete_entity("a")
    world.take(1)
    assert verified(world.limiter).holds


def test_an_entity_that_is_none_is_refused(world: World) -> None:
    with pytest.raises(ValidationError):
        world.limiter.verify_usage("a#b")
    with pytest.raises(ValidationError):
        world.limiter.repository.verify_usage("a", "a#b")
    assert world.limiter.verify_usage("nobody") == UsageProof("nobody", None, ())


# Embedded stores

EMBEDDED = ("memory", "sqlite")


def url_of(kind: str, folder: Any) -> str:
    return "memory://" if kind == "memory" else f"sqlite:///{folder}/limits.db"


class Embedded:
    """A limiter on an embedded store that took 1, 2 and 3 in three hours."""

    def __init__(self, kind: str, folder: Any) -> None:
        self.clock = FakeClock()
        self.limiter = SyncRateLimiter.open(url_of(kind, folder), deadline=5.0, clock=self.clock)
        self.limiter.set_system_defaults([RPD, TPD])
        for amount in (1, 2, 3):
            self.take(amount)
            self.clock.advance(HOUR)

    def take(self, amount: int) -> None:
        with self.limiter.acquire("a", "gpt", {"rpd": amount}) as lease:
            lease.adjust(tpd=10)

    def chains(self) -> list[tuple[str | None, int, int, int | None]]:
        proof = self.limiter.verify_usage("a")
        assert proof.holds
        return [(chain.limit_name, chain.hours, chain.counted, chain.behind) for chain in proof.chains]


@pytest.fixture(params=EMBEDDED)
def embedded(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Embedded]:
    found = Embedded(request.param, tmp_path)
    yield found
    found.limiter.close()


def test_an_embedded_store_has_a_whole_chain_too(embedded: Embedded) -> None:
    assert embedded.chains() == [(None, 3, 3, 0), ("rpd", 3, 6, 0), ("tpd", 3, 30, 0)]
    embedded.take(4)
    assert embedded.chains() == [(None, 4, 4, 0), ("rpd", 4, 10, 0), ("tpd", 4, 40, 0)]
    assert {chain.resource for chain in embedded.limiter.verify_usage("a", "gpt").chains} == {"gpt"}
    assert embedded.limiter.verify_usage("a", "claude").chains == ()


def test_a_bucket_that_is_created_again_goes_on_with_its_chain(embedded: Embedded) -> None:
    embedded.limiter.create_entity("a")
    embedded.limiter.delete_entity("a")
    assert embedded.chains() == [(None, 3, 3, None), ("rpd", 3, 6, None), ("tpd", 3, 30, None)]
    embedded.take(1)
    assert embedded.chains() == [(None, 4, 4, 0), ("rpd", 4, 7, 0), ("tpd", 4, 40, 0)]


def test_hours_that_expired_are_no_gap(tmp_path: Any) -> None:
    found = Embedded("memory", tmp_path)
    for _ in range(4):
        found.clock.advance(29 * 24 * HOUR)
        found.take(1)
    found.clock.advance(31 * 24 * HOUR)
    proof = found.limiter.verify_usage("a")
    assert proof.holds
    (rpd,) = [chain for chain in proof.chains if chain.limit_name == "rpd"]
    assert (rpd.counted + rpd.expired, rpd.expired) == (10, 6)


@pytest.mark.parametrize(("hour", "after", "before", "amount"), [(0, None, 1, 1), (1, 0, 2, 2), (2, 1, None, 3)])
def test_an_hour_that_was_lost_is_found_where_it_was(
    tmp_path: Any, hour: int, after: int | None, before: int | None, amount: int
) -> None:
    import sqlite3

    found = Embedded("sqlite", tmp_path)
    found.limiter.close()
    moment = found.clock.start + hour * HOUR * 1_000
    with sqlite3.connect(tmp_path / "limits.db") as tampering:
        assert tampering.execute("DELETE FROM usage WHERE hour = ?", (moment,)).rowcount == 1
    tampering.close()
    store = open_store(url_of("sqlite", tmp_path), deadline=5.0, config_cache_ttl=60.0, options={})
    with SyncRepository(store, clock=found.clock) as repository:
        proof = repository.verify_usage("a")
    ends = [None if place is None else at(found.clock.start + place * HOUR * 1_000) for place in (after, before)]
    assert {chain.limit_name: chain.gaps for chain in proof.chains} == {
        None: (UsageGap(*ends, 1),),
        "rpd": (UsageGap(*ends, amount),),
        "tpd": (UsageGap(*ends, 10),),
    }


def test_a_last_hour_of_a_file_that_is_ahead_of_its_bucket_is_a_break(tmp_path: Any) -> None:
    import sqlite3

    found = Embedded("sqlite", tmp_path)
    found.limiter.close()
    moment = found.clock.start + 2 * HOUR * 1_000
    with sqlite3.connect(tmp_path / "limits.db") as tampering:
        ended = '[3,{"rpd":506000,"tpd":30000}]'
        assert tampering.execute("UPDATE usage SET end = ? WHERE hour = ?", (ended, moment)).rowcount == 1
    tampering.close()
    store = open_store(url_of("sqlite", tmp_path), deadline=5.0, config_cache_ttl=60.0, options={})
    with SyncRepository(store, clock=found.clock) as repository:
        proof = repository.verify_usage("a")
    assert not proof.holds
    assert {chain.limit_name: [gap.amount for gap in chain.gaps] for chain in proof.chains} == {
        None: [],
        "rpd": [-500],
        "tpd": [],
    }


def test_the_async_twin_proves_the_same(tmp_path: Any) -> None:
    found = Embedded("sqlite", tmp_path)
    wanted = found.limiter.verify_usage("a")
    found.limiter.close()

    async def prove() -> UsageProof:
        async with await Repository.open(url_of("sqlite", tmp_path), clock=found.clock) as repository:
            return await repository.verify_usage("a")

    assert asyncio.run(prove()) == wanted
