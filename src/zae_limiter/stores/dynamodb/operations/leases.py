"""Leases with a record: read, listed, and settled together with their record, in one transaction.

Nothing here is left in doubt for long. What a transaction was to do is in the record it moves: after an answer was
lost, the record says whether it was done, and a repetition that was done already changes nothing.

A record (see ``stores.lease_records``) is one item. It is written on the condition that it is as it was seen: not
there, or at the version that was read. Versions only grow, also when a record that is void or has expired is replaced.
So a write that arrives late is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from zae_limiter.bucket import MILLI, share
from zae_limiter.models.moments import LAST_MOMENT_MS
from zae_limiter.models.reports import Page
from zae_limiter.running.plan import Plan
from zae_limiter.stores.cursors import decode_cursor, page_of
from zae_limiter.stores.dynamodb.bucket_cache import is_far_ahead
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot, snapshot_of
from zae_limiter.stores.dynamodb.bucket_write import BucketWrite, BucketWriter
from zae_limiter.stores.dynamodb.config_versions import after_write
from zae_limiter.stores.dynamodb.departures import coming_back
from zae_limiter.stores.dynamodb.expressions import Write
from zae_limiter.stores.dynamodb.intents import NO_SLOTS, NONE_WATCHED, Intent, Terms, cascaded_tallies, counted_in
from zae_limiter.stores.dynamodb.items import decoder
from zae_limiter.stores.dynamodb.namespace import Namespace
from zae_limiter.stores.dynamodb.operations.paging import fetched_rows_of, names_after, whole_namespace
from zae_limiter.stores.dynamodb.operations.settle import SettlementWriter
from zae_limiter.stores.dynamodb.requests import CHECK_FAILED, Contended, Item, Reason, Refused
from zae_limiter.stores.dynamodb.schema import (
    Key,
    bucket_key,
    encode_item,
    gsi4,
    lease_filed_as,
    lease_key,
    number_in,
    shard_key,
)
from zae_limiter.stores.dynamodb.shards import fits, placed
from zae_limiter.stores.dynamodb.slot_work import SettleWork, life_on
from zae_limiter.stores.dynamodb.table_client import Deadline, TableClient, verb
from zae_limiter.stores.dynamodb.write_forms import lifted_item
from zae_limiter.stores.lease_records import (
    LeaseRecord,
    RecordChange,
    RecordState,
    check_change,
    record_from_text,
    record_to_text,
)
from zae_limiter.stores.limit_statuses import check_extra
from zae_limiter.stores.protocol import Leg, Posting, Settlement

EXPIRY_MARGIN_S = 3_600
"""How long an item is kept after its record has expired: clocks differ."""


def put_record(
    client: TableClient, ns: str, record: LeaseRecord, seen: int | None, now: int, deadline: Deadline
) -> Write:
    """The write of a record that was ``seen`` at this version, or not seen at all."""
    key = lease_key(ns, record.id)
    item = encode_item(
        {
            "PK": key.pk,
            "SK": key.sk,
            "st": str(record.state),
            "ver": record.version,
            "exp": record.expires_at,
            "body": record_to_text(record),
            "ttl": deadline.epoch_s + max(record.expires_at - now, 0) // 1000 + EXPIRY_MARGIN_S,
            **gsi4(ns, key.pk, f"LEASE#{record.entity_id}#{lease_filed_as(record.entity_id, record.id)}"),
        }
    )
    condition: Mapping[str, Any] = {"ConditionExpression": "attribute_not_exists(PK)"}
    if seen is not None:
        condition = {"ConditionExpression": "ver = :seen", "ExpressionAttributeValues": {":seen": {"N": str(seen)}}}
    return {
        "Put": {
            "TableName": client.table,
            "Item": item,
            **condition,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
    }


@decoder("the record of a lease")
def record_of(item: Item) -> LeaseRecord:
    """The record in an item. Raises ``BrokenItem``."""
    record_id = item["PK"]["S"].partition("/LEASE#")[2]
    version, expires_at = number_in(item["ver"], 0), number_in(item["exp"], 0, LAST_MOMENT_MS)
    return record_from_text(record_id, item["st"]["S"], version, expires_at, item["body"]["S"])


@dataclass(slots=True)
class Booking:
    """What one bucket is to book: by the shards that paid, in millitokens."""

    first: Key
    leg: Leg
    by_shard: dict[Key, dict[str, int]] = field(default_factory=dict)
    terms: Terms | None = None
    """What the bucket is to obey; else it obeys what it does, or what it obeyed."""
    grants: int = 0
    """What is added to the count of grants."""
    usage: Mapping[str, int] | None = None
    """What is counted, where that is not what moves."""
    lifts: Mapping[str, int] = field(default_factory=dict)
    """So much more these limits hold in this period, over all shards."""
    works: dict[Key, SettleWork] = field(default_factory=dict)
    """What happens to calls in flight, by the shards that lent."""

    def decide(self, family: Mapping[Key, BucketSnapshot], by_shard: dict[Key, dict[str, int]], now: int) -> None:
        """Decide what happens to calls in flight, by shards that were just read; those concerned join ``by_shard``."""
        for key, work in self.works.items():
            work.fresh = True
            if key in family:
                work.decide(family[key], now)
                if not work.does_nothing:
                    by_shard.setdefault(key, {})
            else:
                work.forget()

    @property
    def takes(self) -> bool:
        """Whether slots are taken without asking."""
        return any(change.slots > 0 for work in self.works.values() for change in work.changes)

    def total(self) -> dict[str, int]:
        """Over all shards."""
        total: dict[str, int] = {}
        for deltas in self.by_shard.values():
            for name, delta in deltas.items():
                total[name] = total.get(name, 0) + delta
        return total


@dataclass(slots=True)
class ShardWrite:
    """One shard of a transaction: what it bears, and how it was seen (``None``: it is not there)."""

    key: Key
    deltas: Mapping[str, int]
    snapshot: BucketSnapshot | None
    write: Write
    moment: int
    write_id: str
    grants: int = 0
    forgotten: bool = False
    work: SettleWork | None = None


class LeaseRecords:
    """The verbs on records of leases, and settlements that go with one."""

    def __init__(self, namespace: Namespace, writer: BucketWriter, settling: SettlementWriter) -> None:
        self.namespace = namespace
        self.client = namespace.client
        self.cache = namespace.cache
        self.writer = writer
        self.settling = settling

    # Reading

    @verb
    def lease_record(self, record_id: str, now: int) -> Plan[LeaseRecord | None]:
        deadline = yield from self.client.new_deadline()
        ns = yield from self.namespace.checked_ns(deadline)
        record = yield from self.read(ns, record_id, deadline)
        return record if record is not None and record.expires_at > now else None

    def read(self, ns: str, record_id: str, deadline: Deadline) -> Plan[LeaseRecord | None]:
        """The record as it is, expired or not."""
        item = yield from self.client.get(lease_key(ns, record_id), deadline)
        return None if item is None else record_of(item)

    @verb
    def lease_records(
        self, entity_id: str | None, limit: int, cursor: str | None, now: int
    ) -> Plan[Page[LeaseRecord]]:
        ns = yield from self.namespace.checked_ns()
        after = decode_cursor(cursor, str, str)
        prefix, begin = "LEASE#", None if after is None else "#".join(map(str, after))
        if entity_id is not None:
            prefix, begin = f"LEASE#{entity_id}#", None if after is None else str(after[1])

        def live(item: Item) -> LeaseRecord | None:
            record = record_of(item)
            return record if record.expires_at > now and record.state is not RecordState.DONE else None

        keys = whole_namespace(self.client, ns, between=names_after(prefix, begin))
        rows = yield from fetched_rows_of(self.client, keys, limit, live)
        return page_of(rows, limit, lambda record: (record.entity_id, lease_filed_as(record.entity_id, record.id)))

    # Settling

    @verb
    def settle(
        self, postings: Sequence[Posting], now: int, change: RecordChange, settlement: Settlement
    ) -> Plan[None]:
        """Book all of it, and make the change; or nothing, and raise ``RecordMoved``."""
        deadline = yield from self.client.new_deadline()
        ns = yield from self.namespace.ns(deadline)
        now, deadline = yield from self.namespace.checked_time(now, deadline)
        bookings = bookings_of(self.settling.writes_of(ns, postings))
        for posting in postings:
            if posting.usage_milli is not None:
                first = bucket_key(ns, *posting.leg.place)
                next(booking for booking in bookings if booking.first == first).usage = posting.usage_milli
        yield from self.book(ns, bookings, change, now, deadline)
        settlement.postings = ()

    def book(
        self,
        ns: str,
        bookings: Sequence[Booking],
        change: RecordChange,
        now: int,
        deadline: Deadline,
        also: Sequence[Write] = (),
    ) -> Plan[bool]:
        """The same. Whether it was done now; ``False``: by an earlier try. What is written ``also`` goes along."""
        seen: LeaseRecord | None = None
        is_known = change.expected_version == 0  # else it is at the version that was expected
        families: dict[Key, dict[Key, BucketSnapshot]] = {}
        tries = 0
        while True:
            shards: list[ShardWrite] = []
            for booking in bookings:
                shards += yield from self._shard_writes(booking, families, now, deadline)
            version = (None if seen is None else seen.version) if is_known else change.expected_version
            record = _numbered(change, seen)
            writes = [*(shard.write for shard in shards), put_record(self.client, ns, record, version, now, deadline)]
            reasons = yield from self.client.transact([*writes, *also], deadline)
            if not reasons:
                self._remember(shards, now)
                _note_done(bookings)
                return True
            if reasons[len(shards)].code == CHECK_FAILED:
                item = reasons[len(shards)].item
                seen = None if item is None else record_of(item)
                alive = seen if seen is not None and seen.expires_at > now else None
                if seen == record or not check_change(change, alive):
                    _note_done(bookings)
                    return False
                is_known = True
            elif not self._learn(shards, reasons, families, now):
                raise Refused("TransactionCanceledException", str(reasons), reasons=reasons)
            tries += 1
            yield from self.client.pause(tries, deadline, Contended())

    def _shard_writes(
        self, booking: Booking, families: dict[Key, dict[Key, BucketSnapshot]], now: int, deadline: Deadline
    ) -> Plan[list[ShardWrite]]:
        """What is to be written of one bucket, as it was last seen."""
        family = families.get(booking.first)
        if family is None:
            family = yield from self.settling.look_at_all_shards(booking.first, now, deadline)
            families[booking.first] = family
        if booking.lifts:
            return (yield from self._lifted(booking, family, now, deadline))
        if booking.first not in family:
            for work in booking.works.values():
                work.forget()
            is_idle = not (booking.total() or booking.grants or booking.takes)
            if booking.usage is not None:  # what only comes back comes to a bucket that is full
                is_idle = not any(booking.usage.values()) and max(booking.total().values(), default=0) <= 0
            return [] if is_idle else [(yield from self._rebuilt(booking, now, deadline))]
        by_shard = {key if key in family else booking.first: deltas for key, deltas in booking.by_shard.items()}
        if len(by_shard) < len(booking.by_shard):  # shards are gone: the first speaks for them
            by_shard = {booking.first: booking.total()}
        owed, in_debt, moment = booking.leg.limits, frozenset[str](), now
        whole = len(family) == 1 or all(fits(family[key], deltas, owed, now) for key, deltas in by_shard.items())
        if not whole:
            near = {key: shard for key, shard in family.items() if not is_far_ahead(shard, now)}
            home = next((key for key in by_shard if key in near), booking.first)
            concerned = {**booking.total(), **counted_in(booking.usage or {})}
            coming = (one.rf + bool(coming_back(one, concerned, owed)) for one in near.values())
            moment = max(now, *coming)
            parts, in_debt = placed(home, booking.total(), owed, near, moment)
            by_shard = {key: dict(deltas) for key, deltas in parts.items()}
        write_id = self.client.write_ids.write_id(moment)
        shards = []
        booking.decide(family, by_shard, moment)
        for place, (key, deltas) in enumerate(by_shard.items()):
            snapshot, grants = family[key], 0 if place else booking.grants
            moved = booking.works.get(key)
            usage = booking.usage if booking.usage is None or not place else {}
            if not any((deltas, grants, in_debt, usage)) and (moved is None or moved.does_nothing):
                continue
            counted = {**(deltas if usage is None else usage), **({} if moved is None else moved.counted)}
            intent = Intent(
                deltas,
                grants=grants,
                held=snapshot.shards > 1 and not is_far_ahead(snapshot, now),
                exactly=in_debt,
                owed=owed,
                usage=usage,
                tallies=cascaded_tallies(booking.leg, counted, grants),
                slots=NO_SLOTS if moved is None else moved.slots,
                watched=NONE_WATCHED if moved is None else moved.watched,
            )
            write: Write = {"Update": dict(self.writer.params(key, snapshot, intent, moment, write_id, deadline))}
            is_unusual = usage is not None
            shards.append(ShardWrite(key, deltas, snapshot, write, moment, write_id, grants, is_unusual, moved))
        return shards

    def _lifted(
        self, booking: Booking, family: Mapping[Key, BucketSnapshot], now: int, deadline: Deadline
    ) -> Plan[list[ShardWrite]]:
        """Every shard holds its share of it more. What shards would have that were lost is on the first."""
        terms = booking.terms
        assert terms is not None
        if booking.first not in family:
            return [(yield from self._rebuilt(booking, now, deadline))]
        given = {name: milli // MILLI for name, milli in booking.lifts.items()}
        check_extra(given, [balance for shard in family.values() for balance in shard.balances.values()], now)
        moment = max(now, *(shard.rf + 1 for shard in family.values()))
        write_id = self.client.write_ids.write_id(moment)
        left, shards = dict(booking.lifts), []
        for key, snapshot in sorted(family.items(), key=lambda one: one[0] == booking.first):
            part = {name: share(milli, snapshot.shard, snapshot.shards) for name, milli in booking.lifts.items()}
            if key == booking.first:
                part = dict(left)
            left = {name: milli - part[name] for name, milli in left.items()}
            adopted = None if snapshot.cv == terms.cv else terms
            intent = Intent({}, terms=adopted, rebase=True, lifts=part, usage={})
            write: Write = {"Update": dict(self.writer.params(key, snapshot, intent, moment, write_id, deadline))}
            shards.append(ShardWrite(key, {}, snapshot, write, moment, write_id, forgotten=True))
        return shards

    def _rebuilt(self, booking: Booking, now: int, deadline: Deadline) -> Plan[ShardWrite]:
        """A bucket that is gone comes back full, less what is booked."""
        terms = booking.terms or (yield from self.settling.terms_to_rebuild(booking.leg, deadline))
        new = BucketWrite(booking.first, booking.leg, booking.total(), grants=booking.grants)
        new.write_id = self.client.write_ids.write_id(now)
        new.usage = booking.usage
        home = booking.works.get(booking.first)
        if home is not None:
            new.inc = self.client.write_ids.incarnation()
            home.begin_life(terms.leg.limits, life_on(0, new.inc), now)
            new.work = home
        call = self.writer.call_to_create(new, terms, now, deadline)
        put = {"Put": {**call.params, "Item": lifted_item(call.params["Item"], booking.lifts)}}
        return ShardWrite(booking.first, new.deltas, None, put, now, new.write_id)

    def _remember(self, shards: Sequence[ShardWrite], now: int) -> None:
        for shard in shards:
            if shard.snapshot is None:
                self.cache.see(shard.key, snapshot_of(shard.write["Put"]["Item"]), now)
            else:
                if shard.forgotten:
                    self.cache.forget(shard.key)
                    continue
                intent = Intent(shard.deltas, grants=shard.grants)
                if shard.work is not None:
                    intent = intent._replace(slots=shard.work.slots, watched=shard.work.watched)
                self.cache.see(shard.key, after_write(shard.snapshot, intent, shard.moment, shard.write_id), now)
            gives_back = shard.work is not None and shard.work.gives_back
            if gives_back or min(shard.deltas.values(), default=0) < 0:
                self.cache.forget_denials((shard_key(shard.key, 0),))

    def _learn(
        self,
        shards: Sequence[ShardWrite],
        reasons: Sequence[Reason],
        families: dict[Key, dict[Key, BucketSnapshot]],
        now: int,
    ) -> bool:
        """How the shards are that were not as they were seen. ``False``: that was not the reason."""
        found = False
        for shard, reason in zip(shards, reasons, strict=False):
            if reason.code == CHECK_FAILED:
                found = True
                first = shard_key(shard.key, 0)
                family = families[first]
                if reason.item is not None and shard.key in family:
                    family[shard.key] = snapshot_of(reason.item)
                    self.cache.see(shard.key, family[shard.key], now)
                else:  # it is gone, or new
                    del families[first]
                    self.cache.forget(shard.key)
        return found


def _note_done(bookings: Iterable[Booking]) -> None:
    """Let every hold be what it is now."""
    for booking in bookings:
        for work in booking.works.values():
            work.note_done()


def bookings_of(writes: Iterable[BucketWrite]) -> list[Booking]:
    """What each bucket is to book, of what its shards are."""
    bookings: dict[Key, Booking] = {}
    for write in writes:
        first = shard_key(write.key, 0)
        booking = bookings.setdefault(first, Booking(first, write.leg, grants=write.grants))
        booking.by_shard[write.key] = dict(write.deltas)
        if isinstance(write.work, SettleWork):
            booking.works[write.key] = write.work
    return list(bookings.values())


def _numbered(change: RecordChange, seen: LeaseRecord | None) -> LeaseRecord:
    """The record to write: where one that is void or has expired is replaced, a version after that one's."""
    if seen is None or change.expected_version:
        return change.record
    return replace(change.record, version=seen.version + 1)
