"""Who pays: what is owed on a divided bucket, shared out over the shards that paid for it. Pure.

What comes back goes to the shards that paid, as far as they have room. By then one may be full again while others are
drained, or divided, so that its ceiling is lower: then the rest goes to those that have room, and only what does not
fit into the whole bucket is lost, as it would be if the bucket were not divided.

What is taken without asking is taken from the shard that paid, as far as it holds it, then from those that hold most.
Only when all of them together do not hold it is there a debt, and then it is everybody's: each shard owes by its share
of the refill, so that none goes on granting while the whole bucket is in debt, and all are out of it at once. While
there is a debt, what comes back is shared likewise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from zae_limiter.bucket import Balance
from zae_limiter.stores.dynamodb.items import Image
from zae_limiter.stores.dynamodb.keys import MOST_SHARDS, Key
from zae_limiter.stores.protocol import Leg


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
        rest, total = delta, sum(by_shard.values())
        for shard, paid in by_shard.items():
            part = -(-delta * paid // total) if delta < 0 and total and shard != most else 0
            if part:
                parts[shard][name] = part
                rest -= part
        parts[most][name] = rest
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


def fits(image: Image, deltas: Mapping[str, int], now: int) -> bool:
    """Whether a shard can bear it alone: it holds what is taken, and has room for what comes back and no debt."""
    for name, delta in deltas.items():
        balance = image.balances.get(name)
        if balance is not None:
            level = balance.level(max(now, image.rf))
            if level < max(delta, 0) or (delta < 0 and balance.bx - level < -delta):
                return False
    return True


def placed(home: Key, deltas: Mapping[str, int], family: Mapping[Key, Image], now: int) -> Placed:
    """What each shard bears of what is owed at ``home``."""
    in_debt = set()
    parts: dict[Key, dict[str, int]] = {home: {}}
    for name, delta in deltas.items():
        held = {key: image.balances[name] for key, image in family.items() if name in image.balances}
        levels = {key: balance.level(max(now, family[key].rf)) for key, balance in held.items()}
        if home not in levels:
            parts[home][name] = delta  # its shard has no such limit, and will not count it
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
    rest = delta
    for key in sorted(levels, key=lambda key: (key != home, -levels[key])):
        part = min(rest, max(levels[key], 0))
        if part:
            shares[key] = part
            rest -= part
    return shares


def _given_back(home: Key, delta: int, held: Mapping[Key, Balance], levels: Mapping[Key, int]) -> dict[Key, int]:
    """To its shard as much as fits, the rest where most room is; what fits nowhere is lost at its ceiling.

    A shard that is in debt, or seems so because others have drawn since, comes last: none leaves its debt alone.
    """
    shares: dict[Key, int] = {}
    rest = delta
    rooms = {key: max(balance.bx - levels[key], 0) for key, balance in held.items()}
    for key in sorted(rooms, key=lambda key: (levels[key] < 0, key != home, -rooms[key])):
        part = max(rest, -rooms[key])
        if part:
            shares[key] = part
            rest -= part
    if rest:
        shares[home] = shares.get(home, 0) + rest
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
