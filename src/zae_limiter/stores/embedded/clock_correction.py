"""Buckets that were written by a clock that was wrong.

A bucket that was written far ahead of ``now`` would not refill until that time has come. It is corrected: it goes on
from ``now``. First the clock is read again (:func:`retried_by_the_clock`), for the caller may be late itself; and not
twice within a minute, for where clocks do not agree at all, a bucket that is corrected every time would be full every
time for the client that is ahead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from zae_limiter.bucket import FURTHEST_AHEAD_MS, MILLI, Bucket
from zae_limiter.models.status import LimitStatus
from zae_limiter.running.plan import READ_CLOCK, Plan
from zae_limiter.stores.embedded.tables import Tables

logger = logging.getLogger("zae_limiter")

MAX_CORRECTED = 1_000
"""How many corrections a process remembers."""

CLOCK_RETRIES = 4
"""So often a verb that meets moments far ahead is tried with the clock read again."""

UNCORRECTED: Final = -1
"""Proves nothing: a moment that is far ahead is neither corrected nor told."""

Result = TypeVar("Result")


class WrittenAhead(Exception):
    """A bucket was last written for a moment that is far ahead. Nothing was changed."""

    def __init__(self, latest: int) -> None:
        super().__init__(latest)
        self.latest = latest


def retried_by_the_clock(work: Callable[[int, int | None], Plan[Result]], now: int) -> Plan[Result]:
    """Do ``work`` at ``now``. Where it meets a bucket that was written far ahead of that, the clock is read again.

    A caller that was held up since it read the clock is late itself, and comes again with the time it is. Only if the
    clock still is far behind a moment that was seen before it was read, is that moment ``proven`` to be wrong.
    """
    proven: int | None = None
    for _ in range(CLOCK_RETRIES):
        try:
            return (yield from work(now, proven))
        except WrittenAhead as ahead:
            now = yield from READ_CLOCK
            proven = ahead.latest if ahead.latest > now + FURTHEST_AHEAD_MS else None
    return (yield from work(now, UNCORRECTED))


def correct_time(tables: Tables, bucket: Bucket, now: int, proven: int | None) -> bool:
    """Let a bucket that was written by a clock that was wrong go on from ``now``. Returns whether that was so.

    ``proven`` is the moment it must have been written for; otherwise :class:`WrittenAhead` is raised.
    """
    if not bucket.is_far_ahead(now) or proven == UNCORRECTED:
        return False
    latest = max(bucket.rf, bucket.latest)
    if latest != proven:
        raise WrittenAhead(latest)
    if correctable_in(tables, bucket, now) is not None:
        return False
    logger.warning(
        "the bucket of %s on %s was written %d s ahead of this clock: it goes on from now",
        *(bucket.entity_id, bucket.resource, (latest - now) // 1000),
    )
    if len(tables.corrected_at) >= MAX_CORRECTED:
        tables.corrected_at.clear()
    tables.corrected_at[bucket.entity_id, bucket.resource] = now
    bucket.go_on_from(now)
    return True


def correctable_in(tables: Tables, bucket: Bucket, now: int) -> int | None:
    """In how many milliseconds a bucket may be corrected again; ``None`` if it may now."""
    last = tables.corrected_at.get((bucket.entity_id, bucket.resource))
    if last is None or abs(now - last) >= FURTHEST_AHEAD_MS:
        return None
    return last + FURTHEST_AHEAD_MS - now


def with_corrected_waits(
    tables: Tables, buckets: Sequence[Bucket], statuses: tuple[LimitStatus, ...], now: int
) -> tuple[LimitStatus, ...]:
    """What lacks, with waits that do not go by a clock that was wrong: the bucket is corrected before that."""
    waits = {
        (bucket.entity_id, bucket.resource): wait / MILLI
        for bucket in buckets
        if bucket.is_far_ahead(now) and (wait := correctable_in(tables, bucket, now)) is not None
    }
    if not waits:
        return statuses
    return tuple(
        status._replace(retry_after_seconds=min(status.retry_after_seconds, waits[status.entity_id, status.resource]))
        if status.retry_after_seconds and (status.entity_id, status.resource) in waits
        else status
        for status in statuses
    )


def with_corrected_time(bucket: Bucket, now: int) -> Bucket:
    """The bucket as :func:`correct_time` will leave it; the bucket itself stays as it is."""
    if not bucket.is_far_ahead(now):
        return bucket
    seen = copy_of(bucket)
    seen.go_on_from(now)
    return seen


def copy_of(bucket: Bucket) -> Bucket:
    """Another bucket that is the same."""
    seen = Bucket(bucket.entity_id, bucket.resource, bucket.rf)
    seen.latest = bucket.latest
    seen.limits, seen.events, seen.carried = bucket.limits, bucket.events, dict(bucket.carried)
    seen.cascaded, seen.cascaded_events = dict(bucket.cascaded), bucket.cascaded_events
    seen.denials = dict(bucket.denials)
    seen.born = bucket.born
    seen.balances = tuple(balance.copy() for balance in bucket.balances)
    seen.retired = {name: balance.copy() for name, balance in bucket.retired.items()}
    return seen
