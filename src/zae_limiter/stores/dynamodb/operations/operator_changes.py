"""What operators do to buckets: give tokens, fill them again (under a key, with its record), lower them.

**Lowering** is for what a provider says is left, too: a level becomes the lesser of itself and a number. Each shard is
lowered to its share of the number by one conditional write, so that together they never hold more. The write demands
that the shard is above its share, and sets it there: one that arrives for the second time finds the shard at its
share, or takes what has accrued since, and mints nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from typing import NamedTuple

from zae_limiter.bucket import MILLI, share
from zae_limiter.exceptions import ValidationError
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot, snapshot_of
from zae_limiter.stores.dynamodb.bucket_write import BucketWrite
from zae_limiter.stores.dynamodb.config_resolver import ConfigResolver
from zae_limiter.stores.dynamodb.expressions import Update, Write
from zae_limiter.stores.dynamodb.intents import Intent, Terms
from zae_limiter.stores.dynamodb.items import unless_broken
from zae_limiter.stores.dynamodb.namespace import Namespace
from zae_limiter.stores.dynamodb.operations.audit import AuditEntry, audited
from zae_limiter.stores.dynamodb.operations.leases import Booking, LeaseRecords, put_record
from zae_limiter.stores.dynamodb.operations.paging import AT_ONCE, side_by_side
from zae_limiter.stores.dynamodb.operations.propagate import Propagation
from zae_limiter.stores.dynamodb.operations.settle import SettlementWriter
from zae_limiter.stores.dynamodb.operations.shard_life import made_by
from zae_limiter.stores.dynamodb.operations.status import StatusReader, by_bucket
from zae_limiter.stores.dynamodb.requests import Contended
from zae_limiter.stores.dynamodb.schema import Key, bucket_key, shard_key
from zae_limiter.stores.dynamodb.table_client import WRITES_AT_ONCE, Deadline, commit, persist, verb
from zae_limiter.stores.dynamodb.write_forms import update
from zae_limiter.stores.lease_records import LeaseRecord, RecordChange, RecordMoved
from zae_limiter.stores.limit_statuses import check_liftable, check_not_held, check_own_names, no_limits
from zae_limiter.stores.operator_changes import Credit, Reset, earlier_result, key_record, record_id_of_key


class Filling(NamedTuple):
    """A write that fills one shard, and its id."""

    write_id: str
    write: Write


class OperatorChanges:
    """The verbs of operators on buckets."""

    def __init__(
        self, namespace: Namespace, leases: LeaseRecords, looks: StatusReader, propagation: Propagation
    ) -> None:
        self.namespace = namespace
        self.client = namespace.client
        self.cache = namespace.cache
        self.leases = leases
        self.looks = looks
        self.propagation = propagation

    @verb
    def credit(self, credit: Credit, now: int) -> Plan[bool]:
        deadline = yield from self.client.new_deadline()
        ns = yield from self.namespace.checked_ns(deadline)
        now, deadline = yield from self.namespace.checked_time(now, deadline)
        known = yield from self._known(ns, credit.key, now, deadline)
        if earlier_result(credit, known) is not None:
            return False
        resolver = self.leases.settling.resolver
        resolved = yield from resolver.resolved_with_way(credit.entity_id, credit.resource, deadline, fresh=True)
        terms = resolved.terms()
        if terms is None:
            raise no_limits(credit.entity_id, credit.resource)
        check_own_names(terms.leg, credit.amounts)
        check_not_held(terms.leg, credit.amounts, "consume")
        first = bucket_key(ns, credit.entity_id, credit.resource)
        milli = {name: amount * MILLI for name, amount in credit.amounts.items()}
        booking = Booking(first, terms.leg, {first: {name: -amount for name, amount in milli.items()}}, usage={})
        if credit.above:
            check_liftable(terms.leg, credit.amounts)
            booking = Booking(first, terms.leg, lifts=milli, terms=terms, usage={})
        record = replace(key_record(credit, credit.key, 1, now), writer=self.client.write_ids.token())
        entry = AuditEntry(credit.entity_id, "granted", credit.resource, credit.principal, credit.audited)
        event = audited(self.client, ns, entry, now, deadline)
        try:
            yield from self.leases.book(ns, [booking], RecordChange(0, record), now, deadline, [event])
        except RecordMoved as moved:
            return earlier_result(credit, moved.found) is None
        self.cache.forget_denials((first,))
        return True

    @verb
    def reset(self, reset: Reset, now: int) -> Plan[int]:
        deadline = yield from self.client.new_deadline()
        ns = yield from self.namespace.checked_ns(deadline)
        now, deadline = yield from self.namespace.checked_time(now, deadline)
        if reset.key is not None:
            return (yield from persist(self.client, partial(self._reset_once, ns, reset, reset.key, now)))
        shards = yield from self.looks.buckets_of(ns, reset.entity_id, reset.resource, now, deadline)
        number = len(by_bucket(shards.values()))
        yield from self._fill_all(ns, shards, reset, now)
        self.cache.forget_denials()
        deadline = yield from self.client.new_deadline()
        yield from commit(self.client, [self._event(ns, reset, number, now, deadline)], deadline)
        return number

    def _fill_all(self, ns: str, shards: Mapping[Key, BucketSnapshot], reset: Reset, now: int) -> Plan[None]:
        """Fill these, some at once, and those that are split off meanwhile.

        The shards of a bucket that lends are filled together: one after the other, those that are full and those that
        are not yet would lend more than there is.
        """
        together = {shard_key(key, 0) for key, one in shards.items() if one.shards > 1 and one.holds}
        for first in sorted(together):
            yield from self._fill_together(first, reset, now)
        found = [(key, one) for key, one in shards.items() if shard_key(key, 0) not in together]
        looked_for = set(shards)
        while found:
            deadline = yield from self.client.new_deadline()
            some, found = found[:AT_ONCE], found[AT_ONCE:]
            fill = self.propagation.fill
            filled = yield from side_by_side([fill(*one, now, deadline, only=reset.limits) for one in some])
            # Shards that were split off before they were filled, and after they were read, have none of it.
            made = [key for key in made_by(filled, ns) if key not in looked_for]
            looked_for.update(made)
            items = yield from self.client.get_all(made, deadline)
            new = [(key, unless_broken(snapshot_of, item)) for key, item in items.items()]
            found += [(key, snapshot) for key, snapshot in new if snapshot is not None]

    def _fill_together(self, first: Key, reset: Reset, now: int) -> Plan[None]:
        """Fill all shards of a bucket in one transaction."""
        deadline = yield from self.client.new_deadline()
        write_ids: set[str] = set()
        for tries in count(1):
            family = yield from self.leases.settling.look_at_all_shards(first, now, deadline)
            if any(write_ids.intersection(shard.recent_writers) for shard in family.values()):
                return  # an earlier try, whose answer was lost
            writes = [self._filling(place, shard, reset, now, deadline) for place, shard in family.items()]
            write_ids |= {filling.write_id for filling in writes}
            if not writes or not (yield from self.client.transact([filling.write for filling in writes], deadline)):
                break
            yield from self.client.pause(tries, deadline, Contended())
        for place in self.cache.shards_of(first):
            self.cache.forget(place)

    def _reset_once(self, ns: str, reset: Reset, key: str, now: int, deadline: Deadline) -> Plan[int]:
        """Fill all of them in one transaction with the record of the key."""
        known = yield from self.leases.read(ns, record_id_of_key(key), deadline)
        earlier = earlier_result(reset, known if known is not None and known.expires_at > now else None)
        if earlier is not None:
            return earlier
        shards = yield from self.looks.buckets_of(ns, reset.entity_id, reset.resource, now, deadline)
        if len(shards) + 2 > WRITES_AT_ONCE:
            raise ValidationError("key", key, "so many buckets cannot be reset at once: name a resource, or no key")
        number = len(by_bucket(shards.values()))
        writes = [self._filling(place, shard, reset, now, deadline).write for place, shard in shards.items()]
        record = key_record(reset, key, number, now)
        seen = None if known is None else known.version
        if known is not None:
            record = replace(record, version=known.version + 1)
        writes.append(put_record(self.client, ns, record, seen, now, deadline))
        writes.append(self._event(ns, reset, number, now, deadline))
        yield from commit(self.client, writes, deadline)
        for place in shards:
            self.cache.forget(place)
        self.cache.forget_denials()
        return number

    def _filling(self, place: Key, shard: BucketSnapshot, reset: Reset, now: int, deadline: Deadline) -> Filling:
        write_id = self.client.write_ids.write_id(now)
        intent = Intent({}, fill=True, rebase=True, only=reset.limits)
        params = self.leases.writer.params(place, shard, intent, max(now, shard.rf + 1), write_id, deadline)
        return Filling(write_id, {"Update": dict(params)})

    def _known(self, ns: str, key: str, now: int, deadline: Deadline) -> Plan[LeaseRecord | None]:
        """What was done under a key."""
        record = yield from self.leases.read(ns, record_id_of_key(key), deadline)
        return record if record is not None and record.expires_at > now else None

    def _event(self, ns: str, reset: Reset, number: int, now: int, deadline: Deadline) -> Write:
        details = reset.audited(number)
        entry = AuditEntry(reset.entity_id, "buckets_reset", reset.resource, reset.principal, details)
        return audited(self.client, ns, entry, now, deadline)


class Lowering:
    """The verb that lowers the levels of one bucket."""

    def __init__(
        self, namespace: Namespace, settling: SettlementWriter, resolver: ConfigResolver, propagation: Propagation
    ) -> None:
        self.namespace = namespace
        self.client = namespace.client
        self.settling = settling
        self.resolver = resolver
        self.propagation = propagation

    @verb
    def lower(
        self, entity_id: str, resource: str, levels: Mapping[str, int], principal: str | None, now: int
    ) -> Plan[None]:
        deadline = yield from self.client.new_deadline()
        ns = yield from self.namespace.checked_ns(deadline)
        now, deadline = yield from self.namespace.checked_time(now, deadline)
        terms = yield from self._terms(entity_id, resource, levels, deadline)
        check_not_held(terms.leg, levels, "levels")
        found = yield from self._shards(bucket_key(ns, entity_id, resource), terms, now, deadline)
        milli = _exceeded(found, {name: level * MILLI for name, level in levels.items()}, now)
        looked_for = set(found)
        while found and milli:
            seen = []
            for key, snapshot in found.items():
                seen.append((yield from self._lower_one(key, snapshot, terms, milli, now, deadline)))
            # Shards that were split off before theirs was lowered, and after it was read, hold what it held.
            made = [key for key in made_by(seen, ns) if key not in looked_for]
            looked_for.update(made)
            items = yield from self.client.get_all(made, deadline)
            found = {key: snapshot_of(item) for key, item in items.items()}
        if principal is not None:
            entry = AuditEntry(entity_id, "bucket_lowered", resource, principal, {"levels": dict(levels)})
            yield from commit(self.client, [audited(self.client, ns, entry, now, deadline)], deadline)

    def _terms(self, entity_id: str, resource: str, levels: Mapping[str, int], deadline: Deadline) -> Plan[Terms]:
        """What the bucket obeys: as remembered if that has the limits, else as it is configured."""
        for fresh in (False, True):
            resolved = yield from self.resolver.resolved_with_way(entity_id, resource, deadline, fresh=fresh)
            terms = resolved.terms()
            if terms is not None and terms.leg.names.issuperset(levels):
                return terms
        if terms is None:
            raise no_limits(entity_id, resource)
        check_own_names(terms.leg, levels, "levels")
        return terms

    def _shards(self, first: Key, terms: Terms, now: int, deadline: Deadline) -> Plan[dict[Key, BucketSnapshot]]:
        """The shards of the bucket as they are. One that is not there is full, and begins its life here."""
        found = yield from self.settling.look_at_all_shards(first, now, deadline)
        if first not in found:
            yield from self.settling.write_all([BucketWrite(first, terms.leg, {})], now, deadline)
            found = yield from self.settling.look_at_all_shards(first, now, deadline)
        return found

    def _lower_one(
        self,
        key: Key,
        snapshot: BucketSnapshot,
        terms: Terms,
        milli: Mapping[str, int],
        now: int,
        deadline: Deadline,
    ) -> Plan[BucketSnapshot | None]:
        """Lower one shard. The shard as it is then; ``None`` if it is gone, and with it what it held."""
        seen: BucketSnapshot | None = snapshot
        if not snapshot.balances.keys() >= milli.keys():  # it has yet to get one of the limits, which is full then
            seen = yield from self.propagation.adopt(key, snapshot, terms, now, deadline)
        if seen is None:
            return None
        write_id = self.client.write_ids.write_id(now)
        lowered = partial(self._write, milli=milli, now=now, write_id=write_id, deadline=deadline)
        return (yield from self.propagation.write_until_done(key, seen, lowered, now, write_id, deadline))

    def _write(
        self, seen: BucketSnapshot, *, milli: Mapping[str, int], now: int, write_id: str, deadline: Deadline
    ) -> Update | None:
        """What lowers a shard as it was seen; nothing if it is low enough."""
        most = {name: share(level, seen.shard, seen.shards) for name, level in milli.items() if name in seen.balances}
        moment = max(now, seen.rf)
        if all(seen.balances[name].level(moment) <= level for name, level in most.items()):
            return None
        margin = self.client.ttl_margin_s
        intent = Intent({}, most=most)
        return update(seen, intent, now=now, write_id=write_id, epoch_s=deadline.epoch_s, ttl_margin_s=margin)


def _exceeded(found: Mapping[Key, BucketSnapshot], milli: Mapping[str, int], now: int) -> dict[str, int]:
    """Those of the levels that the shards exceed together: how it is shared out is of no concern otherwise.

    A limit that a shard has yet to get is full there.
    """
    exceeded = {}
    for name, level in milli.items():
        shards = [(snapshot.balances.get(name), max(now, snapshot.rf)) for snapshot in found.values()]
        held = sum(balance.level(moment) for balance, moment in shards if balance is not None)
        if held > level or any(balance is None for balance, _ in shards):
            exceeded[name] = level
    return exceeded
