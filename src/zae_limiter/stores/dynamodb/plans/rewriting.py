"""Live buckets follow what is configured: each is rebased to the terms that hold now."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.items import BrokenItem, Image, image_of, key_of
from zae_limiter.stores.dynamodb.keys import GSI2, GSI3, GSI4, SPREAD, Key, bucket_key, gsi4_pk, pk_entity, pk_resource
from zae_limiter.stores.dynamodb.plans.asking import Window
from zae_limiter.stores.dynamodb.plans.booking import TRIES_AT_ONCE, BookingPlans
from zae_limiter.stores.dynamodb.requests import Item, NoAnswer, Refused
from zae_limiter.stores.dynamodb.versions import may_follow
from zae_limiter.stores.dynamodb.writes import Terms, Wish, restamp, update
from zae_limiter.stores.protocol import Scope

logger = logging.getLogger("zae_limiter")

KEYS_PER_PAGE = 100


class RewritingPlans(BookingPlans):
    """What changes of configs and entities do to buckets."""

    def propagate(self, ns: str, scope: Scope, now: int) -> Plan[None]:
        self.invalidate_config_cache()
        self.images.forget_denials()
        if scope.level == "entity":
            assert scope.entity_id is not None
            assert scope.resource is not None
            until = yield from self.asking.window()
            yield from self._follow([bucket_key(ns, scope.entity_id, scope.resource)], now, until)
        elif scope.entity_id is not None:
            yield from self.rewrite_buckets_of(ns, scope.entity_id, now)
        elif scope.resource is not None:
            yield from self._follow_index(pk_resource(ns, scope.resource), GSI2, "BUCKET#", now)
        else:
            for slot in range(SPREAD):
                yield from self._follow_index(gsi4_pk(ns, slot), GSI4, "BUCKET", now)

    def rewrite_buckets_of(self, ns: str, entity_id: str, now: int) -> Plan[None]:
        self.invalidate_config_cache()
        self.images.forget_denials()
        yield from self._follow_index(pk_entity(ns, entity_id), GSI3, "BUCKET#", now)

    def drop_buckets_of(self, ns: str, entity_id: str) -> Plan[int]:
        self.invalidate_config_cache()
        dropped = 0
        after: Item | None = None
        while True:
            until = yield from self.asking.window()
            page = yield from self.asking.query(
                pk_entity(ns, entity_id), until, index=GSI3, prefix="BUCKET#", start=after, limit=KEYS_PER_PAGE
            )
            keys = [key_of(item) for item in page.items]
            yield from self.asking.delete_all(keys, until)
            for key in keys:
                self.images.forget(key)
            dropped += len(keys)
            after = page.next_key
            if after is None:
                return dropped

    def _follow_index(self, pk: str, index: str, prefix: str, now: int) -> Plan[None]:
        after: Item | None = None
        while True:
            until = yield from self.asking.window()
            page = yield from self.asking.query(
                pk, until, index=index, prefix=prefix, start=after, limit=KEYS_PER_PAGE
            )
            yield from self._follow([key_of(item) for item in page.items], now, until)
            after = page.next_key
            if after is None:
                return

    def _follow(self, keys: Sequence[Key], now: int, until: Window) -> Plan[None]:
        """Let these buckets follow, each by what holds for it now."""
        items = yield from self.asking.get_all(keys, until)
        for key, item in items.items():
            try:
                image = image_of(item)
            except BrokenItem as broken:
                logger.warning("left as it is: %s", broken)
                continue
            window = yield from self.asking.window()
            standing = yield from self.standing(image.entity_id, image.resource, window, fresh=True)
            terms = standing.terms()
            if terms is None:
                yield from self._restamp(key, image, standing.cv, now, window)
            elif image.cv != terms.cv:
                yield from self.adopt(key, image, terms, now, window)

    def adopt(self, key: Key, image: Image, terms: Terms, now: int, until: Window) -> Plan[Image | None]:
        """Rebase a bucket to ``terms``, unless it obeys something newer. The bucket as it is then."""
        nonce = self.marks.nonce(now)
        tries = 0
        while image.cv != terms.cv and may_follow(terms.cv, image.cv, seen_before=tries == 0):
            write = update(
                image,
                Wish({}, terms=terms),
                now=now,
                nonce=nonce,
                epoch_s=until.epoch_s,
                ttl_margin_s=self.asking.ttl_margin_s,
            )
            call = self.call_to_update(write.params(self.asking.table, key), until)
            (answer,) = yield from self.ask_together([call])
            if isinstance(answer, Refused):
                if not answer.by_condition and not (answer.by_throttling or answer.by_conflict):
                    raise answer
                if answer.by_condition and answer.item is None:
                    self.images.forget(key)
                    return None
                if answer.item is not None:
                    image = image_of(answer.item)
            elif not isinstance(answer, NoAnswer):
                image = image_of(answer["Attributes"])
            tries += 1
            if isinstance(answer, (Refused, NoAnswer)) and tries >= TRIES_AT_ONCE:
                yield from self.asking.pause(tries - 1, until, answer)
        yield from self.see(key, image, now)
        return image

    def _restamp(self, key: Key, image: Image, cv: str, now: int, until: Window) -> Plan[None]:
        """No limits hold any more: whoever knew the old ones must notice."""
        nonce = self.marks.nonce(now)
        tries = 0
        while image.cv != cv:
            params = restamp(image, cv, nonce=nonce).params(self.asking.table, key)
            (answer,) = yield from self.ask_together([self.call_to_update(params, until)])
            if not isinstance(answer, (Refused, NoAnswer)):
                break
            if isinstance(answer, Refused) and answer.by_condition:
                if answer.item is None:
                    break
                image = image_of(answer.item)
                if nonce in image.ring or not may_follow(cv, image.cv, seen_before=False):
                    break
            tries += 1
            if tries >= TRIES_AT_ONCE:
                yield from self.asking.pause(tries - 1, until, answer)
        self.images.forget(key)

    def check_terms_of_new(self, key: Key, terms: Terms, now: int, until: Window) -> Plan[None]:
        """A config may have changed while its bucket was being created, unseen by who changed it. Look once."""
        if terms.leg.source == "call":
            return
        memory = self.images.get(key)
        try:
            standing = yield from self.standing(terms.leg.entity_id, terms.leg.resource, until, fresh=True)
            current = standing.terms()
            if memory is None or standing.cv == terms.cv:
                return
            if current is None:
                yield from self._restamp(key, memory.image, standing.cv, now, until)
            else:
                yield from self.adopt(key, memory.image, current, now, until)
        except (Refused, NoAnswer):
            return  # the next acquire that resolves will see it
