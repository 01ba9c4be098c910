"""Looking without taking: what a draw would meet, and what operators see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from zae_limiter.bucket import Balance, calculate_available
from zae_limiter.models.limit import Limit
from zae_limiter.models.reports import EntityCapacity, ResourceCapacity
from zae_limiter.models.status import BucketStatus, EntityStatus
from zae_limiter.running.plan import Plan
from zae_limiter.stores.cursors import name_after, page_of
from zae_limiter.stores.dynamodb.bucket_cache import is_far_ahead, newest
from zae_limiter.stores.dynamodb.bucket_writer import BucketWriter
from zae_limiter.stores.dynamodb.config_resolver import ConfigResolver
from zae_limiter.stores.dynamodb.config_versions import adopted, as_brought_back
from zae_limiter.stores.dynamodb.errors import verb
from zae_limiter.stores.dynamodb.items import BrokenItem, Image, image_of, key_of, logger, unless_broken
from zae_limiter.stores.dynamodb.namespace import Namespace
from zae_limiter.stores.dynamodb.operations.propagate import KEYS_PER_PAGE
from zae_limiter.stores.dynamodb.requests import Item
from zae_limiter.stores.dynamodb.schema import GSI2, GSI3, Key, bucket_key, pk_entity, pk_resource
from zae_limiter.stores.dynamodb.shards import over_shards
from zae_limiter.stores.dynamodb.table_client import Window
from zae_limiter.stores.dynamodb.write_forms import Terms
from zae_limiter.stores.limit_statuses import limit_level, percent_used, statuses_of
from zae_limiter.stores.protocol import Draw, Leg, Look


class Looks:
    """The verbs that read buckets."""

    def __init__(self, namespace: Namespace, resolver: ConfigResolver, writer: BucketWriter) -> None:
        self.namespace = namespace
        self.asking = namespace.asking
        self.images = namespace.images
        self.resolver = resolver
        self.writer = writer

    @verb
    def look(
        self,
        entity_id: str,
        resource: str,
        wanted: Mapping[str, int],
        limits: tuple[Limit, ...] | None,
        now: int,
    ) -> Plan[Look]:
        until = yield from self.asking.window()
        ns = yield from self.namespace.checked_ns(until)
        now, until = yield from self.namespace.checked_time(now, until)
        draw = Draw(entity_id, resource, wanted, limits)
        route = yield from self.resolver.terms_for(draw, until, fresh=False)
        while True:
            keys = [bucket_key(ns, terms.leg.entity_id, resource) for terms in route.terms]
            families = yield from self._families_at(keys, now, until)
            known = all(
                families[key] and all(image.cv == terms.cv for image in families[key])
                for key, terms in zip(keys, route.terms, strict=True)
            )
            if known or route.fresh:
                break
            route = yield from self.resolver.terms_for(draw, until, fresh=True)
        legs = tuple(terms.leg for terms in route.terms)
        held = [balances_of(families[key], terms, now) for key, terms in zip(keys, route.terms, strict=True)]
        return Look(legs, statuses_of(legs, held, wanted, {}, now))

    @verb
    def status(self, entity_id: str, resource: str | None, now: int) -> Plan[EntityStatus]:
        until = yield from self.asking.window()
        ns = yield from self.namespace.checked_ns(until)
        now, until = yield from self.namespace.checked_time(now, until)
        images = yield from self.buckets_of(ns, entity_id, resource, now, until)
        found = []
        for family in by_bucket(images.values()):
            terms = yield from self._terms_of_bucket(family[0], until)
            levels = tuple(limit_level(balance, now) for balance in balances_of(family, terms, now))
            events = sum(image.ev for image in family)
            found.append(BucketStatus(family[0].entity_id, family[0].resource, levels, events))
        return EntityStatus(entity_id, tuple(sorted(found, key=lambda bucket: bucket.resource)))

    @verb
    def capacity(
        self, resource: str, limit_name: str, limit: int, cursor: str | None, now: int
    ) -> Plan[ResourceCapacity]:
        after = name_after(cursor)
        until = yield from self.asking.window()
        ns = yield from self.namespace.checked_ns(until)
        now, until = yield from self.namespace.checked_time(now, until)
        capacity = available = 0
        images: dict[Key, Image] = {}
        rows: list[EntityCapacity] = []
        start: Item | None = None
        while True:
            until = yield from self.asking.window()
            page = yield from self.asking.query(
                pk_resource(ns, resource), until, index=GSI2, prefix="BUCKET#", start=start, limit=KEYS_PER_PAGE
            )
            images |= yield from self._images_at([key_of(item) for item in page.items], now, until, reporting=True)
            start = page.next_key
            *whole_buckets, last = by_bucket(images.values()) or [[]]
            if start is None and last:
                whole_buckets.append(last)
            for family in whole_buckets:
                until = yield from self.asking.window()
                terms = yield from self._terms_of_bucket(family[0], until)
                for balance in balances_of(family, terms, now):
                    if balance.name == limit_name:
                        whole, left = balance.limit.burst, calculate_available(balance, now)
                        capacity, available = capacity + whole, available + left
                        rows.append(EntityCapacity(family[0].entity_id, whole, left, percent_used(whole, left)))
            if start is None:
                break
            images = {key: image for key, image in images.items() if image in last}  # its other shards may follow
        rows.sort(key=lambda row: row.entity_id)
        listed = [row for row in rows if after is None or row.entity_id > after][: limit + 1]
        return ResourceCapacity(
            resource=resource,
            limit_name=limit_name,
            total_capacity=capacity,
            total_available=available,
            utilization_pct=percent_used(capacity, available),
            entities=page_of(listed, limit, lambda row: (row.entity_id,)),
        )

    def buckets_of(
        self, ns: str, entity_id: str, resource: str | None, now: int, until: Window
    ) -> Plan[dict[Key, Image]]:
        """The live buckets of an entity, on one resource or on all; broken ones are left out."""
        if resource is not None:
            return (yield from self._shards_at([bucket_key(ns, entity_id, resource)], now, until, reporting=True))
        items = yield from self.asking.query_all(pk_entity(ns, entity_id), until, index=GSI3, prefix="BUCKET#")
        return (yield from self._images_at(map(key_of, items), now, until, reporting=True))

    def _families_at(self, firsts: Sequence[Key], now: int, until: Window) -> Plan[dict[Key, list[Image]]]:
        """The shards of each bucket, by the key of its first one."""
        images = yield from self._shards_at(firsts, now, until)
        return {first: [images[key] for key in self.images.shards_of(first) if key in images] for first in firsts}

    def _shards_at(
        self, firsts: Sequence[Key], now: int, until: Window, *, reporting: bool = False
    ) -> Plan[dict[Key, Image]]:
        """All shards of these buckets. How many there are is learned from the first ones."""
        images = yield from self._images_at(firsts, now, until, reporting=reporting)
        for first in firsts:
            if first not in images:
                self.images.forget(first)
        others = [key for first in firsts for key in self.images.shards_of(first)[1:]]
        return images | (yield from self._images_at(others, now, until, reporting=reporting))

    def _images_at(
        self, keys: Iterable[Key], now: int, until: Window, *, reporting: bool = False
    ) -> Plan[dict[Key, Image]]:
        """The buckets that exist. A broken one is an error, unless it is for a report of several: those go without."""
        wanted = list(keys)
        if not wanted:
            return {}
        items = yield from self.asking.get_all(wanted, until)
        images = {}
        for key in wanted:
            if key in items:
                image = unless_broken(image_of, items[key]) if reporting else image_of(items[key])
                if image is not None:
                    images[key] = yield from self.writer.see(key, image, now)
        return images

    def _terms_of_bucket(self, image: Image, until: Window) -> Plan[Terms]:
        """What a bucket obeys: what is configured, or what it was last told."""
        try:
            standing = yield from self.resolver.whole_standing(image.entity_id, image.resource, until, fresh=False)
            if standing.cv != image.cv and not standing.is_of(until):
                standing = yield from self.resolver.whole_standing(image.entity_id, image.resource, until, fresh=True)
        except BrokenItem as error:
            logger.warning("by its own terms, %s on %s: %s", image.entity_id, image.resource, error)
            return terms_in(image)
        return standing.terms() or terms_in(image)


def by_bucket(images: Iterable[Image]) -> list[list[Image]]:
    """Shards, by the bucket they are of."""
    families: dict[tuple[str, str], list[Image]] = {}
    for image in images:
        families.setdefault((image.entity_id, image.resource), []).append(image)
    return list(families.values())


def balances_of(family: Sequence[Image], terms: Terms, now: int) -> tuple[Balance, ...]:
    """The limits of ``terms`` as they stand on a bucket, whose shards these are (none: it is full)."""
    family = [as_brought_back(image, newest(image), now) if is_far_ahead(image, now) else image for image in family]
    return over_shards(family, terms, now) if len(family) > 1 else adopted(next(iter(family), None), terms, now)


def terms_in(image: Image) -> Terms:
    """The terms a bucket carries itself."""
    limits = tuple(balance.limit for name, balance in sorted(image.balances.items()) if name not in image.resting)
    return Terms(Leg(image.entity_id, image.resource, limits, "call"), image.cv)
