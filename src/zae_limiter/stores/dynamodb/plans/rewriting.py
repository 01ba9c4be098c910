"""Live buckets follow what is configured: each is rebased to the terms that hold now."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from zae_limiter.naming import DEFAULT_RESOURCE
from zae_limiter.running.plan import Plan
from zae_limiter.stores.dynamodb.items import BrokenItem, Image, config_of, image_of, key_of
from zae_limiter.stores.dynamodb.keys import (
    GSI1,
    GSI2,
    GSI3,
    GSI4,
    SPREAD,
    Key,
    bucket_key,
    config_key,
    gsi1,
    gsi4_pk,
    pk_entity,
    pk_resource,
    shard_key,
)
from zae_limiter.stores.dynamodb.plans.asking import Window
from zae_limiter.stores.dynamodb.plans.dropping import drop_buckets
from zae_limiter.stores.dynamodb.plans.listing import fetch, names_after, partition
from zae_limiter.stores.dynamodb.plans.posting import PostingPlans
from zae_limiter.stores.dynamodb.plans.writing import TRIES_AT_ONCE
from zae_limiter.stores.dynamodb.requests import Item, NoAnswer, Refused
from zae_limiter.stores.dynamodb.updates import Update
from zae_limiter.stores.dynamodb.values import decode_item
from zae_limiter.stores.dynamodb.versions import may_follow
from zae_limiter.stores.dynamodb.writes import Terms, Wish, restamp, update
from zae_limiter.stores.protocol import Scope

logger = logging.getLogger("zae_limiter")

KEYS_PER_PAGE = 100

CHANGES_FOLLOWED = 3
"""So many changes that overtake each other at one bucket are sorted out by one setter."""


class RewritingPlans(PostingPlans):
    """What changes of configs and entities do to buckets."""

    def propagate(self, ns: str, scope: Scope, now: int) -> Plan[None]:
        """Let the live buckets that a changed config concerns follow it."""
        self.invalidate_config_cache()
        self.images.forget_denials()
        if scope.level == "entity":
            assert scope.entity_id is not None
            assert scope.resource is not None
            until = yield from self.asking.window()
            yield from self._follow_whole([bucket_key(ns, scope.entity_id, scope.resource)], now, until)
        elif scope.entity_id is not None:
            yield from self.rewrite_buckets_of(ns, scope.entity_id, now)
        elif scope.resource is not None:
            yield from self._follow_index(pk_resource(ns, scope.resource), GSI2, "BUCKET#", now)
        else:
            for slot in range(SPREAD):
                yield from self._follow_index(gsi4_pk(ns, slot), GSI4, "BUCKET", now)

    def rewrite_buckets_of(self, ns: str, entity_id: str, now: int) -> Plan[None]:
        """Let the live buckets of a changed entity notice."""
        self.invalidate_config_cache()
        self.images.forget_denials()
        yield from self._follow_index(pk_entity(ns, entity_id), GSI3, "BUCKET#", now)

    def rewrite_buckets_below(self, ns: str, entity_id: str, now: int, *, scope: Scope | None = None) -> Plan[None]:
        """Let the live buckets notice from which draws passed, or pass, by a changed entity without limits.

        ``scope``: the level of it that got limits; else the entity itself has changed.
        """
        resource = scope.resource if scope is not None and scope.level == "entity" else None
        levels = {Scope(), Scope(None, resource), Scope(entity_id, DEFAULT_RESOURCE)} - {scope}
        if (yield from self._any_has_limits(ns, levels)):
            return  # with limits before and after, it has a bucket of its own to tell
        parents = [entity_id]
        for parent in parents:
            between = names_after("CHILD#", None)
            children = partition(self.asking, gsi1(ns, parent, "")["GSI1PK"], between, index=GSI1)
            while found := (yield from children.take(KEYS_PER_PAGE)):
                parents += yield from self._rewrite_children(
                    ns, parent, [key_of(item) for item in found], resource, now
                )

    def _rewrite_children(
        self, ns: str, parent_id: str, metas: Sequence[Key], resource: str | None, now: int
    ) -> Plan[list[str]]:
        """Let the buckets of those that cascade follow. Returns who of them may have none, and lead on."""
        items = yield from fetch(self.asking, metas)
        entities = [decode_item(item) for item in items.values() if "deleted" not in item]
        names = [
            str(fields["entity_id"])
            for fields in entities
            if fields.get("parent_id") == parent_id and fields.get("cascade")
        ]
        since = yield from self.asking.window()
        if resource is None:
            for name in names:
                yield from self._follow_index(pk_entity(ns, name), GSI3, "BUCKET#", now)
        else:
            yield from self._follow_whole([bucket_key(ns, name, resource) for name in names], now, since)
        limited = set()
        for level in {resource or DEFAULT_RESOURCE, DEFAULT_RESOURCE}:
            places = {config_key(ns, name, level): name for name in names}
            configs = yield from fetch(self.asking, list(places))
            limited |= {places[key] for key, item in configs.items() if config_of(item).limits}
        return [name for name in names if name not in limited]

    def _any_has_limits(self, ns: str, scopes: Iterable[Scope]) -> Plan[bool]:
        until = yield from self.asking.window()
        keys = [config_key(ns, scope.entity_id, scope.resource) for scope in scopes]
        found = yield from self.asking.get_all(keys, until)
        return any(config_of(item).limits for item in found.values())

    def drop_buckets_of(self, ns: str, entity_id: str, now: int) -> Plan[None]:
        """Remove every bucket of an entity."""
        self.invalidate_config_cache()
        items = yield from self.asking.query_all(pk_entity(ns, entity_id), index=GSI3, prefix="BUCKET#")
        found = [key_of(item) for item in items]
        for start in range(0, len(found), KEYS_PER_PAGE):
            keys = found[start : start + KEYS_PER_PAGE]
            yield from drop_buckets(self.asking, keys, now, (yield from self.asking.window()))
            for key in keys:
                self.images.forget(key)

    def _follow_index(self, pk: str, index: str, prefix: str, now: int) -> Plan[None]:
        after: Item | None = None
        since = yield from self.asking.window()
        followed: set[Key] = set()
        while True:
            until = yield from self.asking.window()
            page = yield from self.asking.query(
                pk, until, index=index, prefix=prefix, start=after, limit=KEYS_PER_PAGE
            )
            yield from self._follow([key_of(item) for item in page.items], now, until, since, followed)
            after = page.next_key
            if after is None:
                return

    def _follow_whole(self, firsts: Sequence[Key], now: int, since: Window) -> Plan[None]:
        """Let these buckets follow with all their shards; how many there are is learned from the first ones."""
        yield from self._follow(firsts, now, since, since, set())

    def _follow(self, keys: Sequence[Key], now: int, until: Window, since: Window, followed: set[Key]) -> Plan[None]:
        """Let these buckets follow, with all their shards, each by what holds for it now, unless it is ``followed``.

        The change was made before ``since``. A bucket that is divided meanwhile has more shards than it had when it
        was read: they obey what it obeyed then, and are followed too.
        """
        while waiting := [key for key in dict.fromkeys(keys) if key not in followed]:
            followed.update(waiting)
            items = yield from self.asking.get_all(waiting, until)
            related: list[Key] = []
            for key, item in items.items():
                try:
                    image = image_of(item)
                except BrokenItem as broken:
                    logger.warning("left as it is: %s", broken)
                    continue
                self.images.learn_shards(key, image)
                seen = (yield from self._follow_one(key, image, now, since)) or image
                related += [shard_key(key, shard) for shard in range(seen.shards)]
            keys = related

    def _follow_one(self, key: Key, image: Image, now: int, since: Window) -> Plan[Image | None]:
        """Let one follow. The bucket as it is then, if it still is."""
        window = yield from self.asking.window()
        standing = yield from self.whole_standing(image.entity_id, image.resource, window, fresh=True, since=since)
        seen: Image | None = image
        for _ in range(CHANGES_FOLLOWED):
            if seen is None or seen.cv == standing.cv:
                break
            terms = standing.terms()
            if terms is None:
                return (yield from self._restamp(key, seen, standing.cv, now, window))
            seen = yield from self.adopt(key, seen, terms, now, window)
            if seen is not None and seen.cv != terms.cv:  # another change was faster
                standing = yield from self.whole_standing(image.entity_id, image.resource, window, fresh=True)
        return seen

    def adopt(self, key: Key, image: Image, terms: Terms, now: int, until: Window) -> Plan[Image | None]:
        """Rebase a bucket to ``terms``, unless it obeys something newer. The bucket as it is then."""
        nonce = self.marks.nonce(now)

        def rebased(seen: Image) -> Update | None:
            if seen.cv == terms.cv or not may_follow(terms.cv, seen.cv, seen_before=seen is image):
                return None
            return self._plain_update(seen, Wish({}, terms=terms), now, nonce, until)

        return (yield from self.write_until_done(key, image, rebased, now, nonce, until))

    def fill(self, key: Key, image: Image, now: int, until: Window) -> Plan[None]:
        """Fill every limit of a bucket."""
        nonce = self.marks.nonce(now)

        def filled(seen: Image) -> Update:
            return self._plain_update(seen, Wish({}, fill=True), now, nonce, until)

        yield from self.write_until_done(key, image, filled, now, nonce, until)

    def _restamp(self, key: Key, image: Image, cv: str, now: int, until: Window) -> Plan[Image]:
        """No limits hold any more: whoever knew the old ones must notice. The bucket as it was last seen."""
        nonce = self.marks.nonce(now)

        def stamped(seen: Image) -> Update | None:
            overtaken = seen is not image and not may_follow(cv, seen.cv, seen_before=False)
            return None if seen.cv == cv or overtaken else restamp(seen, cv, nonce=nonce)

        seen = yield from self.write_until_done(key, image, stamped, now, nonce, until)
        self.images.forget(key)
        return seen or image

    def write_until_done(
        self,
        key: Key,
        image: Image,
        write_for: Callable[[Image], Update | None],
        now: int,
        nonce: str,
        until: Window,
    ) -> Plan[Image | None]:
        """Write to a bucket, each time by how it is then, until it is done or ``write_for`` has nothing to write.

        The bucket as it is then; ``None`` if it is gone.
        """
        tries = 0
        while (write := write_for(image)) is not None:
            call = self.call_to_update(write.params(self.asking.table, key), until)
            (answer,) = yield from self.ask_together([call])
            if not isinstance(answer, (Refused, NoAnswer)):
                image = image_of(answer["Attributes"])
                break
            if isinstance(answer, Refused) and answer.by_condition:
                if answer.item is None:
                    self.images.forget(key)
                    return None
                image = image_of(answer.item)
                if nonce in image.ring:
                    break  # by a try whose answer was lost
            elif isinstance(answer, Refused) and not (answer.by_throttling or answer.by_conflict):
                raise answer
            tries += 1
            if tries >= TRIES_AT_ONCE:
                yield from self.asking.pause(tries - 1, until, answer)
        yield from self.see(key, image, now)
        return image

    def _plain_update(self, image: Image, wish: Wish, now: int, nonce: str, until: Window) -> Update:
        margin = self.asking.ttl_margin_s
        return update(image, wish, now=now, nonce=nonce, epoch_s=until.epoch_s, ttl_margin_s=margin)

    def check_terms_of_new(self, key: Key, terms: Terms, now: int, until: Window) -> Plan[None]:
        """A config may have changed while its bucket was being created, unseen by who changed it. Look once."""
        memory = self.images.get(key)
        seen, obeyed = (None if memory is None else memory.image), terms.cv
        try:
            for _ in range(CHANGES_FOLLOWED):
                standing = yield from self.whole_standing(terms.leg.entity_id, terms.leg.resource, until, fresh=True)
                current = standing.terms_of(terms.leg) if terms.leg.source == "call" else standing.terms()
                if seen is None or obeyed == (standing.cv if current is None else current.cv):
                    return
                if current is None:
                    yield from self._restamp(key, seen, standing.cv, now, until)
                    return
                seen = yield from self.adopt(key, seen, current, now, until)
                if terms.leg.source == "call" or seen is None or seen.cv == current.cv:
                    return
                obeyed = seen.cv  # a call with limits of its own came first, and may know as little of the change
        except (Refused, NoAnswer):
            return  # the next acquire that resolves will see it
