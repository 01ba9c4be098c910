"""Lowering a bucket to what a provider says is left, or an operator.

A level becomes the lesser of itself and a number. Each shard is lowered to its share of the number by one conditional
write, so that together they never hold more. The write demands that the shard is above its share, and sets it there:
one that arrives for the second time finds the shard at its share, or takes what has accrued since, and mints nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from zae_limiter.bucket import MILLI, share
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot, snapshot_of
from zae_limiter.stores.dynamodb.bucket_writer import BucketWrite
from zae_limiter.stores.dynamodb.config_resolver import ConfigResolver
from zae_limiter.stores.dynamodb.expressions import Update
from zae_limiter.stores.dynamodb.intents import Intent, Terms
from zae_limiter.stores.dynamodb.namespace import Namespace
from zae_limiter.stores.dynamodb.operations.audit import AuditEntry, audited
from zae_limiter.stores.dynamodb.operations.propagate import Propagation
from zae_limiter.stores.dynamodb.operations.settle import SettlementWriter, made_by
from zae_limiter.stores.dynamodb.schema import Key, bucket_key
from zae_limiter.stores.dynamodb.table_client import Deadline, commit, verb
from zae_limiter.stores.dynamodb.write_forms import update
from zae_limiter.stores.limit_statuses import check_not_held, check_own_names, no_limits


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
