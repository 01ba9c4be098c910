"""Live buckets follow what is configured: each is rebased to the terms that hold now."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from zae_limiter.bucket import FURTHEST_AHEAD_MS
from zae_limiter.exceptions import RateLimiterUnavailable, ValidationError
from zae_limiter.naming import DEFAULT_RESOURCE, TOTAL_RESOURCE
from zae_limiter.running.plan import READ_CLOCK, Plan
from zae_limiter.stores.dynamodb.bucket_cache import newest
from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot, snapshot_of
from zae_limiter.stores.dynamodb.bucket_write import BucketWriter
from zae_limiter.stores.dynamodb.config_resolver import ConfigResolver
from zae_limiter.stores.dynamodb.config_versions import may_follow
from zae_limiter.stores.dynamodb.expressions import Update
from zae_limiter.stores.dynamodb.intents import Intent, Terms
from zae_limiter.stores.dynamodb.items import BrokenItem, config_of, key_of, route_of, unless_broken
from zae_limiter.stores.dynamodb.namespace import Namespace
from zae_limiter.stores.dynamodb.operations.paging import (
    Merged,
    Strand,
    fetch,
    names_after,
    partition,
    some_at_once,
    whole_namespace,
)
from zae_limiter.stores.dynamodb.operations.shard_life import drop_buckets
from zae_limiter.stores.dynamodb.requests import Contended, NoAnswer, Refused
from zae_limiter.stores.dynamodb.schema import (
    GSI1,
    GSI2,
    GSI3,
    Key,
    bucket_key,
    config_key,
    gsi1,
    pk_entity,
    pk_resource,
    shard_key,
)
from zae_limiter.stores.dynamodb.shards import shards_made_by
from zae_limiter.stores.dynamodb.table_client import Deadline
from zae_limiter.stores.dynamodb.write_forms import brought_back, restamp, update
from zae_limiter.stores.dynamodb.write_ids import BROUGHT_BACK
from zae_limiter.stores.protocol import Scope

logger = logging.getLogger("zae_limiter")

KEYS_PER_PAGE = 100

CHANGES_FOLLOWED = 3
"""So many changes that overtake each other at one bucket are sorted out by one setter."""


class Following:
    """How far a change has come: which buckets were looked at, which were not there, and which could not be written.

    The change was made before ``since``.
    """

    __slots__ = ("absent", "followed", "left", "since")

    def __init__(self, since: Deadline) -> None:
        self.since = since
        self.followed: set[Key] = set()
        self.absent: set[Key] = set()
        self.left: dict[Key, Refused | NoAnswer] = {}


class LostTry(NamedTuple):
    """A try to move the baseline of a bucket that may have been done unseen, and the bucket it was sent to.

    Its answer was lost; or it met another transaction or was throttled, and a second copy of the same request, which
    the network delivered as well, was not.
    """

    failure: Refused | NoAnswer
    snapshot: BucketSnapshot

    def was_done(self, seen: BucketSnapshot, now: int) -> bool:
        """Whether the bucket shows that this try was done, although its write id is not among the recent writers.

        Only a bucket with a new baseline, and more writers since than it remembers, can hide it: then the try was done
        if the baseline is the one it set. If it is another one, no client can tell, and that is raised.
        """
        before = self.snapshot
        if seen.rf == before.rf or before.recent_writers[0] in seen.recent_writers:
            return False
        if seen.rf != max(now, before.rf + 1):
            raise NoAnswer(f"whether it was done can no longer be seen: {self.failure}") from self.failure
        return True


class Propagation:
    """What changes of configs and entities do to buckets."""

    def __init__(self, namespace: Namespace, resolver: ConfigResolver, writer: BucketWriter) -> None:
        self.client = namespace.client
        self.cache = namespace.cache
        self.write_ids = namespace.write_ids
        self.resolver = resolver
        self.writer = writer

    def propagate(self, ns: str, scope: Scope, now: int) -> Plan[None]:
        """Let the live buckets that a changed config concerns follow it."""
        self.resolver.invalidate_config_cache()
        self.cache.forget_denials()
        if scope.level == "entity":
            assert scope.entity_id is not None
            assert scope.resource is not None
            following = yield from self._begin_following()
            yield from self._follow([bucket_key(ns, scope.entity_id, scope.resource)], now, following)
            yield from self._follow_the_rest(now, following)
        elif scope.entity_id is not None:
            if scope.level == "total":  # its bucket is found by its key, however late the index is
                following = yield from self._begin_following()
                yield from self._follow([bucket_key(ns, scope.entity_id, TOTAL_RESOURCE)], now, following)
                yield from self._follow_the_rest(now, following)
            yield from self.rewrite_buckets_of(ns, scope.entity_id, now)
        elif scope.resource is not None:
            pk = pk_resource(ns, scope.resource)
            yield from self._follow_list(
                Merged(self.client, [Strand(self.client, pk, index=GSI2, prefix="BUCKET#")]), now
            )
        else:
            yield from self._follow_list(whole_namespace(self.client, ns, prefix="BUCKET"), now)

    def rewrite_buckets_of(self, ns: str, entity_id: str, now: int) -> Plan[None]:
        """Let the live buckets of a changed entity notice."""
        self.resolver.invalidate_config_cache()
        self.cache.forget_denials()
        pk = pk_entity(ns, entity_id)
        yield from self._follow_list(Merged(self.client, [Strand(self.client, pk, index=GSI3, prefix="BUCKET#")]), now)

    def rewrite_buckets_below(self, ns: str, entity_id: str, now: int, *, scope: Scope | None = None) -> Plan[None]:
        """Let the live buckets notice from which draws passed, or pass, by a changed entity without limits.

        ``scope``: the level of it that got limits; else the entity itself has changed.
        """
        resource = scope.resource if scope is not None and scope.level == "entity" else None
        levels = {Scope(), Scope(None, resource), Scope(entity_id, DEFAULT_RESOURCE)} - {scope}
        if (yield from self._any_has_limits(ns, levels)):
            return  # with limits before and after, it has a bucket of its own to tell
        following = yield from self._begin_following()
        parents = [entity_id]
        for parent in parents:
            between = names_after("CHILD#", None)
            children = partition(self.client, gsi1(ns, parent, "")["GSI1PK"], between, index=GSI1)
            while found := (yield from children.take(KEYS_PER_PAGE)):
                metas = [key_of(item) for item in found]
                parents += yield from self._rewrite_children(ns, parent, metas, resource, now, following)
        yield from self._follow_the_rest(now, following)

    def _rewrite_children(
        self, ns: str, parent_id: str, metas: Sequence[Key], resource: str | None, now: int, following: Following
    ) -> Plan[list[str]]:
        """Let the buckets of those that cascade follow. Returns which of them may have none, and lead on."""
        items = yield from fetch(self.client, metas)
        found = [unless_broken(route_of, item) for item in items.values() if "deleted" not in item]
        names = [
            route.entity_id for route in found if route is not None and route.parent_id == parent_id and route.cascade
        ]
        if resource is None:
            queries = [self.client.query_all(pk_entity(ns, name), index=GSI3, prefix="BUCKET#") for name in names]
            listed = yield from some_at_once(queries)
            yield from self._follow([key_of(item) for page in listed for item in page], now, following)
        else:
            yield from self._follow([bucket_key(ns, name, resource) for name in names], now, following)
        limited = set()
        for level in {resource or DEFAULT_RESOURCE, DEFAULT_RESOURCE}:
            places = {config_key(ns, name, level): name for name in names}
            configs = yield from fetch(self.client, list(places))
            found_configs = {places[key]: unless_broken(config_of, item) for key, item in configs.items()}
            limited |= {name for name, config in found_configs.items() if config is not None and config.limits}
        return [name for name in names if name not in limited]

    def _any_has_limits(self, ns: str, scopes: Iterable[Scope]) -> Plan[bool]:
        deadline = yield from self.client.new_deadline()
        keys = [config_key(ns, scope.entity_id, scope.resource) for scope in scopes]
        found = yield from self.client.get_all(keys, deadline)
        return any(config_of(item).limits for item in found.values())

    def drop_buckets_of(self, ns: str, entity_id: str, now: int, configured: Sequence[str]) -> Plan[None]:
        """Remove every bucket of an entity, those on ``configured`` resources whether an index knows them or not."""
        self.resolver.invalidate_config_cache()
        items = yield from self.client.query_all(pk_entity(ns, entity_id), index=GSI3, prefix="BUCKET#")
        known = [bucket_key(ns, entity_id, resource) for resource in configured]
        families: dict[Key, list[Key]] = {}  # no bucket is on two pages: it may begin a new life in between
        for key in (*map(key_of, items), *known):
            families.setdefault(shard_key(key, 0), []).append(key)
        found = list(families.values())
        for start in range(0, len(found), KEYS_PER_PAGE):
            keys = [key for family in found[start : start + KEYS_PER_PAGE] for key in family]
            yield from drop_buckets(self.client, keys, now, (yield from self.client.new_deadline()))
            for key in keys:
                self.cache.forget(key)

    def _begin_following(self) -> Plan[Following]:
        return Following((yield from self.client.new_deadline()))

    def _follow_list(self, keys: Merged, now: int) -> Plan[None]:
        """Let the buckets of a list follow, a page at a time."""
        following = yield from self._begin_following()
        failures = 0
        while True:
            try:
                found = yield from keys.take(KEYS_PER_PAGE)
            except (Refused, NoAnswer) as failure:
                failures += 1
                if failures > 1 or not _may_pass(failure):
                    raise _not_reached("not all buckets were", failure) from failure
                continue
            if not found:
                break
            failures = 0
            yield from self._follow([key_of(item) for item in found], now, following)
        yield from self._follow_the_rest(now, following)

    def _follow_the_rest(self, now: int, following: Following) -> Plan[None]:
        """Try those again that failed. Raises if some fail for the second time: the change holds all the same."""
        failed = list(following.left)
        if not failed:
            return
        following.left.clear()
        following.followed.difference_update(failed)
        yield from self._follow(failed, now, following)
        if following.left:
            count, failure = len(following.left), next(iter(following.left.values()))
            raise _not_reached(f"{count} buckets were not" if count > 1 else "1 bucket was not", failure) from failure

    def _follow(self, keys: Sequence[Key], now: int, following: Following) -> Plan[None]:
        """Let these buckets follow, with all their shards, each by what holds for it now, unless it is ``followed``.

        A bucket that is split meanwhile has more shards than it had when it was read: they obey what it obeyed then,
        and are followed too, also those that were looked for before they were made. Every batch has time of its own,
        and one that fails keeps no other from following.
        """
        while waiting := [key for key in dict.fromkeys(keys) if key not in following.followed]:
            following.followed.update(waiting)
            cache: dict[Key, BucketSnapshot] = {}
            try:
                items = yield from fetch(self.client, waiting)
            except (Refused, NoAnswer) as failure:
                if not _may_pass(failure):
                    raise
                following.left.update(dict.fromkeys(waiting, failure))
                return
            following.absent.update(key for key in waiting if key not in items)
            for key, item in items.items():
                try:
                    cache[key] = snapshot_of(item)
                except BrokenItem as broken:
                    logger.warning("left as it is: %s", broken)
            seen = yield from some_at_once([self._follow_or_note(*one, now, following) for one in cache.items()])
            family = [(key, snapshot.shard, snapshot.shards) for key, snapshot in zip(cache, seen, strict=True)]
            keys = [shard_key(key, other) for key, _, shards in family for other in range(shards)]
            made = {shard_key(key, other) for key, *of in family for other in shards_made_by(*of)}
            following.followed -= made & following.absent  # once: where it is not there again, it is lost
            following.absent -= made

    def _follow_or_note(
        self, key: Key, snapshot: BucketSnapshot, now: int, following: Following
    ) -> Plan[BucketSnapshot]:
        """Let one follow, or note that it did not. The bucket as it was last seen."""
        self.cache.learn_shards(key, snapshot)
        try:
            return (yield from self._follow_one(key, snapshot, now, following.since)) or snapshot
        except BrokenItem as broken:
            logger.warning("left as it is: %s", broken)
            return snapshot
        except (Refused, NoAnswer) as failure:
            if not _may_pass(failure):
                raise
            following.left[key] = failure
            return snapshot

    def _follow_one(
        self, key: Key, snapshot: BucketSnapshot, now: int, since: Deadline
    ) -> Plan[BucketSnapshot | None]:
        """Let one follow. The bucket as it is then, if it still is."""
        deadline = yield from self.client.new_deadline()
        resolved = yield from self.resolver.resolved_with_way(
            snapshot.entity_id, snapshot.resource, deadline, fresh=True, since=since
        )
        seen = yield from self.bring_back(key, snapshot, now, deadline)
        for _ in range(CHANGES_FOLLOWED):
            if seen is None or seen.cv == resolved.cv:
                break
            terms = resolved.terms()
            if terms is None:
                return (yield from self._restamp(key, seen, resolved.cv, now, deadline))
            try:
                seen = yield from self.adopt(key, seen, terms, now, deadline)
            except ValidationError as error:
                logger.warning("a bucket keeps its old limits: %s", error)
                break
            if seen is not None and seen.cv != terms.cv:  # another change was faster
                resolved = yield from self.resolver.resolved_with_way(
                    snapshot.entity_id, snapshot.resource, deadline, fresh=True
                )
        return seen

    def adopt(
        self, key: Key, snapshot: BucketSnapshot, terms: Terms, now: int, deadline: Deadline
    ) -> Plan[BucketSnapshot | None]:
        """Rebase a bucket to ``terms``, unless it obeys something newer. The bucket as it is then."""
        write_id = self.write_ids.write_id(now)

        def rebased(seen: BucketSnapshot) -> Update | None:
            if seen.cv == terms.cv or not may_follow(terms.cv, seen.cv, seen_before=seen is snapshot):
                return None
            return self._plain_update(seen, Intent({}, terms=terms), now, write_id, deadline)

        return (yield from self.write_until_done(key, snapshot, rebased, now, write_id, deadline))

    def fill(
        self,
        key: Key,
        snapshot: BucketSnapshot,
        now: int,
        deadline: Deadline,
        *,
        only: tuple[str, ...] | None = None,
    ) -> Plan[BucketSnapshot | None]:
        """Fill every limit of a bucket, or ``only`` these, once.

        The baseline moves, so that a try which arrives later is refused.

        The bucket as it is then; ``None`` if that life of it is over.
        """
        write_id = self.write_ids.write_id(now)

        def filled(seen: BucketSnapshot) -> Update:
            return self._plain_update(
                seen, Intent({}, fill=True, rebase=True, only=only), max(now, seen.rf + 1), write_id, deadline
            )

        return (yield from self.write_until_done(key, snapshot, filled, now, write_id, deadline, once=True))

    def bring_back(
        self, key: Key, snapshot: BucketSnapshot, now: int, deadline: Deadline
    ) -> Plan[BucketSnapshot | None]:
        """Let a bucket that was written by a clock that is wrong go on from ``now``. The bucket as it is then.

        Not twice within a minute: where clocks do not agree at all, a bucket that is brought back every time would
        be full every time for the client that is ahead.
        """
        ahead, tries = newest(snapshot), 0
        while ahead > now + FURTHEST_AHEAD_MS and self.cache.may_bring_back(key, now):
            # A client that was held up since it saw the bucket may be late itself. And of two that bring it back, the
            # later one has read the clock later: no baseline comes again, and with it writes that were refused.
            now = self.cache.corrected((yield from READ_CLOCK))
            if ahead <= now + FURTHEST_AHEAD_MS:
                break
            write_id = self.write_ids.write_id(now) + BROUGHT_BACK
            write = brought_back(snapshot, ahead=ahead, now=now, write_id=write_id)
            as_seen = partial(_unless_changed, snapshot, write)
            found = yield from self.write_until_done(key, snapshot, as_seen, now, write_id, deadline)
            if found is None:
                return None
            if write_id in found.recent_writers:
                self.cache.brought_back(key, now)
                logger.warning(
                    "the bucket of %s on %s was written %d s ahead of this clock: it goes on from now",
                    *(found.entity_id, found.resource, (ahead - now) // 1000),
                )
                return found
            ahead = newest(found) if _is_another_time(found, snapshot) else max(newest(found), ahead)
            snapshot = found
            tries += 1
            yield from self.writer.pause(tries, deadline, Contended())
        return snapshot

    def _restamp(
        self, key: Key, snapshot: BucketSnapshot, cv: str, now: int, deadline: Deadline
    ) -> Plan[BucketSnapshot]:
        """No limits hold any more: clients that know the old ones must notice. The bucket as it was last seen."""
        write_id = self.write_ids.write_id(now)

        def stamped(seen: BucketSnapshot) -> Update | None:
            overtaken = seen is not snapshot and not may_follow(cv, seen.cv, seen_before=False)
            return None if seen.cv == cv or overtaken else restamp(seen, cv, write_id=write_id)

        seen = yield from self.write_until_done(key, snapshot, stamped, now, write_id, deadline)
        self.cache.forget(key)
        return seen or snapshot

    def write_until_done(
        self,
        key: Key,
        snapshot: BucketSnapshot,
        write_for: Callable[[BucketSnapshot], Update | None],
        now: int,
        write_id: str,
        deadline: Deadline,
        *,
        once: bool = False,
    ) -> Plan[BucketSnapshot | None]:
        """Write to a bucket, each time by how it is then, until it is done or ``write_for`` has nothing to write.

        The bucket as it is then; ``None`` if it is gone. ``once``: a write that moves the baseline, and must not be
        done for the second time (see :class:`LostTry`).
        """
        tries = 0
        lost: LostTry | None = None
        while (write := write_for(snapshot)) is not None:
            call = self.writer.call_to_update(write.params(self.client.table, key), deadline)
            (answer,) = yield from self.writer.ask_together([call])
            if not isinstance(answer, (Refused, NoAnswer)):
                snapshot = snapshot_of(answer["Attributes"])
                break
            if isinstance(answer, Refused) and answer.by_condition:
                if answer.item is None:
                    self.cache.forget(key)
                    return None
                before, snapshot = snapshot, snapshot_of(answer.item)
                if write_id in snapshot.recent_writers:
                    break  # by a try whose answer was lost
                if once and snapshot.inc != before.inc:
                    return None  # another life: this one is gone
                if once and lost is not None and lost.was_done(snapshot, now):
                    break
            elif not _may_pass(answer):
                raise answer
            elif isinstance(answer, Refused) or answer.sent:
                lost = LostTry(answer, snapshot)
            tries += 1
            yield from self.writer.pause(tries, deadline, answer)
        yield from self.writer.see(key, snapshot, now)
        return snapshot

    def _plain_update(
        self, snapshot: BucketSnapshot, intent: Intent, now: int, write_id: str, deadline: Deadline
    ) -> Update:
        margin = self.client.ttl_margin_s
        return update(snapshot, intent, now=now, write_id=write_id, epoch_s=deadline.epoch_s, ttl_margin_s=margin)

    def check_terms_of_new(self, key: Key, terms: Terms, now: int, deadline: Deadline) -> Plan[None]:
        """A config may have changed while its bucket was created, unseen by the client that changed it. Look once."""
        seen, obeyed = self.cache.last_seen(key), terms.cv
        try:
            for _ in range(CHANGES_FOLLOWED):
                resolved = yield from self.resolver.resolved_with_way(
                    terms.leg.entity_id, terms.leg.resource, deadline, fresh=True
                )
                current = resolved.terms_of(terms.leg) if terms.leg.source == "call" else resolved.terms()
                if seen is None or obeyed == (resolved.cv if current is None else current.cv):
                    return
                if current is None:
                    yield from self._restamp(key, seen, resolved.cv, now, deadline)
                    return
                seen = yield from self.adopt(key, seen, current, now, deadline)
                if terms.leg.source == "call" or seen is None or seen.cv == current.cv:
                    return
                obeyed = seen.cv  # a call with limits of its own came first, and may know as little of the change
        except (Refused, NoAnswer):
            return  # the next acquire that resolves will see it


def _unless_changed(snapshot: BucketSnapshot, write: Update, seen: BucketSnapshot) -> Update | None:
    """A write to the bucket as it was seen, and to no other."""
    return write if seen is snapshot else None


def _is_another_time(snapshot: BucketSnapshot, before: BucketSnapshot) -> bool:
    """Whether the moments a bucket was written for before tell nothing any more: its baseline was moved since."""
    if (snapshot.inc, snapshot.rf) != (before.inc, before.rf):
        return True
    since = set(snapshot.recent_writers).difference(before.recent_writers)
    return any(write_id.endswith(BROUGHT_BACK) for write_id in since)


def _may_pass(failure: Refused | NoAnswer) -> bool:
    """Whether the same may succeed later."""
    return isinstance(failure, NoAnswer) or failure.by_throttling or failure.by_conflict


def _not_reached(which: str, failure: Refused | NoAnswer) -> RateLimiterUnavailable:
    return RateLimiterUnavailable(
        f"the change is stored, but {which} reached: {failure}",
        hint="a bucket obeys it from the first acquire on that reads its limits again, within config_cache_ttl; to "
        "bring all over at once, repeat the change",
    )
