"""Counting denials: keeping them, and writing what is kept (see ``DenialTally``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from zae_limiter.running.plan import READ_CLOCK, Plan
from zae_limiter.stores.dynamodb.bucket_write import BucketWrite
from zae_limiter.stores.dynamodb.namespace import Namespace
from zae_limiter.stores.dynamodb.operations.paging import AT_ONCE
from zae_limiter.stores.dynamodb.operations.settle import SettlementWriter
from zae_limiter.stores.dynamodb.requests import READ_MACHINE_TIME
from zae_limiter.stores.dynamodb.schema import bucket_key
from zae_limiter.stores.protocol import Denial, Leg, Outcome

if TYPE_CHECKING:
    from zae_limiter.stores.dynamodb.operations.acquire import Acquire
    from zae_limiter.stores.dynamodb.operations.acquire_legs import AcquireLeg


class DenialCounts:
    """The verbs that count denials which no draw has counted."""

    def __init__(self, namespace: Namespace, settling: SettlementWriter) -> None:
        self.namespace = namespace
        self.settling = settling

    def count_denial(self, denial: Denial, now: int) -> Plan[None]:
        """Keep a denial, to be written with the next write to its bucket."""
        binding, ns = denial.binding, self.namespace.known_ns
        if binding is not None and ns is not None:
            place = (binding.entity_id, binding.resource)
            limits = [status.limit for status in denial.statuses if (status.entity_id, status.resource) == place]
            leg = Leg(*place, tuple(limits), binding.source)
            time = self.namespace.client.deadline_from((yield from READ_MACHINE_TIME))
            self.namespace.denials.add(bucket_key(ns, *place), leg, {binding.limit_name: 1}, time.started)

    def write_denials(self) -> Plan[None]:
        """Write all denials that are kept."""
        namespace, tally = self.namespace, self.namespace.denials
        kept = list(tally.unwritten.items())
        for start in range(0, len(kept), AT_ONCE):
            deadline = namespace.client.deadline_from((yield from READ_MACHINE_TIME))
            now, deadline = yield from namespace.checked_time((yield from READ_CLOCK), deadline)
            writes = [BucketWrite(key, unwritten.leg, {}) for key, unwritten in kept[start : start + AT_ONCE]]
            for write in writes:
                write.denials = tally.take(write.key)
            yield from self.settling.write_all(writes, now, deadline)


def keep_denial(acquire: Acquire, outcome: Outcome) -> None:
    """Keep a denial that the caller is told, and that was by a limit, to be written later."""
    if not isinstance(outcome, Denial):
        return
    parts = acquire.parts
    for leg in acquire.legs:
        if leg.denials and not leg.doubtful:
            parts.batching.keep_denials(leg, acquire.whole)
    binding = outcome.binding if acquire.draw.is_final else None
    if binding is not None:
        place = (binding.entity_id, binding.resource)
        leg = next(leg for leg in acquire.legs if (leg.leg.entity_id, leg.leg.resource) == place)
        parts.namespace.denials.add(leg.first, leg.leg, {binding.limit_name: 1}, acquire.whole.started)


def write_due_denials(acquire: Acquire, pending: Sequence[AcquireLeg]) -> Plan[bool]:
    """Write denials that were kept for long enough, where a write that takes would be refused, it seems.

    That brings the bucket as it is, as the refusal would. False: there was nothing to do.
    """
    tally, parts = acquire.parts.namespace.denials, acquire.parts
    for leg in pending:
        if leg.fresh or leg.doubtful or leg.snapshot is None or not tally.is_due(leg.first, acquire.whole.started):
            continue
        if leg.looks_drained(parts.cache, acquire.now):
            yield from parts.settling.write_all([BucketWrite(leg.key, leg.leg, {})], acquire.now, acquire.whole)
            leg.snapshot = parts.cache.last_seen(leg.key)
            leg.fresh = leg.snapshot is not None
            return True
    return False
