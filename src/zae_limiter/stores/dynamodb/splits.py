"""Dividing a shard in two, so that tokens and rate are conserved. Pure.

Shard ``s`` of ``n`` becomes shards ``s`` and ``s + n`` of ``2n``. Their shares of every ceiling and of every accrual
add up to what the one had, so the rate is conserved by arithmetic; the tokens are conserved by the transaction, which
gives the new shard half of what the old one holds and takes exactly that from it. Both begin at the same baseline.

Below the ceiling the half is a literal, and what others take meanwhile is taken from the old shard's half; at the
ceiling both are set full. As with every write the two conditions exclude each other. Of a debt each
owes one half, which it does only if it is the debt that was seen: else one would grant what the other owes.

Only a shard's ancestor can make it, and only while it is divided too little: so the new one cannot have lived before.
A shard that is missing although its ancestor is divided enough was lost, and nobody makes it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zae_limiter.bucket import MILLI, share
from zae_limiter.naming import RESERVED_LIMIT_NAME
from zae_limiter.stores.dynamodb.gauge import GAUGE_TK, WRITE, gauge_attributes
from zae_limiter.stores.dynamodb.items import RING, image_of
from zae_limiter.stores.dynamodb.keys import Key, bucket_key, gsi2_bucket, gsi3_bucket, gsi4, ns_of
from zae_limiter.stores.dynamodb.requests import Item
from zae_limiter.stores.dynamodb.updates import Update
from zae_limiter.stores.dynamodb.values import encode_item, number_in
from zae_limiter.stores.dynamodb.writes import FULL_BY, demand_same_resting

_CARRIED = ("cv", "rv", "cascade", "parent_id", "entity_id", "resource")
_TERMS = ("cp", "bx", "ra", "rp")


def ancestor_of(shard: int) -> int:
    """The shard that ``shard`` comes from."""
    return shard - top_bit(shard)


def top_bit(shard: int) -> int:
    """The number of shards there were when ``shard`` was made."""
    return 1 << (shard.bit_length() - 1)


def full_by_in(item: Item) -> int | None:
    """When a shard is surely full, in seconds since the epoch, if it says so: the next draw tells it anew."""
    try:
        return number_in(item.get("ttl") or item[FULL_BY])
    except (LookupError, TypeError, ValueError):
        return None


def divided(item: Item, *, now: int, nonce: str, inc: str) -> tuple[Update, Key, dict[str, Any]]:
    """The write that halves the shard of ``item``, and the new shard: where it is, and what it is."""
    image = image_of(item)
    now = max(now, image.rf)
    shard, shards = image.shard, image.shards
    ns = ns_of(Key(item["PK"]["S"], item["SK"]["S"]))
    key = bucket_key(ns, image.entity_id, image.resource, shard + shards)
    write = Update()
    write.demand("rf", "=", image.rf)
    write.demand("cv", "=", image.cv)
    write.demand("shard_count", "=", shards)
    demand_same_resting(write, image)
    write.push_mark(nonce, None)
    new: dict[str, Any] = {
        "rf": now,
        "inc": inc,
        "ev": 0,
        "shard_count": 2 * shards,
        **dict.fromkeys(RING, "-"),
        "w0": nonce,
        **gsi2_bucket(ns, image.entity_id, image.resource, shard + shards),
        **gsi3_bucket(ns, image.entity_id, image.resource, shard + shards),
        **gsi4(ns, key.pk, "BUCKET"),
        **gauge_attributes(image.gauge_burst),
    }
    for name, balance in image.balances.items():
        tk = f"b_{name}_tk"
        a, burst = balance.since_rf(now), balance.limit.burst * MILLI
        if balance.tk > balance.bx - a:
            write.demand(tk, ">", balance.bx - a)
            write.set(tk, share(burst, shard, 2 * shards))
            new[tk] = share(burst, shard + shards, 2 * shards)
        else:
            half = min((balance.tk + a) // 2, share(burst, shard + shards, 2 * shards))
            if half > 0:
                write.demand(tk, "<=", share(burst, shard, 2 * shards) + half - a)
                write.demand(tk, ">=", half - a)
            else:
                write.demand(tk, "=", balance.tk)
            write.add(tk, a - half)
            new[tk] = half
        new[f"b_{name}_tc"] = 0
    write.set("rf", now)
    write.set("shard_count", 2 * shards)
    write.set(GAUGE_TK, image.gauge_burst - WRITE)
    write.remove("ttl")
    full_by = full_by_in(item)
    if full_by is not None:
        new[FULL_BY] = full_by
        write.set(FULL_BY, full_by)
    carried: Mapping[str, Any] = {
        name: value
        for name, value in item.items()
        if name in _CARRIED or (name.startswith("b_") and name[-2:] in _TERMS and name[2:-3] != RESERVED_LIMIT_NAME)
    }
    return write, key, {**carried, **encode_item({"PK": key.pk, "SK": key.sk, **new})}
