"""The write of one leg of an acquire to a bucket that is there: in short where nothing is unusual, else in full."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zae_limiter.stores.dynamodb.bucket_items import BucketSnapshot
from zae_limiter.stores.dynamodb.expressions import UpdateParams
from zae_limiter.stores.dynamodb.intents import NOTHING, Intent
from zae_limiter.stores.dynamodb.plain_writes import plain_draw
from zae_limiter.stores.dynamodb.write_load import WRITE

if TYPE_CHECKING:
    from zae_limiter.stores.dynamodb.operations.acquire import Acquire
    from zae_limiter.stores.dynamodb.operations.acquire_legs import AcquireLeg


def params_of(acquire: Acquire, leg: AcquireLeg) -> UpdateParams:
    """The write of a leg whose bucket is there."""
    parts, snapshot, now = acquire.parts, leg.snapshot, acquire.now
    assert snapshot is not None
    if (
        leg.doubtful
        or snapshot.cv != leg.terms.cv
        or snapshot.shards != 1
        or snapshot.retired
        or not snapshot.is_plain
    ):
        return _unusual_params(acquire, leg, snapshot)
    if not leg.leg.limits:
        return _unusual_params(acquire, leg, snapshot)  # it may have had some before
    leg.anchor = snapshot.recent_writers[0]
    cached, guesses, refused, age_ms = parts.cache.buckets.get(leg.key), NOTHING, 0, None
    if cached is not None:
        age_ms = now - cached.seen_at
        if cached.rates and not leg.fresh:
            guesses = cached.guesses(now)
        if cached.refused:
            refused = cached.failed(now)
    shape, values = plain_draw(
        snapshot,
        leg.deltas,
        leg.needed,
        now=now,
        write_id=leg.write_id,
        epoch_s=acquire.deadline.epoch_s,
        ttl_margin_s=parts.client.ttl_margin_s,
        guesses=guesses,
        load=WRITE * (snapshot.kilobytes + refused),
        age_ms=age_ms,
        tallies=leg.tallies() if leg.denials or leg.leg.cascaded is not None else NOTHING,
    )
    return UpdateParams(shape, parts.client.table, leg.key, values)


def _unusual_params(acquire: Acquire, leg: AcquireLeg, snapshot: BucketSnapshot) -> UpdateParams:
    """The same where something is unusual (see ``plain_writes``)."""
    parts = acquire.parts
    leg.set_anchor()
    sure = leg.can_be_sure()
    if leg.doubtful and not sure:
        parts.writer.unresolved += 1  # no client can tell whether the lost try was done: it may be charged twice
        leg.denials = NOTHING
        leg.begin_anew(parts.write_ids.write_id(acquire.now))
    if leg.work is not None:
        cached = parts.cache.get(leg.key)
        guesses = NOTHING if cached is None or leg.fresh else cached.guesses(acquire.now)
        leg.judge(snapshot, acquire.now, guesses)
    return parts.writer.params(
        leg.key,
        snapshot,
        Intent(
            leg.deltas,
            leg.needed,
            leg.terms if leg.is_stale else None,
            grants=1,
            rebase=sure,
            tallies=leg.tallies(),
            slots=leg.slots,
            watched=leg.watched,
        ),
        max(acquire.now, snapshot.rf + 1) if sure else acquire.now,
        leg.write_id,
        acquire.deadline,
        anchor=leg.anchor if sure else None,
        guess=not leg.fresh,
    )
