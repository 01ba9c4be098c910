"""Sharded buckets that are not used any more go, all shards together; those that are used, or owe, stay."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from support.dynamodb.scripted_plans import steps
from support.dynamodb.scripted_tables import RESOURCE, Client, Table
from support.dynamodb.sharded_tables import pass_time, split_into
from zae_limiter import Limit
from zae_limiter.stores.dynamodb.items import key_of
from zae_limiter.stores.dynamodb.operations.shard_life import make_shard, sweep_table
from zae_limiter.stores.dynamodb.requests import Refused, Together
from zae_limiter.stores.dynamodb.schema import bucket_key, shard_of
from zae_limiter.stores.dynamodb.table_client import TTL_MARGIN_S

LIMITS = [Limit.per_minute("rpm", 60)]
IDLE_MS = (TTL_MARGIN_S + 300) * 1000


def sharded(times: int = 2) -> tuple[Table, Client]:
    """A bucket that was used, and split so often."""
    table = Table()
    client = table.client()
    assert client.takes(wanted={"rpm": 10}, limits=LIMITS)
    split_into(table, client, 2**times)
    return table, client


def shards_there(table: Table) -> list[int]:
    return sorted(shard_of(key_of(item)) for item in table.buckets())


def swept(client: Client) -> Any:
    return client.run(sweep_table(client.store.client))


def test_a_sharded_bucket_that_is_idle_goes_with_all_its_shards() -> None:
    table, client = sharded()
    assert shards_there(table) == [0, 1, 2, 3]
    assert not any("ttl" in item for item in table.buckets()), "no single shard may expire"
    assert swept(client) == 0
    pass_time(table, IDLE_MS)
    assert swept(client) == 1
    assert shards_there(table) == []
    assert table.client().takes(wanted={"rpm": 60}, limits=LIMITS)
    assert shards_there(table) == [0]


def test_one_shard_that_is_in_use_keeps_all() -> None:
    table, client = sharded()
    pass_time(table, IDLE_MS)
    assert table.client().takes(wanted={"rpm": 1}, limits=LIMITS)
    assert swept(client) == 0
    assert shards_there(table) == [0, 1, 2, 3]


def test_a_debt_is_not_forgiven() -> None:
    table, client = sharded()
    lease = client.take(wanted={"rpm": 1}, limits=LIMITS)
    client.adjust(lease, rpm=100 * TTL_MARGIN_S)
    client.run(lease._end(False), to_the_end=True)
    pass_time(table, IDLE_MS)
    assert swept(client) == 0
    assert shards_there(table) == [0, 1, 2, 3]


def test_a_write_while_it_is_swept_keeps_it() -> None:
    table, client = sharded()
    pass_time(table, IDLE_MS)
    under_way = steps(sweep_table(client.store.client), table)
    call: Any = next(under_way)
    swept_at_all = False
    while True:
        calls = call.calls if isinstance(call, Together) else [call]
        if calls[0].operation == "TransactWriteItems":
            assert table.client().takes(wanted={"rpm": 1}, limits=LIMITS)
            swept_at_all = True
        try:
            answers = [table.call(each.operation, each.params) for each in calls]
            call = under_way.send(answers if isinstance(call, Together) else answers[0])
        except Refused as refusal:
            with suppress(StopIteration):
                call = under_way.throw(refusal)
                continue
            break
        except StopIteration:
            break
    assert swept_at_all
    assert shards_there(table) == [0, 1, 2, 3]


def test_an_unsplit_bucket_is_left_to_expire() -> None:
    table = Table()
    client = table.client()
    assert client.takes(wanted={"rpm": 10}, limits=LIMITS)
    pass_time(table, IDLE_MS)
    assert swept(client) == 0
    assert shards_there(table) == [0]


def test_a_shard_that_a_client_knows_from_an_earlier_life_is_not_made() -> None:
    """The first shard says how many there are: a client that sweeps or deletes a bucket looks for no others."""
    table, client = sharded(times=1)
    until = client.run(client.store.client.new_deadline())
    for shard in (2, 3):
        key = bucket_key(table.ns, "key", RESOURCE, shard)
        assert client.run(make_shard(client.store.client, key, table.now, until)) is None
    assert shards_there(table) == [0, 1]
