"""Renewing calls in flight: each goes on under a later due time, as if it were taken now.

All holds of a process in one shard are renewed by one write. It goes through the write queue of the bucket, so that it
never races a lease of the same process that ends. A hold that is not there any more is taken again without asking: the
call is running, so the count must show it. The same is done when no client can tell whether it was renewed: the old
count runs out.
"""

from __future__ import annotations

from collections.abc import Sequence

from zae_limiter.models.holds import Hold
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.bucket_writer import BucketWrite
from zae_limiter.stores.dynamodb.namespace import Namespace
from zae_limiter.stores.dynamodb.operations.settle import SettlementWriter
from zae_limiter.stores.dynamodb.schema import Key, bucket_key
from zae_limiter.stores.dynamodb.slot_work import SettleWork, shard_and_inc
from zae_limiter.stores.dynamodb.table_client import verb
from zae_limiter.stores.protocol import Leg


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
        ns = yield from self.namespace.checked_ns(deadline)
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
