"""What configs, entities and resets write to live buckets: to the end, or not at all if it is forbidden."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from support.dynamodb.draw_scenarios import HIGHER, hierarchy, warm
from support.dynamodb.scripted_plans import Fate, Script
from support.dynamodb.scripted_tables import DEADLINE_S, LIMITS, RESOURCE, Client, Table
from zae_limiter.bucket import MILLI
from zae_limiter.exceptions import ConfigurationError, RateLimiterUnavailable
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.bucket_items import snapshot_of
from zae_limiter.stores.dynamodb.operations.shard_life import make_shard, split_first
from zae_limiter.stores.dynamodb.requests import KEY_THROTTLED, TRANSACTION_CANCELED, Call, Reason, Refused
from zae_limiter.stores.dynamodb.schema import Key, bucket_key, shard_of
from zae_limiter.stores.operator_changes import Reset
from zae_limiter.stores.protocol import Scope

REWRITES: dict[str, Callable[[Client, Table], Plan[Any]]] = {
    "to other limits": lambda client, table: client.space.set_config(Scope(), HIGHER, None, None, True, table.now),
    "to none at all": lambda client, table: client.space.delete_config(Scope(), None, True, table.now),
    "full again": lambda client, table: client.space.reset(Reset("key"), table.now),
}


@pytest.fixture
def table() -> Table:
    return hierarchy(1)


def write_of(operations: list[str]) -> int:
    """The number of the call that writes to the bucket."""
    assert operations.count("UpdateItem") == 1
    return operations.index("UpdateItem")


@pytest.mark.parametrize("rewrite", REWRITES.values(), ids=REWRITES)
def test_what_is_forbidden_is_not_tried_again(rewrite: Callable[[Client, Table], Plan[Any]], table: Table) -> None:
    client = warm(table)
    place = write_of(Script(twin := table.copy()).run(rewrite(warm(twin), twin)).operations)
    ended = Script(table, {place: Fate.FORBIDDEN}).run(rewrite(client, table))
    assert isinstance(ended.error, ConfigurationError)
    assert ended.operations[place:] == ["UpdateItem"]


@pytest.mark.parametrize("fate", [Fate.THROTTLED, Fate.CONFLICT, Fate.LOST, Fate.UNHEARD, Fate.UNSENT])
@pytest.mark.parametrize("rewrite", REWRITES.values(), ids=REWRITES)
def test_what_fails_is_tried_until_it_is_done(
    rewrite: Callable[[Client, Table], Plan[Any]], fate: Fate, table: Table
) -> None:
    client = warm(table)
    undisturbed = table.copy()
    place = write_of(Script(undisturbed).run(rewrite(warm(undisturbed), undisturbed)).operations)
    ended = Script(table, dict.fromkeys(range(place, place + 3), fate)).run(rewrite(client, table))
    assert ended.error is None
    now, then = table.snapshot("key"), undisturbed.snapshot("key")
    assert now is not None
    assert then is not None
    assert (now.cv, now.balances["rpd"].limit.burst) == (then.cv, then.balances["rpd"].limit.burst)
    assert table.levels("key") == undisturbed.levels("key")


def partly_split(times: int) -> Table:
    """Its first shard was split so often, and has made as many; all others are still to be made."""
    table = hierarchy(1)
    first = bucket_key(table.ns, "key", RESOURCE)
    for _ in range(times):
        until = table.operator.run(table.operator.store.client.new_deadline())
        assert table.operator.run(split_first(table.operator.store.client, first, table.now, until))
        table.now += 2_000
    return table


def make_all(table: Table, client: Client) -> None:
    """Make every shard there is to be, whatever limits it obeys."""
    snapshot = table.snapshot("key")
    assert snapshot is not None
    until = client.run(client.store.client.new_deadline())
    for shard in range(1, snapshot.shards):
        key = bucket_key(table.ns, "key", RESOURCE, shard)
        assert client.run(make_shard(client.store.client, key, table.now, until)) is not None


class Busy(Script):
    """One shard takes no write for as long as a setter tries for the first time."""

    def _fulfil(self, call: Call, number: int, fate: Fate | None) -> Any:
        if call.operation == "UpdateItem" and self.table.timer < 1_000 * DEADLINE_S and shard_of(call_key(call)) == 1:
            self.table.timer += 100
            return Refused(KEY_THROTTLED)
        return super()._fulfil(call, number, fate)


def call_key(call: Call) -> Key:
    return Key(call.params["Key"]["PK"]["S"], call.params["Key"]["SK"]["S"])


@pytest.mark.parametrize("script", [Script, Busy])
@pytest.mark.parametrize("times", [2, 3])
@pytest.mark.parametrize("scope", [Scope("key", RESOURCE), Scope("key", "_default_"), Scope(None, RESOURCE), Scope()])
def test_shards_that_are_made_at_any_moment_of_a_change_obey_it(
    scope: Scope, times: int, script: type[Script]
) -> None:
    for number in range(200):
        table = partly_split(times)
        other = table.client()
        change = table.client().space.set_config(scope, HIGHER, None, None, True, table.now)
        ended = script(table, meanwhile={number: partial(make_all, table, other)}).run(change)
        assert ended.error is None
        bursts = [snapshot_of(item).balances["rpd"].limit.burst for item in table.buckets()]
        assert bursts == [HIGHER[0].burst] * len(bursts), f"after {number} calls"
        if number >= len(ended.calls):
            return
        assert len(bursts) == 2**times
    raise AssertionError("there is no end to it")


@pytest.mark.parametrize("resource", [RESOURCE, None])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_shards_that_are_made_at_any_moment_of_a_reset_are_filled(times: int, resource: str | None) -> None:
    for number in range(200):
        table = partly_split(times)
        other = table.client()
        other.take("key", {"rpd": 20})
        reset = table.client().space.reset(Reset("key", resource), table.now)
        ended = Script(table, meanwhile={number: partial(make_all, table, other)}).run(reset)
        assert ended.result == 1
        assert table.levels("key") == {"rpd": 100 * MILLI, "tpd": 1_000 * MILLI}, f"after {number} calls"
        if number >= len(ended.calls):
            return
    raise AssertionError("there is no end to it")


def test_a_reset_whose_event_is_not_written_says_so(table: Table) -> None:
    plan = warm(table).space.reset(Reset("key"), table.now)
    with pytest.raises(RateLimiterUnavailable, match="ItemCollectionSizeLimitExceeded"):
        run_where_transactions_are_cancelled(plan, table)
    assert table.levels("key") == {limit.name: limit.burst * 1_000 for limit in LIMITS}


def run_where_transactions_are_cancelled(plan: Plan[Any], table: Table) -> None:
    refused = Refused(TRANSACTION_CANCELED, reasons=[Reason("ItemCollectionSizeLimitExceeded")])
    script, request = Script(table), next(plan)
    for _ in range(50):
        if isinstance(request, Call) and request.operation == "TransactWriteItems":
            request = plan.throw(refused)
        else:
            request = plan.send(script._answer(request))
