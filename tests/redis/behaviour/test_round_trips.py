"""What an acquire costs: one round trip, whatever happened before; and a bucket: some hundred bytes."""

from __future__ import annotations

import pytest

from engines.redis_servers import RedisServer, flush
from support.redis_stores import store_on
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter
from zae_limiter.repository.sync_repository import SyncRepository
from zae_limiter.stores.redis.store import RedisStore
from zae_limiter.testing import FakeClock

LIMITS = [Limit.per_minute("rpm", 100), Limit.per_minute("tpm", 10_000)]
BYTES_PER_BUCKET = 650


class Client:
    """A limiter that counts what it sends."""

    def __init__(self, server: RedisServer, clock: FakeClock) -> None:
        self.store: RedisStore = store_on(server)
        self.limiter = SyncRateLimiter(SyncRepository(self.store, clock=clock))
        self.limiter.available("warm", "up")  # the namespace is looked up once per process

    def trips(self, entity: str, resource: str = "gpt", tokens: int = 100, adjusted: int = 0) -> int:
        before = self.store._calls.sent
        try:
            with self.limiter.acquire(entity, resource, {"rpm": 1, "tpm": tokens}) as lease:
                lease.adjust(tpm=adjusted)
        except RateLimitExceeded:
            pass
        return self.store._calls.sent - before


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def clients(redis_6_2: RedisServer, clock: FakeClock) -> tuple[Client, Client]:
    flush([redis_6_2])
    SyncRateLimiter(SyncRepository(store_on(redis_6_2), clock=clock)).set_system_defaults(LIMITS)
    return Client(redis_6_2, clock), Client(redis_6_2, clock)


def test_every_acquire_is_one_round_trip(clients: tuple[Client, Client], clock: FakeClock) -> None:
    first, second = clients
    assert first.trips("key") in (1, 2), "the very first loads the script"
    assert first.trips("cold") == 1
    assert first.trips("key") == 1
    first.limiter.set_limits("key", [*LIMITS, Limit.per_day("usd", 5)])
    assert second.trips("key") == 1, "another client changed the limits"
    first.limiter.create_entity("team")
    first.limiter.create_entity("org")
    first.limiter.update_entity("team", parent_id="org", cascade=True)
    first.limiter.create_entity("member", parent_id="team", cascade=True)
    assert second.trips("member") == 1, "three legs, never seen"
    first.limiter.update_entity("member", parent_id="org")
    assert second.trips("member") == 1, "another parent"
    clock.advance(3_600)
    assert second.trips("member") == 1, "a new hour"
    assert second.trips("member", tokens=10**6) == 1, "denied"


def test_a_settlement_is_one_more(clients: tuple[Client, Client]) -> None:
    first, _ = clients
    first.trips("key", adjusted=1)
    assert first.trips("key", adjusted=1) == 2


def test_a_bucket_takes_a_few_hundred_bytes(redis_6_2: RedisServer, clients: tuple[Client, Client]) -> None:
    client, _ = clients

    def used() -> int:
        info = redis_6_2.ask("INFO", "memory").decode()
        return int(info.partition("used_memory:")[2].split()[0])

    for number in range(200):  # the tables of the server grow in steps
        client.trips(f"{number:036}")
    before = used()
    for number in range(200, 2_200):
        client.trips(f"{number:036}")
    assert (used() - before) / 2_000 <= BYTES_PER_BUCKET
