"""Shards come and go: split under load, deleted with their bucket, swept when all of a bucket are idle.

**Splitting.** A bucket that is written to faster than its partition can take is split, shard 0 first.

**Deleting.** Nothing is left of a bucket, and nothing else is removed. A client that meets a bucket without its
first shard begins a new one, unsharded. Another shard that was left behind would then be too much. So the first
shard goes last, when no other is there and none can come. A deletion may arrive long after it was sent: it was
repeated, the bucket is gone, and its entity has a new one. So a deletion says which life it means (``inc``), and
that nothing was written to it since it was *fenced* (``w0``): the fence is a version that no client has, by which
no client draws and no client splits. A client that meets the fence reads its limits again and writes by them; then
the shard is fenced again. Without the fence a busy bucket would be written to between every look and the deletion.

**Sweeping.** An unsharded bucket that is full again expires by itself. A single shard must not: its share would be
gone until the others expire too. So the shards of a bucket only note when they are surely full, and are
removed in one transaction that proves, shard by shard, that no client has written since that was read, nor made one
that was not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zae_limiter.bucket import MOST_STORED
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.bucket_cache import is_far_ahead
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot, snapshot_of
from zae_limiter.stores.dynamodb.config_versions import FENCE, is_fence
from zae_limiter.stores.dynamodb.expressions import ABSENT, NEW, Expected, Update, delete
from zae_limiter.stores.dynamodb.items import BrokenItem, address, decoder, key_of, logger, ns_in, unless_broken
from zae_limiter.stores.dynamodb.operations.paging import some_at_once, whole_namespace
from zae_limiter.stores.dynamodb.requests import TRANSACTION_CONFLICT, Item, Refused
from zae_limiter.stores.dynamodb.schema import (
    MOST_SHARDS,
    REGISTRY,
    Key,
    bucket_key,
    number_in,
    pk_system,
    shard_key,
    shard_of,
    sk_namespace_id,
)
from zae_limiter.stores.dynamodb.shards import ancestor_of, shards_made_by, split_in_two, top_bit
from zae_limiter.stores.dynamodb.table_client import Deadline, TableClient
from zae_limiter.stores.dynamodb.write_forms import FULL_BY
from zae_limiter.stores.dynamodb.write_load import may_split

TRIES = 3
"""So often a split is tried while others write to the shard."""


def made_by(shards: Iterable[BucketSnapshot | None], ns: str) -> list[Key]:
    """The shards that these have made."""
    return [
        bucket_key(ns, one.entity_id, one.resource, other)
        for one in shards
        if one is not None
        for other in shards_made_by(one.shard, one.shards)
    ]


def split(client: TableClient, key: Key, item: Item, now: int, deadline: Deadline) -> Plan[bool]:
    """Split one shard, which ``item`` is, in two. False: another client was faster, or it was too busy.

    Nor is a shard split that a wrong clock has written to: its half would not tell.
    """
    shards = snapshot_of(item).shards
    for _ in range(TRIES):
        snapshot = snapshot_of(item)
        if 2 * shards > MOST_SHARDS or is_fence(snapshot.cv) or is_far_ahead(snapshot, now):
            return False
        write_id, inc = client.write_ids.write_id(now), client.write_ids.incarnation()
        write, new_key, new = split_in_two(item, now=now, write_id=write_id, inc=inc)
        put: dict[str, Any] = {
            "TableName": client.table,
            "Item": {**new, **address(new_key)},
            "ConditionExpression": "attribute_not_exists(PK)",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        reasons = yield from client.transact(
            [{"Update": dict(write.params(client.table, key))}, {"Put": put}], deadline
        )
        if not reasons:
            return True
        refused, there = reasons
        if there.code is not None or refused.item is None or snapshot_of(refused.item).shards != shards:
            return False
        item = refused.item
    return False


def split_first(client: TableClient, key: Key, now: int, deadline: Deadline) -> Plan[bool]:
    """Split shard 0 of the bucket that ``key`` is a shard of, unless it was split a moment ago."""
    first = shard_key(key, 0)
    item = yield from client.get(first, deadline)
    if item is None or not may_split(snapshot_of(item), now):
        return False
    return (yield from split(client, first, item, now, deadline))


def make_shard(client: TableClient, key: Key, now: int, deadline: Deadline) -> Plan[BucketSnapshot | None]:
    """The shard at ``key``, made from its ancestor if need be. ``None``: it is lost, or others are busy.

    Or the bucket began another life since a client learned of that shard, and is split less: the first shard says
    how many there are, and clients that read or remove a bucket look for no others.
    """
    shard = shard_of(key)
    if shard == 0:
        return None  # it has no ancestor: a client that misses it begins a new bucket
    for _ in range(MOST_SHARDS.bit_length()):
        above = shard_key(key, ancestor_of(shard))
        first = shard_key(key, 0)
        found = yield from client.get_all([key, above, first], deadline)
        if key in found:
            return snapshot_of(found[key])
        if first not in found or snapshot_of(found[first]).shards <= shard:
            return None
        if above not in found:
            if shard_of(above) == 0 or (yield from make_shard(client, above, now, deadline)) is None:
                return None
            continue
        if snapshot_of(found[above]).shards > top_bit(shard):
            return None
        if not (yield from split(client, above, found[above], now, deadline)):
            continue
    return None


_LIFE, _LAST_WRITE = "inc", "w0"


def drop_buckets(client: TableClient, keys: Sequence[Key], now: int, deadline: Deadline) -> Plan[None]:
    """Delete the buckets that these are shards of, with all their shards, as they live now."""
    families: dict[Key, set[Key]] = {}
    for key in keys:
        others = families.setdefault(shard_key(key, 0), set())
        if shard_of(key):
            others.add(key)
    lives: dict[Key, Any] = {}
    tries = 0
    while families:
        wanted = [key for first, others in families.items() for key in (first, *sorted(others))]
        found = yield from client.get_all(wanted, deadline)
        for key in wanted:
            lives.setdefault(key, found[key].get(_LIFE) if key in found else None)
        there = {key: item for key, item in found.items() if item.get(_LIFE) == lives[key]}
        due = _due(families, there)
        plans = [_drop(client, key, there[key], now, deadline) for key in due]
        dropped = yield from some_at_once(plans)
        for key, done in zip(due, dropped, strict=True):
            if done and shard_of(key) == 0:
                del families[key]
        if not all(dropped):
            tries += 1
            busy = Refused(TRANSACTION_CONFLICT, "others keep writing to a bucket that is to be deleted")
            yield from client.pause(tries, deadline, busy)


def _due(families: dict[Key, set[Key]], there: Mapping[Key, Item]) -> list[Key]:
    """What may go now of these buckets, of which so much is there. Those that are gone are families no more.

    A shard that was split since it was last seen has left one more behind. Without its ancestor none comes again.
    """
    due: list[Key] = []
    for first, others in list(families.items()):
        unseen = set()
        if first in there:
            unseen = {shard_key(first, shard) for shard in range(1, _shards_in(there[first]))} - others
            others |= unseen
        left = [key for key in others if key in there]
        if left:
            due += sorted(left, key=shard_of, reverse=True)
        elif first not in there:
            del families[first]
        elif not unseen:
            due.append(first)
    return due


def _drop(client: TableClient, key: Key, item: Item, now: int, deadline: Deadline) -> Plan[bool]:
    """Fence one shard and delete it. False: look again, something was written to it, or it is gone."""
    seen = {name: item.get(name) for name in (_LIFE, _LAST_WRITE)}
    try:
        snapshot = snapshot_of(item)
    except BrokenItem:
        pass  # no client writes to it
    else:
        if not is_fence(snapshot.cv):
            write_id = client.write_ids.write_id(now)
            write = Update()
            write.demand(_LIFE, "=", snapshot.inc)
            write.demand("cv", "=", snapshot.cv)
            write.demand("shard_count", "=", snapshot.shards)
            write.push_write_id(write_id, None)
            write.set("cv", FENCE)
            if not (yield from _done(client, "UpdateItem", write.params(client.table, key), deadline, write_id)):
                return False
            seen[_LAST_WRITE] = {"S": write_id}
    return (yield from _done(client, "DeleteItem", deletion(client.table, key, seen), deadline))


def _done(
    client: TableClient, operation: str, params: Mapping[str, Any], deadline: Deadline, write_id: str | None = None
) -> Plan[bool]:
    """Whether a write was done, by this try or (as its write id shows) by one before whose answer was lost."""
    try:
        yield from client.ask(operation, params, deadline, repeatable=True)
    except Refused as refusal:
        if not refusal.by_condition:
            raise
        return refusal.item is not None and refusal.item.get(_LAST_WRITE) == {"S": write_id}
    return True


def deletion(table: str, key: Key, seen: Mapping[str, Any]) -> dict[str, Any]:
    """A DeleteItem that is done only if these attributes are as they were seen (``None``: not there)."""
    params: dict[str, Any] = {
        "TableName": table,
        "Key": address(key),
        "ConditionExpression": " AND ".join(
            f"attribute_not_exists(#{name})" if value is None else f"#{name} = :{name}" for name, value in seen.items()
        ),
        "ExpressionAttributeNames": {f"#{name}": name for name in seen},
    }
    values = {f":{name}": value for name, value in seen.items() if value is not None}
    if values:
        params["ExpressionAttributeValues"] = values
    return params


def _shards_in(item: Item) -> int:
    """How many shards the bucket has, by what its first one says."""
    try:
        return snapshot_of(item).shards
    except BrokenItem:
        return 1


KEYS_AT_ONCE = 500


def sweep_table(client: TableClient) -> Plan[int]:
    """Remove the sharded buckets of all namespaces that are idle; how many there were."""
    swept = 0
    for item in (yield from client.query_all(pk_system(REGISTRY), prefix=sk_namespace_id(""))):
        ns = unless_broken(ns_in, item)
        if ns is not None:
            swept += yield from sweep(client, ns)
    return swept


def sweep(client: TableClient, ns: str) -> Plan[int]:
    """Remove the sharded buckets of a namespace that are idle; how many there were."""
    swept = 0
    buckets = whole_namespace(client, ns, prefix="BUCKET")
    while page := (yield from buckets.take(KEYS_AT_ONCE)):
        for item in page:
            key = key_of(item)
            if shard_of(key) == 1:  # every sharded bucket has one, and no other has
                swept += yield from _sweep_one(client, shard_key(key, 0))
    return swept


def _sweep_one(client: TableClient, first: Key) -> Plan[bool]:
    deadline = yield from client.new_deadline()
    item = yield from client.get(first, deadline)
    try:
        if item is None or not full_by(item) < deadline.epoch_s:
            return False
        shards = snapshot_of(item).shards
        keys = [shard_key(first, shard) for shard in range(shards)]
        found = yield from client.get_all(keys, deadline)
        if not all(full_by(item) < deadline.epoch_s for item in found.values()):
            return False
        writes = [delete(client.table, key, _as_it_is(found[key]) if key in found else NEW) for key in keys]
    except BrokenItem as error:
        logger.warning("not swept: %s", error)
        return False
    return not (yield from client.transact(writes, deadline))


@decoder("a bucket")
def full_by(item: Item) -> int:
    """When a shard has been surely full for as long as an unsharded bucket is kept, in seconds since the epoch."""
    return number_in(item[FULL_BY]) if FULL_BY in item else MOST_STORED


def _as_it_is(item: Item) -> Expected:
    """What changes with every write to a shard."""
    snapshot = snapshot_of(item)
    last_writer = snapshot.recent_writers[0] if snapshot.recent_writers else ABSENT
    return {"inc": snapshot.inc, "rf": snapshot.rf, "shard_count": snapshot.shards, "w0": last_writer}
