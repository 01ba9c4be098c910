"""Calls in flight in a settlement: which write ends which hold, and what is left of that when a bucket is gone."""

from __future__ import annotations

from collections.abc import Sequence

from zae_limiter.bucket import key_of
from zae_limiter.stores.dynamodb.bucket_writer import BucketWrite, WriteEvent
from zae_limiter.stores.dynamodb.intents import Terms
from zae_limiter.stores.dynamodb.schema import Key, shard_key
from zae_limiter.stores.dynamodb.slot_work import SettleWork, shard_and_inc
from zae_limiter.stores.protocol import HoldChange, Posting


def let_slots_change(writes: list[BucketWrite], posting: Posting, first: Key) -> None:
    """Let these writes, one for each shard that paid, change the holds too; those of other shards get one of their
    own. What is taken without asking is taken where was paid first."""
    leg, home = posting.leg, posting.leg.paid[0][0] if posting.leg.paid else 0
    by_shard: dict[int, list[HoldChange]] = {home: []} if posting.undo and leg.refused else {}
    for change in posting.holds:
        shard = shard_and_inc(change.hold)[0] if change.slots < 0 else home
        by_shard.setdefault(shard, []).append(HoldChange(*change))
    refused = frozenset(key_of(limit) for limit in leg.limits if limit.name in leg.refused)
    for shard, changes in by_shard.items():
        key = shard_key(first, shard)
        write = next((one for one in writes if one.key == key), None)
        if write is None:
            write = BucketWrite(key, leg, {})
            writes.append(write)
        unrefused = refused if posting.undo and shard == home else frozenset[str]()
        write.work = SettleWork(changes, undo=posting.undo, unrefused=unrefused)


def gives_back_only(write: BucketWrite) -> bool:
    """Whether there is nothing to book in a bucket that is gone: what was lent there is not lent any more."""
    work = write.work
    if not isinstance(work, SettleWork) or write.deltas or write.grants or write.doubtful:
        return False
    if any(change.slots > 0 for change in work.changes) or any(hold.amount for hold in work.renewals):
        return False
    work.forget()
    write.advance(WriteEvent.NOTHING_LEFT)
    return True


def has_no_such_limits(write: BucketWrite, terms: Terms) -> bool:
    """Whether slots would be taken of limits that there are no more, and there is nothing else to do."""
    work = write.work
    if not isinstance(work, SettleWork) or write.deltas or write.grants or write.doubtful:
        return False
    if terms.leg.held.intersection(hold.limit_name for hold in work.holds_to_take()):
        return False
    work.begin_life((), "", 0)
    write.advance(WriteEvent.NOTHING_LEFT)
    return True


def left_of(writes: Sequence[BucketWrite]) -> list[Posting]:
    """What is to be booked again."""
    found = []
    for write in writes:
        left, work = write.left(), write.work
        holds: tuple[HoldChange, ...] = ()
        if isinstance(work, SettleWork) and not write.done:
            holds = tuple(change for change in work.left() if change.slots > 0 or not write.doubtful)
        if left or holds:
            found.append(Posting(write.leg, left, holds, undo=isinstance(work, SettleWork) and work.undo))
    return found
