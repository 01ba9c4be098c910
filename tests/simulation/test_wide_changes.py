"""Changes that concern many buckets reach all of them: full pages, sharded buckets, slow calls, buckets that fail.

Time is simulated: how long a change takes does not depend on the machine that runs the test.
"""

from __future__ import annotations

from typing import Any

import pytest

from simulation.clients import Client, Task
from simulation.families import Families
from simulation.faults import Faults
from simulation.fleet import Fleet
from simulation.violations import Place
from simulation.words import places_written
from zae_limiter.exceptions import RateLimiterUnavailable
from zae_limiter.models.entity import Entity
from zae_limiter.models.limit import Limit
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.operations.propagate import KEYS_PER_PAGE
from zae_limiter.stores.dynamodb.operations.shard_life import split_first
from zae_limiter.stores.dynamodb.requests import KEY_THROTTLED, Answer, Call, Refused
from zae_limiter.stores.dynamodb.schema import Key
from zae_limiter.stores.protocol import Draw, Grant, Scope

OLD = (Limit.per_minute("rpm", 1_000),)
NEW = (Limit.per_minute("rpm", 10),)
RESOURCE = "r0"
SLOW = Faults(fastest_trip=6, slowest_trip=6)
"""Twelve milliseconds for each call."""

SCOPES = {"system": Scope(), "resource": Scope(None, RESOURCE), "entity": Scope("org", "_default_")}


class Crowd:
    """Many buckets, of which some are split, and a setter."""

    def __init__(self, buckets: int, *, sharded: int = 1, faults: Faults = SLOW, resources: int = 1) -> None:
        self.fleet = Fleet(1, faults)
        self.fleet.oracle.families = Families()  # here they may be split without pressure
        self.ended: list[Any] = []
        self.refused: set[Place] = set()
        """These buckets take no write."""
        self.setter = self.fleet.client()
        fleet = self.fleet
        space = self.setter.space
        fleet.at_once(space.set_config(Scope(), OLD, None, None, False, fleet.now))
        for number in range(buckets):
            entity, resource = (f"e{number}", RESOURCE) if resources == 1 else ("org", f"r{number}")
            drawn = fleet.at_once(space.draw(Draw(entity, resource, {"rpm": 1}), fleet.now))
            assert isinstance(drawn, Grant)
        in_order = sorted(
            self.places, key=lambda place: fleet.items[place]["GSI3SK" if resources > 1 else "GSI2SK"]["S"]
        )
        for place in in_order[KEYS_PER_PAGE - 1 :: -1][:sharded]:  # so that the shards of one are on two pages
            until = fleet.at_once(space.namespace.client.new_deadline())
            assert fleet.at_once(split_first(space.namespace.client, Key(*place), fleet.now, until))
        apply = fleet.apply

        def unless_refused(call: Call, *rest: Any, **named: Any) -> Answer:
            if self.refused.intersection(places_written(call)):
                return Refused(KEY_THROTTLED, "it takes no write")
            return apply(call, *rest, **named)

        fleet.apply = unless_refused  # type: ignore[method-assign]

    @property
    def places(self) -> list[Place]:
        return [place for place in self.fleet.items if place[1] == "#STATE"]

    @property
    def changed(self) -> bool:
        """Whether the new limits are stored."""
        config = self.fleet.items.get((f"{self.places[0][0].partition('/')[0]}/RESOURCE#{RESOURCE}", "#CONFIG"))
        return config is not None

    def behind(self) -> list[Place]:
        """The buckets, or shards of them, that still have the old limit."""
        return [place for place in self.places if self.fleet.items[place]["b_rpm_bx"]["N"] != "10000"]

    def run(self, plan: Plan[Any], client: Client | None = None) -> int:
        """Run a plan over the slow network. Milliseconds that took; the error, or the result, is in ``ended``."""

        def life(task: Task) -> Plan[None]:
            try:
                self.ended.append((yield from plan))
            except Exception as error:
                self.ended.append(error)

        started = self.fleet.now
        (client or self.setter).start(life)
        self.fleet.run()
        return self.fleet.now - started

    def change(self, scope: Scope) -> int:
        return self.run(self.setter.space.set_config(scope, NEW, None, None, True, self.fleet.now))


@pytest.mark.parametrize("level", SCOPES)
@pytest.mark.parametrize("buckets", [150, 300])
def test_a_change_reaches_every_bucket_of_full_pages(level: str, buckets: int) -> None:
    assert buckets > KEYS_PER_PAGE
    crowd = Crowd(buckets, sharded=3, resources=buckets if level == "entity" else 1)
    took = crowd.change(SCOPES[level])
    assert not isinstance(crowd.ended[-1], Exception)
    assert len(crowd.places) == buckets + 3
    assert crowd.behind() == []
    assert took < 2_000, "one after the other takes longer"


@pytest.mark.parametrize("resource", [None, RESOURCE])
def test_what_passes_by_an_entity_notices_that_it_has_limits(resource: str | None) -> None:
    crowd = Crowd(0, sharded=0)
    fleet, space = crowd.fleet, crowd.setter.space
    fleet.at_once(space.delete_config(Scope(), None, True, fleet.now))
    fleet.at_once(space.create_entity(Entity("org"), None, fleet.now))
    for number in range(KEYS_PER_PAGE + 20):
        child = Entity(f"c{number}", parent_id="org", cascade=True)
        fleet.at_once(space.create_entity(child, None, fleet.now))
        fleet.at_once(space.set_config(Scope(child.id, RESOURCE), OLD, None, None, True, fleet.now))
        fleet.at_once(space.draw(Draw(child.id, RESOURCE, {"rpm": 1}), fleet.now))
    before = {place: fleet.items[place]["cv"] for place in crowd.places}
    took = crowd.change(Scope("org", resource or "_default_"))
    assert not isinstance(crowd.ended[-1], Exception)
    assert [place for place in crowd.places if fleet.items[place]["cv"] == before[place]] == []
    assert took < 2_000


def test_a_bucket_that_fails_keeps_no_other_from_the_change() -> None:
    crowd = Crowd(150, sharded=0)
    crowd.refused = set(crowd.places[20:23])
    crowd.change(Scope(None, RESOURCE))
    error = crowd.ended[-1]
    assert isinstance(error, RateLimiterUnavailable)
    assert "3 buckets" in str(error)
    assert "is stored" in str(error)
    assert set(crowd.behind()) == crowd.refused


def test_a_bucket_that_fails_for_a_while_is_reached_in_the_end() -> None:
    crowd = Crowd(150, sharded=0)
    crowd.refused = set(crowd.places[20:23])
    crowd.fleet.after(3_000_000, crowd.refused.clear)
    crowd.change(Scope(None, RESOURCE))
    assert not isinstance(crowd.ended[-1], Exception)
    assert crowd.behind() == []


@pytest.mark.parametrize("shards", [1, 2])
def test_what_was_not_reached_is_brought_over_by_its_next_acquire(shards: int) -> None:
    ttl_ms = 60_000
    crowd = Crowd(20, sharded=20 if shards == 2 else 0)
    fleet = crowd.fleet
    warm = fleet.client(config_ttl_ms=ttl_ms)
    owners = [f"e{number}" for number in range(3)]
    for owner in owners:
        crowd.run(warm.space.draw(Draw(owner, RESOURCE, {"rpm": 1}), fleet.now), warm)
    crowd.refused = {place for place in crowd.places if place[0].split("#")[1] in owners}
    crowd.change(Scope(None, RESOURCE))
    assert isinstance(crowd.ended[-1], RateLimiterUnavailable)
    assert set(crowd.behind()) == crowd.refused
    crowd.refused = set()
    asks = Draw(owners[0], RESOURCE, {"rpm": 11})
    fresh = fleet.client()
    crowd.run(fresh.space.draw(asks, fleet.now), fresh)
    assert not isinstance(crowd.ended[-1], Grant), "more than the new burst"
    assert not [place for place in crowd.behind() if place[0].split("#")[1] == owners[0]]
    fleet.now_us += (ttl_ms + 1) * 1000
    crowd.run(warm.space.draw(asks._replace(entity_id=owners[1]), fleet.now), warm)
    assert not isinstance(crowd.ended[-1], Grant), "its cache is too old to be asked"
    assert not [place for place in crowd.behind() if place[0].split("#")[1] == owners[1]]
    crowd.run(fresh.space.draw(Draw(owners[2], RESOURCE, {"rpm": 1}), fleet.now), fresh)
    assert isinstance(crowd.ended[-1], Grant)
    assert len(crowd.behind()) == shards - 1, "the shard that gave it follows, the other when it is drawn from"


def test_reads_that_fail_for_a_while_are_made_again() -> None:
    crowd = Crowd(150, sharded=0)
    fleet = crowd.fleet
    apply, failing = fleet.apply, True

    def no_reads(call: Call, *rest: Any, **named: Any) -> Answer:
        if failing and call.operation in ("BatchGetItem", "Query") and crowd.changed:
            return Refused(KEY_THROTTLED, "no reads")
        return apply(call, *rest, **named)

    def over() -> None:
        nonlocal failing
        failing = False

    fleet.apply = no_reads  # type: ignore[method-assign]
    fleet.after(3_000_000, over)
    crowd.change(Scope(None, RESOURCE))
    assert not isinstance(crowd.ended[-1], Exception)
    assert crowd.behind() == []


def test_a_list_that_cannot_be_read_is_told_with_what_is_stored() -> None:
    crowd = Crowd(10, sharded=0)
    fleet = crowd.fleet
    apply = fleet.apply
    fleet.apply = lambda call, *rest, **named: (  # type: ignore[method-assign]
        Refused(KEY_THROTTLED, "no lists") if call.operation == "Query" else apply(call, *rest, **named)
    )
    crowd.change(Scope(None, RESOURCE))
    assert isinstance(crowd.ended[-1], RateLimiterUnavailable)
    assert "is stored" in str(crowd.ended[-1])


def test_an_entity_of_many_buckets_is_deleted_with_all_of_them_once() -> None:
    """The shards of one are on two pages, and it is in use: it is deleted once, and begins a new life."""
    crowd = Crowd(KEYS_PER_PAGE + 20, sharded=1, resources=2)
    fleet = crowd.fleet
    (split,) = {place[0].split("#")[2] for place in crowd.places if place[0].endswith("#1")}
    user = fleet.client()
    lives = {place: fleet.items[place]["inc"] for place in crowd.places}

    def life(task: Task) -> Plan[None]:
        for _ in range(60):
            yield from user.space.draw(Draw("org", split, {"rpm": 1}), fleet.now)

    user.start(life)
    crowd.run(crowd.setter.space.delete_entity("org", None, fleet.now))
    assert not isinstance(crowd.ended[-1], Exception)
    assert {place[0].split("#")[2] for place in crowd.places} <= {split}
    assert not [place for place in crowd.places if fleet.items[place]["inc"] == lives.get(place)]
