"""An acquire that is recorded: every leg, and the record of the lease, in one transaction.

So there is nothing to give back when a leg lacks, and no leg is ever in doubt. When an answer was lost the record says
whether the transaction was done. While it is not there the transaction may still arrive; before a caller hears that it
was denied, a void record is written in its place, and the transaction is refused when it comes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.bucket_items import snapshot_of
from zae_limiter.stores.dynamodb.bucket_write import WriteEvent
from zae_limiter.stores.dynamodb.config_versions import after_taking
from zae_limiter.stores.dynamodb.expressions import Write
from zae_limiter.stores.dynamodb.intents import Intent
from zae_limiter.stores.dynamodb.operations.acquire_legs import count_before
from zae_limiter.stores.dynamodb.operations.acquire_payers import THROTTLES_BORNE, intents_of_payers
from zae_limiter.stores.dynamodb.operations.acquire_writes import params_of
from zae_limiter.stores.dynamodb.operations.leases import bookings_of, put_record, record_of
from zae_limiter.stores.dynamodb.requests import CHECK_FAILED, CONDITION_FAILED, NoAnswer, Reason, Refused
from zae_limiter.stores.dynamodb.schema import Key
from zae_limiter.stores.dynamodb.table_client import Deadline
from zae_limiter.stores.lease_records import (
    DrawRecord,
    LeaseRecord,
    RecordMoved,
    RecordRequest,
)
from zae_limiter.stores.protocol import Grant

if TYPE_CHECKING:
    from zae_limiter.stores.dynamodb.operations.acquire import Acquire
    from zae_limiter.stores.dynamodb.operations.acquire_legs import AcquireLeg


class RecordedAcquire:
    """The writes of one draw and of its record, as far as they are known."""

    def __init__(self, acquire: Acquire, request: RecordRequest) -> None:
        self.acquire = acquire
        self.record = DrawRecord(request, acquire.draw)
        self.written: LeaseRecord | None = None
        """What this draw has written."""
        self.in_doubt = False
        """A try of it was sent, and its answer was lost."""
        self._intents: dict[Key, Intent] = {}
        """What several shards were last to do together."""

    def write(self) -> Plan[Grant | None]:
        """Try to write every leg and the record. A grant, if the request was granted before."""
        acquire, parts = self.acquire, self.acquire.parts
        writes, spans = self._writes()
        legs = tuple(leg.paid_leg() for leg in acquire.legs)
        grant = Grant(legs, acquire.draw.wanted, (), (), acquire.now, holds=tuple(acquire.holds()))
        record = self.record.granting(grant, acquire.now)
        ns = yield from parts.namespace.ns(acquire.deadline)
        put = put_record(parts.client, ns, record, self.record.expected_version, acquire.now, acquire.deadline)
        doubts: list[NoAnswer] = []
        try:
            reasons = yield from parts.client.transact([*writes, put], acquire.deadline, doubts)
        except BaseException as failure:
            self.in_doubt = self.in_doubt or bool(doubts) or not isinstance(failure, Refused)
            if not isinstance(failure, Refused) or not failure.by_throttling:
                raise
            for leg in acquire.legs:  # a key takes no more writes: load, not an outage
                leg.throttled = THROTTLES_BORNE + 1
            return None
        if not reasons:
            self.written = record
            yield from self._see(writes, spans)
            return None
        self.in_doubt = self.in_doubt or bool(doubts)
        if reasons[-1].code == CHECK_FAILED:
            return self._heard(reasons[-1])
        yield from self._hear(spans, reasons)
        return None

    def _heard(self, reason: Reason) -> Grant | None:
        """The grant that is recorded. ``None``: what is there is void, or has expired, or is gone."""
        return self.record.heard(None if reason.item is None else record_of(reason.item), self.acquire.now)

    def _writes(self) -> tuple[list[Write], list[tuple[AcquireLeg, Sequence[tuple[Key, Mapping[str, int]]]]]]:
        """The writes of all legs, and which of them are whose."""
        acquire, parts = self.acquire, self.acquire.parts
        writes: list[Write] = []
        spans: list[tuple[AcquireLeg, Sequence[tuple[Key, Mapping[str, int]]]]] = []
        self._intents = {}
        for leg in acquire.legs:
            if leg.work is not None:
                count_before(acquire.legs, leg)
            payers = leg.payers or [(leg.key, leg.deltas)]
            spans.append((leg, payers))
            if leg.payers:
                writes += self._updates_of_payers(leg)
            elif leg.snapshot is None:
                leg.judge(None, acquire.now)
                call = parts.writer.call_to_create(leg, leg.terms, acquire.now, acquire.deadline)
                writes.append({"Put": dict(call.params)})
            else:
                writes.append({"Update": dict(params_of(acquire, leg))})
        return writes, spans

    def _updates_of_payers(self, leg: AcquireLeg) -> list[Write]:
        """What several shards pay together."""
        acquire, parts = self.acquire, self.acquire.parts
        updates: list[Write] = []
        shards = {key: cached.snapshot for key, _ in leg.payers if (cached := parts.cache.get(key)) is not None}
        for key, intent in intents_of_payers(leg, dict(leg.payers)).items():
            self._intents[key] = intent
            params = parts.writer.params(key, shards[key], intent, acquire.now, leg.write_id, acquire.deadline)
            updates.append({"Update": dict(params)})
        return updates

    def _see(
        self, writes: Sequence[Write], spans: Sequence[tuple[AcquireLeg, Sequence[tuple[Key, Mapping[str, int]]]]]
    ) -> Plan[None]:
        """Every leg is written: remember the buckets as the transaction left them."""
        acquire, parts = self.acquire, self.acquire.parts
        for leg, _ in spans:
            leg.advance(WriteEvent.ANSWERED)
            leg.granted_at = acquire.now
        left = iter(writes)
        for leg, payers in spans:
            for place, (key, _) in enumerate(payers):
                write = next(left)
                cached = parts.cache.get(key)
                if "Put" in write:
                    snapshot = snapshot_of(write["Put"]["Item"])
                    yield from parts.writer.see(key, snapshot, acquire.now)
                    yield from parts.propagation.check_terms_of_new(key, leg.terms, acquire.now, acquire.deadline)
                elif cached is not None:
                    intent = self._intents.get(key) or Intent(leg.deltas, slots=leg.slots, watched=leg.watched)
                    snapshot = after_taking(
                        *(cached.snapshot, leg.terms, intent.deltas, acquire.now, leg.write_id),
                        grants=int(place == 0),
                        slots=intent.slots,
                        watched=intent.watched,
                    )
                    parts.cache.see(key, snapshot, acquire.now)
            cached = parts.cache.get(leg.key)
            leg.snapshot = None if cached is None else cached.snapshot

    def _hear(
        self,
        spans: Sequence[tuple[AcquireLeg, Sequence[tuple[Key, Mapping[str, int]]]]],
        reasons: Sequence[Reason],
    ) -> Plan[None]:
        """Learn how the buckets are. What several shards were to pay is shared out anew."""
        acquire, parts = self.acquire, self.acquire.parts
        left = iter(reasons)
        for leg, payers in spans:
            for key, _ in payers:
                reason = next(left)
                if reason.code is None:
                    continue
                failed = Refused(CONDITION_FAILED, item=reason.item)
                result = yield from parts.writer.result(key, failed, acquire.now)
                if key == leg.key:
                    leg.inc = ""
                    acquire.hear(leg, result)
            if leg.payers:
                leg.payers, leg.all_seen = (), False
            leg.begin_anew(parts.write_ids.write_id(acquire.now))

    # Doubts

    def fence(self, deadline: Deadline) -> Plan[Grant | None]:
        """Make sure that a try whose answer was lost is never done; the grant, if it was."""
        if not self.in_doubt:
            return None
        parts, now = self.acquire.parts, self.acquire.now
        ns = yield from parts.namespace.ns(deadline)
        while True:
            void = self.record.fencing(now)
            put = put_record(parts.client, ns, void, self.record.expected_version, now, deadline)
            reasons = yield from parts.client.transact([put], deadline)
            if not reasons:
                self.record.seen, self.in_doubt = void, False
                return None
            found = self._heard(reasons[0])
            if found is not None or self.record.is_own_fence():  # written by an earlier try, whose answer was lost
                self.in_doubt = False
                return found

    def undo(self, deadline: Deadline) -> Plan[None]:
        """The caller was interrupted: what was taken comes back, and the record is void."""
        record = self.written
        if record is None:
            found = yield from self.fence(deadline)
            record = None if found is None else found.record
        change = self.record.undoing(record)
        if record is None or change is None:
            return
        parts = self.acquire.parts
        ns = yield from parts.namespace.ns(deadline)
        back = parts.settling.writes_of(ns, record.grant().give_back(), grants=-1)
        with suppress(RecordMoved):  # a repetition of the request was answered by it: the lease goes on there
            yield from parts.leases.book(ns, bookings_of(back), change, self.acquire.now, deadline)
        self.written = None
