"""A user that is allowed the least can do everything; one that lacks something is told what."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.redis_servers import RedisServer, flush
from engines.servers import HOST
from support.redis_stores import store_at
from zae_limiter import ConfigurationError, SyncRateLimiter
from zae_limiter.repository.sync_repository import SyncRepository
from zae_limiter.stores.redis.acl import rule
from zae_limiter.testing.contract import CASES, Case, play


@pytest.fixture(scope="module", params=["redis_6_2", "valkey_9_1"])
def guarded(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    server: RedisServer = request.getfixturevalue(request.param)
    allowed = rule(checks=False).split()
    if server.kind == "redis-6.2":  # it has no rules for subcommands that are allowed alone
        allowed = [part.replace("+script|load", "+script") for part in allowed]
    server.ask("ACL", "SETUSER", "limiter", "on", ">secret:pass", *allowed)
    yield server
    server.ask("ACL", "DELUSER", "limiter")


COVERED = ("hierarchy", "namespaces", "settlement", "status_reports", "calls_in_flight", "calendar_limits")
"""The parts of the contract that use every command between them."""


@pytest.mark.parametrize("case", [case for case in CASES if case.play.__module__.endswith(COVERED)], ids=str)
def test_the_least_is_enough_for_the_contract(case: Case, guarded: RedisServer) -> None:
    flush([guarded])
    url = f"redis://limiter:secret%3Apass@{HOST}:{guarded.port}"
    play(case, "sync", lambda: store_at(url))


def test_a_wrong_password_is_said_at_once(guarded: RedisServer) -> None:
    limiter = SyncRateLimiter(SyncRepository(store_at(f"redis://limiter:wrong@{HOST}:{guarded.port}")))
    with pytest.raises(ConfigurationError, match="password"):
        limiter.check()


def test_what_is_not_allowed_is_said_with_where_to_look(guarded: RedisServer) -> None:
    guarded.ask("ACL", "SETUSER", "narrow", "on", ">pw", "~*", "-@all", "+ping", "+hget")
    try:
        limiter = SyncRateLimiter(SyncRepository(store_at(f"redis://narrow:pw@{HOST}:{guarded.port}")))
        with pytest.raises(ConfigurationError, match="Operating Redis"):
            limiter.available("key", "gpt")
    finally:
        guarded.ask("ACL", "DELUSER", "narrow")


def test_the_page_for_operators_shows_the_rule() -> None:
    page = Path(__file__).parents[2] / "docs" / "operating-redis.md"
    assert f"ACL SETUSER limiter on >PASSWORD {rule()}\n" in page.read_text(encoding="utf-8")
