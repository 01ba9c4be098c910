"""As many limits as are allowed fit DynamoDB: expressions have 4 KB and 300 operators at most, items 400 KB."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from aggregator.usage_model import empty_model, limiter_on, store_on
from engines.servers import Engine
from support.dynamodb.sharded_tables import Stage
from zae_limiter import Limit, SyncRateLimiter, ValidationError
from zae_limiter.models.limit import MAX_ENDED, MAX_LIMITS, MAX_RETIRED
from zae_limiter.running.clocks import machine_clock
from zae_limiter.running.sync_driver import SyncDriver
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot, snapshot_of
from zae_limiter.stores.dynamodb.intents import Intent, Terms
from zae_limiter.stores.dynamodb.schema import bucket_key, encode_item
from zae_limiter.stores.dynamodb.shards import split_in_two
from zae_limiter.stores.dynamodb.transport.protocol import Target
from zae_limiter.stores.dynamodb.write_forms import new_item, update
from zae_limiter.stores.protocol import Leg
from zae_limiter.stores.windows import HOUR_MS
from zae_limiter.testing import FakeClock

NOW = 1_767_225_600_000
TABLES = count()
KEY = bucket_key("ns", "e" * 256, "r" * 128)
OPERATOR = re.compile(r"<>|<=|>=|=|<|>|\bAND\b|\bOR\b|\+|attribute_not_exists")
ANCHOR = f"{NOW:x}.them1"

Make = Callable[[int, str], Limit]


def per_day(rate: int, name: str) -> Limit:
    return Limit.per_day(name, rate)


def long_names(count: int, prefix: str, make: Make = per_day) -> tuple[Limit, ...]:
    """Limits with names of 64 characters."""
    return tuple(make(10**15 - 1, f"{prefix}{number}".ljust(64, "x")) for number in range(count))


def operators_and_size(params: Any) -> tuple[int, int, int]:
    condition, change = params["ConditionExpression"], params["UpdateExpression"]
    return len(OPERATOR.findall(condition)), len(condition), len(change)


def terms(limits: tuple[Limit, ...], cv: str) -> Terms:
    return Terms(Leg("e" * 256, "r" * 128, limits, "system_default"), cv, "p" * 256, True)


def crowded(
    in_force: tuple[Limit, ...], retired: tuple[Limit, ...], full: tuple[Limit, ...], counted: int
) -> BucketSnapshot:
    """A bucket that holds as much as one may: limits in force, retired limits, some of them full, and counters."""
    made: dict[str, Any] = new_item(
        KEY,
        terms((*in_force, *retired, *full), "999999.999999.999999.999999.999999"),
        {limit.name: 10**17 + 1 for limit in (*in_force, *retired)},
        now=NOW,
        write_id=ANCHOR,
        inc="1",
        grants=10**12,
        epoch_s=NOW // 1000,
        ttl_margin_s=60,
    )
    for limit in (*retired, *full):
        del made[f"b_{limit.name}_cp"]
    ended = {f"e_{limit.name}": 10**20 for limit in long_names(counted, "ended")}
    return snapshot_of(made | encode_item({**ended, "eh": NOW - NOW % HOUR_MS, "rv": ANCHOR}))


@pytest.mark.parametrize("draws", [True, False])
@pytest.mark.parametrize("later", [1, 2 * HOUR_MS])
@pytest.mark.parametrize("used", [True, False])
@pytest.mark.parametrize("comes_back", [0, MAX_RETIRED - MAX_LIMITS])
def test_the_largest_change_of_limits_fits(draws: bool, later: int, used: bool, comes_back: int) -> None:
    """Every limit is exchanged and retired, which leaves no room for more; all the others end, or come back."""
    old, retired = long_names(MAX_LIMITS, "old"), long_names(MAX_RETIRED - MAX_LIMITS, "retired")
    snapshot = crowded(old, retired, long_names(MAX_LIMITS, "full"), MAX_ENDED - MAX_LIMITS)
    if not used:
        for balance in snapshot.balances.values():
            balance.tc = 0
    new = (*retired[:comes_back], *long_names(MAX_LIMITS - comes_back, "new"))
    needed = {limit.name: 1000 for limit in new[comes_back:]}
    intent = Intent(needed, needed if draws else None, terms=terms(new, "1000000.1.1.1.1"), grants=1)
    write = update(
        snapshot, intent, now=NOW + later, write_id=f"{NOW + later:x}.me1", epoch_s=1, ttl_margin_s=1, anchor=ANCHOR
    )
    operators, condition, change = operators_and_size(write.params("table", KEY))
    assert operators <= 300
    assert max(condition, change) <= 4096
    assert operators > 250  # it is about the largest


@pytest.mark.parametrize(
    "intent",
    [
        Intent({}, fill=True),
        Intent({}, rebase=True, not_written=f"{NOW:x}.x"),
        Intent(
            {limit.name: 1000 for limit in long_names(MAX_LIMITS, "old")},
            {limit.name: 1000 for limit in long_names(MAX_LIMITS, "old")},
            grants=1,
            rebase=True,
        ),
        Intent({limit.name: -1000 for limit in long_names(MAX_LIMITS, "old")}, grants=-1, rebase=True),
        Intent({limit.name: 1000 for limit in long_names(MAX_LIMITS, "ended")}, owed=long_names(MAX_LIMITS, "ended")),
    ],
    ids=["reset", "void", "draw", "credit", "settle what ended"],
)
def test_every_other_write_to_the_largest_bucket_fits(intent: Intent) -> None:
    room = MAX_LIMITS if intent.owed else 0
    snapshot = crowded(long_names(MAX_LIMITS, "old"), long_names(MAX_RETIRED - room, "retired"), (), MAX_ENDED)
    write = update(snapshot, intent, now=NOW + 5, write_id=f"{NOW:x}.me", epoch_s=1, ttl_margin_s=1, anchor=ANCHOR)
    operators, condition, change = operators_and_size(write.params("table", KEY))
    assert operators <= 300
    assert max(condition, change) <= 4096


def test_splitting_the_largest_bucket_fits_and_items_are_far_below_their_limit() -> None:
    snapshot = crowded(long_names(MAX_LIMITS, "old"), long_names(MAX_RETIRED, "retired"), (), MAX_ENDED)
    item = new_item(
        KEY,
        terms(tuple(balance.limit for balance in snapshot.balances.values()), "1.1.1.1.1"),
        {},
        now=NOW,
        write_id=ANCHOR,
        inc="1",
        grants=1,
        epoch_s=1,
        ttl_margin_s=1,
    )
    write, _, new = split_in_two(item, now=NOW + 1, write_id=ANCHOR, inc="2")
    operators, condition, change = operators_and_size(write.params("table", KEY))
    assert operators <= 300
    assert max(condition, change) <= 4096
    for held in (item, new):
        assert sum(len(name) + len(str(next(iter(value.values())))) for name, value in held.items()) < 40_000


# All of it, on an engine


@pytest.fixture(params=["the model", "dynoxide"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """The model knows the bound on operators, dynoxide that on sizes."""
    if request.param == "the model":
        yield ModelStage()
        return
    engine: Engine = request.getfixturevalue("dynoxide")
    stage = Stage(f"bounds-{os.getpid()}-{next(TABLES)}", Target("us-east-1", engine.endpoint_url), FakeClock(), [])
    stage.client()
    store = stage.opened[0]
    driver = SyncDriver(machine_clock, store.perform)
    driver.run(store.create(stage.clock()))
    yield stage
    driver.run(store.destroy())
    for opened in stage.opened:
        opened.close()


class ModelStage(Stage):
    """The same on the model."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self._model = empty_model()
        self.table, self.target = "limits", Target("us-east-1")
        store = store_on(self._model)
        self.opened: list[Any] = [store]
        SyncDriver(machine_clock, store.perform).run(store.create(self.clock()))

    def client(self, **options: Any) -> SyncRateLimiter:
        return limiter_on(store_on(self._model), self.clock)


def per_minute(rate: int, name: str) -> Limit:
    return Limit.per_minute(name, 1_000)


def test_buckets_with_all_limits_live_through_everything(stage: Stage) -> None:
    """Cascaded, split, settled, joined, renamed while in use, reset: with all the limits there may be."""
    limiter = stage.client()
    generations = [long_names(MAX_LIMITS, f"g{number}-", per_minute) for number in range(4)]
    limiter.set_system_defaults(list(generations[0]))
    limiter.create_entity("org")
    limiter.create_entity("team", parent_id="org", cascade=True)
    limiter.create_entity("key", parent_id="team", cascade=True)
    entities = ("key", "team", "org")
    for number, limits in enumerate(generations):
        limiter.set_system_defaults(list(limits))
        with limiter.acquire("key", "gpt", {limit.name: 10 for limit in limits}) as lease:
            lease.adjust(**{limit.name: 5 for limit in limits[::2]})
            lease.adjust(**{limit.name: -5 for limit in limits[1::2]})
        for entity_id in entities:
            available = limiter.available(entity_id, "gpt")
            assert available == {limit.name: 985 if place % 2 == 0 else 995 for place, limit in enumerate(limits)}
        if number == 0:
            stage.split_once("key")
            stage.split_once("org")
        # The next ones are renamed while these are in use, then while the ones before are full again.
        stage.clock.advance(0.1 if number == 0 else 120)
    with limiter.acquire("key", "gpt", {limit.name: 800 for limit in limits}):
        pass  # more than a shard holds: several pay together, in one transaction
    assert limiter.reset("key") == 1
    assert set(limiter.available("key", "gpt").values()) == {1_000}


def test_too_many_retired_limits_refuse_the_next_change_until_they_are_full(stage: Stage) -> None:
    limiter = stage.client()
    for number in range(2):
        limits = long_names(MAX_LIMITS, f"g{number}-", per_minute)
        with limiter.acquire("key", "gpt", {limit.name: 1_000 for limit in limits}, limits=list(limits)):
            pass
    more = long_names(MAX_LIMITS, "g2-", per_minute)
    wanted = {limit.name: 1 for limit in more}
    with pytest.raises(ValidationError, match=f"at most {MAX_RETIRED} limits that were removed from a bucket"):
        limiter.acquire("key", "gpt", wanted, limits=list(more)).__enter__()
    with limiter.acquire("key", "gpt", {limits[0].name: 0}, limits=list(limits)):
        pass  # what holds goes on
    stage.clock.advance(60)
    with limiter.acquire("key", "gpt", wanted, limits=list(more)):
        pass


def test_a_setter_that_a_bucket_cannot_follow_says_so_and_is_done(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    limiter = stage.client()
    for number in range(3):
        limits = long_names(MAX_LIMITS, f"g{number}-", per_minute)
        limiter.set_limits("key", list(limits), resource="gpt")
        if number < 2:
            with limiter.acquire("key", "gpt", {limit.name: 1_000 for limit in limits}):
                pass
    with pytest.raises(ValidationError, match="limits that were removed"):
        limiter.acquire("key", "gpt", {limits[0].name: 1}).__enter__()
    assert "keeps its old limits" in caplog.text
    limiter.reset("key")
    with limiter.acquire("key", "gpt", {limits[0].name: 1}):
        pass
