"""The proof finds no break where there is none, and tells exactly where there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from usage_worlds import TABLE, empty_model, limiter_on, process, records_of, store_on

from simulation.model import Model
from zae_limiter import SyncRateLimiter, SyncRepository
from zae_limiter.models.limit import Limit
from zae_limiter.stores.open_store import open_store
from zae_limiter.testing.clock import FakeClock
from zae_limiter_aggregator.verifying import Gap, Link, Proof, verify_usage

RPD = Limit.per_day("rpd", 1_000)
TPD = Limit.per_day("tpd", 100_000)
HOUR = 3_600


def verified(limiter: SyncRateLimiter, entity_id: str = "a", resource: str | None = None) -> Proof:
    repository = limiter.repository
    return repository._driver.run(verify_usage(repository._core.space, entity_id, resource))


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

    def links(self) -> dict[str | None, Link]:
        return {link.limit_name: link for link in verified(self.limiter).links}


@pytest.fixture
def world() -> World:
    return World()


def start_of(world: World, hour: int) -> int:
    return world.clock.start + hour * HOUR * 1_000


def test_a_whole_chain_holds(world: World) -> None:
    world.hours(1, 2, 3)
    world.count()
    proof = verified(world.limiter)
    assert (proof.holds, proof.chained) == (True, True)
    assert [(link.limit_name, link.hours, link.counted, link.behind) for link in proof.links] == [
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


def test_a_bucket_that_nobody_counted_is_behind_by_all_of_it(world: World) -> None:
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
    assert world.links()["rpd"].gaps == (Gap(start_of(world, 0), start_of(world, 1), 2),)
    world.count()
    assert verified(world.limiter).holds


def test_a_gap_is_told_between_the_hours_where_it_is(world: World) -> None:
    world.hours(1, 2, 3)
    world.count(lambda number: number != 3)
    links = world.links()
    gap = (start_of(world, 1), start_of(world, 2))
    assert links["rpd"].gaps == (Gap(*gap, 2),)
    assert links[None].gaps == (Gap(*gap, 1),)
    assert links["tpd"].gaps == ()
    assert (links["rpd"].counted, links["rpd"].behind) == (10, 0)


def test_a_missing_beginning_is_a_break_while_it_is_young_and_expiry_when_it_is_old(world: World) -> None:
    world.hours(1, 2)
    world.count(lambda number: number >= 2)
    link = world.links()["rpd"]
    assert (link.gaps, link.expired) == ((Gap(None, start_of(world, 1), 2),), 0)
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
    taken = sorted((link.counted, link.behind is None) for link in proof.links if link.limit_name == "rpd")
    assert taken == [(3, True), (4, False)]


def test_one_resource_may_be_asked_about(world: World) -> None:
    world.take(1, "gpt")
    world.take(1, "gpt-4")
    world.count()
    assert {link.resource for link in verified(world.limiter).links} == {"gpt", "gpt-4"}
    assert {link.resource for link in verified(world.limiter, resource="gpt").links} == {"gpt"}


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
    assert {link.hours for link in verified(world.limiter).links} == {2}


# Embedded stores


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_an_embedded_store_adds_up(kind: str, tmp_path: Any) -> None:
    url = "memory://" if kind == "memory" else f"sqlite:///{tmp_path}/limits.db"
    clock = FakeClock()
    store = open_store(url, deadline=5.0, config_cache_ttl=60.0, options={})
    with SyncRepository(store, clock=clock) as repository:
        limiter = SyncRateLimiter(repository)
        limiter.set_system_defaults([RPD, TPD])
        for amount in (1, 2, 3):
            with limiter.acquire("a", "gpt", {"rpd": amount}) as lease:
                lease.adjust(tpd=10)
            clock.advance(HOUR)
        proof = verified(limiter)
        assert (proof.holds, proof.chained) == (True, False)
        assert [(link.limit_name, link.counted) for link in proof.links] == [(None, 3), ("rpd", 6), ("tpd", 30)]


def test_an_hour_that_an_embedded_store_lost_is_noticed(tmp_path: Any) -> None:
    import sqlite3

    clock = FakeClock()
    store = open_store(f"sqlite:///{tmp_path}/limits.db", deadline=5.0, config_cache_ttl=60.0, options={})
    with SyncRepository(store, clock=clock) as repository:
        limiter = SyncRateLimiter(repository)
        limiter.set_system_defaults([RPD])
        for amount in (1, 2, 3):
            with limiter.acquire("a", "gpt", {"rpd": amount}):
                pass
            clock.advance(HOUR)
        with sqlite3.connect(tmp_path / "limits.db") as tampering:
            tables = [name for (name,) in tampering.execute("SELECT name FROM sqlite_master WHERE type='table'")]
            usage = next(name for name in tables if "usage" in name)
            tampering.execute(f"DELETE FROM {usage} WHERE hour = (SELECT MIN(hour) FROM {usage})")
        proof = verified(limiter)
        assert not proof.holds
        assert {link.limit_name: link.gaps for link in proof.links} == {
            None: (Gap(None, None, 1),),
            "rpd": (Gap(None, None, 1),),
        }
