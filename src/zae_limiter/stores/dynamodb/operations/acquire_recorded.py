"""An acquire that is recorded: every leg, and the record of the lease, in one transaction.

So there is nothing to give back when a leg lacks, and no leg is ever in doubt. When an answer was lost the record says
whether the transaction was done. While it is not there the transaction may still arrive; before a caller hears that it
was denied, a void record is written in its place, and the transaction is refused when it comes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.bucket_items import snapshot_of
from zae_limiter.stores.dynamodb.bucket_writer import WriteEvent
from zae_limiter.stores.dynamodb.config_versions import after_taking
from zae_limiter.stores.dynamodb.expressions import Write
from zae_limiter.stores.dynamodb.intents import Intent
from zae_limiter.stores.dynamodb.lease_items import put_record, record_of
from zae_limiter.stores.dynamodb.operations.acquire_sharded import THROTTLES_BORNE
from zae_limiter.stores.dynamodb.operations.leases import bookings_of
from zae_limiter.stores.dynamodb.requests import CHECK_FAILED, CONDITION_FAILED, NoAnswer, Reason, Refused
from zae_limiter.stores.dynamodb.schema import Key
from zae_limiter.stores.dynamodb.table_client import Deadline
from zae_limiter.stores.dynamodb.tallies import cascaded_tallies
from zae_limiter.stores.lease_records import (
    LeaseRecord,
    RecordChange,
    RecordMoved,
    RecordRequest,
    RecordState,
    answer_from,
    new_record,
)
from zae_limiter.stores.protocol import Grant

if TYPE_CHECKING:
    from zae_limiter.stores.dynamodb.operations.acquire import Acquire
    from zae_limiter.stores.dynamodb.operations.acquire_legs import AcquireLeg


class DrawRecord:
    """The record of one draw, as far as it is known."""

    def __init__(self, acquire: Acquire, request: RecordRequest) -> None:
        self.acquire = acquire
        self.request = request
        self.seen: LeaseRecord | None = None
        """What is there: void, or expired. A live one is the answer."""
        self.written: LeaseRecord | None = None
        """What this draw has written."""
        self.in_doubt = False
        """A try of it was sent, and its answer was lost."""

    def write(self) -> Plan[Grant | None]:
        """Try to write every leg and the record. A grant, if the request was granted before."""
        acquire, parts = self.acquire, self.acquire.parts
        writes, spans = self._writes()
        grant = Grant(tuple(leg.paid_leg() for leg in acquire.legs), acquire.draw.wanted, (), (), acquire.now)
        record = new_record(self.request, acquire.draw, grant, acquire.now, self.seen)
        ns = yield from parts.namespace.ns(acquire.deadline)
        put = put_record(parts.client, ns, record, self._version, acquire.now, acquire.deadline)
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
            return self._answer(None if reasons[-1].item is None else record_of(reasons[-1].item))
        yield from self._hear(spans, reasons)
        return None

    @property
    def _version(self) -> int | None:
        return None if self.seen is None else self.seen.version

    def _answer(self, found: LeaseRecord | None) -> Grant | None:
        """The grant that is recorded. ``None``: what is there is void, or has expired, or is gone."""
        self.seen = found
        alive = found if found is not None and found.expires_at > self.acquire.now else None
        return answer_from(alive, self.request)

    def _writes(self) -> tuple[list[Write], list[tuple[AcquireLeg, Sequence[tuple[Key, Mapping[str, int]]]]]]:
        """The writes of all legs, and which of them are whose."""
        acquire, parts = self.acquire, self.acquire.parts
        writes: list[Write] = []
        spans: list[tuple[AcquireLeg, Sequence[tuple[Key, Mapping[str, int]]]]] = []
        for leg in acquire.legs:
            payers = leg.payers or [(leg.key, leg.deltas)]
            spans.append((leg, payers))
            if leg.payers:
                writes += self._updates_of_payers(leg)
            elif leg.snapshot is None:
                call = parts.writer.call_to_create(leg, leg.terms, acquire.now, acquire.deadline)
                writes.append({"Put": dict(call.params)})
            else:
                writes.append({"Update": dict(acquire.params_of(leg))})
        return writes, spans

    def _updates_of_payers(self, leg: AcquireLeg) -> list[Write]:
        """What several shards pay together."""
        acquire, parts = self.acquire, self.acquire.parts
        updates: list[Write] = []
        for place, (key, deltas) in enumerate(leg.payers):
            cached = parts.cache.get(key)
            assert cached is not None
            tallies = cascaded_tallies(leg.leg, deltas, int(place == 0))
            intent = Intent(deltas, deltas, grants=int(place == 0), exactly=leg.exactly, tallies=tallies)
            params = parts.writer.params(key, cached.snapshot, intent, acquire.now, leg.write_id, acquire.deadline)
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
            for place, (key, deltas) in enumerate(payers):
                write = next(left)
                cached = parts.cache.get(key)
                if "Put" in write:
                    snapshot = snapshot_of(write["Put"]["Item"])
                    yield from parts.writer.see(key, snapshot, acquire.now)
                    yield from parts.propagation.check_terms_of_new(key, leg.terms, acquire.now, acquire.deadline)
                elif cached is not None:
                    snapshot = after_taking(
                        cached.snapshot, leg.terms, deltas, acquire.now, leg.write_id, grants=int(place == 0)
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
        request = self.request
        grant = Grant((), {}, (), (), now)
        fence = new_record(request, self.acquire.draw, grant, now, self.seen)
        void = _voided(fence)
        while True:
            put = put_record(parts.client, ns, void, self._version, now, deadline)
            reasons = yield from parts.client.transact([put], deadline)
            if not reasons:
                self.seen, self.in_doubt = void, False
                return None
            item = reasons[0].item
            found = self._answer(None if item is None else record_of(item))
            if found is not None:
                self.in_doubt = False
                return found
            if self.seen is not None and self.seen.writer == request.writer and self.seen.state is RecordState.VOID:
                self.in_doubt = False  # an earlier try to write it, whose answer was lost
                return None
            void = _voided(new_record(request, self.acquire.draw, grant, now, self.seen))

    def undo(self, deadline: Deadline) -> Plan[None]:
        """The caller was interrupted: what was taken comes back, and the record is void."""
        record = self.written
        if record is None:
            found = yield from self.fence(deadline)
            record = None if found is None else found.record
        if record is None or record.writer != self.request.writer or record.state is not RecordState.OPEN:
            return
        parts = self.acquire.parts
        ns = yield from parts.namespace.ns(deadline)
        owed = [(posting.leg, posting.deltas_milli) for posting in record.grant().give_back()]
        back = parts.settling.writes_of(ns, owed, grants=-1)
        change = RecordChange(record.version, record.moved(state=RecordState.VOID, written={}))
        with suppress(RecordMoved):  # a repetition of the request was answered by it: the lease goes on there
            yield from parts.leases.book(ns, bookings_of(back), change, self.acquire.now, deadline)
        self.written = None


def _voided(record: LeaseRecord) -> LeaseRecord:
    return replace(record, state=RecordState.VOID, granted={}, written={})
