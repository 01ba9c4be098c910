"""Calendar limits on DynamoDB: what the memory store does, over random histories, and what a split conserves."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count

import pytest

from engines.servers import Engine
from support.dynamodb.counting_transport import Counting
from support.item_sizes import size_of
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository
from zae_limiter.bucket import SteppedBalance
from zae_limiter.stores.dynamodb.bucket_items import snapshot_of
from zae_limiter.stores.dynamodb.intents import Terms
from zae_limiter.stores.dynamodb.schema import Key, encode_item
from zae_limiter.stores.dynamodb.store import DynamoStore
from zae_limiter.stores.dynamodb.transport.botocore_fallback import BotocoreTransport
from zae_limiter.stores.dynamodb.transport.protocol import Target
from zae_limiter.stores.dynamodb.write_forms import new_item
from zae_limiter.stores.memory.store import MemoryStore
from zae_limiter.stores.protocol import Leg
from zae_limiter.testing import FakeClock

TABLES = count()
START_MS = 1_764_547_200_000  # 2025-12-01 in UTC
DAY_S = 86_400

CHOICES = [
    Limit.per_month("usd", 50),
    Limit.per_month("usd", 80, burst=100),
    Limit.per_month("usd", 30, tz="Europe/Berlin", start=15),
    Limit.per_day("usd", 20, tz="UTC"),
    Limit.per_day("usd", 20, tz="UTC", carry_debt=False),
    Limit.per_day("usd", 35, burst=50, tz="UTC", carry_debt=False),
    Limit.calendar("usd", 9, "5hour"),
    Limit.per_day("usd", 24),
]


class Pair:
    """One limiter in memory and one on DynamoDB, over the same clock."""

    def __init__(self, engine: Engine, **options: int) -> None:
        self.clock = FakeClock(START_MS)
        table = f"calendar-{next(TABLES)}"
        target = Target("us-east-1", engine.endpoint_url)
        self.calls = Counting(BotocoreTransport(target))
        self.store = DynamoStore(table, target, transport=self.calls, deadline=20, **options)
        with SyncRepository.open(
            f"dynamodb://{table}?region=us-east-1&endpoint_url={engine.endpoint_url}", create=True
        ):
            pass
        self.memory = SyncRateLimiter(SyncRepository(MemoryStore(), clock=self.clock))
        self.dynamodb = SyncRateLimiter(SyncRepository(self.store, clock=self.clock))

    @property
    def both(self) -> tuple[SyncRateLimiter, SyncRateLimiter]:
        return self.memory, self.dynamodb

    def set_limit(self, limit: Limit) -> None:
        for limiter in self.both:
            limiter.set_limits("key", [Limit.per_hour("rph", 1_000), limit])

    def take(self, amount: int, actual: int) -> None:
        outcomes = []
        for limiter in self.both:
            try:
                with limiter.acquire("key", "gpt", {"rph": 1, "usd": amount}) as lease:
                    lease.settle(usd=actual)
                outcomes.append((None, None))
            except RateLimitExceeded as refused:
                reset = refused.primary_violation.resets_at
                outcomes.append((refused.retry_after_seconds, reset))
        assert outcomes[0] == outcomes[1]

    def compare(self) -> None:
        assert self.memory.available("key", "gpt") == self.dynamodb.available("key", "gpt")


@pytest.fixture
def pair(dynoxide: Engine) -> Iterator[Pair]:
    world = Pair(dynoxide)
    with ExitStack() as stack:
        stack.callback(world.store.close)
        yield world


@pytest.mark.parametrize("seed", range(6))
def test_it_grants_refuses_and_holds_what_the_memory_store_does(pair: Pair, seed: int) -> None:
    chance = random.Random(seed)
    pair.set_limit(chance.choice(CHOICES))
    for _ in range(60):
        step = chance.random()
        if step < 0.6:
            amount = chance.choice([0, 1, 5, 9, 20])
            pair.take(amount, max(amount + chance.choice([0, 0, -3, 7, 25]), 0))
        elif step < 0.85:
            pair.clock.advance(chance.choice([1, 3_600, 5 * 3_600, DAY_S, 3 * DAY_S, 31 * DAY_S]))
        elif step < 0.97:
            pair.set_limit(chance.choice(CHOICES))
        else:
            for limiter in pair.both:
                limiter.reset("key")
        pair.compare()


def test_a_grant_with_a_calendar_limit_is_one_call_and_one_write_unit(pair: Pair) -> None:
    limits = [Limit.per_minute("rpm", 100), Limit.per_minute("tpm", 10_000)]
    entity, resource = "0f8fad5b-d9cb-469f-a165-70867728950e", "gpt-4.1-mini-2025-04"
    pair.dynamodb.set_system_defaults([*limits, Limit.per_month("usd", 500_000_000, tz="Europe/Berlin", start=15)])
    for _ in range(2):
        pair.calls.reset()
        with pair.dynamodb.acquire(entity, resource, {"rpm": 1, "tpm": 500, "usd": 9_000}):
            pass
    assert [(cost.operation, cost.table + cost.indexes) for cost in pair.calls.costs] == [("UpdateItem", 1.0)]


def item_of(limit: Limit, now: int) -> dict[str, object]:
    key = Key("ns/BUCKET#key#gpt#0", "#STATE")
    terms = Terms(Leg("key", "gpt", (limit,), "entity"), "1.0.0.0.0")
    item = new_item(
        key, terms, {"usd": 7_000}, now=now, write_id="a", inc="b", grants=1, epoch_s=now // 1000, ttl_margin_s=60
    )
    assert size_of(item) < 1024
    return item


@pytest.mark.parametrize("limit", [limit for limit in CHOICES if limit.periods], ids=lambda one: str(one.periods))
def test_shares_of_steps_and_ceilings_add_up_over_shards(limit: Limit) -> None:
    for shards in (2, 4, 8, 64):
        parts = [SteppedBalance(limit, START_MS, shard=shard, shards=shards) for shard in range(shards)]
        assert sum(part.step for part in parts) == limit.refill_amount * 1000
        assert sum(part.bx for part in parts) == limit.burst * 1000


@pytest.mark.parametrize("seed", range(4))
def test_a_divided_bucket_holds_in_all_what_an_undivided_one_does(dynoxide: Engine, seed: int) -> None:
    pair = Pair(dynoxide, wcu=4)
    chance = random.Random(seed)
    even = [limit for limit in CHOICES if limit.burst == limit.capacity and limit.periods]
    pair.set_limit(chance.choice(even))
    for _ in range(50):
        step = chance.random()
        if step < 0.8:
            amount = chance.choice([0, 1, 2, 5])
            pair.take(amount, amount)
        else:
            pair.clock.advance(chance.choice([1, 3_600, DAY_S, 31 * DAY_S]))
        pair.compare()
    items = pair.dynamodb._core.space.cache.sharded  # type: ignore[attr-defined]
    assert items, "it was never divided"
    pair.store.close()


def test_an_item_that_a_newer_version_wrote_is_refused() -> None:
    item = item_of(CHOICES[0], START_MS) | encode_item({"b_usd_zz": 1})
    with pytest.raises(ValueError, match="newer version"):
        snapshot_of(item)  # type: ignore[arg-type]
