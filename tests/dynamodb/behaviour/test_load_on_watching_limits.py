"""Load where limits only watch: they refuse nothing, and a denial by load does not depend on one that refuses."""

from __future__ import annotations

from typing import Any

from support.dynamodb.scripted_plans import Fate, Script, run_hearing
from support.dynamodb.scripted_tables import Client, Table
from zae_limiter import Limit, RateLimitExceeded
from zae_limiter.stores.dynamodb.requests import KEY_THROTTLED, Call, Refused

WATCHING = Limit.per_day("rpd", 5, enforce=False)
ALWAYS = dict.fromkeys(range(100), Fate.THROTTLED)


def warm(table: Table) -> Client:
    client = table.client()
    client.take(wanted={"rpd": 1})
    return client


def test_where_every_limit_only_watches_load_lets_through() -> None:
    table = Table()
    table.operator.limiter.set_system_defaults([WATCHING])
    client = warm(table)
    lease = client.lease(wanted={"rpd": 1})
    ended = Script(table, ALWAYS).run(lease._begin())
    assert ended.error is None
    assert ended.calls
    assert lease.refused_by == ()
    assert table.counters("key")["rpd"] == 1_000, "what could not be written is not counted"


def test_where_another_leg_refuses_load_denies() -> None:
    table = Table()
    operator = table.operator.limiter
    operator.create_entity("org")
    operator.create_entity("key", parent_id="org", cascade=True)
    operator.set_limits("org", [Limit.per_day("rpd", 100)])
    operator.set_limits("key", [WATCHING])
    client = warm(table)

    def throttle_the_child(call: Call) -> Any:
        if call.operation == "UpdateItem" and "BUCKET#key" in call.params["Key"]["PK"]["S"]:
            return Refused(KEY_THROTTLED)
        return None

    ended = run_hearing(client.lease(wanted={"rpd": 1})._begin(), table, throttle_the_child)
    assert isinstance(ended.error, RateLimitExceeded)
    assert ended.error.retry_after_seconds == 0.1
    assert ended.error.violations == ()
    assert "too much load" in str(ended.error)
    assert table.counters("org")["rpd"] == 1_000
