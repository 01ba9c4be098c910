"""Budgets, calls in flight and limits that watch on a real server: what they cost, and what is lost of them."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator

import pytest

from engines.redis_servers import RedisServer, flush
from support.lossy_redis_proxy import lossy
from support.redis_stores import consumed, has_no_gaps, limiter_on, store_at, store_on
from zae_limiter import Limit, RateLimiterUnavailable, RateLimitExceeded, SyncRateLimiter
from zae_limiter.repository.sync_repository import SyncRepository
from zae_limiter.stores.protocol import Draw, Grant
from zae_limiter.stores.redis import requests, scripts
from zae_limiter.stores.redis.store import RedisStore
from zae_limiter.testing import FakeClock

MONTH_S = 31 * 86_400
BUDGET = Limit.per_month("usd", 100, tz="Europe/Berlin")
CALLS = Limit.concurrent("calls", 2, ttl=60)
LEASES = 400

HOLDER = """
import sys, time
from urllib.parse import urlsplit
from zae_limiter import SyncRateLimiter
from zae_limiter.repository.sync_repository import SyncRepository
from zae_limiter.stores.redis.store import RedisStore
from zae_limiter.stores.redis.urls import servers_of
from zae_limiter.testing import FakeClock

limiter = SyncRateLimiter(SyncRepository(RedisStore(servers_of(urlsplit(sys.argv[1]))), clock=FakeClock()))
with limiter.acquire("key", "gpt", {"calls": 2}):
    print("held", flush=True)
    time.sleep(60)
"""


class Client:
    """A limiter that counts what it sends."""

    def __init__(self, server: RedisServer, clock: FakeClock) -> None:
        self.store: RedisStore = store_on(server)
        self.limiter = SyncRateLimiter(SyncRepository(self.store, clock=clock))
        self.limiter.available("warm", "up")

    def trips(self, entity: str, amounts: dict[str, int]) -> int:
        before = self.store._calls.sent
        try:
            with self.limiter.acquire(entity, "gpt", amounts):
                pass
        except RateLimitExceeded:
            pass
        return self.store._calls.sent - before


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def client(redis_6_2: RedisServer, clock: FakeClock) -> Iterator[Client]:
    flush([redis_6_2])
    SyncRateLimiter(SyncRepository(store_on(redis_6_2), clock=clock)).set_system_defaults([BUDGET, CALLS])
    client = Client(redis_6_2, clock)
    yield client
    client.limiter.repository.close()


def test_a_budget_costs_one_round_trip_at_a_boundary_too(client: Client, clock: FakeClock) -> None:
    client.trips("first", {"usd": 1})  # loads the script, and asks for the periods of the calendar once
    assert client.trips("key", {"usd": 60}) == 1, "an entity that this process has not seen"
    assert client.trips("key", {"usd": 60}) == 1, "denied"
    clock.advance(MONTH_S)
    assert client.trips("key", {"usd": 60}) == 1, "the next month"
    assert client.limiter.available("key", "gpt")["usd"] == 40
    clock.advance(5 * MONTH_S)
    assert client.trips("key", {"usd": 60}) == 1, "months later: the client sends the periods around its own time"


def test_a_client_whose_clock_is_in_another_month_is_asked_again(redis_6_2: RedisServer) -> None:
    flush([redis_6_2])
    limiter = limiter_on(redis_6_2)  # the time is the server's; what it is told is far from it
    limiter.set_system_defaults([Limit.calendar("tpm", 100, "min")])
    with limiter.acquire("key", "gpt", {"tpm": 40}):
        pass
    scripts_of = limiter.repository._core.space._buckets
    scripts_of._server_ahead_ms += 10**11
    before = limiter.repository._core.store._calls.sent
    with limiter.acquire("key", "gpt", {"tpm": 40}):
        pass
    assert limiter.repository._core.store._calls.sent - before == 2
    assert limiter.available("key", "gpt")["tpm"] in (20, 60, 100), "a minute may have begun"
    limiter.repository.close()


def test_a_slot_costs_one_round_trip_and_its_return_another(client: Client) -> None:
    client.trips("first", {"calls": 1})
    assert client.trips("key", {"calls": 1}) == 2


def test_slots_of_a_process_that_was_killed_come_back(
    client: Client, clock: FakeClock, redis_6_2: RedisServer
) -> None:
    run = [sys.executable, "-c", HOLDER, redis_6_2.url]
    with subprocess.Popen(run, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
        finally:
            holder.kill()
    assert client.limiter.available("key", "gpt")["calls"] == 0
    clock.advance(59)
    with pytest.raises(RateLimitExceeded), client.limiter.acquire("key", "gpt", {"calls": 1}):
        pass
    clock.advance(16)
    with client.limiter.acquire("key", "gpt", {"calls": 2}):
        assert client.limiter.available("key", "gpt")["calls"] == 0
    assert client.limiter.available("key", "gpt")["calls"] == 2
    assert consumed(client.limiter, "key", "calls") == 4


def test_a_repeat_is_told_the_same_due_time_while_that_is_known(client: Client, redis_6_2: RedisServer) -> None:
    client.trips("key", {"calls": 1})
    scripts_of = client.limiter.repository._core.space._buckets
    draw, mark = Draw("key", "gpt", {"calls": 1}), scripts_of.home.mark()
    route = scripts_of.route("key", "gpt")
    request = scripts_of.request(route, draw, FakeClock()(), mark)
    first = scripts_of.outcome(client.store.perform(request)[0], draw, route, mark)
    request.repeated = True
    later = scripts_of.request(route, draw, FakeClock()() + 50_000, mark)
    later.repeated = True
    again = scripts_of.outcome(client.store.perform(later)[0], draw, route, mark)
    assert isinstance(first, Grant)
    assert isinstance(again, Grant)
    assert [(hold.due, hold.life) for hold in again.holds] == [(hold.due, hold.life) for hold in first.holds]
    assert client.limiter.available("key", "gpt")["calls"] == 1, "it was lent once"
    for key in [key for key in redis_6_2.ask("KEYS", "*") if b"}y#" in key]:
        redis_6_2.ask("DEL", key)
    with pytest.raises(RateLimiterUnavailable) as unknown:
        scripts_of.outcome(client.store.perform(request)[0], draw, route, mark)
    assert unknown.value.ambiguous


LIMITS = [Limit.concurrent("calls", 3), Limit.per_day("rpd", 10**9), Limit.per_day("seen", 200, enforce=False)]


def use(limiter: SyncRateLimiter, rng: random.Random) -> tuple[int, int, int]:
    """Leases, some of them open at the same time; how many began, what they took, and what would have been refused."""
    began = taken = refused = 0
    held: list[tuple[object, object]] = []
    for _ in range(LEASES):
        if held and (len(held) == 3 or rng.random() < 0.5):
            context, lease = held.pop(rng.randrange(len(held)))
            if rng.random() < 0.3:
                lease.renew()  # type: ignore[attr-defined]
            context.__exit__(None, None, None)  # type: ignore[attr-defined]
        else:
            context = limiter.acquire("key", "gpt", {"calls": 1, "rpd": 2, "seen": 1})
            lease = context.__enter__()
            held.append((context, lease))
            began, taken, refused = began + 1, taken + 2, refused + len(lease.refused_by)
    for context, _ in held:
        context.__exit__(None, None, None)  # type: ignore[attr-defined]
    return began, taken, refused


def used_through(server: RedisServer) -> tuple[SyncRateLimiter, tuple[int, int, int]]:
    flush([server])
    straight = limiter_on(server)
    straight.set_system_defaults(LIMITS)
    with lossy(server.port, 3) as proxy:
        limiter = SyncRateLimiter(SyncRepository(store_at(proxy.url)))
        limiter.available("key", "gpt")
        proxy.harmless = False
        try:
            told = use(limiter, random.Random(4))
        finally:
            limiter.repository.close()
    assert proxy.fates["reply lost"] > 3
    assert proxy.fates["request late"] > 3
    return straight, told


def test_no_slot_is_lost_or_minted_when_replies_are_lost(redis_6_2: RedisServer) -> None:
    straight, (began, taken, refused) = used_through(redis_6_2)
    assert straight.available("key", "gpt")["calls"] == 3
    assert consumed(straight, "key", "calls") == began
    assert consumed(straight, "key") == taken
    (window,) = straight.get_usage_snapshots(entity_id="key", window_type="monthly").items
    assert window.would_refuse == ({"seen": refused} if refused else {})
    assert has_no_gaps(straight, "key")
    straight.repository.close()


def test_if_replies_were_not_kept_slots_would_be_lost(redis_6_2: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = scripts.Script("draw")
    keeps = b"call('SET', keeping, cmsgpack.pack(reply), 'PX', 60000)"
    assert keeps in draw.text
    draw.text = draw.text.replace(keeps, b"").replace(b"if lends then return { -13, now } end", b"")
    draw.sha = scripts.sha1(draw.text).hexdigest().encode()
    monkeypatch.setattr("zae_limiter.stores.redis.bucket_verbs.DRAW", draw)
    monkeypatch.setitem(requests.BY_DIGEST, draw.sha, draw)
    with pytest.raises(RateLimitExceeded, match="calls of key"):
        used_through(redis_6_2)
