"""Looking without taking: what a draw would meet, and what operators see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from zae_limiter.bucket import calculate_available
from zae_limiter.models.limit import Limit
from zae_limiter.models.reports import EntityCapacity, ResourceCapacity
from zae_limiter.models.status import BucketStatus, EntityStatus
from zae_limiter.running.plan import Plan
from zae_limiter.stores.cursors import name_after, page_of
from zae_limiter.stores.dynamodb.adopting import adopted
from zae_limiter.stores.dynamodb.errors import verb
from zae_limiter.stores.dynamodb.items import Image, image_of, key_of
from zae_limiter.stores.dynamodb.keys import GSI2, GSI3, Key, bucket_key, pk_entity, pk_resource
from zae_limiter.stores.dynamodb.plans.asking import Window
from zae_limiter.stores.dynamodb.plans.drawing import DrawingPlans
from zae_limiter.stores.dynamodb.plans.rewriting import KEYS_PER_PAGE
from zae_limiter.stores.dynamodb.requests import Item
from zae_limiter.stores.dynamodb.writes import Terms
from zae_limiter.stores.judging import limit_level, percent_used, statuses_of
from zae_limiter.stores.protocol import Draw, Leg, Look


class LookingPlans(DrawingPlans):
    """The verbs that read buckets."""

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
        ns = yield from self.checked_ns(until)
        now = self.images.corrected(now)
        draw = Draw(entity_id, resource, wanted, limits)
        route = yield from self.terms_for(draw, until, fresh=False)
        while True:
            keys = [bucket_key(ns, terms.leg.entity_id, resource) for terms in route.terms]
            images = yield from self._images_at(keys, now, until)
            known = all(
                key in images and images[key].cv == terms.cv for key, terms in zip(keys, route.terms, strict=True)
            )
            if known or route.fresh:
                break
            route = yield from self.terms_for(draw, until, fresh=True)
        legs = tuple(terms.leg for terms in route.terms)
        held = [adopted(images.get(key), terms, now) for key, terms in zip(keys, route.terms, strict=True)]
        return Look(legs, statuses_of(legs, held, wanted, {}, now))

    @verb
    def status(self, entity_id: str, resource: str | None, now: int) -> Plan[EntityStatus]:
        until = yield from self.asking.window()
        ns = yield from self.checked_ns(until)
        now = self.images.corrected(now)
        images = yield from self.buckets_of(ns, entity_id, resource, now, until)
        found = []
        for image in images.values():
            terms = yield from self._terms_of_bucket(image, until)
            levels = tuple(limit_level(balance, now) for balance in adopted(image, terms, now))
            found.append(BucketStatus(image.entity_id, image.resource, levels, image.ev))
        return EntityStatus(entity_id, tuple(sorted(found, key=lambda bucket: bucket.resource)))

    @verb
    def capacity(
        self, resource: str, limit_name: str, limit: int, cursor: str | None, now: int
    ) -> Plan[ResourceCapacity]:
        after = name_after(cursor)
        until = yield from self.asking.window()
        ns = yield from self.checked_ns(until)
        now = self.images.corrected(now)
        capacity = available = 0
        rows: list[EntityCapacity] = []
        start: Item | None = None
        while True:
            until = yield from self.asking.window()
            page = yield from self.asking.query(
                pk_resource(ns, resource), until, index=GSI2, prefix="BUCKET#", start=start, limit=KEYS_PER_PAGE
            )
            images = yield from self._images_at([key_of(item) for item in page.items], now, until)
            for image in images.values():
                terms = yield from self._terms_of_bucket(image, until)
                for balance in adopted(image, terms, now):
                    if balance.name == limit_name:
                        whole, left = balance.limit.burst, calculate_available(balance, now)
                        capacity, available = capacity + whole, available + left
                        rows.append(EntityCapacity(image.entity_id, whole, left, percent_used(whole, left)))
            start = page.next_key
            if start is None:
                break
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
        """The live buckets of an entity, on one resource or on all."""
        if resource is not None:
            return (yield from self._images_at([bucket_key(ns, entity_id, resource)], now, until))
        found: dict[Key, Image] = {}
        start: Item | None = None
        while True:
            page = yield from self.asking.query(
                pk_entity(ns, entity_id), until, index=GSI3, prefix="BUCKET#", start=start, limit=KEYS_PER_PAGE
            )
            found |= yield from self._images_at([key_of(item) for item in page.items], now, until)
            start = page.next_key
            if start is None:
                return found

    def _images_at(self, keys: Iterable[Key], now: int, until: Window) -> Plan[dict[Key, Image]]:
        wanted = list(keys)
        if not wanted:
            return {}
        items = yield from self.asking.get_all(wanted, until)
        images = {}
        for key in wanted:
            if key in items:
                images[key] = yield from self.see(key, image_of(items[key]), now)
        return images

    def _terms_of_bucket(self, image: Image, until: Window) -> Plan[Terms]:
        """What a bucket obeys: what is configured, or what it was last told."""
        standing = yield from self.standing(image.entity_id, image.resource, until, fresh=False)
        if standing.cv != image.cv and standing.read_in is not until:
            standing = yield from self.standing(image.entity_id, image.resource, until, fresh=True)
        return standing.terms() or terms_in(image)

    def note_change(
        self,
        ns: str,
        subject: str,
        action: str,
        resource: str | None,
        principal: str | None,
        details: Mapping[str, Any],
        now: int,
        until: Window,
    ) -> Plan[None]:
        """Write an audit event of its own."""
        raise NotImplementedError


def terms_in(image: Image) -> Terms:
    """The terms a bucket carries itself."""
    limits = tuple(balance.limit for name, balance in sorted(image.balances.items()) if name not in image.resting)
    return Terms(Leg(image.entity_id, image.resource, limits, "call"), image.cv)
