"""The short way of draws and settlements answers as the whole way does, and leaves the same behind."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import redis

from engines.redis_servers import RedisServer, flush
from support.redis_stores import limiter_on
from zae_limiter import AccessBlocked, Limit, RateLimitExceeded, SyncRateLimiter
from zae_limiter.stores.redis import requests
from zae_limiter.stores.redis.scripts import DRAW, SETTLE, Script
from zae_limiter.testing import FakeClock

SHORT = "  if told then return told end\n"
CALLS = {DRAW: "= plain_draw(prefix, resource, now)\n", SETTLE: "= plain_settle(prefix, postings, now)\n"}
ONLY = "  do return told or 'it goes the whole way' end\n"

State = dict[bytes, tuple[bytes, int]]


class Server:
    """A server on which one request is done in several ways, from the same state."""

    def __init__(self, server: RedisServer) -> None:
        self.link = redis.Redis(port=server.port, protocol=2)
        self.known = {text: self.link.script_load(text) for script in CALLS for text in ways(script)}

    def state(self) -> State:
        keys = self.link.execute_command("KEYS", "*")
        with self.link.pipeline(transaction=False) as at_once:
            for key in keys:
                at_once.dump(key).pttl(key)
            found = at_once.execute()
        return dict(zip(keys, zip(found[::2], found[1::2], strict=True), strict=True))

    def restore(self, state: State) -> None:
        with self.link.pipeline(transaction=False) as at_once:
            at_once.flushdb()
            for key, (value, ttl) in state.items():
                at_once.restore(key, max(ttl, 0), value)
            at_once.execute()

    def done(self, data: bytes, script: Script, text: str) -> Any:
        connection = self.link.connection_pool.get_connection()
        try:
            connection.send_packed_command([data.replace(script.sha, self.known[text].encode())])
            return connection.read_response(disable_decoding=True)
        finally:
            self.link.connection_pool.release(connection)


def ways(script: Script) -> tuple[str, str, str]:
    """As it is, without its short way, and that alone."""
    text = script.text.decode()
    assert text.count(SHORT) == text.count(CALLS[script]) == 1
    return text, text.replace(CALLS[script], "= nil\n"), text.replace(SHORT, ONLY)


def same(one: tuple[Any, State], other: tuple[Any, State]) -> bool:
    """Whether reply and state are. Keys are restored a moment later than they were read: so is what expires."""
    (reply, state), (other_reply, other_state) = one, other
    return (
        reply == other_reply
        and state.keys() == other_state.keys()
        and all(state[key][0] == other_state[key][0] for key in state)
        and all(abs(state[key][1] - other_state[key][1]) < 60_000 for key in state)
    )


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[requests.MarkedScript]:
    """The requests that are sent."""
    noted: list[requests.MarkedScript] = []
    original: Callable[..., requests.Sent] = requests.MarkedScript.sent

    def note(request: requests.MarkedScript, repeated: bool, loading: bool) -> requests.Sent:
        noted.append(request)
        return original(request, repeated, loading)

    monkeypatch.setattr(requests.MarkedScript, "sent", note)
    return noted


def some_call(rng: random.Random, limiter: SyncRateLimiter) -> None:
    entity, on = (
        rng.choice(("key", "key", "team", "org", "budgeted", "alone", "plain", "plain")),
        rng.choice(("gpt", "gpt", "other")),
    )
    amounts = {name: rng.choice((0, 1, 1, 1, 2, 3, 40)) for name in rng.sample(("rpm", "tpm"), rng.randint(1, 2))}
    try:
        with limiter.acquire(entity, on, amounts) as lease:
            if rng.random() < 0.6:
                deep = 10**8 if entity == "alone" and rng.random() < 0.3 else 60  # so deep that it is full in years
                lease.settle(**{name: rng.choice((0, 1, 2, deep)) for name in amounts})
    except (RateLimitExceeded, AccessBlocked):
        pass


def change_something(rng: random.Random, limiter: SyncRateLimiter, clock: FakeClock) -> None:
    clock.advance(milliseconds=rng.choice((0, 1, 1, 333, 333, 7_000, 7_000, 60_000, 60_000, 3_600_000)))
    chance = rng.random()
    if chance < 0.1:
        limiter.set_system_defaults(
            [Limit.per_minute("rpm", rng.choice((7, 90))), Limit.per_hour("tpm", rng.choice((100, 977)))]
        )
    elif chance < 0.14:
        limiter.set_limits("team", [Limit.per_minute("rpm", 50)], resource="*")
    elif chance < 0.18:
        limiter.delete_limits("team", resource="*")
    elif chance < 0.32:
        limiter.set_access(
            rng.choice(("observe", "block", "enforce", "enforce", "enforce")), entity_id=rng.choice(("key", "org"))
        )


@pytest.mark.parametrize("name", ["redis_6_2", "valkey_9_1"])
def test_the_short_way_is_the_whole_way(
    name: str, request: pytest.FixtureRequest, sent: list[requests.MarkedScript]
) -> None:
    there: RedisServer = request.getfixturevalue(name)
    flush([there])
    rng, clock, server = random.Random(name), FakeClock(), Server(there)
    limiter = limiter_on(there, clock=clock)
    limiter.set_system_defaults([Limit.per_minute("rpm", 90), Limit.per_hour("tpm", 977)])
    limiter.set_limits("budgeted", [Limit.per_day("rpm", 50, tz="UTC"), Limit.per_minute("tpm", 60)])
    limiter.create_entity("org")
    limiter.create_entity("team", parent_id="org", cascade=True)
    limiter.create_entity("key", parent_id="team", cascade=True)
    short = {DRAW: 0, SETTLE: 0}
    for _ in range(220):
        change_something(rng, limiter, clock)
        before = server.state()
        sent.clear()
        some_call(rng, limiter)
        after = server.state()
        server.restore(before)
        for one in [one for one in sent if one.script in short]:
            data = one.sent(False, False).data
            start = server.state()
            came_of_it = []
            for text in ways(one.script):
                server.restore(start)
                reply = server.done(data, one.script, text)
                came_of_it.append((reply, server.state()))
            usual, whole, only = came_of_it
            assert same(usual, whole)
            if only[0] != b"it goes the whole way":
                assert same(only, whole)
                short[one.script] += 1
            server.restore(start)
            server.done(data, one.script, ways(one.script)[0])
        server.restore(after)
    assert min(short.values()) > 15, short
    limiter.close()
