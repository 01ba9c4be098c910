"""Looking without taking: what a draw would meet, and what operators see.

Access switches are not read for it. Those of entities are remembered with the limits, and proven by the versions that
buckets carry; the wide ones are read beside the buckets when what is known of them is no longer recent.

**Pulses** are what processes tell of themselves: one partition for all processes of a namespace, sorted by the minute
in which they expire. A process writes the same item for a minute, then the next one; the table's expiry removes the
old ones, some day. A reader asks for those that have not expired, so it never meets the old ones, however many there
are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import Final, TypeAlias

from zae_limiter.bucket import MILLI, Balance, calculate_available
from zae_limiter.models.access import live, strictest
from zae_limiter.models.limit import Limit
from zae_limiter.models.moments import LAST_MOMENT_MS
from zae_limiter.models.reports import EntityCapacity, ResourceCapacity
from zae_limiter.models.status import BucketStatus, EntityStatus
from zae_limiter.naming import TOTAL_RESOURCE
from zae_limiter.running.plan import Plan
from zae_limiter.stores.cursors import name_after
from zae_limiter.stores.dynamodb.bucket_cache import is_far_ahead, newest
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot, snapshot_of
from zae_limiter.stores.dynamodb.bucket_write import BucketWriter
from zae_limiter.stores.dynamodb.config_resolver import ConfigResolver
from zae_limiter.stores.dynamodb.config_versions import adopted, brought_back_snapshot
from zae_limiter.stores.dynamodb.intents import Terms
from zae_limiter.stores.dynamodb.items import BrokenItem, decoder, key_of, logger, unless_broken
from zae_limiter.stores.dynamodb.namespace import Namespace
from zae_limiter.stores.dynamodb.operations.config import AccessSwitches
from zae_limiter.stores.dynamodb.operations.paging import fetch, names_after, partition, whole_namespace
from zae_limiter.stores.dynamodb.operations.propagate import KEYS_PER_PAGE
from zae_limiter.stores.dynamodb.requests import Item
from zae_limiter.stores.dynamodb.schema import (
    GSI2,
    GSI3,
    Key,
    access_key,
    bucket_key,
    encode_item,
    number_in,
    pk_entity,
    pk_pulses,
    pk_resource,
    pulse_key,
)
from zae_limiter.stores.dynamodb.shards import over_shards
from zae_limiter.stores.dynamodb.table_client import Deadline, verb
from zae_limiter.stores.limit_statuses import capacity_of, limit_level, percent_used, statuses_of, tightness
from zae_limiter.stores.protocol import Draw, Leg, Look

Family: TypeAlias = Sequence[BucketSnapshot]
"""The shards of one bucket."""


class StatusReader:
    """The verbs that read buckets."""

    def __init__(
        self, namespace: Namespace, resolver: ConfigResolver, writer: BucketWriter, switches: AccessSwitches
    ) -> None:
        self.namespace = namespace
        self.client = namespace.client
        self.cache = namespace.cache
        self.resolver = resolver
        self.writer = writer
        self.switches = switches

    @verb
    def look(
        self,
        entity_id: str,
        resource: str,
        wanted: Mapping[str, int],
        limits: tuple[Limit, ...] | None,
        now: int,
    ) -> Plan[Look]:
        deadline = yield from self.client.new_deadline()
        ns = yield from self.namespace.checked_ns(deadline)
        now, deadline = yield from self.namespace.checked_time(now, deadline)
        draw = Draw(entity_id, resource, wanted, limits)
        route = yield from self.resolver.terms_for(draw, deadline, fresh=False)
        while True:
            keys = [bucket_key(ns, terms.leg.entity_id, terms.leg.resource) for terms in route.terms]
            families = yield from self._families_at(keys, now, deadline)
            known = all(_carries(families[key], terms.cv) for key, terms in zip(keys, route.terms, strict=True))
            if known or route.fresh:
                break
            route = yield from self.resolver.terms_for(draw, deadline, fresh=True)
        legs = tuple(terms.leg for terms in route.terms)
        held = [balances_of(families[key], terms, now) for key, terms in zip(keys, route.terms, strict=True)]
        access = strictest((*route.switches, *self.resolver.watch.concerning(resource)), now)
        return Look(legs, statuses_of(legs, held, wanted, {}, now), access)

    @verb
    def status(self, entity_id: str, resource: str | None, now: int) -> Plan[EntityStatus]:
        deadline = yield from self.client.new_deadline()
        ns = yield from self.namespace.checked_ns(deadline)
        now, deadline = yield from self.namespace.checked_time(now, deadline)
        if resource not in (None, TOTAL_RESOURCE):
            status = yield from self._proven_status(ns, entity_id, resource, now, deadline)
            if status is not None:
                return status
        cache = yield from self.buckets_of(ns, entity_id, resource, now, deadline)
        found = []
        for family in by_bucket(cache.values()):
            terms = yield from self._terms_of_bucket(family[0], deadline)
            found.append(_status_of(family, terms, now))
        access = yield from self.switches.switches_of(ns, entity_id, resource, now, deadline)
        return EntityStatus(entity_id, tuple(sorted(found, key=lambda bucket: bucket.resource)), access)

    def _proven_status(
        self, ns: str, entity_id: str, resource: str, now: int, deadline: Deadline
    ) -> Plan[EntityStatus | None]:
        """The bucket on one resource, with the switches that it and those of its ancestors prove.

        ``None``: there is none, or a config cannot be read.
        """
        fresh = False
        while True:
            try:
                chain = yield from self.resolver.chain(entity_id, resource, deadline, fresh=fresh)
            except BrokenItem:
                return None
            own, *ancestors = chain
            legs = [own, *(resolved for resolved in ancestors if resolved.leg is not None)]
            keys = [bucket_key(ns, resolved.entity_id, resource) for resolved in legs]
            families = yield from self._families_at(keys, now, deadline, reporting=True)
            if not families[keys[0]]:
                return None
            if all(_carries(families[key], resolved.cv) for key, resolved in zip(keys, legs, strict=True)):
                break
            if all(resolved.is_of(deadline) for resolved in chain):
                break
            fresh = True
        family = families[keys[0]]
        found = [switch for resolved in legs for switch in resolved.switches]
        access = live((*found, *self.resolver.watch.concerning(resource)), now)
        return EntityStatus(entity_id, (_status_of(family, own.terms() or terms_in(family[0]), now),), access)

    @verb
    def capacity(
        self, resource: str, limit_name: str, limit: int, cursor: str | None, now: int
    ) -> Plan[ResourceCapacity]:
        deadline = yield from self.client.new_deadline()
        ns = yield from self.namespace.checked_ns(deadline)
        now, deadline = yield from self.namespace.checked_time(now, deadline)
        cache: dict[Key, BucketSnapshot] = {}
        held: list[tuple[EntityCapacity, Sequence[str]]] = []
        start: Item | None = None
        while True:
            deadline = yield from self.client.new_deadline()
            page = yield from self.client.query(
                pk_resource(ns, resource), deadline, index=GSI2, prefix="BUCKET#", start=start, limit=KEYS_PER_PAGE
            )
            cache |= yield from self._images_at([key_of(item) for item in page.items], now, deadline, reporting=True)
            start = page.next_key
            *whole_buckets, last = by_bucket(cache.values()) or [[]]
            if start is None and last:
                whole_buckets.append(last)
            for family in whole_buckets:
                deadline = yield from self.client.new_deadline()
                terms = yield from self._terms_of_bucket(family[0], deadline)
                for balance in balances_of(family, terms, now):
                    if balance.name == limit_name:
                        left = calculate_available(balance, now)
                        whole = balance.limit.burst + balance.extra_at(now) // MILLI
                        row = EntityCapacity(family[0].entity_id, whole, left, percent_used(whole, left))
                        held.append((row, (yield from self.resolver.above(row.entity_id, resource, deadline))))
            if start is None:
                break
            cache = {
                key: snapshot for key, snapshot in cache.items() if snapshot in last
            }  # its other shards may follow
        return capacity_of(resource, limit_name, held, limit, name_after(cursor))

    @verb
    def tightest_buckets(self, resource: str | None, limit: int, now: int) -> Plan[tuple[BucketStatus, ...]]:
        ns = yield from self.namespace.checked_ns()
        now, deadline = yield from self.namespace.checked_time(now, (yield from self.client.new_deadline()))
        if resource is None:
            keys = whole_namespace(self.client, ns, prefix="BUCKET")
        else:
            keys = partition(self.client, pk_resource(ns, resource), names_after("BUCKET#", None), index=GSI2)
        sharded: list[BucketSnapshot] = []
        tightest: list[Family] = []
        while found := (yield from keys.take(KEYS_PER_PAGE)):
            items = yield from fetch(self.client, [key_of(item) for item in found])
            snapshots = [one for item in items.values() if (one := unless_broken(snapshot_of, item)) is not None]
            sharded += [snapshot for snapshot in snapshots if snapshot.shards > 1]
            tightest += [[snapshot] for snapshot in snapshots if snapshot.shards == 1]
            tightest = _tightest(tightest, limit, now)
        statuses = []
        for family in _tightest([*tightest, *by_bucket(sharded)], limit, now):
            deadline = yield from self.client.new_deadline()
            terms = yield from self._terms_of_bucket(family[0], deadline)
            statuses.append(_status_of(family, terms, now))
        return tuple(sorted(statuses, key=tightness))

    @verb
    def active_entities(self) -> Plan[tuple[str, ...]]:
        ns = yield from self.namespace.checked_ns()
        active: set[str] = set()
        for prefix in ("BUCKET", "USAGE"):
            keys = whole_namespace(self.client, ns, prefix=prefix)
            while found := (yield from keys.take(KEYS_PER_PAGE)):
                active.update(key_of(item).pk.split("#")[1] for item in found)
        return tuple(sorted(active))

    def buckets_of(
        self, ns: str, entity_id: str, resource: str | None, now: int, deadline: Deadline
    ) -> Plan[dict[Key, BucketSnapshot]]:
        """The live buckets of an entity, on one resource or on all; broken ones are left out."""
        if resource is not None:
            return (yield from self._shards_at([bucket_key(ns, entity_id, resource)], now, deadline, reporting=True))
        items = yield from self.client.query_all(pk_entity(ns, entity_id), deadline, index=GSI3, prefix="BUCKET#")
        return (yield from self._images_at(map(key_of, items), now, deadline, reporting=True))

    def _families_at(
        self, firsts: Sequence[Key], now: int, deadline: Deadline, *, reporting: bool = False
    ) -> Plan[dict[Key, list[BucketSnapshot]]]:
        """The shards of each bucket, by the key of its first one. The wide switches are recent then."""
        cache = yield from self._shards_at(firsts, now, deadline, reporting=reporting, watching=True)
        return {first: [cache[key] for key in self.cache.shards_of(first) if key in cache] for first in firsts}

    def _shards_at(
        self, firsts: Sequence[Key], now: int, deadline: Deadline, *, reporting: bool = False, watching: bool = False
    ) -> Plan[dict[Key, BucketSnapshot]]:
        """All shards of these buckets. How many there are is learned from the first ones."""
        cache = yield from self._images_at(firsts, now, deadline, reporting=reporting, watching=watching)
        for first in firsts:
            if first not in cache:
                self.cache.forget(first)
        others = [key for first in firsts for key in self.cache.shards_of(first)[1:]]
        return cache | (yield from self._images_at(others, now, deadline, reporting=reporting))

    def _images_at(
        self, keys: Iterable[Key], now: int, deadline: Deadline, *, reporting: bool = False, watching: bool = False
    ) -> Plan[dict[Key, BucketSnapshot]]:
        """The buckets that exist. A broken one is an error, unless it is for a report of several: those go without.

        ``watching``: the wide switches are read with them, if that is due.
        """
        wanted = list(keys)
        if not wanted:
            return {}
        watch = self.resolver.watch
        ns = self.namespace.known_ns
        watched = [access_key(ns)] if watching and ns is not None and watch.is_due(deadline.started) else []
        items = yield from self.client.get_all([*wanted, *watched], deadline)
        if watched:
            watch.see(items.get(watched[0]), deadline.started)
        cache = {}
        for key in wanted:
            if key in items:
                snapshot = unless_broken(snapshot_of, items[key]) if reporting else snapshot_of(items[key])
                if snapshot is not None:
                    cache[key] = yield from self.writer.see(key, snapshot, now)
        return cache

    def _terms_of_bucket(self, snapshot: BucketSnapshot, deadline: Deadline) -> Plan[Terms]:
        """What a bucket obeys: what is configured, or what it was last told."""
        try:
            resolved = yield from self.resolver.resolved_with_way(
                snapshot.entity_id, snapshot.resource, deadline, fresh=False
            )
            if resolved.cv != snapshot.cv and not resolved.is_of(deadline):
                resolved = yield from self.resolver.resolved_with_way(
                    snapshot.entity_id, snapshot.resource, deadline, fresh=True
                )
        except BrokenItem as error:
            logger.warning("by its own terms, %s on %s: %s", snapshot.entity_id, snapshot.resource, error)
            return terms_in(snapshot)
        return resolved.terms() or terms_in(snapshot)


def _status_of(family: Family, terms: Terms, now: int) -> BucketStatus:
    """A bucket, whose shards these are, as operators see it."""
    denials: dict[str, int] = {}
    for snapshot in family:
        for name, number in snapshot.denials.items():
            denials[name] = denials.get(name, 0) + number
    levels = tuple(limit_level(balance, now, denials) for balance in balances_of(family, terms, now))
    events = sum(snapshot.ev for snapshot in family)
    return BucketStatus(family[0].entity_id, family[0].resource, levels, events)


def _carries(family: Family, cv: str) -> bool:
    """Whether there is such a bucket, and all of it obeys this version."""
    return bool(family) and all(snapshot.cv == cv for snapshot in family)


def _tightest(families: Iterable[Family], limit: int, now: int) -> list[Family]:
    """The buckets with the least left, by the terms they carry themselves: to resolve all would be to read as much."""
    return nsmallest(limit, families, key=lambda family: tightness(_status_of(family, terms_in(family[0]), now)))


def by_bucket(cache: Iterable[BucketSnapshot]) -> list[list[BucketSnapshot]]:
    """Shards, by the bucket they are of."""
    families: dict[tuple[str, str], list[BucketSnapshot]] = {}
    for snapshot in cache:
        families.setdefault((snapshot.entity_id, snapshot.resource), []).append(snapshot)
    return list(families.values())


def balances_of(family: Sequence[BucketSnapshot], terms: Terms, now: int) -> tuple[Balance, ...]:
    """The limits of ``terms`` as they stand on a bucket, whose shards these are (none: it is full)."""
    family = [
        brought_back_snapshot(snapshot, newest(snapshot), now) if is_far_ahead(snapshot, now) else snapshot
        for snapshot in family
    ]
    return over_shards(family, terms, now) if len(family) > 1 else adopted(next(iter(family), None), terms, now)


def terms_in(snapshot: BucketSnapshot) -> Terms:
    """The terms a bucket carries itself."""
    limits = tuple(sorted(snapshot.limits, key=lambda limit: limit.name))
    return Terms(Leg(snapshot.entity_id, snapshot.resource, limits, "call"), snapshot.cv)


EXPIRY_MARGIN_S: Final = 600
"""How long an item is kept after its pulse has expired: clocks differ."""

PAGE: Final = 100


class Pulses:
    """The verbs on pulses."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.client = namespace.client

    @verb
    def put_pulse(self, process: str, text: str, expires_at: int, now: int) -> Plan[None]:
        deadline = yield from self.client.new_deadline()
        ns = yield from self.namespace.checked_ns(deadline)
        key = pulse_key(ns, expires_at, process)
        item = encode_item(
            {
                "PK": key.pk,
                "SK": key.sk,
                "exp": expires_at,
                "body": text,
                "ttl": deadline.epoch_s + max(expires_at - now, 0) // 1000 + EXPIRY_MARGIN_S,
            }
        )
        params = {"TableName": self.client.table, "Item": item}
        yield from self.client.ask("PutItem", params, deadline, repeatable=True)

    @verb
    def pulses(self, most: int, now: int) -> Plan[tuple[str, ...]]:
        ns = yield from self.namespace.checked_ns()
        latest: dict[str, tuple[int, str]] = {}
        between = pulse_key(ns, now, "").sk, pulse_key(ns, LAST_MOMENT_MS, "").sk
        start: Item | None = None
        while len(latest) < most:
            deadline = yield from self.client.new_deadline()
            found = yield from self.client.query(
                pk_pulses(ns), deadline, between=between, start=start, limit=PAGE, consistent=False
            )
            for item in found.items:
                process, expires_at, text = _pulse_of(item)
                if expires_at > now and expires_at >= latest.get(process, (0, ""))[0]:
                    latest[process] = expires_at, text
            start = found.next_key
            if start is None:
                break
        return tuple(text for _, text in list(latest.values())[:most])


@decoder("a pulse")
def _pulse_of(item: Item) -> tuple[str, int, str]:
    """The process, when it expires, and what it says. Raises ``BrokenItem``."""
    process = item["SK"]["S"].rpartition("#")[2]
    return process, number_in(item["exp"], 0, LAST_MOMENT_MS), item["body"]["S"]
