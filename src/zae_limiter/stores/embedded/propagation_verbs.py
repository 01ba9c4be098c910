"""Propagation: live buckets follow a change of limits, a page at a time."""

from __future__ import annotations

import logging
from functools import partial

from zae_limiter.exceptions import ValidationError
from zae_limiter.running.plan import Plan
from zae_limiter.stores.embedded.clock_correction import correct_time, retried_by_the_clock
from zae_limiter.stores.embedded.config_verbs import Propagating
from zae_limiter.stores.embedded.tables import Tables, writes
from zae_limiter.stores.protocol import Scope

logger = logging.getLogger("zae_limiter")

BUCKETS_PER_PAGE = 500


class PropagationVerbs(Propagating):
    """The buckets that a change concerns."""

    def _propagate(self, scope: Scope, now: int) -> Plan[None]:
        """Let the live buckets a change concerns follow it from the moment it was made, a page at a time.

        A bucket that is acquired before its page comes adopts the new limits by itself; without this, one
        that is not would go on filling by the old ones until its next acquire.
        """
        after: tuple[str, str] | None = None
        while True:
            after = yield from retried_by_the_clock(partial(self._propagate_page, scope, after), now)
            if after is None:
                return

    @writes
    def _propagate_page(
        self, tables: Tables, scope: Scope, after: tuple[str, str] | None, now: int, proven: int | None
    ) -> tuple[str, str] | None:
        if scope.entity_id is not None:
            buckets, more = tables.buckets_of(scope.entity_id), False
        elif scope.resource is not None:
            buckets = tables.buckets_on(scope.resource, after[0] if after else None, BUCKETS_PER_PAGE)
            more = len(buckets) == BUCKETS_PER_PAGE
        else:
            buckets = tables.buckets(after, BUCKETS_PER_PAGE)
            more = len(buckets) == BUCKETS_PER_PAGE
        for bucket in buckets:
            leg = tables.routes.leg(tables, bucket.entity_id, bucket.resource)
            corrected = leg is not None and correct_time(tables, bucket, now, proven)
            try:
                changed = leg is not None and bucket.adopt(leg.limits, now)
            except ValidationError as error:
                logger.warning("a bucket keeps its old limits: %s", error)
                changed = False
            if changed or corrected:
                tables.put_bucket(bucket)
        return (buckets[-1].entity_id, buckets[-1].resource) if more else None
