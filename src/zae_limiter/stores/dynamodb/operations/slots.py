"""Slots of calls in flight, after they were lent: given back by a settlement, renewed, moved between shards.

**Settled.** A write of a settlement ends holds too, those of the shard it goes to. What is left of that when a bucket
is gone is nothing: what was lent there is not lent any more.

**Renewed.** Each call in flight goes on under a later due time, as if it were taken now. All holds of a process in one
shard are renewed by one write. It goes through the write queue of the bucket, so that it never races a lease of the
same process that ends. A hold that is not there any more is taken again without asking: the call is running, so the
count must show it. The same is done when no client can tell whether it was renewed: the old count runs out.

**Evened out.** Each shard has what is free there. When a limit is lowered, or a split and what came back since have
left it so, some shards may be below zero while others have slots: together they have no more than the limit says, but
one of them alone would lend what the others owe. So a client that sees this moves slots from the rich to the poor, in
one transaction: what one gives the other gets. It moves the baseline of each, so that nothing that was computed before
can be done after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from zae_limiter.bucket import key_of
from zae_limiter.models.holds import Hold
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot
from zae_limiter.stores.dynamodb.bucket_write import BucketWrite, WriteEvent
from zae_limiter.stores.dynamodb.intents import Intent, Terms
from zae_limiter.stores.dynamodb.namespace import Namespace
from zae_limiter.stores.dynamodb.requests import NoAnswer, Refused
from zae_limiter.stores.dynamodb.schema import Key, bucket_key, shard_key
from zae_limiter.stores.dynamodb.slot_work import SettleWork, shard_and_inc
from zae_limiter.stores.dynamodb.table_client import Deadline, verb
from zae_limiter.stores.protocol import HoldChange, Leg, Posting

if TYPE_CHECKING:
    from zae_limiter.stores.dynamodb.operations.settle import SettlementWriter


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


class Renewals:
    """The verb that renews."""

    def __init__(self, namespace: Namespace, settling: SettlementWriter) -> None:
        self.namespace = namespace
        self.client = namespace.client
        self.cache = namespace.cache
        self.settling = settling

    @verb
    def renew(self, holds: Sequence[Hold], now: int) -> Plan[Sequence[Hold]]:
        deadline = yield from self.client.new_deadline()
        ns = self.namespace.known_ns or (yield from self.namespace.checked_ns(deadline))
        now, deadline = yield from self.namespace.checked_time(now, deadline)
        by_shard: dict[Key, list[Hold]] = {}
        for hold in holds:
            if hold.amount:  # else its lease has ended meanwhile
                key = bucket_key(ns, hold.entity_id, hold.resource, shard_and_inc(hold)[0])
                by_shard.setdefault(key, []).append(hold)
        writes, works = [], []
        for key, held in by_shard.items():
            write = BucketWrite(key, Leg(held[0].entity_id, held[0].resource, (), "system"), {})
            work = write.work = SettleWork(renewals=held)
            self._look_first_if_idle(write, work, now)
            writes.append(write)
            works.append(work)
        if not writes:
            return ()
        try:
            yield from self.settling.write_all(writes, now, deadline)
        finally:
            for write, work in zip(writes, works, strict=False):
                if write.doubtful and not write.done:
                    work.let_go()
        return [hold for work in works for hold in work.lost]

    def _look_first_if_idle(self, write: BucketWrite, work: SettleWork, now: int) -> None:
        """Where there seems to be nothing to move, the bucket is read and not written."""
        cached = self.cache.get(write.key)
        if cached is not None:
            work.decide(cached.snapshot, now)
            if work.does_nothing:
                write.write_id = self.client.write_ids.write_id(now)


TRIES = 3
"""So often it is tried while others write to the shards."""


def is_uneven(family: Mapping[Key, BucketSnapshot]) -> bool:
    """Whether a shard owes slots that another one has."""
    return bool(_transfers(family))


def _transfers(family: Mapping[Key, BucketSnapshot]) -> dict[Key, dict[str, int]]:
    """What each shard is to get of each limit, or to give if that is negative: nothing, if none owes or none has."""
    moved: dict[Key, dict[str, int]] = {}
    for name in sorted({name for snapshot in family.values() for name in snapshot.holds}):
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
