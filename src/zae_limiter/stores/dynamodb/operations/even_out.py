"""Slots of calls in flight move between the shards of a bucket.

Each shard has what is free there. When a limit is lowered, or a split and what came back since have left it so, some
shards may be below zero while others have slots: together they have no more than the limit says, but one of them alone
would lend what the others owe. So a client that sees this moves slots from the rich to the poor, in one transaction:
what one gives the other gets. It moves the baseline of each, so that nothing that was computed before can be done
after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot
from zae_limiter.stores.dynamodb.intents import Intent
from zae_limiter.stores.dynamodb.requests import NoAnswer, Refused
from zae_limiter.stores.dynamodb.schema import Key
from zae_limiter.stores.dynamodb.table_client import Deadline

if TYPE_CHECKING:
    from zae_limiter.stores.dynamodb.operations.settle import SettlementWriter

Place = TypeVar("Place")

TRIES = 3
"""So often it is tried while others write to the shards."""


def is_uneven(family: Sequence[BucketSnapshot]) -> bool:
    """Whether a shard owes slots that another one has."""
    return bool(_transfers(dict(enumerate(family))))


def _names_in(family: Iterable[BucketSnapshot]) -> list[str]:
    return sorted({name for snapshot in family for name in snapshot.holds})


def _transfers(family: Mapping[Place, BucketSnapshot]) -> dict[Place, dict[str, int]]:
    """What each shard is to get of each limit, or to give if that is negative: nothing, if none owes or none has."""
    moved: dict[Place, dict[str, int]] = {}
    for name in _names_in(family.values()):
        free = {place: one.holds[name].tk for place, one in family.items() if name in one.holds}
        owed = sum(-tk for tk in free.values() if tk < 0)
        left = given = min(owed, sum(tk for tk in free.values() if tk > 0))
        for place, tk in sorted(free.items(), key=lambda one: -one[1]):
            part = min(max(tk, 0), left)
            left -= part
            if part:
                moved.setdefault(place, {})[name] = -part
        for place, tk in free.items():
            part = min(max(-tk, 0), given)
            given -= part
            if part:
                moved.setdefault(place, {})[name] = part
    return moved


def even_out(settling: SettlementWriter, first: Key, now: int, deadline: Deadline) -> Plan[None]:
    """Let the shards of a bucket that have slots give them to those that owe some. Whatever comes of it, a draw goes
    on: what one shard may lend too much is no more than the limit was before."""
    with suppress(Refused, NoAnswer):
        for _ in range(TRIES):
            family = yield from settling.look_at_all_shards(first, now, deadline)
            moved = _transfers(family)
            if not moved:
                return
            moment = max(now, *(family[key].rf + 1 for key in moved))
            write_id = settling.write_ids.write_id(moment)
            writes = []
            for key, evened in moved.items():
                intent = Intent({}, rebase=True, evened=evened)
                params = settling.writer.params(key, family[key], intent, moment, write_id, deadline)
                writes.append({"Update": dict(params)})
            yield from settling.client.transact(writes, deadline)
            yield from settling.look_at_all_shards(first, now, deadline)
