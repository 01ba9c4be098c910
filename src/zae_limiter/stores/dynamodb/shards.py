"""The shards of one bucket: how one becomes two, and how what is owed is allocated to them. Pure.

**Splits.** Shard ``s`` of ``n`` becomes shards ``s`` and ``s + n`` of ``2n``. Their shares of every ceiling and of
every accrual add up to what the one had, so the rate is conserved by arithmetic; the tokens are conserved by the
transaction, which gives the new shard half of what the old one holds and takes exactly that from it. Both begin at
the same baseline. Of calls in flight half of the free slots go, whole ones, and those that are lent stay where they
are given back; of what is extra in a period half goes. Below the ceiling the half is a literal, and what others take
meanwhile is taken from the old shard's half; at the ceiling both are set full. As with every write the two conditions
exclude each other. Of a debt each owes one half, which it does only if it is the debt that was seen: else one would
grant what the other owes. So is what an extra that ends has left.
Only a shard's ancestor can make it, and only while it is split too little: so the new one cannot have lived before.
A shard that is missing although its ancestor is split enough was lost, and is not made again.

**Allocation.** What comes back goes to the shards that paid, as far as they have room; then to those that have
room, and only what does not fit into the whole bucket is lost, as it would be if the bucket had no shards. What
is taken without asking is taken from the shard that paid, as far as it holds it, then from those that hold most.
Only when all of them together do not hold it is there a debt, and then it is that of all: each shard owes by its
share of the refill, so that none goes on granting while the whole bucket is in debt, and all are out of it at once.
While there is a debt, what comes back is shared likewise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from zae_limiter.bucket import MILLI, Balance, HeldBalance, SteppedBalance, balance_of
from zae_limiter.models.limit import Limit
from zae_limiter.naming import RESERVED_LIMIT_NAME
from zae_limiter.sharded_balance import ShardedBalance
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot, snapshot_of
from zae_limiter.stores.dynamodb.config_versions import adopted
from zae_limiter.stores.dynamodb.departures import coming_back, demand_same_retired
from zae_limiter.stores.dynamodb.expressions import Update
from zae_limiter.stores.dynamodb.intents import Terms
from zae_limiter.stores.dynamodb.items import LENT, RECENT_WRITERS, REFILLED, TERMS
from zae_limiter.stores.dynamodb.limit_forms import ends_extra, forgives
from zae_limiter.stores.dynamodb.requests import Item
from zae_limiter.stores.dynamodb.schema import (
    MOST_SHARDS,
    Key,
    bucket_key,
    encode_item,
    gsi2_bucket,
    gsi3_bucket,
    gsi4,
    ns_of,
    number_in,
)
from zae_limiter.stores.dynamodb.write_forms import FULL_BY
from zae_limiter.stores.dynamodb.write_load import LOAD_TK, WRITE, load_attributes
from zae_limiter.stores.protocol import Leg

_CARRIED = ("cv", "rv", "cascade", "parent_id", "entity_id", "resource")


def ancestor_of(shard: int) -> int:
    """The shard that ``shard`` comes from."""
    return shard - top_bit(shard)


def top_bit(shard: int) -> int:
    """The number of shards there were when ``shard`` was made."""
    return 1 << (shard.bit_length() - 1)


def shards_made_by(shard: int, shards: int) -> list[int]:
    """The shards that one which is split into ``shards`` has made."""
    return [other for other in range(shard + 1, shards) if ancestor_of(other) == shard]


def full_by_in(item: Item) -> int | None:
    """When a shard is surely full, in seconds since the epoch, if it says so: the next draw tells it anew."""
    try:
        return number_in(item.get("ttl") or item[FULL_BY])
    except (LookupError, TypeError, ValueError):
        return None


def split_in_two(item: Item, *, now: int, write_id: str, inc: str) -> tuple[Update, Key, dict[str, Any]]:
    """The write that halves the shard of ``item``, and the new shard: where it is, and what it is."""
    snapshot = snapshot_of(item)
    now = max(now, snapshot.rf)
    shard, shards = snapshot.shard, snapshot.shards
    ns = ns_of(Key(item["PK"]["S"], item["SK"]["S"]))
    key = bucket_key(ns, snapshot.entity_id, snapshot.resource, shard + shards)
    write = Update()
    write.demand("rf", "=", snapshot.rf)
    write.demand("cv", "=", snapshot.cv)
    write.demand("shard_count", "=", shards)
    demand_same_retired(write, snapshot)
    write.push_write_id(write_id, None)
    new: dict[str, Any] = {
        "rf": now,
        "inc": inc,
        "ev": 0,
        "shard_count": 2 * shards,
        **dict.fromkeys(RECENT_WRITERS, "-"),
        "w0": write_id,
        **gsi2_bucket(ns, snapshot.entity_id, snapshot.resource, shard + shards),
        **gsi3_bucket(ns, snapshot.entity_id, snapshot.resource, shard + shards),
        **gsi4(ns, key.pk, "BUCKET"),
        **load_attributes(snapshot.load_burst),
    }
    for balance in snapshot.balances.values():
        _split_limit(write, new, balance, now)
    for lending in snapshot.holds.values():
        half = halved(lending)
        if half:
            write.demand(f"h_{lending.name}_tk", ">=", half)
            write.add(f"h_{lending.name}_tk", -half)
        new |= {f"h_{lending.name}_tk": half, f"h_{lending.name}_tc": 0, f"h_{lending.name}_hb": lending.hb}
    write.set("rf", now)
    write.set("shard_count", 2 * shards)
    write.set(LOAD_TK, snapshot.load_burst - WRITE)
    write.remove("ttl")
    full_by = full_by_in(item)
    if full_by is not None:
        new[FULL_BY] = full_by
        write.set(FULL_BY, full_by)
    carried: Mapping[str, Any] = {
        name: value
        for name, value in item.items()
        if name in _CARRIED
        or (name[:2] in (REFILLED, LENT) and name[-2:] in TERMS and name[2:-3] != RESERVED_LIMIT_NAME)
    }
    return write, key, {**carried, **encode_item({"PK": key.pk, "SK": key.sk, **new})}


def _split_limit(write: Update, new: dict[str, Any], balance: Balance, now: int) -> None:
    """Give the ``new`` shard half of what a limit holds."""
    name, shard, shards = balance.name, balance.shard, balance.shards
    tk, a = f"b_{name}_tk", balance.since_rf(now)
    here, there = (balance_of(balance.limit, now, shard=s, shards=2 * shards) for s in (shard, shard + shards))
    new[f"b_{name}_tc"] = 0
    ends = ends_extra(balance, now)
    if isinstance(balance, SteppedBalance):
        number = max(balance.calendar.ordinal(now), balance.pn)
        write.set(f"b_{name}_pn", number)
        new[f"b_{name}_pn"] = number
    if ends:
        write.demand(tk, "=", balance.tk)
        write.remove(f"b_{name}_ex")
        new[tk] = min(balance.level(now) // 2, there.bx)
        write.set(tk, min(balance.level(now) - new[tk], here.bx))
        return
    if balance.extra:
        _halve_extra(write, new, balance.extra, here, there)
    if isinstance(balance, SteppedBalance) and forgives(balance, now):
        write.set(tk, here.bx)
        new[tk] = there.bx
    elif balance.tk > balance.bx - a:
        write.demand(tk, ">", balance.bx - a)
        write.set(tk, here.bx)
        new[tk] = there.bx
    else:
        half = min((balance.tk + a) // 2, there.bx)
        if half > 0:
            write.demand(tk, "<=", here.bx + half - a)
            write.demand(tk, ">=", half - a)
        else:
            write.demand(tk, "=", balance.tk)
        write.add(tk, a - half)
        new[tk] = half


def _halve_extra(write: Update, new: dict[str, Any], extra: int, here: Balance, there: Balance) -> None:
    """Let each of two shards have half of what is extra in this period."""
    assert isinstance(here, SteppedBalance)
    assert isinstance(there, SteppedBalance)
    half = extra // 2
    here.lift(extra - half)
    there.lift(half)
    write.set(f"b_{here.name}_ex", extra - half)
    if half:
        new[f"b_{here.name}_ex"] = half


def halved(lending: HeldBalance) -> int:
    """What the new shard gets of the slots of a limit of calls in flight: half of what is free. The holds stay."""
    return max(lending.tk, 0) // MILLI // 2 * MILLI


def shared_out(leg: Leg, owed: Mapping[str, int]) -> Iterator[tuple[int, Leg, Mapping[str, int]]]:
    """Millitokens by shard, each with a leg that is settled there alone.

    What comes back does so where it was paid, in proportion. What is taken is taken from the shard that paid most.
    """
    if len(leg.paid) <= 1:
        yield (leg.paid[0][0] if leg.paid else 0), leg, owed
        return
    parts: dict[int, dict[str, int]] = {shard: {} for shard, _ in leg.paid}
    for name, delta in owed.items():
        by_shard = {shard: paid.get(name, 0) for shard, paid in leg.paid}
        most = max(by_shard, key=lambda shard: by_shard[shard])
        left, total = delta, sum(by_shard.values())
        for shard, paid in by_shard.items():
            part = -(-delta * paid // total) if delta < 0 and total and shard != most else 0
            if part:
                parts[shard][name] = part
                left -= part
        parts[most][name] = left
    for shard, deltas in parts.items():
        if deltas:
            yield shard, replace(leg, paid=((shard, deltas),)), deltas


class Placed(NamedTuple):
    """What each shard bears of what is owed at one of them, by limit: taken if positive, given back if negative.

    ``in_debt`` names the limits of which the whole bucket is in debt, before or after, or a shard that something comes
    back to. Of those every shard has a part, if only of nothing, and all parts must be written at once: one shard
    after the other, some would grant meanwhile.
    """

    parts: Mapping[Key, Mapping[str, int]]
    in_debt: frozenset[str]


def balances_for(
    snapshot: BucketSnapshot, deltas: Mapping[str, int], owed: tuple[Limit, ...]
) -> Mapping[str, Balance]:
    """What a shard has, and of the limits that are ``owed`` those that it does not have but takes back: full."""
    back = coming_back(snapshot, deltas, owed)
    if not back:
        return snapshot.balances
    full = {limit.name: balance_of(limit, snapshot.rf, shard=snapshot.shard, shards=snapshot.shards) for limit in back}
    return {**snapshot.balances, **full}


def fits(snapshot: BucketSnapshot, deltas: Mapping[str, int], owed: tuple[Limit, ...], now: int) -> bool:
    """Whether a shard can bear it alone: it holds what is taken, and has room for what comes back and no debt."""
    balances = balances_for(snapshot, deltas, owed)
    for name, delta in deltas.items():
        balance = balances.get(name)
        if balance is not None:
            level = balance.level(max(now, snapshot.rf))
            if level < max(delta, 0) or (delta < 0 and balance.bx - level < -delta):
                return False
    return True


def placed(
    home: Key, deltas: Mapping[str, int], owed: tuple[Limit, ...], family: Mapping[Key, BucketSnapshot], now: int
) -> Placed:
    """What each shard bears of what is owed at ``home``, of limits that it may not have any more."""
    in_debt = set()
    parts: dict[Key, dict[str, int]] = {home: {}}
    balances = {key: balances_for(snapshot, deltas, owed) for key, snapshot in family.items()}
    for name, delta in deltas.items():
        held = {key: here[name] for key, here in balances.items() if name in here}
        levels = {key: balance.level(max(now, family[key].rf)) for key, balance in held.items()}
        if home not in levels:
            parts[home][name] = delta  # its shard has no room for such a limit, and will not count it
            continue
        whole = sum(levels.values())
        if min(whole, whole - delta) < 0:
            in_debt.add(name)
            shares = _as_debt(home, delta, held, levels)
        elif delta > 0:
            shares = _taken(home, delta, levels)
        else:
            shares = _given_back(home, delta, held, levels)
            if any(levels[key] < 0 for key in shares):
                in_debt.add(name)
                shares = dict.fromkeys(held, 0) | shares
        for key, part in shares.items():
            parts.setdefault(key, {})[name] = part
    return Placed(parts, frozenset(in_debt))


def _taken(home: Key, delta: int, levels: Mapping[Key, int]) -> dict[Key, int]:
    """From its shard as much as it holds, then from those that hold most. Together they hold it."""
    shares: dict[Key, int] = {}
    left = delta
    for key in sorted(levels, key=lambda key: (key != home, -levels[key])):
        part = min(left, max(levels[key], 0))
        if part:
            shares[key] = part
            left -= part
    return shares


def _given_back(home: Key, delta: int, held: Mapping[Key, Balance], levels: Mapping[Key, int]) -> dict[Key, int]:
    """To its shard as much as fits, the remainder where most room is; what fits nowhere is lost at its ceiling.

    A shard that is in debt, or seems so because others have drawn since, comes last: none leaves its debt alone.
    """
    shares: dict[Key, int] = {}
    left = delta
    rooms = {key: max(balance.bx - levels[key], 0) for key, balance in held.items()}
    for key in sorted(rooms, key=lambda key: (levels[key] < 0, key != home, -rooms[key])):
        part = max(left, -rooms[key])
        if part:
            shares[key] = part
            left -= part
    if left:
        shares[home] = shares.get(home, 0) + left
    return shares


def _as_debt(home: Key, delta: int, held: Mapping[Key, Balance], levels: Mapping[Key, int]) -> dict[Key, int]:
    """So that every shard owes its share of what the whole bucket owes then, or nothing if that is nothing."""
    after = sum(levels.values()) - delta
    owed = _by_refill(max(-after, 0), held)
    shares = {key: levels[key] + owed[key] for key in held}
    if after > 0:  # out of debt, and more comes back
        cleared = {key: level - shares[key] for key, level in levels.items()}
        for key, part in _given_back(home, -after, held, cleared).items():
            shares[key] += part
    return shares


def _by_refill(debt: int, held: Mapping[Key, Balance]) -> dict[Key, int]:
    """What each shard owes of a debt, by what it gets of the refill. Some shards may be lost."""
    parts = {key: MOST_SHARDS // balance.shards for key, balance in held.items()}
    whole = sum(parts.values())
    owed = {key: debt * part // whole for key, part in parts.items()}
    for key in list(owed)[: debt - sum(owed.values())]:
        owed[key] += 1
    return owed


def over_shards(family: Sequence[BucketSnapshot | None], terms: Terms, now: int) -> tuple[Balance, ...]:
    """Every limit of ``terms`` over several shards."""

    def parts_of(place: int) -> list[Balance]:
        return [adopted(snapshot, terms, now)[place] for snapshot in family]

    return tuple(ShardedBalance(limit, partial(parts_of, place)) for place, limit in enumerate(terms.leg.limits))
