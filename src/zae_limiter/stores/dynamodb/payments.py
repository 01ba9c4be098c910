"""Who pays: what is owed on a divided bucket, shared out over the shards that paid for it. Pure.

What comes back goes to the shards that paid, as far as they have room. By then one may be full again while others are
drained, or divided, so that its ceiling is lower: then the rest goes to those that have room, and only what does not
fit into the whole bucket is lost, as it would be if the bucket were not divided.

What is taken without asking is taken from the shard that paid, as far as it holds it, then from those that hold most.
Only when all of them together do not hold it is there a debt, and then it is everybody's: each shard owes by its share
of the refill, so that none goes on granting while the whole bucket is in debt, and all are out of it at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from zae_limiter.stores.dynamodb.items import Image
from zae_limiter.stores.dynamodb.keys import Key
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


def has_room(image: Image, deltas: Mapping[str, int], now: int) -> bool:
    """Whether all that comes back fits into a shard."""
    return all(_room(image, name, now) >= -delta for name, delta in deltas.items() if delta < 0)


def placed(home: Key, deltas: Mapping[str, int], family: Mapping[Key, Image], now: int) -> dict[Key, dict[str, int]]:
    """What each shard gets of what is owed at ``home``: there as much as fits, the rest where most room is."""
    parts: dict[Key, dict[str, int]] = {home: {}}
    for name, delta in deltas.items():
        rest = delta
        rooms = {key: _room(image, name, now) for key, image in family.items()}
        for key in sorted(rooms, key=lambda key: (key != home, -rooms[key])):
            part = max(rest, -rooms[key]) if rest < 0 else 0
            if part:
                parts.setdefault(key, {})[name] = part
                rest -= part
        if rest:
            parts[home][name] = parts[home].get(name, 0) + rest
    return parts


def holds(image: Image, deltas: Mapping[str, int], now: int) -> bool:
    """Whether a shard holds all that is taken from it."""
    return all(
        _level(image, name, now) >= delta for name, delta in deltas.items() if delta > 0 and name in image.balances
    )


def shared_debts(
    home: Key, deltas: Mapping[str, int], family: Mapping[Key, Image], now: int
) -> dict[Key, dict[str, int]]:
    """What each shard bears of what is taken at ``home``; what comes back there stays there."""
    parts: dict[Key, dict[str, int]] = {home: {}}
    for name, delta in deltas.items():
        held = {key: max(_level(image, name, now), 0) for key, image in family.items() if name in image.balances}
        rest = delta
        for key in sorted(held, key=lambda key: (key != home, -held[key])):
            part = min(rest, held[key])
            if part > 0:
                parts.setdefault(key, {})[name] = part
                rest -= part
        debt = max(rest, 0)
        for key in held if debt else ():
            part = debt // family[key].shards
            bears = parts.setdefault(key, {})
            bears[name] = bears.get(name, 0) + part
            rest -= part
        if rest:
            parts[home][name] = parts[home].get(name, 0) + rest
    return parts


def _level(image: Image, name: str, now: int) -> int:
    balance = image.balances.get(name)
    return 0 if balance is None else balance.level(max(now, image.rf))


def _room(image: Image, name: str, now: int) -> int:
    balance = image.balances.get(name)
    return 0 if balance is None else max(balance.bx - balance.level(max(now, image.rf)), 0)
