"""What operators read of many buckets: capacity, the tightest, what is in use, and whether usage equals what was
taken.

The scripts show buckets as the next draw will find them, a page at a time, so that acquires go on in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import nsmallest
from typing import Any

from zae_limiter.bucket import MILLI, Bucket, calculate_available
from zae_limiter.models.proofs import UsageChain, UsageProof
from zae_limiter.models.reports import EntityCapacity, ResourceCapacity
from zae_limiter.models.status import BucketStatus, EntityStatus
from zae_limiter.running.plan import Plan
from zae_limiter.stores.chains import Whose, chains_of
from zae_limiter.stores.cursors import name_after
from zae_limiter.stores.embedded.bucket_verbs import bucket_status
from zae_limiter.stores.embedded.report_verbs import joints_of
from zae_limiter.stores.limit_statuses import capacity_of, percent_used, tightness
from zae_limiter.stores.redis.home import Home
from zae_limiter.stores.redis.periods import Periods
from zae_limiter.stores.redis.replay import Replay
from zae_limiter.stores.redis.requests import Commands
from zae_limiter.stores.redis.scripts import SHOW, USAGE
from zae_limiter.stores.redis.tables import PREFETCHED
from zae_limiter.stores.redis.terms import buckets_in, placed_buckets_in, switches_in
from zae_limiter.stores.redis.usage_rows import CountedUsage, usage_in

BUCKETS_PER_PAGE = 200


class Reports:
    """Reads of one namespace that go over its buckets."""

    def __init__(self, home: Home, replay: Replay) -> None:
        self._home = home
        self._replay = replay

    def _show(
        self, now: int, resource: str, entity_id: str, after: str = "", count: int = 0, *, switches: bool = False
    ) -> Plan[list[Any]]:
        """The reply of the script that shows buckets."""
        periods = Periods(self._home.calendars)
        while True:
            yield from self._home.find()
            home = self._home
            times = self._replay.bucket_time(now), periods.all_told(now)
            parts = (home.prefix, times[0], resource, entity_id, after, count, times[1], "1" if switches else "")
            (reply,) = yield from Commands(home.tag, ("EVALSHA", SHOW.sha, 1, home.key, *parts))
            if reply[0] == 1:
                return list(reply)
            if not periods.are_missing(reply):
                home.refused(reply)

    def each_bucket(self, resource: str, now: int, see: Callable[[Bucket, Sequence[str], int], None]) -> Plan[None]:
        """Show every bucket on a resource, the ancestors that its acquires also take from, and the time."""
        after = ""
        while True:
            reply = yield from self._show(now, resource, "", after, BUCKETS_PER_PAGE)
            for bucket, above in placed_buckets_in(reply):
                see(bucket, above, reply[1])
            after = reply[2].decode()
            if not after:
                return

    def _resources(self, entity_id: str | None = None) -> Plan[list[str]]:
        """Those in use, by anyone or by one entity."""
        yield from self._home.find()
        tag, prefix = self._home.tag, self._home.prefix
        (found,) = yield from Commands(tag, ("ZRANGE", prefix + "res", 0, -1))
        names = [name.decode() for name in found]
        if entity_id is None or not names:
            return names
        scores = yield from Commands(tag, *(("ZSCORE", f"{prefix}on#{name}", entity_id) for name in names))
        return [name for name, score in zip(names, scores, strict=True) if score is not None]

    def status(self, entity_id: str, resource: str | None, now: int) -> Plan[EntityStatus]:
        """The live buckets of an entity, and its access switches."""
        reply = yield from self._show(now, resource or "", entity_id, switches=True)
        buckets = tuple(bucket_status(bucket, reply[1]) for bucket in buckets_in(reply))
        return EntityStatus(entity_id, buckets, switches_in(reply))

    def capacity(
        self, resource: str, limit_name: str, limit: int, cursor: str | None, now: int
    ) -> Plan[ResourceCapacity]:
        """One limit of a resource over all live buckets."""
        held: list[tuple[EntityCapacity, Sequence[str]]] = []

        def see(bucket: Bucket, above: Sequence[str], time: int) -> None:
            for balance in bucket.balances:
                if balance.name == limit_name:
                    left = calculate_available(balance, time)
                    whole = balance.limit.burst + balance.extra_at(time) // MILLI
                    held.append((EntityCapacity(bucket.entity_id, whole, left, percent_used(whole, left)), above))

        yield from self.each_bucket(resource, now, see)
        return capacity_of(resource, limit_name, held, limit, name_after(cursor))

    def tightest(self, resource: str | None, limit: int, now: int) -> Plan[tuple[BucketStatus, ...]]:
        """The live buckets with the least left."""
        found: list[BucketStatus] = []

        def see(bucket: Bucket, above: Sequence[str], time: int) -> None:
            found.append(bucket_status(bucket, time))

        for name in (yield from self._resources()) if resource is None else [resource]:
            yield from self.each_bucket(name, now, see)
            found = nsmallest(limit, found, key=tightness)
        return tuple(found)

    def active_entities(self) -> Plan[tuple[str, ...]]:
        """Every entity that has a live bucket or usage."""
        names = yield from self._resources()
        if not names:
            return ()
        keys = [f"{self._home.prefix}on#{name}" for name in names]
        lists = yield from Commands(self._home.tag, *(("ZRANGE", key, 0, -1) for key in keys))
        return tuple(sorted({one.decode() for found in lists for one in found}))

    def verify(self, entity_id: str, resource: str | None, now: int) -> Plan[UsageProof]:
        """Hours against buckets, each pair of one moment."""
        names = (yield from self._resources(entity_id)) if resource is None else [resource]
        chains: list[UsageChain] = []
        for place in range(0, len(names), PREFETCHED):
            some = names[place : place + PREFETCHED]
            for name, usage in zip(some, (yield from self._usage(entity_id, some, now)), strict=True):
                joints = joints_of(usage.rows, usage.live, usage.hour)
                lost = self._home.usage_days == 0
                chains += chains_of(Whose(name), joints, len(usage.rows), usage.live, now, beginnings_lost=lost)
        return UsageProof(entity_id, resource, tuple(chains))

    def _usage(self, entity_id: str, resources: Sequence[str], now: int) -> Plan[list[CountedUsage]]:
        home = self._home
        while True:
            yield from home.find()
            head = ("EVALSHA", USAGE.sha, 1, home.key, home.prefix, self._replay.bucket_time(now), entity_id)
            replies = yield from Commands(home.tag, *((*head, name) for name in resources))
            refused = next((reply for reply in replies if reply[0] != 1), None)
            if refused is None:
                return [usage_in(entity_id, name, reply) for name, reply in zip(resources, replies, strict=True)]
            home.refused(refused)
