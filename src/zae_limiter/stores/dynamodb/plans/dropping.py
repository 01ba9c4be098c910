"""Removing whole buckets: nothing is left of them, and nothing else is removed.

A client that meets a bucket without its first shard begins a new one, undivided. Another shard that was left behind
would then be too much. So the first shard goes last, when no other is there and none can come.

A deletion may arrive long after it was sent: it was repeated, the bucket is gone, and its entity has a new one. So a
deletion says which life it means (``inc``), and that nothing was written to it since it was *fenced* (``w0``): the
fence is a version that no client has, by which no client draws and no client divides. A client that meets the fence
reads its limits again and writes by them; then the shard is fenced again. Without the fence a busy bucket would be
written to between every look and the deletion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.items import BrokenItem, address, image_of
from zae_limiter.stores.dynamodb.keys import Key, shard_key, shard_of
from zae_limiter.stores.dynamodb.plans.asking import Asking, Window
from zae_limiter.stores.dynamodb.plans.listing import some_at_once
from zae_limiter.stores.dynamodb.requests import TRANSACTION_CONFLICT, Item, Refused
from zae_limiter.stores.dynamodb.updates import Update
from zae_limiter.stores.dynamodb.versions import FENCED

_LIFE, _LAST_WRITE = "inc", "w0"


def drop_buckets(asking: Asking, keys: Sequence[Key], now: int, until: Window) -> Plan[None]:
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
        found = yield from asking.get_all(wanted, until)
        for key in wanted:
            lives.setdefault(key, found[key].get(_LIFE) if key in found else None)
        there = {key: item for key, item in found.items() if item.get(_LIFE) == lives[key]}
        due = _due(families, there)
        plans = [_drop(asking, key, there[key], now, until) for key in due]
        dropped = yield from some_at_once(plans)
        for key, done in zip(due, dropped, strict=True):
            if done and shard_of(key) == 0:
                del families[key]
        if not all(dropped):
            tries += 1
            busy = Refused(TRANSACTION_CONFLICT, "others keep writing to a bucket that is to be deleted")
            yield from asking.pause(tries, until, busy)


def _due(families: dict[Key, set[Key]], there: Mapping[Key, Item]) -> list[Key]:
    """What may go now of these buckets, of which so much is there. Those that are gone are families no more.

    A shard that was divided since it was last seen has left one more behind. Without its ancestor none comes again.
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


def _drop(asking: Asking, key: Key, item: Item, now: int, until: Window) -> Plan[bool]:
    """Fence one shard and delete it. False: look again, something was written to it, or it is gone."""
    seen = {name: item.get(name) for name in (_LIFE, _LAST_WRITE)}
    try:
        image = image_of(item)
    except BrokenItem:
        pass  # no client writes to it
    else:
        if image.cv != FENCED:
            nonce = asking.marks.nonce(now)
            write = Update()
            write.demand(_LIFE, "=", image.inc)
            write.demand("shard_count", "=", image.shards)
            write.push_mark(nonce, None)
            write.set("cv", FENCED)
            if not (yield from _done(asking, "UpdateItem", write.params(asking.table, key), until, nonce)):
                return False
            seen[_LAST_WRITE] = {"S": nonce}
    return (yield from _done(asking, "DeleteItem", deletion(asking.table, key, seen), until))


def _done(
    asking: Asking, operation: str, params: Mapping[str, Any], until: Window, nonce: str | None = None
) -> Plan[bool]:
    """Whether a write was done, by this try or (as its mark shows) by one before whose answer was lost."""
    try:
        yield from asking.ask(operation, params, until, repeatable=True)
    except Refused as refusal:
        if not refusal.by_condition:
            raise
        return refusal.item is not None and refusal.item.get(_LAST_WRITE) == {"S": nonce}
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
        return image_of(item).shards
    except BrokenItem:
        return 1
